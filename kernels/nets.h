// Nets: who will need which vertex's rows. A net is a row of a sampled batch: its owner holds it, its pins are vertices whose
// parts need it (roots that reach it, or destinations that read it). What crosses between parts is then counted exactly for
// every allocation, and what a vertex's move would change is known from the nets that it is in.
#pragma once
#include <algorithm>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "arrays.h"
#include "random.h"

namespace weft {

constexpr uint8_t FETCH = 0; // the phase in which inputs come
constexpr int64_t MOST_PINS = 65535; // of a net, as a part's are counted in 16 bits: what more vertices need, all parts need

// Lists of numbers: list i is at [begin[i], begin[i + 1]).
struct Lists {
    std::vector<int64_t> begin;
    std::vector<int32_t> members;
    int64_t count(int64_t list) const { return begin[list + 1] - begin[list]; }
};

inline Lists reversed(const int64_t *begin, int64_t lists, const int32_t *members, int64_t count) {
    Lists back{std::vector<int64_t>(count + 1, 0), std::vector<int32_t>(begin[lists])};
    for (int64_t at = 0; at < begin[lists]; ++at) ++back.begin[members[at] + 1];
    std::partial_sum(back.begin.begin(), back.begin.end(), back.begin.begin());
    std::vector<int64_t> next(back.begin.begin(), back.begin.end() - 1);
    for (int64_t i = 0; i < lists; ++i)
        for (int64_t at = begin[i]; at < begin[i + 1]; ++at) back.members[next[members[at]]++] = static_cast<int32_t>(i);
    return back;
}

class Nets {
  public:
    explicit Nets(int64_t vertices) : vertices_(vertices), stamp_(vertices, 0) { nets_.begin.push_back(0); }

    int64_t vertices() const { return vertices_; }
    int64_t count() const { return static_cast<int64_t>(owner_.size()); }
    int64_t pins() const { return static_cast<int64_t>(nets_.members.size()); }
    int32_t owner(int64_t net) const { return owner_[net]; }
    float weight(int64_t net) const { return weight_[net]; }
    int64_t phase(int64_t net) const { return phase_[net]; }
    int64_t phases() const { return phases_; } // of a batch, one after the other: each waits for its own busiest link
    const Lists &members() const { return nets_; }
    const Lists &pinned() const { return pinned_; } // each vertex's nets, as a pin
    const Lists &owned() const { return owned_; }   // and as the owner

    // Rows that every part keeps copies of: nothing is fetched for them.
    void keep_copies(In<bool> rows) {
        if (static_cast<int64_t>(rows.size()) != vertices_)
            throw std::invalid_argument("nets: of each vertex it must be said whether its row is kept");
        kept_.assign(rows.data(), rows.data() + rows.size());
    }

    // The rows that a batch starts from: vertex i needs what is reached from row i.
    void start(In<int32_t> needs) {
        needs_.assign(needs.data(), needs.data() + needs.size());
        check(needs_.data(), needs_.size());
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
        const Lists into = reversed(indptr.data(), destinations, src.data(), num_src);
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
    void finish(In<int32_t> owners, float weight, uint8_t phase) {
        if (owners.size() + 1 != sets_.begin.size()) throw std::invalid_argument("nets: each row must have its vertex");
        check(owners.data(), owners.size());
        nb::gil_scoped_release released;
        for (size_t i = 0; i < owners.size(); ++i) {
            const int64_t begin = sets_.begin[i], end = sets_.begin[i + 1];
            add(owners.data()[i], weight, phase, end - begin, [&](int64_t at) { return needs_[sets_.members[begin + at]]; });
        }
        sets_ = {}; // memory that others want meanwhile
    }

    // A block whose edges are each served by the source's row or by the destination's sum, whichever serves more edges (of
    // those between the two vertices' parts) for what it costs. Rows and sums have a phase each.
    void cover(In<int64_t> indptr, In<int32_t> src, In<int32_t> vertices, In<int32_t> parts, int64_t count,
               std::pair<float, float> costs, std::pair<uint8_t, uint8_t> phases) {
        const auto [pull, push] = costs;
        const int64_t destinations = static_cast<int64_t>(indptr.size()) - 1, rows = static_cast<int64_t>(vertices.size());
        const int64_t *offset = indptr.data();
        const int32_t *vertex = vertices.data(), *part = parts.data(), *sources = src.data();
        check(vertex, rows);
        check_parts(parts, count);
        nb::gil_scoped_release released;
        std::vector<int32_t> readers(rows * count, 0), sent(count, 0), pushed;
        for (int64_t d = 0; d < destinations; ++d)
            for (int64_t at = offset[d]; at < offset[d + 1]; ++at) ++readers[sources[at] * count + part[vertex[d]]];
        Lists pulled{{0}, {}};
        for (int64_t d = 0; d < destinations; ++d) {
            std::fill(sent.begin(), sent.end(), 0);
            for (int64_t at = offset[d]; at < offset[d + 1]; ++at) ++sent[part[vertex[sources[at]]]];
            pushed.clear();
            for (int64_t at = offset[d]; at < offset[d + 1]; ++at) {
                const int32_t s = sources[at];
                const bool by_source = copied(vertex[s], phases.first) ||
                                       static_cast<float>(readers[s * count + part[vertex[d]]]) * push >=
                                       static_cast<float>(sent[part[vertex[s]]]) * pull;
                (by_source ? pulled.members : pushed).push_back(s);
            }
            pulled.begin.push_back(static_cast<int64_t>(pulled.members.size()));
            const auto sums = static_cast<int64_t>(pushed.size());
            add(vertex[d], push, phases.second, sums, [&](int64_t at) { return vertex[pushed[at]]; });
        }
        const Lists readers_of = reversed(pulled.begin.data(), destinations, pulled.members.data(), rows);
        for (int64_t s = 0; s < rows; ++s) {
            const int64_t begin = readers_of.begin[s], readers_here = readers_of.begin[s + 1] - begin;
            auto reader = [&](int64_t at) { return vertex[readers_of.members[begin + at]]; };
            add(vertex[s], pull, phases.first, readers_here, reader);
        }
    }

    // Others of the same vertices, behind these.
    void append(const Nets &others) {
        if (others.vertices_ != vertices_) throw std::invalid_argument("nets: others must be of as many vertices");
        nb::gil_scoped_release released;
        const int64_t before = pins();
        auto behind = [](auto &mine, const auto &theirs) { mine.insert(mine.end(), theirs.begin(), theirs.end()); };
        behind(nets_.members, others.nets_.members);
        behind(owner_, others.owner_);
        behind(weight_, others.weight_);
        behind(phase_, others.phase_);
        phases_ = std::max(phases_, others.phases_);
        for (int64_t e = 1; e <= others.count(); ++e) nets_.begin.push_back(before + others.nets_.begin[e]);
        linked_ = false;
    }

    // Makes room for so many times the nets that are there: growing by and by needs the old room beside the new.
    void reserve(double times) {
        auto grow = [&](auto &mine) { mine.reserve(static_cast<size_t>(times * static_cast<double>(mine.size()))); };
        grow(nets_.begin);
        grow(nets_.members);
        grow(owner_);
        grow(weight_);
        grow(phase_);
    }

    // None, as at first.
    void clear() {
        nets_.begin.resize(1);
        nets_.members.clear();
        owner_.clear();
        weight_.clear();
        phase_.clear();
        linked_ = false;
    }

    // The same nets between groups of vertices, of those that are equal one: those within a group are left out.
    void fold(In<int32_t> groups, Nets &onto) const {
        check_parts(groups, onto.vertices_);
        const int32_t *group = groups.data();
        nb::gil_scoped_release released;
        for (int64_t e = 0; e < count(); ++e) {
            const int64_t begin = nets_.begin[e];
            onto.add(group[owner_[e]], weight_[e], phase_[e], nets_.begin[e + 1] - begin,
                     [&](int64_t at) { return group[nets_.members[begin + at]]; });
        }
        onto.merge();
    }

    template <class P> void check_parts(const P &parts, int64_t count) const {
        if (static_cast<int64_t>(parts.size()) != vertices_) throw std::invalid_argument("nets: each vertex must have its part");
        for (int64_t v = 0; v < vertices_; ++v)
            if (parts.data()[v] < 0 || parts.data()[v] >= count) throw std::invalid_argument("nets: a part that is not there");
    }

    // Finds each vertex's nets; threads that want them wait for the first.
    void link() {
        const std::lock_guard lock(mutex_);
        if (linked_) return;
        pinned_ = reversed(nets_.begin.data(), count(), nets_.members.data(), vertices_);
        std::vector<int64_t> each(count() + 1);
        std::iota(each.begin(), each.end(), int64_t{0});
        owned_ = reversed(each.data(), count(), owner_.data(), vertices_);
        linked_ = true;
    }

  private:
    int64_t vertices_;
    Lists nets_;                 // each net's pins
    std::vector<int32_t> owner_; // of each net
    std::vector<float> weight_;
    std::vector<uint8_t> phase_;
    int64_t phases_ = 1;
    Lists pinned_, owned_;
    bool linked_ = false;
    std::vector<bool> kept_; // of each vertex, if any row is
    std::mutex mutex_; // of the links
    std::vector<uint32_t> stamp_; // of each vertex: the number of the net that it was last put into
    uint32_t stamped_ = 0;
    // A batch under way: what each row is needed by, as places in `needs_`.
    std::vector<int32_t> needs_;
    Lists sets_;
    std::vector<int64_t> seen_;
    int64_t turn_ = 0;

    void check(const int32_t *vertices, size_t count) const {
        for (size_t i = 0; i < count; ++i)
            if (vertices[i] < 0 || vertices[i] >= vertices_) throw std::invalid_argument("nets: a vertex that is not there");
    }

    void unite(std::vector<int32_t> &onto, int64_t row) {
        for (int64_t at = sets_.begin[row]; at < sets_.begin[row + 1]; ++at) {
            const int32_t place = sets_.members[at];
            if (seen_[place] == turn_) continue;
            seen_[place] = turn_;
            onto.push_back(place);
        }
    }

    bool copied(int32_t owner, uint8_t phase) const { return phase == FETCH && !kept_.empty() && kept_[owner]; }

    // A row's owner is no pin of it: it is where the row is, wherever that may be.
    template <class Pin> void add(int32_t owner, float weight, uint8_t phase, int64_t count, Pin &&pin) {
        if (copied(owner, phase)) return;
        if (++stamped_ == 0) std::fill(stamp_.begin(), stamp_.end(), stamped_++); // all numbers were used: begin anew
        stamp_[owner] = stamped_;
        const size_t before = nets_.members.size();
        for (int64_t at = 0; at < count; ++at) {
            const int32_t v = pin(at);
            if (stamp_[v] == stamped_) continue;
            stamp_[v] = stamped_;
            nets_.members.push_back(v);
            if (static_cast<int64_t>(nets_.members.size() - before) == MOST_PINS) break;
        }
        if (nets_.members.size() == before) return;
        nets_.begin.push_back(static_cast<int64_t>(nets_.members.size()));
        owner_.push_back(owner);
        weight_.push_back(weight);
        phase_.push_back(phase);
        phases_ = std::max<int64_t>(phases_, phase + 1);
        linked_ = false;
    }

    // Nets of the same owner, phase and pins become one, which weighs as much; the first of them stays.
    void merge() {
        std::vector<std::pair<uint64_t, int64_t>> named(count());
        for (int64_t e = 0; e < count(); ++e) {
            std::sort(nets_.members.begin() + nets_.begin[e], nets_.members.begin() + nets_.begin[e + 1]);
            uint64_t name = chain(phase_[e], owner_[e]);
            for (int64_t at = nets_.begin[e]; at < nets_.begin[e + 1]; ++at) name = mix64(name ^ nets_.members[at]);
            named[e] = {name, e};
        }
        std::sort(named.begin(), named.end());
        std::vector<uint8_t> gone(count(), 0);
        for (size_t i = 1, first = 0; i < named.size(); ++i) {
            const int64_t one = named[first].second, other = named[i].second;
            gone[other] = named[i].first == named[first].first && equal(one, other);
            if (gone[other]) weight_[one] += weight_[other];
            else first = i;
        }
        keep(gone);
    }

    bool equal(int64_t one, int64_t other) const {
        const int32_t *pin = nets_.members.data();
        return owner_[one] == owner_[other] && phase_[one] == phase_[other] &&
               std::equal(pin + nets_.begin[one], pin + nets_.begin[one + 1],
                                                          pin + nets_.begin[other], pin + nets_.begin[other + 1]);
    }

    void keep(const std::vector<uint8_t> &gone) {
        int64_t kept = 0, at = 0;
        for (int64_t e = 0, nets = count(); e < nets; ++e) {
            const int64_t begin = nets_.begin[e], end = nets_.begin[e + 1]; // read before they are written over
            if (gone[e]) continue;
            std::copy(nets_.members.begin() + begin, nets_.members.begin() + end, nets_.members.begin() + at);
            owner_[kept] = owner_[e];
            weight_[kept] = weight_[e];
            phase_[kept] = phase_[e];
            nets_.begin[kept++] = at;
            at += end - begin;
        }
        nets_.begin.resize(kept + 1);
        nets_.begin[kept] = at;
        nets_.members.resize(at);
        owner_.resize(kept);
        weight_.resize(kept);
        phase_.resize(kept);
        linked_ = false;
    }
};

} // namespace weft
