// Neighbour lists gone through once, from one end to the other: figures of their edges, sums by source, other names.
#include <nanobind/stl/tuple.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <tuple>

#include "arrays.h"
#include "parallel.h"

namespace weft {
namespace {

constexpr int64_t AHEAD = 16; // edges

template <class Id> void check(const In<int64_t> &indptr, const In<Id> &indices, size_t vertices, const char *name) {
    if (indptr.shape(0) != vertices + 1 || indptr.data()[vertices] != static_cast<int64_t>(indices.shape(0)))
        throw std::invalid_argument(std::string(name) + ": the arrays do not fit the graph");
}

// Adds the destinations' terms (or 1) to their sources' sums, in the order of the edges.
template <class Id> void add_by_source(In<int64_t> indptr, In<Id> indices, MaybeIn<double> terms, Array<double> sums) {
    check(indptr, indices, sums.shape(0), "add_by_source");
    if (terms && terms->shape(0) != sums.shape(0)) throw std::invalid_argument("add_by_source: a term a vertex is needed");
    const int64_t vertices = sums.shape(0), *offset = indptr.data(), edges = offset[vertices];
    const Id *source = indices.data();
    const double *term = data_or_null(terms);
    double *sum = sums.data();
    nb::gil_scoped_release released;
    for (int64_t v = 0; v < vertices; ++v)
        for (int64_t e = offset[v]; e < offset[v + 1]; ++e) {
            if (e + AHEAD < edges) __builtin_prefetch(sum + source[e + AHEAD], 1);
            sum[source[e]] += term ? term[v] : 1.0;
        }
}

// Counts how often each vertex is a source; returns how many edges are self-loops, join equal labels, join labelled ones.
template <class Id>
std::tuple<int64_t, int64_t, int64_t> describe_edges(In<int64_t> indptr, In<Id> indices, MaybeIn<int32_t> labels,
                                                     Array<int64_t> uses) {
    check(indptr, indices, uses.shape(0), "describe_edges");
    if (labels && labels->shape(0) != uses.shape(0))
        throw std::invalid_argument("describe_edges: a label a vertex is needed");
    const int64_t vertices = uses.shape(0), *offset = indptr.data(), edges = offset[vertices];
    const Id *source = indices.data();
    const int32_t *label = data_or_null(labels);
    int64_t *use = uses.data(), loops = 0, same = 0, labelled = 0;
    nb::gil_scoped_release released;
    for (int64_t v = 0; v < vertices; ++v)
        for (int64_t e = offset[v]; e < offset[v + 1]; ++e) {
            if (e + AHEAD < edges) {
                __builtin_prefetch(use + source[e + AHEAD], 1);
                if (label) __builtin_prefetch(label + source[e + AHEAD]);
            }
            const Id u = source[e];
            if (u < 0 || u >= vertices) throw std::invalid_argument("an edge comes from vertex " + std::to_string(u));
            ++use[u];
            loops += u == v;
            if (label && label[u] >= 0 && label[v] >= 0) {
                ++labelled;
                same += label[u] == label[v];
            }
        }
    return {loops, same, labelled};
}

// The lists of the vertices `order`, one after the other, with `new_ids` for their sources; `offsets`: where each begins in
// the whole, of which `out` is this piece.
template <class Id>
void renumber_lists(In<int64_t> indptr, In<Id> indices, In<int64_t> order, In<Id> new_ids, In<int64_t> offsets,
                    Array<Id> out, int threads) {
    check(indptr, indices, new_ids.shape(0), "renumber_lists");
    const int64_t rows = order.shape(0), *old = order.data(), *from = indptr.data(), *place = offsets.data();
    if (offsets.shape(0) != order.shape(0) + 1 || place[rows] - place[0] != static_cast<int64_t>(out.shape(0)))
        throw std::invalid_argument("renumber_lists: the outputs do not fit");
    const Id *source = indices.data(), *name = new_ids.data();
    Id *to = out.data();
    nb::gil_scoped_release released;
    parallel_rows(place, rows, threads, EDGES_A_THREAD, [&](int64_t begin, int64_t end) {
        constexpr int64_t LISTS = 6, NAMES = 2, MOST = 64;
        const auto some = [&](int64_t i) { return std::min(MOST, place[i + 1] - place[i]); };
        for (int64_t i = begin; i < end; ++i) {
            if (i + LISTS < end) prefetch_row(source + from[old[i + LISTS]], some(i + LISTS));
            if (i + NAMES < end)
                for (int64_t k = 0; k < some(i + NAMES); ++k) __builtin_prefetch(name + source[from[old[i + NAMES]] + k]);
            const Id *list = source + from[old[i]];
            const int64_t at = place[i] - place[0], length = place[i + 1] - place[i];
            for (int64_t k = 0; k < length; ++k) {
                if (k + MOST < length) __builtin_prefetch(name + list[k + MOST]);
                to[at + k] = name[list[k]];
            }
        }
    });
}

template <class Id> void bind_ids(nb::module_ &m) {
    m.def("add_by_source", &add_by_source<Id>, nb::arg("indptr"), nb::arg("indices").noconvert(), nb::arg("terms").none(),
          nb::arg("sums"));
    m.def("describe_edges", &describe_edges<Id>, nb::arg("indptr"), nb::arg("indices").noconvert(),
          nb::arg("labels").none(), nb::arg("uses"));
    m.def("renumber_lists", &renumber_lists<Id>, nb::arg("indptr"), nb::arg("indices").noconvert(), nb::arg("order"),
          nb::arg("new_ids").noconvert(), nb::arg("offsets"), nb::arg("out").noconvert(), nb::arg("threads"));
}

} // namespace
} // namespace weft

void bind_lists(nanobind::module_ &m) {
    weft::bind_ids<int32_t>(m);
    weft::bind_ids<int64_t>(m);
}
