// A block seen otherwise: its edges by source, its edges' destinations, and with a self-loop at each destination.
#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "arrays.h"
#include "memory.h"
#include "parallel.h"

namespace weft {
namespace {

void edge_destinations(In<int64_t> indptr, Array<int32_t> dst, int threads) {
    const int64_t *offset = indptr.data();
    int32_t *out = dst.data();
    const int64_t rows = indptr.shape(0) - 1;
    nb::gil_scoped_release released;
    parallel_rows(offset, rows, threads, EDGES_A_THREAD, [&](int64_t from, int64_t to) {
        for (int64_t i = from; i < to; ++i) std::fill(out + offset[i], out + offset[i + 1], static_cast<int32_t>(i));
    });
}

// Counting sort by source, stable: each thread counts and then places the edges of its own range of destinations, in order;
// within a source's list, the edges of an earlier range come first.
void transpose(In<int64_t> indptr, In<int32_t> src, Array<int64_t> t_indptr, Array<int32_t> t_dst, Array<int32_t> t_edge,
               int threads) {
    const int64_t num_dst = indptr.shape(0) - 1, edges = src.shape(0), num_src = t_indptr.shape(0) - 1;
    const int64_t *offset = indptr.data();
    const int32_t *source = src.data();
    int64_t *t_offset = t_indptr.data();
    int32_t *dst = t_dst.data(), *edge = t_edge.data();
    if (edges > std::numeric_limits<int32_t>::max()) throw std::overflow_error("transpose: more than 2^31 edges");
    nb::gil_scoped_release released;
    const int worth = static_cast<int>(std::min<int64_t>(threads, edges / (2 * num_src + 1))); // `next`: two bytes an edge
    const int used = useful_threads(edges, worth, 1 << 16);
    auto cut = [&](int t) {
        return t == used ? num_dst : std::lower_bound(offset, offset + num_dst, edges * t / used) - offset;
    };
    Scratch<int32_t> memory;
    int32_t *next = memory.reserve(used * num_src); // next[s * used + t]: where thread t puts its next edge of source s
    std::fill_n(next, used * num_src, 0);
    on_threads(used, [&](int t) {
        for (int64_t e = offset[cut(t)], end = offset[cut(t + 1)]; e < end; ++e) ++next[int64_t{source[e]} * used + t];
    });
    int32_t total = 0;
    for (int64_t s = 0; s < num_src; ++s) {
        t_offset[s] = total;
        for (int t = 0; t < used; ++t) total += std::exchange(next[s * used + t], total);
    }
    t_offset[num_src] = total;
    on_threads(used, [&](int t) {
        constexpr int64_t AHEAD = 16;
        const int64_t last = offset[cut(t + 1)];
        for (int64_t i = cut(t), end = cut(t + 1); i < end; ++i)
            for (int64_t e = offset[i]; e < offset[i + 1]; ++e) {
                if (e + AHEAD < last) __builtin_prefetch(&next[int64_t{source[e + AHEAD]} * used + t], 1);
                const int32_t at = next[int64_t{source[e]} * used + t]++;
                dst[at] = static_cast<int32_t>(i);
                edge[at] = static_cast<int32_t>(e);
            }
    });
}

// Drops edges from a destination to itself and appends one to each destination's list. Returns the number of edges;
// the outputs have room for all edges and one more a destination.
int64_t add_self_loops(In<int64_t> indptr, In<int32_t> src, MaybeIn<int64_t> edge_ids, Array<int64_t> out_indptr,
                       Array<int32_t> out_src, std::optional<Array<int64_t>> out_edge_ids) {
    const int64_t num_dst = indptr.shape(0) - 1, *offset = indptr.data();
    const int32_t *source = src.data();
    const int64_t *id = data_or_null(edge_ids);
    int64_t *to_offset = out_indptr.data(), *to_id = out_edge_ids ? out_edge_ids->data() : nullptr;
    int32_t *to = out_src.data();
    nb::gil_scoped_release released;
    int64_t at = to_offset[0] = 0;
    for (int64_t i = 0; i < num_dst; ++i) {
        for (int64_t e = offset[i]; e < offset[i + 1]; ++e) {
            to[at] = source[e];
            if (id) to_id[at] = id[e];
            at += source[e] != i;
        }
        to[at] = static_cast<int32_t>(i);
        if (id) to_id[at] = -1;
        to_offset[i + 1] = ++at;
    }
    return at;
}

} // namespace
} // namespace weft

void bind_blocks(nanobind::module_ &m) {
    using namespace weft;
    m.def("edge_destinations", &edge_destinations, nb::arg("indptr"), nb::arg("dst"), nb::arg("threads"));
    m.def("transpose", &transpose, nb::arg("indptr"), nb::arg("src"), nb::arg("t_indptr"), nb::arg("t_dst"),
          nb::arg("t_edge"), nb::arg("threads"));
    m.def("add_self_loops", &add_self_loops, nb::arg("indptr"), nb::arg("src"), nb::arg("edge_ids").none(),
          nb::arg("out_indptr"), nb::arg("out_src"), nb::arg("out_edge_ids").none());
}
