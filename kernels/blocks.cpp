// A block seen otherwise: its edges by source, its edges' destinations, and with a self-loop at each destination.
#include <algorithm>
#include <vector>

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

// Counting sort by source, stable. Each thread owns a range of sources and walks all edges: reading edges in order is
// cheap, writing at random is what costs, and that is divided.
void transpose(In<int64_t> indptr, In<int32_t> src, Array<int64_t> t_indptr, Array<int32_t> t_dst, Array<int32_t> t_edge,
               int threads) {
    const int64_t num_dst = indptr.shape(0) - 1, edges = src.shape(0), num_src = t_indptr.shape(0) - 1;
    const int64_t *offset = indptr.data();
    const int32_t *source = src.data();
    int64_t *t_offset = t_indptr.data();
    int32_t *dst = t_dst.data(), *edge = t_edge.data();
    nb::gil_scoped_release released;
    Scratch<int32_t> memory;
    int32_t *next = memory.reserve(num_src + 1);
    std::fill_n(next, num_src + 1, 0);
    for (int64_t e = 0; e < edges; ++e) ++next[source[e]];
    int64_t total = 0;
    for (int64_t s = 0; s < num_src; ++s) {
        t_offset[s] = total;
        total += next[s];
        next[s] = static_cast<int32_t>(t_offset[s]);
    }
    t_offset[num_src] = total;
    const int used = useful_threads(edges, threads, 1 << 16);
    auto cut = [&](int t) {
        return t == used ? num_src : std::lower_bound(t_offset, t_offset + num_src, edges * t / used) - t_offset;
    };
    on_threads(used, [&](int t) {
        const int32_t low = static_cast<int32_t>(cut(t)), high = static_cast<int32_t>(cut(t + 1));
        for (int64_t i = 0; i < num_dst; ++i)
            for (int64_t e = offset[i]; e < offset[i + 1]; ++e) {
                const int32_t s = source[e];
                if (s < low || s >= high) continue;
                const int32_t at = next[s]++;
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
