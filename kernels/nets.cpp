// Nets: who will need which vertex's rows. A net is a row of a sampled batch: its owner holds it, its pins are vertices whose
// parts need it (roots that reach it, or destinations that read it). What crosses between parts is then counted exactly for
// every allocation, and what a vertex's move would change is known from the nets that it is in.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "arrays.h"
#include "memory.h"
#include "parallel.h"
#include "random.h"

namespace weft {
namespace {

constexpr int64_t AHEAD = 6;        // nets between prefetching what is known of one and using it
constexpr int64_t MOST_PINS = 65535; // of a net, as a part's are counted in 16 bits: what more vertices need, all parts need
constexpr int PRICINGS = 64;        // times that prices are set anew in a pass
constexpr int64_t WAKES = 64;       // pins of a net at most, for a move to wake them: one of many hardly matters to the others

// Lists of numbers: list i is at [begin[i], begin[i + 1]).
struct Lists {
    std::vector<int64_t> begin;
    std::vector<int32_t> members;
};

Lists reversed(const Lists &lists, int64_t count) {
    Lists back{std::vector<int64_t>(count + 1, 0), std::vector<int32_t>(lists.members.size())};
    for (const int32_t member : lists.members) ++back.begin[member + 1];
    std::partial_sum(back.begin.begin(), back.begin.end(), back.begin.begin());
    std::vector<int64_t> next(back.begin.begin(), back.begin.end() - 1);
    for (size_t i = 0; i + 1 < lists.begin.size(); ++i)
        for (int64_t at = lists.begin[i]; at < lists.begin[i + 1]; ++at)
            back.members[next[lists.members[at]]++] = static_cast<int32_t>(i);
    return back;
}

// Rows that parts need of others: [needs][owner], and what one of them costs.
struct Traffic {
    int64_t parts;
    std::vector<double> rows, price, in, out;
    explicit Traffic(int64_t parts) : parts(parts), rows(parts * parts), price(parts * parts), in(parts), out(parts) {}

    void add(int64_t needs, int64_t owner, double count) {
        if (needs == owner) return;
        rows[needs * parts + owner] += count;
        in[needs] += count;
        out[owner] += count;
    }

    // The slope of the norm of what comes in and goes out of each part, and over links that two parts have for themselves
    // (`pairs`, 0: none), in seconds: with a high power, the longest counts.
    void set_prices(const double *seconds, const double *pairs, double power) {
        double most = 1e-300;
        for (int64_t p = 0; p < parts; ++p) most = std::max({most, in[p] * seconds[p], out[p] * seconds[p]});
        for (int64_t i = 0; i < parts * parts; ++i) most = std::max(most, rows[i] * pairs[i]);
        auto slope = [&](double load, double second) {
            return power == 1 || second == 0 ? second : std::pow(std::max(load, 0.0) * second / most, power - 1) * second;
        };
        for (int64_t needs = 0; needs < parts; ++needs)
            for (int64_t owner = 0; owner < parts; ++owner) {
                const int64_t i = needs * parts + owner;
                const double shared = slope(in[needs], seconds[needs]) + slope(out[owner], seconds[owner]);
                price[i] = needs == owner ? 0 : shared + slope(rows[i], pairs[i]);
            }
    }
};

class Nets {
  public:
    explicit Nets(int64_t vertices) : vertices_(vertices), stamp_(vertices, 0) { nets_.begin.push_back(0); }

    int64_t vertices() const { return vertices_; }
    int64_t count() const { return static_cast<int64_t>(owner_.size()); }
    int64_t pins() const { return static_cast<int64_t>(nets_.members.size()); }

    // The rows that a batch starts from: vertex i needs what is reached from row i.
    void start(In<int32_t> needs) {
        needs_.assign(needs.data(), needs.data() + needs.size());
        for (const int32_t v : needs_)
            if (v < 0 || v >= vertices_) throw std::invalid_argument("nets: a vertex that is not there");
        sets_.members.resize(needs_.size());
        std::iota(sets_.members.begin(), sets_.members.end(), 0);
        sets_.begin.resize(needs_.size() + 1);
        std::iota(sets_.begin.begin(), sets_.begin.end(), int64_t{0});
        seen_.assign(needs_.size(), 0);
        turn_ = 0;
    }

    // A hop: a source is needed by whoever needs one of its destinations; destinations are the first of the sources.
    void hop(In<int64_t> indptr, In<int32_t> src, int64_t num_src) {
        const auto destinations = static_cast<int64_t>(indptr.size()) - 1;
        if (destinations + 1 != static_cast<int64_t>(sets_.begin.size()) || num_src < destinations)
            throw std::invalid_argument("nets: a hop's destinations must be the rows of the hop before");
        nb::gil_scoped_release released;
        const int64_t *offset = indptr.data();
        Lists block{{offset, offset + destinations + 1}, {src.data(), src.data() + offset[destinations]}};
        const Lists into = reversed(block, num_src);
        Lists grown{{0}, {}};
        grown.begin.reserve(num_src + 1);
        for (int64_t s = 0; s < num_src; ++s) {
            ++turn_;
            if (s < destinations) unite(grown.members, s);
            for (int64_t at = into.begin[s]; at < into.begin[s + 1]; ++at) unite(grown.members, into.members[at]);
            grown.begin.push_back(static_cast<int64_t>(grown.members.size()));
        }
        sets_ = std::move(grown);
    }

    // The other way round: a destination's partial sum is made of rows that its sources' parts hold.
    void gather(In<int64_t> indptr, In<int32_t> src) {
        const auto destinations = static_cast<int64_t>(indptr.size()) - 1;
        nb::gil_scoped_release released;
        const int64_t *offset = indptr.data();
        Lists joined{{0}, {}};
        for (int64_t d = 0; d < destinations; ++d) {
            ++turn_;
            for (int64_t at = offset[d]; at < offset[d + 1]; ++at) {
                if (src.data()[at] + 1 >= static_cast<int64_t>(sets_.begin.size()))
                    throw std::invalid_argument("nets: a source that is not among the rows");
                unite(joined.members, src.data()[at]);
            }
            joined.begin.push_back(static_cast<int64_t>(joined.members.size()));
        }
        sets_ = std::move(joined);
    }

    // The rows as they are now become nets: `owners` are their vertices. Rows that only their own vertex needs are left out.
    void finish(In<int32_t> owners, float weight) {
        if (owners.size() + 1 != sets_.begin.size()) throw std::invalid_argument("nets: each row must have its vertex");
        nb::gil_scoped_release released;
        for (size_t i = 0; i < owners.size(); ++i) {
            const int64_t begin = sets_.begin[i], end = sets_.begin[i + 1];
            add(owners.data()[i], weight, end - begin, [&](int64_t at) { return needs_[sets_.members[begin + at]]; });
        }
        linked_ = false;
    }

    // The same nets between groups of vertices: those within a group are left out.
    void fold(In<int32_t> groups, Nets &onto) const {
        if (static_cast<int64_t>(groups.size()) != vertices_) throw std::invalid_argument("nets: each vertex must have its group");
        const int32_t *group = groups.data();
        nb::gil_scoped_release released;
        for (int64_t e = 0; e < count(); ++e) {
            const int64_t begin = nets_.begin[e];
            onto.add(group[owner_[e]], weight_[e], nets_.begin[e + 1] - begin,
                     [&](int64_t at) { return group[nets_.members[begin + at]]; });
        }
        onto.linked_ = false;
    }

    // rows[needs][owner] of an allocation.
    void rows(In<int32_t> parts, Array<double, 2> rows) const {
        const auto count_parts = static_cast<int64_t>(rows.shape(0));
        check(parts, count_parts);
        Traffic traffic(count_parts);
        nb::gil_scoped_release released;
        std::vector<int64_t> last(count_parts, -1);
        for (int64_t e = 0; e < count(); ++e)
            for (int64_t at = nets_.begin[e]; at < nets_.begin[e + 1]; ++at) {
                const int32_t needs = parts.data()[nets_.members[at]];
                if (last[needs] == e) continue;
                last[needs] = e;
                traffic.add(needs, parts.data()[owner_[e]], weight_[e]);
            }
        std::copy(traffic.rows.begin(), traffic.rows.end(), rows.data());
    }

    // Moves vertices one at a time, in the order given, each to the part where rows cost least, if that is less than where it
    // is; loads[k] of a part, the sum of its vertices' weights[k], stays within limits[k][part], and a part above its limit
    // gives vertices away at a loss, of so much a unit of weight. Only those are looked at that are awake: a look puts a
    // vertex to sleep, a move wakes those that share its nets. Returns how many moved.
    int64_t refine(Array<int32_t> parts, In<int32_t> order, Array<uint8_t> awake, In<int64_t, 2> weights,
                   In<int64_t, 2> limits, In<double> seconds, In<double, 2> pairs, double power, double loss) {
        const auto C = static_cast<int64_t>(limits.shape(1)), K = static_cast<int64_t>(limits.shape(0));
        check(parts, C);
        if (static_cast<int64_t>(seconds.size()) != C || static_cast<int64_t>(pairs.size()) != C * C ||
            static_cast<int64_t>(weights.shape(0)) != K ||
            static_cast<int64_t>(weights.shape(1)) != vertices_ || static_cast<int64_t>(awake.size()) != vertices_)
            throw std::invalid_argument("nets: weights are [kinds, vertices], limits [kinds, parts], seconds [parts], pairs [parts, parts]");
        nb::gil_scoped_release released;
        link();
        Moves moves(*this, parts.data(), weights.data(), limits.data(), C, K);
        const auto looks = static_cast<int64_t>(order.size());
        const int64_t period = std::max<int64_t>(1, looks / PRICINGS);
        int64_t moved = 0;
        for (int64_t i = 0; i < looks; ++i) {
            if (i % period == 0) moves.traffic.set_prices(seconds.data(), pairs.data(), power);
            const int32_t v = order.data()[i];
            if (!awake.data()[v]) continue;
            awake.data()[v] = 0;
            const bool changed = moves.look(v, loss);
            if (changed) wake(v, awake.data());
            moved += changed;
        }
        return moved;
    }

  private:
    int64_t vertices_;
    Lists nets_;                 // each net's pins
    std::vector<int32_t> owner_; // of each net
    std::vector<float> weight_;
    Lists pinned_, owned_;       // each vertex's nets, as a pin and as the owner
    bool linked_ = false;
    std::vector<int64_t> stamp_; // of each vertex: the net that it was last put into, plus one
    int64_t stamped_ = 0;
    // A batch under way: what each row is needed by, as places in `needs_`.
    std::vector<int32_t> needs_;
    Lists sets_;
    std::vector<int64_t> seen_;
    int64_t turn_ = 0;

    void unite(std::vector<int32_t> &onto, int64_t row) {
        for (int64_t at = sets_.begin[row]; at < sets_.begin[row + 1]; ++at) {
            const int32_t place = sets_.members[at];
            if (seen_[place] == turn_) continue;
            seen_[place] = turn_;
            onto.push_back(place);
        }
    }

    template <class Pin> void add(int32_t owner, float weight, int64_t count, Pin &&pin) {
        ++stamped_;
        const size_t before = nets_.members.size();
        bool others = false;
        for (int64_t at = 0; at < count; ++at) {
            const int32_t v = pin(at);
            if (stamp_[v] == stamped_) continue;
            stamp_[v] = stamped_;
            others |= v != owner;
            nets_.members.push_back(v);
            if (static_cast<int64_t>(nets_.members.size() - before) == MOST_PINS) break;
        }
        if (!others) return nets_.members.resize(before);
        nets_.begin.push_back(static_cast<int64_t>(nets_.members.size()));
        owner_.push_back(owner);
        weight_.push_back(weight);
    }

    void wake(int32_t v, uint8_t *awake) const {
        auto all_of = [&](const Lists &lists) {
            for (int64_t at = lists.begin[v]; at < lists.begin[v + 1]; ++at) {
                const int32_t net = lists.members[at];
                awake[owner_[net]] = 1;
                if (nets_.begin[net + 1] - nets_.begin[net] > WAKES) continue;
                for (int64_t pin = nets_.begin[net]; pin < nets_.begin[net + 1]; ++pin) awake[nets_.members[pin]] = 1;
            }
        };
        all_of(pinned_);
        all_of(owned_);
        awake[v] = 0;
    }

    template <class P> void check(const P &parts, int64_t count) const {
        if (static_cast<int64_t>(parts.size()) != vertices_) throw std::invalid_argument("nets: each vertex must have its part");
        for (int64_t v = 0; v < vertices_; ++v)
            if (parts.data()[v] < 0 || parts.data()[v] >= count) throw std::invalid_argument("nets: a part that is not there");
    }

    void link() {
        if (linked_) return;
        pinned_ = reversed(nets_, vertices_);
        Lists each{std::vector<int64_t>(owner_.size() + 1), owner_};
        std::iota(each.begin.begin(), each.begin.end(), int64_t{0});
        owned_ = reversed(each, vertices_);
        linked_ = true;
    }

    // An allocation that changes: how many pins of each net each part has, what crosses, what parts hold.
    struct Moves {
        const Nets &nets;
        int32_t *part;
        const int64_t *weights, *limits;
        int64_t C, K;
        Traffic traffic;
        std::vector<int64_t> loads;
        Scratch<uint16_t> memory;
        uint16_t *pins; // [net][part]
        std::vector<double> cost, need;

        Moves(const Nets &nets, int32_t *part, const int64_t *weights, const int64_t *limits, int64_t C, int64_t K)
            : nets(nets), part(part), weights(weights), limits(limits), C(C), K(K), traffic(C), loads(K * C, 0),
              pins(memory.reserve(nets.count() * C)), cost(C), need(C) {
            for (int64_t k = 0; k < K; ++k)
                for (int64_t v = 0; v < nets.vertices_; ++v) loads[k * C + part[v]] += weights[k * nets.vertices_ + v];
            std::fill_n(pins, nets.count() * C, uint16_t{0});
            for (int64_t e = 0; e < nets.count(); ++e) {
                uint16_t *of = pins + e * C;
                for (int64_t at = nets.nets_.begin[e]; at < nets.nets_.begin[e + 1]; ++at) ++of[part[nets.nets_.members[at]]];
                for (int64_t p = 0; p < C; ++p)
                    if (of[p]) traffic.add(p, part[nets.owner_[e]], nets.weight_[e]);
            }
        }

        // The part that v should move to, if any: then it does.
        bool look(int32_t v, double loss) {
            const int32_t from = part[v];
            price(v, from);
            double least = cost[from] - 1e-9 * std::abs(cost[from]);
            for (int64_t k = 0; k < K; ++k)
                if (loads[k * C + from] > limits[k * C + from]) least += loss * weights[k * nets.vertices_ + v];
            int64_t best = -1;
            for (int64_t to = 0; to < C; ++to)
                if (to != from && cost[to] < least && fits(v, to)) least = cost[best = to];
            if (best < 0) return false;
            move(v, from, static_cast<int32_t>(best));
            return true;
        }

        // What v's rows, and those that it needs, would cost with v in each part.
        void price(int32_t v, int32_t from) {
            std::fill(cost.begin(), cost.end(), 0.0);
            std::fill(need.begin(), need.end(), 0.0);
            const int64_t *begin = nets.pinned_.begin.data();
            const int32_t *of = nets.pinned_.members.data();
            const int64_t end = begin[v + 1];
            for (int64_t at = begin[v]; at < end; ++at) {
                if (at + AHEAD < end) __builtin_prefetch(pins + of[at + AHEAD] * C);
                const int32_t net = of[at], owner = nets.owner_[net];
                if (owner == v) continue;
                const int32_t holder = part[owner];
                const uint16_t *has = pins + net * C;
                const double weight = nets.weight_[net];
                for (int64_t to = 0; to < C; ++to)
                    if (has[to] == (to == from)) cost[to] += weight * traffic.price[to * C + holder];
            }
            for (int64_t at = nets.owned_.begin[v]; at < nets.owned_.begin[v + 1]; ++at) {
                const int32_t net = nets.owned_.members[at];
                const uint16_t *has = pins + net * C;
                const bool reads_itself = contains(net, v);
                for (int64_t p = 0; p < C; ++p)
                    if (has[p] > (reads_itself && p == from)) need[p] += nets.weight_[net];
            }
            for (int64_t to = 0; to < C; ++to)
                for (int64_t p = 0; p < C; ++p) cost[to] += need[p] * traffic.price[p * C + to];
        }

        bool contains(int32_t net, int32_t v) const {
            const auto begin = nets.nets_.members.begin() + nets.nets_.begin[net];
            const auto end = nets.nets_.members.begin() + nets.nets_.begin[net + 1];
            return std::find(begin, end, v) != end;
        }

        bool fits(int32_t v, int64_t to) const {
            for (int64_t k = 0; k < K; ++k) {
                const int64_t weight = weights[k * nets.vertices_ + v];
                if (weight > 0 && loads[k * C + to] + weight > limits[k * C + to]) return false;
            }
            return true;
        }

        void move(int32_t v, int32_t from, int32_t to) {
            for (int64_t at = nets.pinned_.begin[v]; at < nets.pinned_.begin[v + 1]; ++at) {
                const int32_t net = nets.pinned_.members[at], holder = part[nets.owner_[net]];
                uint16_t *has = pins + net * C;
                if (--has[from] == 0) traffic.add(from, holder, -nets.weight_[net]);
                if (has[to]++ == 0) traffic.add(to, holder, nets.weight_[net]);
            }
            for (int64_t at = nets.owned_.begin[v]; at < nets.owned_.begin[v + 1]; ++at) {
                const int32_t net = nets.owned_.members[at];
                const uint16_t *has = pins + net * C;
                for (int64_t p = 0; p < C; ++p)
                    if (has[p]) {
                        traffic.add(p, from, -nets.weight_[net]);
                        traffic.add(p, to, nets.weight_[net]);
                    }
            }
            part[v] = to;
            for (int64_t k = 0; k < K; ++k) {
                const int64_t weight = weights[k * nets.vertices_ + v];
                loads[k * C + from] -= weight;
                loads[k * C + to] += weight;
            }
        }
    };
};

} // namespace
} // namespace weft

void bind_nets(nanobind::module_ &m) {
    using namespace weft;
    nb::class_<Nets>(m, "Nets", "Rows of sampled batches, and the vertices whose parts need them.")
        .def(nb::init<int64_t>(), nb::arg("vertices"))
        .def("vertices", &Nets::vertices)
        .def("count", &Nets::count)
        .def("pins", &Nets::pins)
        .def("start", &Nets::start, nb::arg("needs"))
        .def("hop", &Nets::hop, nb::arg("indptr"), nb::arg("src"), nb::arg("num_src"))
        .def("gather", &Nets::gather, nb::arg("indptr"), nb::arg("src"))
        .def("finish", &Nets::finish, nb::arg("owners"), nb::arg("weight"))
        .def("fold", &Nets::fold, nb::arg("groups"), nb::arg("onto"))
        .def("rows", &Nets::rows, nb::arg("parts"), nb::arg("rows"))
        .def("refine", &Nets::refine, nb::arg("parts"), nb::arg("order"), nb::arg("awake"), nb::arg("weights"),
             nb::arg("limits"), nb::arg("seconds"), nb::arg("pairs"), nb::arg("power"), nb::arg("loss"));
}
