// Spreading vertices over owners: whose is each id, and local numbers for ids that come from several sides.
#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "memory.h"
#include "renumber.h"

namespace weft {
namespace {

constexpr int64_t AHEAD = 16;

// Gives the distinct ids of an array numbers in order of first appearance; keeps its table between calls. One at a time.
template <class Id, class Table> class Numbering {
  public:
    explicit Numbering(Table table) : table_(std::move(table)) {}

    // `unique` has room for all ids; `slots[i]` becomes the number of ids[i]. How many distinct ones?
    int64_t number(In<Id> ids, Array<Id> unique, Array<int32_t> slots) {
        const auto count = static_cast<int64_t>(ids.size());
        if (count >= (int64_t{1} << 30))
            throw std::overflow_error("more than 2^30 ids at once: use smaller batches or fanouts, or more workers");
        if (static_cast<int64_t>(unique.size()) < count || static_cast<int64_t>(slots.size()) != count)
            throw std::invalid_argument("number: the outputs are too small");
        const Id *from = ids.data();
        nb::gil_scoped_release released;
        table_.begin_for(count);
        table_.reserve(count, nullptr, 0);
        const int32_t base = table_.base();
        int32_t known = 0;
        for (int64_t i = 0; i < count; ++i) {
            if (i + AHEAD < count) table_.prefetch(from[i + AHEAD]);
            int32_t &slot = table_.slot(from[i]);
            if (slot < base) {
                unique.data()[known] = from[i];
                slot = base + known++;
            }
            slots.data()[i] = slot - base;
        }
        return known;
    }

  private:
    Table table_;
};

// `order` becomes the positions of the ids, grouped by owner (owner p holds bounds[p] to bounds[p + 1]) and otherwise in
// their order; `counts` how many each owner has.
template <class Id> void by_owner(In<Id> ids, In<int64_t> bounds, Array<int64_t> order, Array<int64_t> counts) {
    const auto count = static_cast<int64_t>(ids.size()), owners = static_cast<int64_t>(bounds.size()) - 1;
    if (static_cast<int64_t>(order.size()) != count || static_cast<int64_t>(counts.size()) != owners || owners > 1 << 16)
        throw std::invalid_argument("by_owner: the shapes do not fit");
    nb::gil_scoped_release released;
    Scratch<uint16_t> memory;
    uint16_t *owner = memory.reserve(count);
    std::fill_n(counts.data(), owners, 0);
    for (int64_t i = 0; i < count; ++i) {
        const Id id = ids.data()[i];
        if (id < bounds.data()[0] || id >= bounds.data()[owners])
            throw std::invalid_argument("vertex " + std::to_string(id) + " has no owner");
        int64_t low = 0, high = owners; // the last owner that begins at or before id
        while (high - low > 1) {
            const int64_t middle = (low + high) / 2;
            (bounds.data()[middle] <= id ? low : high) = middle;
        }
        owner[i] = static_cast<uint16_t>(low);
        ++counts.data()[low];
    }
    std::vector<int64_t> next(owners, 0);
    std::partial_sum(counts.data(), counts.data() + owners - 1, next.begin() + 1);
    for (int64_t i = 0; i < count; ++i) order.data()[next[owner[i]]++] = i;
}

// Moves seeds out of homes that are too full: always one that adds the fewest remote rows, of such the first, to the first
// worker where it adds so few. Seed at known[i] draws the next lengths[i] neighbours, whose workers `holders` are; `shares`
// are homes first, none of which is to keep more than its `most`.
void balance_seeds(In<int64_t> known, In<int64_t> lengths, In<uint16_t> holders, In<int64_t> most, Array<int64_t> shares) {
    const auto rows = static_cast<int64_t>(known.size()), workers = static_cast<int64_t>(most.size());
    const int64_t *limits = most.data();
    std::vector<int64_t> starts(rows + 1, 0), loads(workers, 0);
    if (static_cast<int64_t>(lengths.size()) != rows) throw std::invalid_argument("balance_seeds: the shapes do not fit");
    std::partial_sum(lengths.data(), lengths.data() + rows, starts.begin() + 1);
    bool sound = starts[rows] == static_cast<int64_t>(holders.size());
    for (int64_t i = 0; i < starts[rows] && sound; ++i) sound = holders.data()[i] < workers;
    for (int64_t i = 0; i < static_cast<int64_t>(shares.size()) && sound; ++i) {
        sound = shares.data()[i] >= 0 && shares.data()[i] < workers;
        if (sound) ++loads[shares.data()[i]];
    }
    for (int64_t i = 0; i < rows && sound; ++i)
        sound = known.data()[i] >= 0 && known.data()[i] < static_cast<int64_t>(shares.size());
    if (!sound) throw std::invalid_argument("balance_seeds: a worker or a seed is none");
    nb::gil_scoped_release released;
    int64_t full = 0, first = 0; // homes that are too full; and the first worker with room
    for (int64_t worker = 0; worker < workers; ++worker) full += loads[worker] > limits[worker];
    const auto has_room = [&](int64_t worker) { return loads[worker] < limits[worker]; };
    const auto goes_on = [&] {
        while (first < workers && !has_room(first)) ++first;
        return full > 0 && first < workers;
    };
    std::vector<uint16_t> sorted;
    // Where a seed adds the fewest remote rows of all workers with room, and how many: where nobody holds any, `first` it is.
    const auto best = [&](int64_t row) {
        sorted.assign(holders.data() + starts[row], holders.data() + starts[row + 1]);
        std::sort(sorted.begin(), sorted.end());
        int32_t at_home = 0, most_held = 0;
        int64_t to = first;
        for (size_t i = 0; i < sorted.size();) {
            size_t end = i;
            while (end < sorted.size() && sorted[end] == sorted[i]) ++end;
            const auto held = static_cast<int32_t>(end - i);
            if (sorted[i] == shares.data()[known.data()[row]]) at_home = held;
            else if (has_room(sorted[i]) && held > most_held) most_held = held, to = sorted[i];
            i = end;
        }
        return std::make_pair(at_home - most_held, to);
    };
    using Turn = std::pair<int32_t, int64_t>; // remote rows that are added, and the seed's place
    std::priority_queue<Turn, std::vector<Turn>, std::greater<Turn>> turns;
    if (goes_on())
        for (int64_t row = 0; row < rows; ++row) turns.emplace(best(row).first, row);
    while (!turns.empty() && goes_on()) {
        const auto [added, row] = turns.top();
        turns.pop();
        int64_t &share = shares.data()[known.data()[row]];
        if (loads[share] <= limits[share]) continue;
        const auto [now, to] = best(row); // since then workers have filled up
        if (now > added) {
            turns.emplace(now, row);
            continue;
        }
        full -= --loads[share] == limits[share];
        ++loads[to];
        share = to;
    }
}

template <class Id, class Table> void bind_numbering(nb::module_ &m, const char *name) {
    using Self = Numbering<Id, Table>;
    nb::class_<Self>(m, name, "Numbers distinct ids in order of first appearance.")
        .def("__init__", [](Self *self, int64_t vertices) { new (self) Self(Table(vertices)); }, nb::arg("vertices"))
        .def("number", &Self::number, nb::arg("ids"), nb::arg("unique"), nb::arg("slots"));
}

} // namespace
} // namespace weft

void bind_spread(nanobind::module_ &m) {
    using namespace weft;
    bind_numbering<int32_t, ArrayTable<int32_t>>(m, "ArrayNumbering32");
    bind_numbering<int32_t, HashTable<int32_t>>(m, "HashNumbering32");
    bind_numbering<int64_t, HashTable<int64_t>>(m, "HashNumbering64");
    m.def("by_owner", &by_owner<int32_t>, nb::arg("ids").noconvert(), nb::arg("bounds"), nb::arg("order"), nb::arg("counts"));
    m.def("by_owner", &by_owner<int64_t>, nb::arg("ids").noconvert(), nb::arg("bounds"), nb::arg("order"), nb::arg("counts"));
    m.def("balance_seeds", &balance_seeds, nb::arg("known"), nb::arg("lengths"), nb::arg("holders"), nb::arg("most"),
          nb::arg("shares").noconvert());
}
