// The graph as partitioners see it: every edge both ways, each pair of vertices once, without self-loops.
#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>
#include <vector>

#include "arrays.h"
#include "memory.h"
#include "parallel.h"

namespace weft {
namespace {

// The lists by source of the vertices from `first` on, as many as `t_indptr` has room for, each in rising order of
// destinations, by counting: each thread counts and then places the edges of its own range of destinations. `t_indptr` is
// written too.
template <class Id>
void out_lists(In<int64_t> indptr, In<Id> indices, Array<int64_t> t_indptr, Array<Id> t_dst, int threads, int64_t first) {
    const int64_t vertices = indptr.shape(0) - 1, edges = indices.shape(0), *offset = indptr.data();
    const int64_t rows = static_cast<int64_t>(t_indptr.shape(0)) - 1, entries = t_dst.shape(0);
    if (rows < 0 || first < 0 || first + rows > vertices)
        throw std::invalid_argument("out_lists: the outputs do not fit the graph");
    const Id *source = indices.data();
    int64_t *t_offset = t_indptr.data();
    Id *dst = t_dst.data();
    nb::gil_scoped_release released;
    const int worth = static_cast<int>(std::min<int64_t>(threads, entries / (8 * rows + 1))); // positions: a byte an edge
    const int64_t used = useful_threads(edges, worth, 1 << 16);
    auto cut = [&](int64_t t) {
        return t == used ? vertices : std::lower_bound(offset, offset + vertices, edges / used * t) - offset;
    };
    Scratch<int64_t> memory;
    int64_t *next = memory.reserve(used * rows); // next[s * used + t]: where thread t puts its next edge of source first + s
    std::fill_n(next, used * rows, 0);
    const auto row_of = [=](int64_t e) { return static_cast<uint64_t>(source[e] - first); }; // from `rows` on: of others
    on_threads(static_cast<int>(used), [&](int t) {
        for (int64_t e = offset[cut(t)], end = offset[cut(t + 1)]; e < end; ++e)
            if (const uint64_t s = row_of(e); s < static_cast<uint64_t>(rows)) ++next[s * used + t];
    });
    int64_t total = 0;
    for (int64_t s = 0; s < rows; ++s) {
        t_offset[s] = total;
        for (int64_t t = 0; t < used; ++t) total += std::exchange(next[s * used + t], total);
    }
    t_offset[rows] = total;
    if (total != entries) throw std::invalid_argument("out_lists: the outputs do not fit the graph");
    on_threads(static_cast<int>(used), [&](int t) {
        constexpr int64_t AHEAD = 16;
        const int64_t last = offset[cut(t + 1)];
        for (int64_t i = cut(t), end = cut(t + 1); i < end; ++i)
            for (int64_t e = offset[i]; e < offset[i + 1]; ++e) {
                if (e + AHEAD < last)
                    if (const uint64_t s = row_of(e + AHEAD); s < static_cast<uint64_t>(rows))
                        __builtin_prefetch(&next[s * used + t], 1);
                if (const uint64_t s = row_of(e); s < static_cast<uint64_t>(rows))
                    dst[next[s * used + t]++] = static_cast<Id>(i);
            }
    });
}

// The in-lists of the vertices from `first` on as they are, and their out-lists in rising order.
template <class Id> struct Lists {
    const int64_t *offset; // into all sources
    const Id *source;
    const int64_t *t_offset;
    const Id *dst;
    int64_t first;

    // f(neighbour, edges from it, edges to it) for each neighbour of vertex first + row but itself, in rising order.
    template <class F> void for_neighbours(int64_t row, std::vector<Id> &sorted, F &&f) const {
        const int64_t vertex = first + row;
        const Id *in = source + offset[row], *in_end = source + offset[row + 1];
        if (!std::is_sorted(in, in_end)) {
            sorted.assign(in, in_end);
            std::sort(sorted.begin(), sorted.end());
            in = sorted.data(), in_end = in + sorted.size();
        }
        const Id *out = dst + t_offset[row], *out_end = dst + t_offset[row + 1];
        if (std::equal(in, in_end, out, out_end)) { // every edge both ways already
            while (in != in_end) {
                const Id *run = in++;
                while (in != in_end && *in == *run) ++in;
                if (*run != vertex) f(*run, in - run, in - run);
            }
            return;
        }
        while (in != in_end || out != out_end) {
            const Id neighbour = out == out_end || (in != in_end && *in < *out) ? *in : *out;
            int64_t from = 0, to = 0;
            for (; in != in_end && *in == neighbour; ++in) ++from;
            for (; out != out_end && *out == neighbour; ++out) ++to;
            if (neighbour != vertex) f(neighbour, from, to);
        }
    }
};

// How many neighbours each vertex of a range has, whatever the direction and however often. `indptr` and `t_indptr` are of
// the vertices from `first` on, `indices` holds all sources.
template <class Id>
void count_neighbours(In<int64_t> indptr, In<Id> indices, In<int64_t> t_indptr, In<Id> t_dst, Array<int64_t> counts,
                      int threads, int64_t first) {
    const Lists<Id> lists{indptr.data(), indices.data(), t_indptr.data(), t_dst.data(), first};
    int64_t *count = counts.data();
    const int64_t vertices = counts.shape(0);
    nb::gil_scoped_release released;
    parallel_rows(lists.offset, vertices, threads, EDGES_A_THREAD, [&](int64_t from, int64_t to) {
        std::vector<Id> sorted;
        for (int64_t v = from; v < to; ++v) {
            count[v] = 0;
            lists.for_neighbours(v, sorted, [&](Id, int64_t, int64_t) { ++count[v]; });
        }
    });
}

// Writes the neighbours of each vertex of a range and, if wanted, the weight of the pair: an edge weighs what its end
// draws, times `scale`, rounded, at least 1 and at most `heaviest`. Both ends of a pair compute the same sum. `offsets` say
// where each vertex's begin in the whole, of which the outputs are this range's piece.
template <class Id>
void join_neighbours(In<int64_t> indptr, In<Id> indices, In<int64_t> t_indptr, In<Id> t_dst, MaybeIn<double> draws,
                     double scale, int32_t heaviest, In<int64_t> offsets, Array<Id> neighbours,
                     std::optional<Array<int32_t>> weights, int threads, int64_t first) {
    if (draws.has_value() != weights.has_value())
        throw std::invalid_argument("join_neighbours: weights are made from draws, so give both or none");
    const Lists<Id> lists{indptr.data(), indices.data(), t_indptr.data(), t_dst.data(), first};
    const int64_t vertices = indptr.shape(0) - 1, *place = offsets.data();
    const double *draw = data_or_null(draws);
    Id *out = neighbours.data();
    int32_t *weight = data_or_null(weights);
    nb::gil_scoped_release released;
    parallel_rows(lists.offset, vertices, threads, EDGES_A_THREAD, [&](int64_t begin, int64_t end) {
        std::vector<Id> sorted;
        for (int64_t v = begin; v < end; ++v) {
            int64_t at = place[v] - place[0];
            lists.for_neighbours(v, sorted, [&](Id u, int64_t from, int64_t to) {
                out[at] = u;
                if (weight) {
                    const double here = static_cast<double>(from) * draw[first + v];
                    const double there = static_cast<double>(to) * draw[u];
                    weight[at] = static_cast<int32_t>(std::clamp(std::rint((here + there) * scale), 1.0, double(heaviest)));
                }
                ++at;
            });
        }
    });
}

template <class Id> void bind_ids(nb::module_ &m) {
    m.def("out_lists", &out_lists<Id>, nb::arg("indptr"), nb::arg("indices").noconvert(), nb::arg("t_indptr"),
          nb::arg("t_dst").noconvert(), nb::arg("threads"), nb::arg("first") = 0);
    m.def("count_neighbours", &count_neighbours<Id>, nb::arg("indptr"), nb::arg("indices").noconvert(),
          nb::arg("t_indptr"), nb::arg("t_dst").noconvert(), nb::arg("counts"), nb::arg("threads"), nb::arg("first") = 0);
    m.def("join_neighbours", &join_neighbours<Id>, nb::arg("indptr"), nb::arg("indices").noconvert(), nb::arg("t_indptr"),
          nb::arg("t_dst").noconvert(), nb::arg("draws").none(), nb::arg("scale"), nb::arg("heaviest"), nb::arg("offsets"),
          nb::arg("neighbours").noconvert(), nb::arg("weights").none(), nb::arg("threads"),
          nb::arg("first") = 0);
}

} // namespace
} // namespace weft

void bind_mesh(nanobind::module_ &m) {
    weft::bind_ids<int32_t>(m);
    weft::bind_ids<int64_t>(m);
}
