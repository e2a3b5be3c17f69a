// Refining an allocation: nodes move to the part that most of their edges lead to, within the parts' limits.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "arrays.h"
#include "mesh.h"
#include "parallel.h"

namespace weft {
namespace {

// What the parts hold of one weight, and the most that each may.
struct Loads {
    const int64_t *weights;
    const int64_t *limits;
    std::vector<int64_t> held;

    Loads(const int64_t *weights, const int64_t *limits, const int32_t *owners, int64_t count, int parts)
        : weights(weights), limits(limits), held(parts, 0) {
        for (int64_t v = 0; v < count; ++v) held[owners[v]] += weights[v];
    }
    bool over(int part) const { return held[part] > limits[part]; }
    bool any_over() const {
        for (size_t p = 0; p < held.size(); ++p)
            if (over(static_cast<int>(p))) return true;
        return false;
    }
    // Is there room for it, or does it weigh nothing here?
    bool takes(int64_t v, int part) const { return !weights[v] || held[part] + weights[v] <= limits[part]; }
    double fullness(int part) const { return static_cast<double>(held[part]) / static_cast<double>(std::max<int64_t>(limits[part], 1)); }
    void move(int64_t v, int from, int to) {
        held[from] -= weights[v];
        held[to] += weights[v];
    }
};

constexpr int64_t BLOCK = 1 << 14; // nodes whose wishes are made up before any of them moves
constexpr int64_t BLOCKS = 64;     // at least, for small meshes

template <class Id, class Weight> class Refiner {
  public:
    Refiner(const Mesh<Id, Weight> &mesh, int32_t *owners, int parts, const int64_t *limits, const int64_t *training_limits,
            int64_t heaviest)
        : mesh_(mesh), owners_(owners), parts_(parts), heaviest_(heaviest),
          vertices_(mesh.vertices, limits, owners, mesh.count, parts),
          training_(mesh.training, training_limits, owners, mesh.count, parts) {}

    // Goes over all nodes once. Threads make up the wishes of a block of nodes; then the nodes that have one look again,
    // in order, and move. How many moved?
    int64_t sweep(int threads) {
        const int64_t block = std::clamp<int64_t>(mesh_.count / BLOCKS, 1, BLOCK);
        std::vector<int32_t> wishes(block);
        std::vector<int64_t> joined(parts_);
        int64_t moved = 0;
        for (int64_t first = 0; first < mesh_.count; first += block) {
            const int64_t size = std::min(block, mesh_.count - first);
            parallel_rows(mesh_.offsets + first, size, threads, EDGES_A_THREAD, [&](int64_t begin, int64_t end) {
                std::vector<int64_t> own(parts_);
                for (int64_t i = begin; i < end; ++i) wishes[i] = wish(first + i, own);
            });
            for (int64_t i = 0; i < size; ++i) {
                if (wishes[i] < 0) continue;
                const int to = wish(first + i, joined);
                if (to < 0) continue;
                move(first + i, to);
                ++moved;
            }
        }
        return moved;
    }

    // Brings the parts within their limits: of what they must hold less of, what loses least goes first. Training vertices
    // come first and may overfill a part with others, which then leave it for themselves.
    int64_t balance() {
        int64_t moved = 0;
        for (int round = 0; round < ROUNDS && (training_.any_over() || vertices_.any_over()); ++round)
            moved += relieve(training_, false) + relieve(vertices_, true);
        return moved;
    }

  private:
    static constexpr int ROUNDS = 4;

    struct Candidate {
        double loss; // of edges, for a unit of weight
        int64_t vertex;
    };

    void move(int64_t v, int to) {
        vertices_.move(v, owners_[v], to);
        training_.move(v, owners_[v], to);
        owners_[v] = to;
    }
    bool room(int64_t v, int part) const { return vertices_.takes(v, part) && training_.takes(v, part); }

    // Weights of the edges to each part; do any lead out of the node's own?
    bool join(int64_t v, std::vector<int64_t> &joined) const {
        std::fill(joined.begin(), joined.end(), 0);
        bool boundary = false;
        for (int64_t e = mesh_.offsets[v]; e < mesh_.offsets[v + 1]; ++e) {
            const int32_t part = owners_[mesh_.neighbours[e]];
            joined[part] += mesh_.weight(e);
            boundary |= part != owners_[v];
        }
        return boundary;
    }

    // The part with room that the heaviest edges lead to, if that is more than stays behind (or as much, and the part is
    // emptier even with the node); -1: none.
    int wish(int64_t v, std::vector<int64_t> &joined) const {
        if (mesh_.vertices[v] > heaviest_ || !join(v, joined)) return -1;
        const int own = owners_[v];
        int best = -1;
        for (int p = 0; p < parts_; ++p) {
            if (p == own || joined[p] < joined[own] || (best >= 0 && joined[p] < joined[best])) continue;
            if (joined[p] == joined[own] && !evens(v, own, p)) continue;
            if (best >= 0 && joined[p] == joined[best] && vertices_.fullness(p) >= vertices_.fullness(best)) continue;
            if (room(v, p)) best = p;
        }
        return best;
    }
    bool evens(int64_t v, int from, int to) const {
        const double grown = static_cast<double>(vertices_.held[to] + mesh_.vertices[v]);
        return grown / static_cast<double>(std::max<int64_t>(vertices_.limits[to], 1)) < vertices_.fullness(from);
    }

    // The part with room where the node would lose least; -1: none has room.
    int refuge(int64_t v, bool both, const Loads &loads, std::vector<int64_t> &joined) const {
        join(v, joined);
        int best = -1;
        for (int p = 0; p < parts_; ++p) {
            if (p == owners_[v] || !(both ? room(v, p) : loads.takes(v, p))) continue;
            if (best < 0 || joined[p] > joined[best] ||
                (joined[p] == joined[best] && loads.fullness(p) < loads.fullness(best)))
                best = p;
        }
        return best;
    }

    int64_t relieve(const Loads &loads, bool both) {
        if (!loads.any_over()) return 0;
        std::vector<Candidate> candidates;
        std::vector<int64_t> joined(parts_);
        for (int64_t v = 0; v < mesh_.count; ++v) {
            if (!loads.weights[v] || !loads.over(owners_[v])) continue;
            const int to = refuge(v, both, loads, joined);
            if (to < 0) continue;
            const auto loss = static_cast<double>(joined[owners_[v]] - joined[to]);
            candidates.push_back({loss / static_cast<double>(loads.weights[v]), v});
        }
        std::sort(candidates.begin(), candidates.end(), [](const Candidate &a, const Candidate &b) {
            return a.loss < b.loss || (a.loss == b.loss && a.vertex < b.vertex);
        });
        int64_t moved = 0;
        for (const Candidate &candidate : candidates) {
            const int64_t v = candidate.vertex;
            if (!loads.over(owners_[v])) continue;
            const int to = refuge(v, both, loads, joined);
            if (to < 0) continue;
            move(v, to);
            ++moved;
        }
        return moved;
    }

    const Mesh<Id, Weight> mesh_;
    int32_t *owners_;
    const int parts_;
    const int64_t heaviest_;
    Loads vertices_, training_;
};

// Balances, then sweeps until hardly any node moves. How many moved in all?
template <class Id, class Weight>
int64_t refine(In<int64_t> offsets, In<Id> neighbours, MaybeIn<Weight> edges, In<int64_t> vertices, In<int64_t> training,
               In<int64_t> limits, In<int64_t> training_limits, int64_t heaviest, int sweeps, double enough,
               Array<int32_t> owners, int threads) {
    const auto mesh = mesh_of<Id, Weight>(offsets, neighbours, edges, vertices, training);
    const auto parts = static_cast<int>(limits.size());
    nb::gil_scoped_release released;
    Refiner<Id, Weight> refiner(mesh, owners.data(), parts, limits.data(), training_limits.data(), heaviest);
    int64_t moved = refiner.balance();
    for (int sweep = 0; sweep < sweeps; ++sweep) {
        const int64_t some = refiner.sweep(threads);
        moved += some;
        if (static_cast<double>(some) <= enough * static_cast<double>(mesh.count)) break;
    }
    return moved;
}

// The same for several allocations of a small mesh, a thread to each.
template <class Id, class Weight>
void refine_all(In<int64_t> offsets, In<Id> neighbours, MaybeIn<Weight> edges, In<int64_t> vertices, In<int64_t> training,
                In<int64_t> limits, In<int64_t> training_limits, int64_t heaviest, int sweeps, Array<int32_t, 2> owners,
                int threads) {
    const auto mesh = mesh_of<Id, Weight>(offsets, neighbours, edges, vertices, training);
    const auto parts = static_cast<int>(limits.size()), many = static_cast<int>(owners.shape(0));
    nb::gil_scoped_release released;
    in_pieces(threads, many, [&](int i) {
        Refiner<Id, Weight> refiner(mesh, owners.data() + i * mesh.count, parts, limits.data(), training_limits.data(), heaviest);
        refiner.balance();
        for (int sweep = 0; sweep < sweeps; ++sweep)
            if (!refiner.sweep(1)) break;
    });
}

template <class Id, class Weight> void bind_kinds(nb::module_ &m) {
    m.def("refine_all", &refine_all<Id, Weight>, nb::arg("offsets"), nb::arg("neighbours").noconvert(),
          nb::arg("edges").noconvert().none(), nb::arg("vertices"), nb::arg("training"), nb::arg("limits"),
          nb::arg("training_limits"), nb::arg("heaviest"), nb::arg("sweeps"), nb::arg("owners"), nb::arg("threads"));
    m.def("refine", &refine<Id, Weight>, nb::arg("offsets"), nb::arg("neighbours").noconvert(),
          nb::arg("edges").noconvert().none(), nb::arg("vertices"), nb::arg("training"), nb::arg("limits"),
          nb::arg("training_limits"), nb::arg("heaviest"), nb::arg("sweeps"), nb::arg("enough"), nb::arg("owners"),
          nb::arg("threads"));
}

} // namespace
} // namespace weft

void bind_refine(nanobind::module_ &m) {
    using namespace weft;
    bind_kinds<int32_t, int32_t>(m);
    bind_kinds<int32_t, int64_t>(m);
    bind_kinds<int64_t, int32_t>(m);
    bind_kinds<int64_t, int64_t>(m);
}
