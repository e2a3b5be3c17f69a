// Traces of sampled batches: which servers' seeds reach which rows. A draw is a pure function of its vertex, so what some
// seeds reach is the union of what each reaches alone, and sets of servers travel along the edges of the batch's one sample.
#include <algorithm>
#include <bit>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "arrays.h"
#include "parallel.h"
#include "random.h"

namespace weft {
namespace {

constexpr int SERVERS = 64; // in one mask; more are gone through in turns

// One hop: a source is reached by whoever reaches one of its destinations, a destination stays reached.
void spread_masks(In<int64_t> indptr, In<int32_t> src, In<uint64_t> before, Array<uint64_t> after) {
    const auto destinations = static_cast<int64_t>(indptr.size()) - 1, sources = static_cast<int64_t>(after.size());
    if (static_cast<int64_t>(before.size()) != destinations || sources < destinations)
        throw std::invalid_argument("spread_masks: there must be a mask for each destination, and room for each source");
    const int64_t *offset = indptr.data();
    const int32_t *source = src.data();
    const uint64_t *from = before.data();
    uint64_t *to = after.data();
    nb::gil_scoped_release released;
    std::copy(from, from + destinations, to);
    std::fill(to + destinations, to + sources, uint64_t{0});
    for (int64_t d = 0; d < destinations; ++d)
        for (int64_t e = offset[d]; e < offset[d + 1]; ++e) to[source[e]] |= from[d];
}

// Adds to rows[server][owner] what the servers from `first` on reach of others' rows.
void count_reached(In<uint64_t> masks, In<int32_t> owners, int first, Array<int64_t, 2> rows) {
    const auto count = static_cast<int64_t>(masks.size()), parts = static_cast<int64_t>(rows.shape(1));
    nb::gil_scoped_release released;
    for (int64_t i = 0; i < count; ++i) {
        const int owner = owners.data()[i], own = owner - first;
        uint64_t others = masks.data()[i];
        if (own >= 0 && own < SERVERS) others &= ~(uint64_t{1} << own);
        for (; others; others &= others - 1) ++rows.data()[(first + std::countr_zero(others)) * parts + owner];
    }
}

// How many allocations' masks fit one word side by side.
struct Lanes {
    explicit Lanes(int parts)
        : width(parts >= SERVERS ? SERVERS : std::bit_ceil(static_cast<unsigned>(parts))), count(SERVERS / width),
          mask(width == SERVERS ? ~uint64_t{0} : (uint64_t{1} << width) - 1) {}
    const int width, count;
    const uint64_t mask;
};

// Samples folded onto groups of vertices that are allocated as one: for each row, the groups whose seeds reach it and the
// group that it belongs to. Equal sets are kept once: a set is a class, with the classes that it is the union of. The
// first classes are the groups themselves; small sets are spelled out in groups, large ones are unions of earlier classes,
// so that a fold never has more members than the samples have edges.
class Fold {
  public:
    explicit Fold(int64_t groups) : groups_(groups), begin_(groups + 1, 0), flat_(groups, true), hashes_(groups, 0) {
        slots_.assign(std::bit_ceil(static_cast<uint64_t>(2 * groups + 1024)), -1);
    }

    // A batch begins: the group of each seed.
    void begin(In<int32_t> groups) { reached_.assign(groups.data(), groups.data() + groups.size()); }

    // `kept` [num_src]: which sources are rows that are counted; others get no class. None: all.
    void hop(In<int64_t> indptr, In<int32_t> src, int64_t num_src, MaybeIn<bool> kept) {
        const auto destinations = static_cast<int64_t>(indptr.size()) - 1;
        const int64_t *offset = indptr.data();
        const int32_t *source = src.data();
        if (static_cast<int64_t>(reached_.size()) != destinations)
            throw std::invalid_argument("a hop's destinations must be the sources of the hop before");
        nb::gil_scoped_release released;
        const bool *wanted = data_or_null(kept);
        auto counts = [&](int64_t s) { return !wanted || wanted[s]; };
        std::vector<int64_t> next(num_src + 1, 0); // where a source's next member goes; at the end, where its last one is
        for (int64_t s = 0; s < destinations; ++s) next[s] += counts(s);
        for (int64_t e = 0; e < offset[destinations]; ++e) next[source[e]] += counts(source[e]);
        std::exclusive_scan(next.begin(), next.end(), next.begin(), int64_t{0});
        std::vector<int32_t> members(next[num_src]);
        for (int64_t d = 0; d < destinations; ++d) {
            if (counts(d)) members[next[d]++] = reached_[d];
            for (int64_t e = offset[d]; e < offset[d + 1]; ++e)
                if (counts(source[e])) members[next[source[e]]++] = reached_[d];
        }
        reached_.resize(num_src);
        for (int64_t s = 0, begin = 0; s < num_src; begin = next[s++]) {
            if (!counts(s)) {
                reached_[s] = NOBODY;
                continue;
            }
            set_.assign(members.begin() + begin, members.begin() + next[s]);
            reached_[s] = class_of();
        }
    }

    // A batch ends: the group of each row, and for how many each counts that is kept. `joined`: its rows are counted with
    // those of the batch before.
    void end(In<int32_t> groups, int32_t each, bool joined) {
        if (groups.size() != reached_.size()) throw std::invalid_argument("each row must have a group");
        nb::gil_scoped_release released;
        if (!joined || batches_.empty()) batches_.emplace_back();
        auto &rows = batches_.back();
        for (size_t i = 0; i < reached_.size(); ++i)
            if (reached_[i] != NOBODY && reached_[i] != groups.data()[i])
                rows.push_back({reached_[i], groups.data()[i], each});
        std::sort(rows.begin(), rows.end(), [](const Rows &a, const Rows &b) {
            return a.of_class < b.of_class || (a.of_class == b.of_class && a.group < b.group);
        });
        size_t kept = 0;
        for (size_t i = 0; i < rows.size(); ++i) {
            if (kept && rows[kept - 1].of_class == rows[i].of_class && rows[kept - 1].group == rows[i].group)
                rows[kept - 1].count += rows[i].count;
            else rows[kept++] = rows[i];
        }
        rows.resize(kept);
        rows.shrink_to_fit();
    }

    int64_t batches() const { return static_cast<int64_t>(batches_.size()); }
    int64_t classes() const { return static_cast<int64_t>(flat_.size()); }
    int64_t members() const { return static_cast<int64_t>(members_.size()); }
    int64_t kinds() const {
        int64_t kinds = 0;
        for (const auto &rows : batches_) kinds += static_cast<int64_t>(rows.size());
        return kinds;
    }

    // rows[allocation][batch][server][owner]: rows that a server's seeds reach and another one owns.
    void count(In<int32_t, 2> allocations, Array<int64_t, 4> rows, int threads) const {
        const auto many = static_cast<int>(allocations.shape(0));
        const auto parts = static_cast<int64_t>(rows.shape(3));
        if (static_cast<int64_t>(allocations.shape(1)) != groups_ || rows.shape(0) != allocations.shape(0) ||
            rows.shape(1) != batches_.size() || rows.shape(2) != rows.shape(3))
            throw std::invalid_argument("Fold.count: an allocation has a part for each group, a result one for each batch");
        const Lanes lanes(static_cast<int>(parts));
        nb::gil_scoped_release released;
        in_pieces(threads, (many + lanes.count - 1) / lanes.count, [&](int piece) {
            const int first = piece * lanes.count, last = std::min(many, first + lanes.count);
            std::vector<uint64_t> masks(classes());
            std::fill(rows.data() + first * each(parts), rows.data() + last * each(parts), int64_t{0});
            for (int server = 0; server < parts; server += SERVERS) {
                set_masks(allocations.data(), first, last, server, lanes, masks);
                for (int i = first; i < last; ++i)
                    count_one(allocations.data() + i * groups_, (i - first) * lanes.width, server, lanes, masks,
                              rows.data() + i * each(parts), parts);
            }
        });
    }

  private:
    static constexpr int32_t NOBODY = -1;
    static constexpr size_t SPELLED = 8; // groups of a set that is spelled out

    struct Rows {
        int32_t of_class, group, count;
    };

    int64_t each(int64_t parts) const { return batches() * parts * parts; }

    // Each class's servers from `server` on, under the allocations [first, last) side by side.
    void set_masks(const int32_t *allocations, int first, int last, int server, const Lanes &lanes,
                   std::vector<uint64_t> &masks) const {
        for (int64_t g = 0; g < groups_; ++g) {
            masks[g] = 0;
            for (int i = first; i < last; ++i) {
                const int at = allocations[i * groups_ + g] - server;
                if (at >= 0 && at < SERVERS) masks[g] |= uint64_t{1} << (at + (i - first) * lanes.width);
            }
        }
        for (int64_t c = groups_; c < classes(); ++c) {
            uint64_t mask = 0;
            for (int64_t m = begin_[c]; m < begin_[c + 1]; ++m) mask |= masks[members_[m]];
            masks[c] = mask;
        }
    }
    void count_one(const int32_t *owners, int shift, int server, const Lanes &lanes, const std::vector<uint64_t> &masks,
                   int64_t *table, int64_t parts) const {
        for (const auto &batch : batches_) {
            for (const Rows &some : batch) {
                const int owner = owners[some.group], own = owner - server;
                uint64_t others = (masks[some.of_class] >> shift) & lanes.mask;
                if (own >= 0 && own < SERVERS) others &= ~(uint64_t{1} << own);
                for (; others; others &= others - 1)
                    table[(server + std::countr_zero(others)) * parts + owner] += some.count;
            }
            table += parts * parts;
        }
    }

    // The class of the union of the classes in `set_`.
    int32_t class_of() {
        sort_out(set_);
        if (set_.size() == 1) return set_[0];
        const bool flat = spell_out();
        if (flat && set_.size() == 1) return set_[0];
        uint64_t hash = 0;
        for (const int32_t member : set_) hash = mix64(hash ^ static_cast<uint64_t>(member));
        const uint64_t mask = slots_.size() - 1;
        uint64_t at = hash & mask;
        for (; slots_[at] >= 0; at = (at + 1) & mask)
            if (hashes_[slots_[at]] == hash && is(slots_[at])) return slots_[at];
        const auto fresh = static_cast<int32_t>(classes());
        slots_[at] = fresh;
        members_.insert(members_.end(), set_.begin(), set_.end());
        begin_.push_back(static_cast<int64_t>(members_.size()));
        flat_.push_back(flat);
        hashes_.push_back(hash);
        if (2 * flat_.size() > slots_.size()) grow();
        return fresh;
    }
    static void sort_out(std::vector<int32_t> &set) {
        std::sort(set.begin(), set.end());
        set.erase(std::unique(set.begin(), set.end()), set.end());
    }
    // Puts groups in the place of classes, where all are spelled out and few enough come together.
    bool spell_out() {
        if (set_.size() > SPELLED) return false;
        spelled_.clear();
        for (const int32_t c : set_) {
            if (!flat_[c]) return false;
            if (c < groups_) spelled_.push_back(c);
            else spelled_.insert(spelled_.end(), members_.begin() + begin_[c], members_.begin() + begin_[c + 1]);
        }
        sort_out(spelled_);
        if (spelled_.size() > SPELLED) return false;
        set_.swap(spelled_);
        return true;
    }
    bool is(int32_t c) const {
        return begin_[c + 1] - begin_[c] == static_cast<int64_t>(set_.size()) &&
               std::equal(set_.begin(), set_.end(), members_.begin() + begin_[c]);
    }
    void grow() {
        slots_.assign(2 * slots_.size(), -1);
        const uint64_t mask = slots_.size() - 1;
        for (int64_t c = groups_; c < classes(); ++c) {
            uint64_t at = hashes_[c] & mask;
            while (slots_[at] >= 0) at = (at + 1) & mask;
            slots_[at] = static_cast<int32_t>(c);
        }
    }

    const int64_t groups_;
    std::vector<int64_t> begin_;   // by class: where its members begin; groups have none
    std::vector<int32_t> members_; // classes, lower than the class itself
    std::vector<bool> flat_;       // are its members groups?
    std::vector<uint64_t> hashes_;
    std::vector<int32_t> slots_;                // classes by hash
    std::vector<int32_t> reached_;              // by vertex of the batch: the class that reaches it
    std::vector<int32_t> set_, spelled_;
    std::vector<std::vector<Rows>> batches_;
};

} // namespace
} // namespace weft

void bind_traces(nanobind::module_ &m) {
    using namespace weft;
    m.def("spread_masks", &spread_masks, nb::arg("indptr"), nb::arg("src"), nb::arg("before"), nb::arg("after"));
    m.def("count_reached", &count_reached, nb::arg("masks"), nb::arg("owners"), nb::arg("first"), nb::arg("rows"));
    nb::class_<Fold>(m, "Fold", "Samples of batches, folded onto groups of vertices.")
        .def(nb::init<int64_t>(), nb::arg("groups"))
        .def("begin", &Fold::begin, nb::arg("groups"))
        .def("hop", &Fold::hop, nb::arg("indptr"), nb::arg("src"), nb::arg("num_src"), nb::arg("kept").none())
        .def("end", &Fold::end, nb::arg("groups"), nb::arg("each"), nb::arg("joined"))
        .def("count", &Fold::count, nb::arg("allocations"), nb::arg("rows"), nb::arg("threads"))
        .def("batches", &Fold::batches)
        .def("classes", &Fold::classes)
        .def("members", &Fold::members)
        .def("kinds", &Fold::kinds);
}
