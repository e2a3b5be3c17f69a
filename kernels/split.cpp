// A layer's edges over the workers that compute them: kept here, or pushed to the owners of their sources.
#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "arrays.h"

namespace weft {
namespace {

// Which remote sources to pull so that few rows cross: each edge picks its end that serves more edges for the cost, then
// pulls are dropped whose edges are all pushed anyway. `pulled` has a flag a source.
void greedy_cover(In<int64_t> indptr, In<int32_t> src, In<uint16_t> member, int64_t rank, int64_t size, double pull,
                  double push, Array<uint8_t> pulled) {
    const auto rows = static_cast<int64_t>(indptr.size()) - 1, sources = static_cast<int64_t>(member.size());
    if (static_cast<int64_t>(pulled.size()) != sources || pull <= 0 || push <= 0)
        throw std::invalid_argument("greedy_cover: the shapes do not fit, or a cost is not positive");
    const int64_t *offset = indptr.data();
    const int32_t *from = src.data();
    const uint16_t *owner = member.data();
    uint8_t *chosen = pulled.data();
    nb::gil_scoped_release released;
    std::vector<int32_t> uses(sources, 0);
    for (int64_t e = 0; e < offset[rows]; ++e) ++uses[from[e]];
    std::fill_n(chosen, sources, 0);
    std::vector<int32_t> here(size, 0);
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t e = offset[row]; e < offset[row + 1]; ++e) ++here[owner[from[e]]];
        for (int64_t e = offset[row]; e < offset[row + 1]; ++e)
            if (owner[from[e]] != rank) chosen[from[e]] |= uses[from[e]] * push >= here[owner[from[e]]] * pull;
        for (int64_t e = offset[row]; e < offset[row + 1]; ++e) here[owner[from[e]]] = 0;
    }
    std::vector<uint8_t> needed(sources, 0), pushes(size, 0);
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t e = offset[row]; e < offset[row + 1]; ++e) pushes[owner[from[e]]] |= !chosen[from[e]];
        for (int64_t e = offset[row]; e < offset[row + 1]; ++e) needed[from[e]] |= !pushes[owner[from[e]]];
        for (int64_t e = offset[row]; e < offset[row + 1]; ++e) pushes[owner[from[e]]] = 0;
    }
    for (int64_t u = 0; u < sources; ++u) chosen[u] &= needed[u];
}

// How many edges go to the owners of their sources, whose source is neither this worker's nor pulled; and in how many lists.
void count_split(In<int64_t> indptr, In<int32_t> src, In<uint16_t> member, In<uint8_t> pulled, int64_t rank,
                 Array<int64_t> edge_counts, Array<int64_t> pair_counts) {
    const auto rows = static_cast<int64_t>(indptr.size()) - 1, size = static_cast<int64_t>(edge_counts.size());
    if (pulled.size() != member.size() || pair_counts.size() != edge_counts.size())
        throw std::invalid_argument("count_split: the shapes do not fit");
    const int64_t *offset = indptr.data();
    nb::gil_scoped_release released;
    std::vector<int64_t> edges(size, 0), lists(size, 0), last(size, -1);
    for (int64_t row = 0; row < rows; ++row)
        for (int64_t e = offset[row]; e < offset[row + 1]; ++e) {
            const int32_t u = src.data()[e];
            const uint16_t to = member.data()[u];
            if (to == rank || pulled.data()[u]) continue;
            ++edges[to];
            lists[to] += last[to] != row;
            last[to] = row;
        }
    std::copy(edges.begin(), edges.end(), edge_counts.data());
    std::copy(lists.begin(), lists.end(), pair_counts.data());
}

// Edges whose source is this worker's or pulled stay, in their order; the others are grouped by the owner of the source and
// then destination, a pair of which is a list. `kept_at` and `away_at` may be left out. Returns (kept edges, pairs).
nb::tuple split_edges(In<int64_t> indptr, In<int32_t> src, In<uint16_t> member, In<uint8_t> pulled, int64_t rank,
                      Array<int64_t> kept_indptr, Array<int32_t> kept_src, std::optional<Array<int64_t>> kept_at,
                      Array<int32_t> away_src, std::optional<Array<int64_t>> away_at, Array<int32_t> pair_dst,
                      Array<int32_t> lengths, Array<int64_t> edge_counts, Array<int64_t> pair_counts) {
    const auto rows = static_cast<int64_t>(indptr.size()) - 1, edges = static_cast<int64_t>(src.size());
    const auto size = static_cast<int64_t>(edge_counts.size());
    if (static_cast<int64_t>(kept_indptr.size()) != rows + 1 || static_cast<int64_t>(kept_src.size()) < edges ||
        static_cast<int64_t>(away_src.size()) < edges || static_cast<int64_t>(pair_dst.size()) < edges ||
        static_cast<int64_t>(lengths.size()) < edges)
        throw std::invalid_argument("split_edges: the outputs are too small");
    const int64_t *offset = indptr.data();
    int64_t kept = 0;
    count_split(indptr, src, member, pulled, rank, edge_counts, pair_counts);
    std::vector<int64_t> next_edge(size, 0), next_pair(size, 0), last(size, -1);
    {
        nb::gil_scoped_release released;
        auto stays = [&](int32_t u) { return member.data()[u] == rank || pulled.data()[u]; };
        for (int64_t to = 1; to < size; ++to) {
            next_edge[to] = next_edge[to - 1] + edge_counts.data()[to - 1];
            next_pair[to] = next_pair[to - 1] + pair_counts.data()[to - 1];
        }
        kept_indptr.data()[0] = 0;
        for (int64_t row = 0; row < rows; ++row) {
            for (int64_t e = offset[row]; e < offset[row + 1]; ++e) {
                const int32_t u = src.data()[e];
                if (stays(u)) {
                    kept_src.data()[kept] = u;
                    if (kept_at) kept_at->data()[kept] = e;
                    ++kept;
                    continue;
                }
                const uint16_t to = member.data()[u];
                if (last[to] != row) {
                    last[to] = row;
                    pair_dst.data()[next_pair[to]] = static_cast<int32_t>(row);
                    lengths.data()[next_pair[to]++] = 0;
                }
                ++lengths.data()[next_pair[to] - 1];
                away_src.data()[next_edge[to]] = u;
                if (away_at) away_at->data()[next_edge[to]] = e;
                ++next_edge[to];
            }
            kept_indptr.data()[row + 1] = kept;
        }
    }
    return nb::make_tuple(kept, std::accumulate(pair_counts.data(), pair_counts.data() + size, int64_t{0}));
}

} // namespace
} // namespace weft

void bind_split(nanobind::module_ &m) {
    using namespace weft;
    m.def("greedy_cover", &greedy_cover, nb::arg("indptr"), nb::arg("src"), nb::arg("member"), nb::arg("rank"),
          nb::arg("size"), nb::arg("pull"), nb::arg("push"), nb::arg("pulled"));
    m.def("count_split", &count_split, nb::arg("indptr"), nb::arg("src"), nb::arg("member"), nb::arg("pulled"),
          nb::arg("rank"), nb::arg("edge_counts"), nb::arg("pair_counts"));
    m.def("split_edges", &split_edges, nb::arg("indptr"), nb::arg("src"), nb::arg("member"), nb::arg("pulled"),
          nb::arg("rank"), nb::arg("kept_indptr"), nb::arg("kept_src"), nb::arg("kept_at").none(), nb::arg("away_src"),
          nb::arg("away_at").none(), nb::arg("pair_dst"), nb::arg("lengths"), nb::arg("edge_counts"), nb::arg("pair_counts"));
}
