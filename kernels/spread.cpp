// Spreading vertices over owners: whose is each id, and local numbers for ids that come from several sides.
#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>
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
}
