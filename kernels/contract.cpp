// Clusters to the nodes of a smaller mesh, and which of its edges are light enough to be pruned.
#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "arrays.h"
#include "mesh.h"
#include "parallel.h"

namespace weft {
namespace {

// The mesh of clusters: edges between two clusters become one, those inside vanish.
template <class Id> class Contraction {
  public:
    template <class Weight>
    Contraction(const int64_t *offset, int64_t vertices, const Id *neighbour, const Weight *weight, const Id *cluster,
                int64_t count, int threads)
        : lengths_(count), pieces_(threads <= 1 ? 1 : threads * PIECES_A_THREAD) {
        std::vector<int64_t> first(count + 1, 0), work(count, 0);
        for (int64_t v = 0; v < vertices; ++v) {
            ++first[cluster[v] + 1];
            work[cluster[v]] += offset[v + 1] - offset[v];
        }
        std::partial_sum(first.begin(), first.end(), first.begin());
        std::vector<Id> members(vertices);
        std::vector<int64_t> next(first.begin(), first.end() - 1);
        for (int64_t v = 0; v < vertices; ++v) members[next[cluster[v]]++] = static_cast<Id>(v);
        const auto pieces = static_cast<int64_t>(pieces_.size());
        in_pieces(threads, static_cast<int>(pieces), [&](int piece) {
            Tally tally;
            auto &[others, weights] = pieces_[piece];
            for (int64_t c = count * piece / pieces; c < count * (piece + 1) / pieces; ++c) {
                tally.begin(std::min(work[c], count));
                for (int64_t m = first[c]; m < first[c + 1]; ++m)
                    for (int64_t e = offset[members[m]]; e < offset[members[m] + 1]; ++e)
                        if (cluster[neighbour[e]] != c) tally.add(cluster[neighbour[e]], weight ? weight[e] : 1);
                for (const int64_t other : tally.keys()) {
                    others.push_back(static_cast<Id>(other));
                    weights.push_back(tally.sum(other));
                }
                lengths_[c] = static_cast<int64_t>(tally.keys().size());
            }
        });
    }

    int64_t edges() const { return std::accumulate(lengths_.begin(), lengths_.end(), int64_t{0}); }

    // Once: what is written is freed, piece by piece.
    void write(Array<int64_t> lengths, Array<Id> neighbours, Array<int64_t> edges) {
        std::copy(lengths_.begin(), lengths_.end(), lengths.data());
        Id *to = neighbours.data();
        int64_t *weight = edges.data();
        for (auto &piece : pieces_) {
            const auto [others, weights] = std::move(piece);
            to = std::copy(others.begin(), others.end(), to);
            weight = std::copy(weights.begin(), weights.end(), weight);
        }
    }

  private:
    std::vector<int64_t> lengths_;
    std::vector<std::pair<std::vector<Id>, std::vector<int64_t>>> pieces_;
};

// Drops, in place, the edges that neither end wants to keep, where each keeps its heaviest ones up to a share of its edges'
// weight. What was the weight of those dropped, both ways?
template <class Id>
int64_t prune(Array<int64_t> offsets, Array<Id> neighbours, Array<int64_t> edges, double share, int threads) {
    const int64_t vertices = static_cast<int64_t>(offsets.size()) - 1;
    int64_t *offset = offsets.data(), *weight = edges.data();
    Id *neighbour = neighbours.data();
    nb::gil_scoped_release released;
    std::vector<int64_t> lightest(vertices, std::numeric_limits<int64_t>::max()); // that is kept
    parallel_rows(offset, vertices, threads, EDGES_A_THREAD, [&](int64_t begin, int64_t end) {
        std::vector<int64_t> sorted;
        for (int64_t v = begin; v < end; ++v) {
            sorted.assign(weight + offset[v], weight + offset[v + 1]);
            std::sort(sorted.begin(), sorted.end(), std::greater<>());
            const double enough = share * static_cast<double>(std::accumulate(sorted.begin(), sorted.end(), int64_t{0}));
            int64_t sum = 0;
            for (size_t i = 0; i < sorted.size() && static_cast<double>(sum) < enough; ++i) sum += lightest[v] = sorted[i];
        }
    });
    int64_t kept = 0, dropped = 0, from = 0;
    for (int64_t v = 0; v < vertices; ++v) {
        const int64_t to = offset[v + 1];
        for (int64_t e = from; e < to; ++e) {
            if (weight[e] < lightest[v] && weight[e] < lightest[neighbour[e]]) {
                dropped += weight[e];
                continue;
            }
            neighbour[kept] = neighbour[e];
            weight[kept++] = weight[e];
        }
        offset[v + 1] = kept;
        from = to;
    }
    return dropped;
}

template <class Id, class Weight, class Class> void bind_contraction(Class &made) {
    made.def("__init__",
             [](Contraction<Id> *self, In<int64_t> offsets, In<Id> neighbours, MaybeIn<Weight> edges, In<Id> clusters,
                int64_t count, int threads) {
                 const auto vertices = static_cast<int64_t>(offsets.size()) - 1;
                 nb::gil_scoped_release released;
                 new (self) Contraction<Id>(offsets.data(), vertices, neighbours.data(), data_or_null(edges),
                                            clusters.data(), count, threads);
             },
             nb::arg("offsets"), nb::arg("neighbours").noconvert(), nb::arg("edges").noconvert().none(),
             nb::arg("clusters").noconvert(), nb::arg("count"), nb::arg("threads"));
}

template <class Id> void bind_ids(nb::module_ &m, const char *name) {
    nb::class_<Contraction<Id>> made(m, name, "The mesh of clusters.");
    bind_contraction<Id, int32_t>(made);
    bind_contraction<Id, int64_t>(made);
    made.def("edges", &Contraction<Id>::edges, "Its entries, each edge both ways.")
        .def("write", &Contraction<Id>::write, nb::arg("lengths"), nb::arg("neighbours").noconvert(), nb::arg("edges"));
    m.def("prune", &prune<Id>, nb::arg("offsets"), nb::arg("neighbours").noconvert(), nb::arg("edges").noconvert(),
          nb::arg("share"), nb::arg("threads"));
}

} // namespace
} // namespace weft

void bind_contract(nanobind::module_ &m) {
    using namespace weft;
    bind_ids<int32_t>(m, "Contraction32");
    bind_ids<int64_t>(m, "Contraction64");
}
