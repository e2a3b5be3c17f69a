// How good an allocation is: the edges that cross, and which parts need which vertices.
#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <stdexcept>
#include <vector>

#include "arrays.h"
#include "memory.h"
#include "parallel.h"

namespace weft {
namespace {

constexpr int WINDOW = 64; // parts at a time: a bit each

constexpr int64_t AHEAD = 16;

using Counts = std::array<int64_t, WINDOW>;

void add_to(int64_t *totals, const Counts &counts, int64_t parts) {
    for (int64_t p = 0; p < std::min<int64_t>(parts, WINDOW); ++p)
        std::atomic_ref(totals[p]).fetch_add(counts[p], std::memory_order_relaxed);
}

// For each part: how many of its in-edges come from other parts (cut), and from how many distinct vertices (halo). A vertex
// has a bit for each of 64 parts, and the edges into these parts are gone through; then comes the next window of parts.
template <class Id>
void count_halos(In<int64_t> indptr, In<Id> indices, In<int32_t> owners, Array<int64_t> cut, Array<int64_t> halo,
                 int threads) {
    const int64_t vertices = owners.shape(0), parts = cut.shape(0), *offset = indptr.data();
    if (indptr.shape(0) != owners.shape(0) + 1 || halo.shape(0) != cut.shape(0))
        throw std::invalid_argument("count_halos: the shapes do not fit");
    const Id *source = indices.data();
    const int32_t *owner = owners.data();
    int64_t *cuts = cut.data(), *halos = halo.data();
    nb::gil_scoped_release released;
    std::fill_n(cuts, parts, 0);
    std::fill_n(halos, parts, 0);
    Scratch<uint64_t> memory;
    uint64_t *needed = memory.reserve(vertices); // by which parts of the window
    for (int64_t first = 0; first < parts; first += WINDOW) {
        std::fill_n(needed, vertices, 0);
        parallel_rows(offset, vertices, threads, EDGES_A_THREAD, [&](int64_t from, int64_t to) {
            Counts count{};
            for (int64_t v = from; v < to; ++v) {
                const int64_t at = owner[v] - first;
                if (at < 0 || at >= WINDOW) continue;
                const uint64_t bit = uint64_t{1} << at;
                for (int64_t e = offset[v]; e < offset[v + 1]; ++e) {
                    if (e + AHEAD < offset[vertices]) __builtin_prefetch(owner + source[e + AHEAD]);
                    const Id u = source[e];
                    if (owner[u] == owner[v]) continue;
                    ++count[at];
                    std::atomic_ref word(needed[u]);
                    if (!(word.load(std::memory_order_relaxed) & bit)) word.fetch_or(bit, std::memory_order_relaxed);
                }
            }
            add_to(cuts + first, count, parts - first);
        });
        parallel_for(vertices, threads, EDGES_A_THREAD, [&](int64_t from, int64_t to) {
            Counts count{};
            for (int64_t v = from; v < to; ++v)
                for (uint64_t bits = needed[v]; bits; bits &= bits - 1) ++count[std::countr_zero(bits)];
            add_to(halos + first, count, parts - first);
        });
    }
}

template <class Id> void bind_ids(nb::module_ &m) {
    m.def("count_halos", &count_halos<Id>, nb::arg("indptr"), nb::arg("indices").noconvert(), nb::arg("owners"),
          nb::arg("cut"), nb::arg("halo"), nb::arg("threads"));
}

} // namespace
} // namespace weft

void bind_quality(nanobind::module_ &m) {
    weft::bind_ids<int32_t>(m);
    weft::bind_ids<int64_t>(m);
}
