// Blocks of neighbouring vertices: grown around centres by breadth-first search, small ones joined to a neighbour.
#include <algorithm>
#include <limits>
#include <stdexcept>
#include <vector>

#include "arrays.h"
#include "memory.h"

namespace weft {
namespace {

// Grows a block around each of the first `centres` vertices of `order`, in turns, then around each vertex that is left, in
// order; a block weighs at most `most`, or is one vertex. Writes each vertex's block, returns how many blocks there are.
template <class Id>
int64_t grow_blocks(In<int64_t> offsets, In<Id> neighbours, In<int64_t> weights, In<int64_t> order, int64_t centres,
                    int64_t most, Array<int32_t> blocks) {
    const int64_t vertices = order.shape(0), *offset = offsets.data(), *weight = weights.data();
    const Id *neighbour = neighbours.data();
    int32_t *block = blocks.data();
    nb::gil_scoped_release released;
    std::fill_n(block, vertices, -1);
    Scratch<Id> memory;
    Id *queue = memory.reserve(vertices);
    std::vector<int64_t> sizes;
    int64_t head = 0, tail = 0, next = 0;
    auto join = [&](Id v, int32_t to) {
        block[v] = to;
        sizes[to] += weight[v];
        queue[tail++] = v;
    };
    auto begin = [&](int64_t v) {
        if (sizes.size() == std::numeric_limits<int32_t>::max()) throw std::length_error("more than 2^31 blocks");
        sizes.push_back(0);
        join(static_cast<Id>(v), static_cast<int32_t>(sizes.size() - 1));
    };
    while (next < std::min(centres, vertices)) begin(order.data()[next++]);
    while (true) {
        for (; head < tail; ++head) {
            const Id v = queue[head];
            const int32_t own = block[v];
            for (int64_t e = offset[v]; e < offset[v + 1] && sizes[own] < most; ++e) {
                const Id u = neighbour[e];
                if (block[u] < 0 && sizes[own] + weight[u] <= most) join(u, own);
            }
        }
        while (next < vertices && block[order.data()[next]] >= 0) ++next;
        if (next == vertices) return static_cast<int64_t>(sizes.size());
        begin(order.data()[next++]);
    }
}

// Joins each block that weighs less than `small` to the neighbouring one that it has most edges with, if together they
// weigh at most `most`. `members` are the vertices by block, block b's from bounds[b] on; `sizes` become those of the joined
// blocks, `roots` says which block each one is now part of.
template <class Id>
void join_blocks(In<int64_t> offsets, In<Id> neighbours, MaybeIn<int32_t> edges, In<int32_t> blocks,
                 In<int64_t> members, In<int64_t> bounds, int64_t small, int64_t most, Array<int64_t> sizes,
                 Array<int32_t> roots) {
    const int64_t count = roots.shape(0), *offset = offsets.data(), *bound = bounds.data();
    const Id *neighbour = neighbours.data();
    const int32_t *edge = data_or_null(edges), *block = blocks.data();
    int64_t *size = sizes.data();
    int32_t *root = roots.data();
    nb::gil_scoped_release released;
    for (int64_t b = 0; b < count; ++b) root[b] = static_cast<int32_t>(b);
    auto find = [&](int32_t b) {
        while (root[b] != b) b = root[b] = root[root[b]];
        return b;
    };
    std::vector<int64_t> gain(count, 0);
    std::vector<int32_t> met;
    for (int64_t b = 0; b < count; ++b) {
        const int32_t own = find(static_cast<int32_t>(b));
        if (size[own] >= small) continue;
        for (int64_t i = bound[b]; i < bound[b + 1]; ++i)
            for (int64_t v = members.data()[i], e = offset[v]; e < offset[v + 1]; ++e) {
                const int32_t other = find(block[neighbour[e]]);
                if (other == own) continue;
                if (!gain[other]) met.push_back(other);
                gain[other] += edge ? edge[e] : 1;
            }
        int32_t best = -1;
        for (const int32_t other : met)
            if (size[other] + size[own] <= most &&
                (best < 0 || gain[other] > gain[best] || (gain[other] == gain[best] && other < best)))
                best = other;
        for (const int32_t other : met) gain[other] = 0;
        met.clear();
        if (best < 0) continue;
        root[own] = best;
        size[best] += size[own];
        size[own] = 0;
    }
    for (int64_t b = 0; b < count; ++b) root[b] = find(static_cast<int32_t>(b));
}

template <class Id> void bind_ids(nb::module_ &m) {
    m.def("grow_blocks", &grow_blocks<Id>, nb::arg("offsets"), nb::arg("neighbours").noconvert(), nb::arg("weights"),
          nb::arg("order"), nb::arg("centres"), nb::arg("most"), nb::arg("blocks"));
    m.def("join_blocks", &join_blocks<Id>, nb::arg("offsets"), nb::arg("neighbours").noconvert(), nb::arg("edges").none(),
          nb::arg("blocks"), nb::arg("members"), nb::arg("bounds"), nb::arg("small"), nb::arg("most"), nb::arg("sizes"),
          nb::arg("roots"));
}

} // namespace
} // namespace weft

void bind_growing(nanobind::module_ &m) {
    weft::bind_ids<int32_t>(m);
    weft::bind_ids<int64_t>(m);
}
