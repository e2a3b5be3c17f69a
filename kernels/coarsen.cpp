// Vertices of a mesh to clusters that shall be the nodes of a smaller one: balls around cores, or pairs of heavy edges.
// While threads work, nothing changes that others read; what changes is changed in the order of vertices afterwards. So the
// number of threads is no matter.
#include <unordered_map>

#include "arrays.h"
#include "mesh.h"
#include "parallel.h"

namespace weft {
namespace {

// Clusters as they grow. A cluster bears the number of the vertex that founded it, so that whatever is known of a cluster
// is found there. None outgrows the limits, and vertices that must stay apart never share one.
template <class Id, class Weight> class Clusters {
  public:
    Clusters(const Mesh<Id, Weight> &mesh, const int32_t *apart, int64_t most, int64_t most_training, Id *cluster, int threads)
        : mesh_(mesh), apart_(apart), most_(most), most_training_(most_training), cluster_(cluster), threads_(threads),
          load_(mesh.count, 0), load_training_(mesh.count, 0) {
        std::fill_n(cluster_, mesh.count, Id{-1});
    }

    bool is_free(int64_t v) const { return cluster_[v] < 0; }
    bool alike(int64_t u, int64_t v) const { return !apart_ || apart_[u] == apart_[v]; }
    bool fits(int64_t cluster, int64_t v) const {
        return alike(cluster, v) && load_[cluster] + mesh_.vertices[v] <= most_ &&
               load_training_[cluster] + mesh_.training[v] <= most_training_;
    }
    void found(int64_t v) { join(v, v); }
    void join(int64_t cluster, int64_t v) {
        cluster_[v] = static_cast<Id>(cluster);
        load_[cluster] += mesh_.vertices[v];
        load_training_[cluster] += mesh_.training[v];
    }

    // Takes back `found`.
    void leave(int64_t v) {
        cluster_[v] = -1;
        load_[v] = load_training_[v] = 0;
    }

    // One hop of breadth-first search from all clusters at once: each free vertex goes to the cluster with room that most
    // of its edges lead to, by weight. Did any go?
    bool absorb() {
        propose([&](int64_t cluster, int64_t v) { return fits(cluster, v); });
        bool any = false;
        for (int64_t v = 0; v < mesh_.count; ++v) {
            if (wanted_[v] < 0 || !fits(wanted_[v], v)) continue;
            join(wanted_[v], v);
            any = true;
        }
        return any;
    }

    // Founders that nothing joined are free again.
    void release() {
        for (int64_t v = 0; v < mesh_.count; ++v)
            if (cluster_[v] == v && load_[v] == mesh_.vertices[v]) leave(v);
    }

    // Free vertices beside a cluster without room form clusters with others that would have gone there too.
    void overflow() {
        propose([&](int64_t cluster, int64_t v) { return alike(cluster, v); });
        std::vector<Id> open(mesh_.count, -1);
        for (int64_t v = 0; v < mesh_.count; ++v) {
            if (wanted_[v] < 0) continue;
            Id &beside = open[wanted_[v]];
            if (beside >= 0 && fits(beside, v)) join(beside, v);
            else {
                found(v);
                beside = static_cast<Id>(v);
            }
        }
    }

    // Vertices without edges are gathered in order, training vertices for themselves; other free ones stay alone.
    void settle() {
        std::unordered_map<int64_t, int64_t> open; // by what must stay apart, and training or not
        for (int64_t v = 0; v < mesh_.count; ++v) {
            if (!is_free(v)) continue;
            if (mesh_.degree(v)) {
                found(v);
                continue;
            }
            const int64_t kind = 2 * (apart_ ? int64_t{apart_[v]} : 0) + (mesh_.training[v] > 0);
            const auto there = open.find(kind);
            if (there != open.end() && fits(there->second, v)) join(there->second, v);
            else {
                found(v);
                open[kind] = v;
            }
        }
    }

    // Numbers clusters from 0 on, in the order of their first vertices. How many?
    int64_t number() const {
        std::vector<Id> number(mesh_.count, -1);
        Id count = 0;
        for (int64_t v = 0; v < mesh_.count; ++v) {
            Id &known = number[cluster_[v]];
            if (known < 0) known = count++;
            cluster_[v] = known;
        }
        return count;
    }

  private:
    // Each free vertex's best cluster among the allowed ones beside it, or -1; equal weights are settled by a hash.
    template <class Allowed> void propose(Allowed &&allowed) {
        wanted_.assign(mesh_.count, -1);
        parallel_rows(mesh_.offsets, mesh_.count, threads_, EDGES_A_THREAD, [&](int64_t begin, int64_t end) {
            Tally tally;
            for (int64_t v = begin; v < end; ++v)
                if (is_free(v)) wanted_[v] = best(v, tally, allowed);
        });
    }
    template <class Allowed> Id best(int64_t v, Tally &tally, Allowed &&allowed) const {
        const int64_t from = mesh_.offsets[v], to = mesh_.offsets[v + 1];
        bool beside = false;
        for (int64_t e = from; e < to && !beside; ++e) beside = !is_free(mesh_.neighbours[e]);
        if (!beside) return -1;
        tally.begin(to - from);
        for (int64_t e = from; e < to; ++e)
            if (!is_free(mesh_.neighbours[e])) tally.add(cluster_[mesh_.neighbours[e]], mesh_.weight(e));
        int64_t best = -1, most = 0;
        for (const int64_t cluster : tally.keys()) {
            const int64_t sum = tally.sum(cluster);
            if (sum < most || !allowed(cluster, v)) continue;
            if (best >= 0 && sum == most && chain(v, cluster) >= chain(v, best)) continue;
            best = cluster;
            most = sum;
        }
        return static_cast<Id>(best);
    }

    const Mesh<Id, Weight> mesh_;
    const int32_t *apart_;
    const int64_t most_, most_training_;
    Id *cluster_;
    const int threads_;
    std::vector<int64_t> load_, load_training_;
    std::vector<Id> wanted_;
};

// Balls around a share of the training vertices, then around a share of what these do not reach. Cores whose neighbours all
// went elsewhere go there as well.
template <class Id, class Weight>
int64_t balls(In<int64_t> offsets, In<Id> neighbours, MaybeIn<Weight> edges, In<int64_t> vertices, In<int64_t> training,
              MaybeIn<int32_t> apart, uint64_t key, double share, int hops, int64_t most, int64_t most_training,
              Array<Id> cluster, int threads) {
    const auto mesh = mesh_of<Id, Weight>(offsets, neighbours, edges, vertices, training);
    nb::gil_scoped_release released;
    Clusters<Id, Weight> clusters(mesh, data_or_null(apart), most, most_training, cluster.data(), threads);
    const bool any = std::any_of(mesh.training, mesh.training + mesh.count, [](int64_t t) { return t > 0; });
    for (uint64_t pass = any ? 0 : 1; pass < 2; ++pass) {
        const uint64_t own = chain(key, pass);
        for (int64_t v = 0; v < mesh.count; ++v)
            if (clusters.is_free(v) && (pass ? mesh.degree(v) > 0 : mesh.training[v] > 0) && unit(chain(own, v)) <= share)
                clusters.found(v);
        for (int hop = 0; hop < hops; ++hop)
            if (!clusters.absorb()) break;
        clusters.release();
        clusters.absorb();
        clusters.overflow();
    }
    clusters.settle();
    return clusters.number();
}

// Pairs joined by heavy edges: each vertex in the order given takes its free neighbour of the heaviest edge; those left
// without a partner are paired with another one whose heaviest edge leads to the same vertex (leaves of a star).
template <class Id, class Weight>
int64_t matching(In<int64_t> offsets, In<Id> neighbours, MaybeIn<Weight> edges, In<int64_t> vertices, In<int64_t> training,
                 MaybeIn<int32_t> apart, In<int64_t> order, int64_t most, int64_t most_training, Array<Id> cluster) {
    const auto mesh = mesh_of<Id, Weight>(offsets, neighbours, edges, vertices, training);
    nb::gil_scoped_release released;
    Clusters<Id, Weight> clusters(mesh, data_or_null(apart), most, most_training, cluster.data(), 1);
    std::vector<Id> waiting(mesh.count, -1); // at its heaviest neighbour
    for (int64_t i = 0; i < mesh.count; ++i) {
        const int64_t v = order.data()[i];
        if (!clusters.is_free(v) || !mesh.degree(v)) continue;
        clusters.found(v);
        int64_t partner = -1, heaviest = -1, weight = 0, any = 0;
        for (int64_t e = mesh.offsets[v]; e < mesh.offsets[v + 1]; ++e) {
            const int64_t u = mesh.neighbours[e];
            if (mesh.weight(e) > any) {
                any = mesh.weight(e);
                heaviest = u;
            }
            if (mesh.weight(e) > weight && clusters.is_free(u) && clusters.fits(v, u)) {
                weight = mesh.weight(e);
                partner = u;
            }
        }
        if (partner >= 0) {
            clusters.join(v, partner);
            continue;
        }
        if (heaviest < 0) continue; // edges that weigh nothing lead nowhere
        Id &other = waiting[heaviest];
        if (other >= 0 && clusters.fits(other, v)) {
            clusters.leave(v);
            clusters.join(other, v);
            other = -1;
        } else other = static_cast<Id>(v);
    }
    clusters.settle();
    return clusters.number();
}

template <class Id, class Weight> void bind_kinds(nb::module_ &m) {
    m.def("balls", &balls<Id, Weight>, nb::arg("offsets"), nb::arg("neighbours").noconvert(),
          nb::arg("edges").noconvert().none(), nb::arg("vertices"), nb::arg("training"), nb::arg("apart").none(),
          nb::arg("key"), nb::arg("share"), nb::arg("hops"), nb::arg("most"), nb::arg("most_training"),
          nb::arg("cluster").noconvert(), nb::arg("threads"));
    m.def("matching", &matching<Id, Weight>, nb::arg("offsets"), nb::arg("neighbours").noconvert(),
          nb::arg("edges").noconvert().none(), nb::arg("vertices"), nb::arg("training"), nb::arg("apart").none(),
          nb::arg("order"), nb::arg("most"), nb::arg("most_training"), nb::arg("cluster").noconvert());
}

} // namespace
} // namespace weft

void bind_coarsen(nanobind::module_ &m) {
    using namespace weft;
    bind_kinds<int32_t, int32_t>(m);
    bind_kinds<int32_t, int64_t>(m);
    bind_kinds<int64_t, int32_t>(m);
    bind_kinds<int64_t, int64_t>(m);
}
