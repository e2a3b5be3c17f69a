// An allocation on the move: vertices go, one after the other, to the part where the rows that cross cost least.
#pragma once
#include <cmath>
#include <cstring>

#include "memory.h"
#include "nets.h"
#include "parallel.h"

namespace weft {

// Rows that parts need of others, phase by phase: [needs][phase][owner], and what one of them costs. A slot is a phase and an
// owner.
struct Traffic {
    int64_t parts, phases;
    std::vector<double> rows, price, in, out; // in and out: [phase][part]
    Traffic(int64_t parts, int64_t phases)
        : parts(parts), phases(phases), rows(parts * phases * parts), price(rows.size()), in(phases * parts), out(in.size()) {}

    double cost() const { return std::inner_product(rows.begin(), rows.end(), price.begin(), 0.0); }

    void add(int64_t needs, int64_t slot, double count) {
        const int64_t owner = slot % parts;
        if (needs == owner) return;
        rows[needs * phases * parts + slot] += count;
        in[slot - owner + needs] += count;
        out[slot] += count;
    }

    // The slope of the norm of what comes in and goes out of each part, and over single links of two (`pairs`, 0: none), in
    // seconds: with a high power, the longest counts.
    void set_prices(const double *seconds, const double *pairs, double power) {
        const bool by_pairs = std::any_of(pairs, pairs + parts * parts, [](double second) { return second != 0; });
        std::vector<double> come(parts), go(parts);
        for (int64_t phase = 0; phase < phases; ++phase) {
            const double *into = in.data() + phase * parts, *from = out.data() + phase * parts;
            auto load = [&](double count, int64_t p) { return std::max(count, 0.0) * seconds[p]; };
            auto between = [&](int64_t needs, int64_t owner) {
                return std::max(rows[(needs * phases + phase) * parts + owner], 0.0) * pairs[needs * parts + owner];
            };
            double most = 1e-300, sum = 0;
            for (int64_t p = 0; p < parts; ++p) most = std::max({most, load(into[p], p), load(from[p], p)});
            for (int64_t i = 0; by_pairs && i < parts * parts; ++i) most = std::max(most, between(i / parts, i % parts));
            for (int64_t p = 0; p < parts; ++p)
                sum += std::pow(load(into[p], p) / most, power) + std::pow(load(from[p], p) / most, power);
            for (int64_t i = 0; by_pairs && i < parts * parts; ++i)
                sum += std::pow(between(i / parts, i % parts) / most, power);
            const double norm = most * std::pow(std::max(sum, 1.0), 1 / power);
            auto slope = [&](double load) { return std::pow(load / norm, power - 1); };
            for (int64_t p = 0; p < parts; ++p) come[p] = slope(load(into[p], p)), go[p] = slope(load(from[p], p));
            for (int64_t needs = 0; needs < parts; ++needs)
                for (int64_t owner = 0; owner < parts; ++owner)
                    price[(needs * phases + phase) * parts + owner] =
                        needs == owner ? 0
                                       : come[needs] * seconds[needs] + go[owner] * seconds[owner] +
                                             (by_pairs ? slope(between(needs, owner)) * pairs[needs * parts + owner] : 0);
        }
    }
};

// How many pins of each net each part has, beside what the net weighs and its slot: in one line of the cache.
class Counts {
  public:
    Counts(int64_t nets, int64_t parts)
        : stride_((HEAD + parts * 2 + 3) / 4 * 4), memory_(allocate(nets * stride_)), bytes_(memory_.get()) {
        std::memset(bytes_, 0, nets * stride_);
    }
    float &weight(int64_t net) const { return *reinterpret_cast<float *>(bytes_ + net * stride_); }
    uint16_t &slot(int64_t net) const { return *reinterpret_cast<uint16_t *>(bytes_ + net * stride_ + 4); }
    uint16_t *pins(int64_t net) const { return reinterpret_cast<uint16_t *>(bytes_ + net * stride_ + HEAD); }
    void fetch(int64_t net) const { __builtin_prefetch(bytes_ + net * stride_); }

  private:
    static constexpr int64_t HEAD = 6;
    int64_t stride_;
    Bytes memory_;
    std::byte *bytes_;
};

class Moves {
  public:
    Moves(Nets &nets, Array<int32_t> owners, In<int64_t, 2> weights, In<int64_t, 2> limits, In<double> seconds, In<double, 2> pairs,
          int threads)
        : nets_(nets), owners_(owners), weights_(weights), limits_(limits), seconds_(seconds), pairs_(pairs), part_(owners.data()),
          C(static_cast<int64_t>(limits.shape(1))), K(static_cast<int64_t>(limits.shape(0))), V(nets.vertices()),
          F(nets.phases()), traffic_(C, F),
          loads_(K * C, 0), rents_(K * C, 0), awake_(V, 1) {
        if (static_cast<int64_t>(seconds.size()) != C || static_cast<int64_t>(weights.shape(0)) != K ||
            static_cast<int64_t>(weights.shape(1)) != V || static_cast<int64_t>(pairs.size()) != C * C || F * C > MOST_PINS)
            throw std::invalid_argument(
                "nets: weights are [kinds, vertices], limits [kinds, parts], seconds [parts], pairs [parts, parts]");
        nets.check_parts(owners, C);
        nb::gil_scoped_release released;
        nets.link();
        counts_ = Counts(nets.count(), C); // after what linking takes for a while
        for (int64_t k = 0; k < K; ++k)
            for (int64_t v = 0; v < V; ++v) loads_[k * C + part_[v]] += weight(k, v);
        count(threads);
    }

    // Looks at vertices in the order given, a block of them at a time, and moves those that cost less elsewhere; `loads[k]` of
    // a part, the sum of its vertices' weights[k], stays within limits[k][part], and a part above its limit gives vertices
    // away at a loss, of so much a unit of weight. Room has a rent, of `rent` times what weight costs on average in a full
    // part. What few nets show may be chance: a vertex moves only to where it costs less by the share `doubt` over the number of
    // its nets. Only those are looked at that are awake: a look puts a vertex to sleep, a move wakes those that share its nets.
    // Returns how many moved.
    int64_t go(In<int32_t> order, double power, double rent, double loss, double doubt, int threads) {
        nb::gil_scoped_release released;
        const auto looks = static_cast<int64_t>(order.size()), block = std::max<int64_t>(1, looks / BLOCKS);
        const int64_t grain = 1 + PINS_A_THREAD * V / (nets_.pins() + V);
        std::vector<int32_t> wish(block);
        int64_t moved = 0;
        for (int64_t first = 0; first < looks; first += block) {
            const int32_t *vertices = order.data() + first;
            const int64_t here = std::min(block, looks - first);
            traffic_.set_prices(seconds_.data(), pairs_.data(), power);
            set_rents(rent);
            parallel_for(here, threads, grain, [&](int64_t begin, int64_t end) {
                Costs costs(C, F);
                for (int64_t i = begin; i < end; ++i) wish[i] = look(vertices[i], loss, doubt, costs);
            });
            for (int64_t i = 0; i < here; ++i) moved += follow(vertices[i], wish[i]);
        }
        return moved;
    }

    // Wakes all.
    void rouse() { std::fill(awake_.begin(), awake_.end(), uint8_t{1}); }

    // [needs][phase][owner].
    void rows(Array<double, 3> rows) const { std::copy(traffic_.rows.begin(), traffic_.rows.end(), rows.data()); }

  private:
    static constexpr int64_t AHEAD = 8;             // nets between prefetching what is known of one and using it
    static constexpr int64_t BLOCKS = 128;          // of a pass: vertices of one look at the same state, at the same prices
    static constexpr int64_t PINS_A_THREAD = 5000;  // fewer than this are not worth another thread
    static constexpr int64_t PIECES = 64;           // of the nets, whose rows are summed up in the same order by all threads
    static constexpr double FULLEST = 0.999;        // that all parts may be for room to be told from none
    static constexpr int64_t WAKES = 64;            // pins of a net at most, for a move to wake them

    struct Costs {
        std::vector<double> of, need;
        Costs(int64_t parts, int64_t phases) : of(parts), need(phases * parts) {}
    };

    Nets &nets_;
    Array<int32_t> owners_;
    In<int64_t, 2> weights_, limits_;
    In<double> seconds_;
    In<double, 2> pairs_;
    int32_t *part_;
    const int64_t C, K, V, F; // parts, kinds of weights, vertices, phases
    Traffic traffic_;
    Counts counts_{0, 1};
    std::vector<int64_t> loads_; // [kinds, parts]
    std::vector<double> rents_;  // [kinds, parts]: of a unit of weight
    std::vector<uint8_t> awake_;

    int64_t weight(int64_t kind, int64_t v) const { return weights_.data()[kind * V + v]; }
    bool over(int64_t kind, int64_t part, int64_t more = 0) const {
        return loads_[kind * C + part] + more > limits_.data()[kind * C + part];
    }
    bool fits(int32_t v, int64_t to) const {
        for (int64_t k = 0; k < K; ++k)
            if (weight(k, v) > 0 && over(k, to, weight(k, v))) return false;
        return true;
    }

    // The fuller a part, the dearer, from where all are equally full: so that those who gain little make room for others.
    void set_rents(double rent) {
        const double cost = rent * traffic_.cost();
        for (int64_t k = 0; k < K; ++k) {
            const int64_t *load = loads_.data() + k * C, *most = limits_.data() + k * C;
            const double total = std::max(1.0, std::accumulate(load, load + C, 0.0));
            const double even = std::min(total / std::accumulate(most, most + C, 1.0), FULLEST);
            for (int64_t p = 0; p < C; ++p) {
                const double fullness = static_cast<double>(load[p]) / static_cast<double>(std::max<int64_t>(most[p], 1));
                const double excess = std::max(0.0, (fullness - even) / (1 - even));
                rents_[k * C + p] = cost / total * excess * excess * excess;
            }
        }
    }

    // A piece a thread at a time, as each has rows of all parts.
    void count(int threads) {
        const int64_t together = std::clamp<int64_t>(threads, 1, PIECES);
        std::vector<std::vector<double>> pieces(together, std::vector<double>(C * F * C)); // rows as of Traffic
        const int64_t *begin = nets_.members().begin.data();
        const int32_t *member = nets_.members().members.data();
        for (int64_t first = 0; first < PIECES; first += together) {
            const int64_t here = std::min(together, PIECES - first);
            in_pieces(threads, static_cast<int>(here), [&](int at_once) {
                const int64_t piece = first + at_once;
                std::vector<double> &rows = pieces[at_once];
                std::fill(rows.begin(), rows.end(), 0.0);
                for (int64_t e = nets_.count() * piece / PIECES; e < nets_.count() * (piece + 1) / PIECES; ++e) {
                    counts_.weight(e) = nets_.weight(e);
                    counts_.slot(e) = static_cast<uint16_t>(nets_.phase(e) * C + part_[nets_.owner(e)]);
                    uint16_t *has = counts_.pins(e);
                    for (int64_t at = begin[e]; at < begin[e + 1]; ++at)
                        if (const int64_t needs = part_[member[at]]; has[needs]++ == 0)
                            rows[needs * F * C + counts_.slot(e)] += nets_.weight(e);
                }
            });
            for (int64_t at_once = 0; at_once < here; ++at_once)
                for (int64_t at = 0; at < C * F * C; ++at)
                    traffic_.add(at / (F * C), at % (F * C), pieces[at_once][at]);
        }
    }

    // The part that v should be in; -1: where it is.
    int32_t look(int32_t v, double loss, double doubt, Costs &costs) {
        if (!awake_[v]) return -1;
        awake_[v] = 0;
        const int32_t from = part_[v];
        price(v, from, costs);
        const auto nets = static_cast<double>(nets_.pinned().count(v) + nets_.owned().count(v));
        double least = costs.of[from] - std::max(1e-9, doubt / (1 + nets)) * std::abs(costs.of[from]);
        for (int64_t k = 0; k < K; ++k)
            if (over(k, from)) least += loss * static_cast<double>(weight(k, v));
        int32_t best = -1;
        for (int32_t to = 0; to < C; ++to)
            if (to != from && costs.of[to] < least && fits(v, to)) least = costs.of[best = to];
        return best;
    }

    // What v's rows, those that it needs and its room would cost with v in each part.
    void price(int32_t v, int32_t from, Costs &costs) const {
        std::fill(costs.of.begin(), costs.of.end(), 0.0);
        std::fill(costs.need.begin(), costs.need.end(), 0.0);
        double *cost = costs.of.data(), *need = costs.need.data();
        const int32_t *net = nets_.pinned().members.data();
        for (int64_t at = nets_.pinned().begin[v], end = nets_.pinned().begin[v + 1]; at < end; ++at) {
            if (at + AHEAD < end) counts_.fetch(net[at + AHEAD]);
            const uint16_t *has = counts_.pins(net[at]);
            const double weight = counts_.weight(net[at]), *price = traffic_.price.data() + counts_.slot(net[at]);
            for (int64_t to = 0; to < C; ++to)
                if (has[to] == (to == from)) cost[to] += weight * price[to * F * C];
        }
        net = nets_.owned().members.data();
        for (int64_t at = nets_.owned().begin[v], end = nets_.owned().begin[v + 1]; at < end; ++at) {
            if (at + AHEAD < end) counts_.fetch(net[at + AHEAD]);
            const uint16_t *has = counts_.pins(net[at]);
            double *of_phase = need + counts_.slot(net[at]) - from;
            for (int64_t p = 0; p < C; ++p)
                if (has[p]) of_phase[p] += counts_.weight(net[at]);
        }
        for (int64_t phase = 0; phase < F; ++phase)
            for (int64_t p = 0; p < C; ++p) {
                const double count = need[phase * C + p], *price = traffic_.price.data() + (p * F + phase) * C;
                for (int64_t to = 0; count > 0 && to < C; ++to) cost[to] += count * price[to];
            }
        for (int64_t k = 0; k < K; ++k)
            for (int64_t to = 0; to < C; ++to) cost[to] += rents_[k * C + to] * static_cast<double>(weight(k, v));
    }

    bool follow(int32_t v, int32_t to) {
        if (to < 0) return false;
        if (!fits(v, to)) { // others came first
            awake_[v] = 1;
            return false;
        }
        move(v, part_[v], to);
        wake(v);
        return true;
    }

    void move(int32_t v, int32_t from, int32_t to) {
        const Lists &pinned = nets_.pinned(), &owned = nets_.owned();
        for (int64_t at = pinned.begin[v]; at < pinned.begin[v + 1]; ++at) {
            const int32_t net = pinned.members[at];
            if (at + AHEAD < pinned.begin[v + 1]) counts_.fetch(pinned.members[at + AHEAD]);
            uint16_t *has = counts_.pins(net);
            if (--has[from] == 0) traffic_.add(from, counts_.slot(net), -counts_.weight(net));
            if (has[to]++ == 0) traffic_.add(to, counts_.slot(net), counts_.weight(net));
        }
        for (int64_t at = owned.begin[v]; at < owned.begin[v + 1]; ++at) {
            const int32_t net = owned.members[at];
            const uint16_t *has = counts_.pins(net);
            const int64_t slot = counts_.slot(net);
            for (int64_t p = 0; p < C; ++p)
                if (has[p]) {
                    traffic_.add(p, slot, -counts_.weight(net));
                    traffic_.add(p, slot - from + to, counts_.weight(net));
                }
            counts_.slot(net) = static_cast<uint16_t>(slot - from + to);
        }
        part_[v] = to;
        for (int64_t k = 0; k < K; ++k) {
            loads_[k * C + from] -= weight(k, v);
            loads_[k * C + to] += weight(k, v);
        }
    }

    void wake(int32_t v) {
        auto all_of = [&](const Lists &lists) {
            for (int64_t at = lists.begin[v]; at < lists.begin[v + 1]; ++at) {
                const int32_t net = lists.members[at];
                const int64_t begin = nets_.members().begin[net], end = nets_.members().begin[net + 1];
                awake_[nets_.owner(net)] = 1;
                for (int64_t pin = begin; end - begin <= WAKES && pin < end; ++pin) awake_[nets_.members().members[pin]] = 1;
            }
        };
        all_of(nets_.pinned());
        all_of(nets_.owned());
        awake_[v] = 0;
    }
};

} // namespace weft
