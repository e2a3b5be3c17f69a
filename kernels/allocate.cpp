// Allocations of the nodes of a small mesh: AdaGL's greedy start, and the best naming of one allocation's parts by another's.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "arrays.h"
#include "mesh.h"
#include "parallel.h"

namespace weft {
namespace {

// How far the parts are from their shares, sum |load / (share x total) - 1|, as weights are added to one part after another.
class Imbalance {
  public:
    Imbalance(const double *shares, int parts) : shares_(shares), loads_(parts, 0.0) {}

    // Another `weight` is to come: what is the sum over all parts, if none of them gets it?
    void announce(double weight) {
        total_ += weight;
        weight_ = weight;
        sum_ = 0;
        for (size_t p = 0; p < loads_.size(); ++p) sum_ += term(p, loads_[p]);
    }
    // The imbalance if this part gets it.
    double with(size_t part) const {
        if (total_ == 0 || loads_.size() < 2) return 0;
        const double sum = sum_ - term(part, loads_[part]) + term(part, loads_[part] + weight_);
        return sum / static_cast<double>(loads_.size() - 1);
    }
    void give(size_t part) { loads_[part] += weight_; }
    double load(size_t part) const { return loads_[part] / shares_[part]; }

  private:
    double term(size_t part, double load) const {
        return total_ == 0 ? 0 : std::abs(load / (shares_[part] * total_) - 1);
    }

    const double *shares_;
    std::vector<double> loads_;
    double total_ = 0, weight_ = 0, sum_ = 0;
};

constexpr double TIE = 1e-9; // costs that differ by less are equal, but for rounding

struct Coefficients {
    double vertices, training, cut;
};

// AdaGL's second algorithm: nodes in order, each to the part where a L(W) + b L(W of training) + c E is smallest, all taken
// over the nodes that have a part by then; a tie goes to the part with the least.
template <class Id, class Weight>
void allocate_greedily(const Mesh<Id, Weight> &mesh, const Coefficients &of, const Id *order, const double *shares,
                       int parts, int32_t *owners) {
    std::fill_n(owners, mesh.count, -1);
    Imbalance vertices(shares, parts), training(shares, parts);
    std::vector<double> joined(parts);
    double cut = 0, seen = 0;
    for (int64_t i = 0; i < mesh.count; ++i) {
        const int64_t v = order[i];
        std::fill(joined.begin(), joined.end(), 0.0);
        for (int64_t e = mesh.offsets[v]; e < mesh.offsets[v + 1]; ++e)
            if (const int32_t owner = owners[mesh.neighbours[e]]; owner >= 0) joined[owner] += mesh.weight(e);
        const double all = std::accumulate(joined.begin(), joined.end(), 0.0);
        vertices.announce(static_cast<double>(mesh.vertices[v]));
        training.announce(static_cast<double>(mesh.training[v]));
        seen += all;
        int best = 0;
        double least = std::numeric_limits<double>::infinity();
        for (int p = 0; p < parts; ++p) {
            const double edges = seen > 0 ? (cut + all - joined[p]) / seen : 0;
            const double cost = of.vertices * vertices.with(p) + of.training * training.with(p) + of.cut * edges;
            if (cost > least + TIE || (cost > least - TIE && vertices.load(p) >= vertices.load(best))) continue;
            least = cost;
            best = p;
        }
        owners[v] = best;
        cut += all - joined[best];
        vertices.give(best);
        training.give(best);
    }
}

// One allocation for each row of coefficients and of orders.
template <class Id, class Weight>
void greedy(In<int64_t> offsets, In<Id> neighbours, MaybeIn<Weight> edges, In<int64_t> vertices, In<int64_t> training,
            In<double, 2> coefficients, In<Id, 2> orders, In<double> shares, Array<int32_t, 2> owners, int threads) {
    const auto mesh = mesh_of<Id, Weight>(offsets, neighbours, edges, vertices, training);
    const auto rows = static_cast<int>(owners.shape(0)), parts = static_cast<int>(shares.size());
    nb::gil_scoped_release released;
    in_pieces(threads, rows, [&](int row) {
        const double *of = coefficients.data() + 3 * row;
        allocate_greedily(mesh, {of[0], of[1], of[2]}, orders.data() + row * mesh.count, shares.data(), parts,
                          owners.data() + row * mesh.count);
    });
}

// For each column the row that it gets, each row once, so that the sum of gains is largest: the Hungarian method, by
// shortest augmenting paths over prices.
void best_naming(In<int64_t, 2> gains, Array<int32_t> rows) {
    const auto n = static_cast<int>(rows.size());
    const int64_t *gain = gains.data(), far = std::numeric_limits<int64_t>::max();
    std::vector<int64_t> row_price(n + 1, 0), column_price(n + 1, 0);
    std::vector<int> row_of(n + 1, 0), before(n + 1);
    for (int row = 1; row <= n; ++row) {
        row_of[0] = row;
        int column = 0;
        std::vector<int64_t> slack(n + 1, far);
        std::vector<bool> done(n + 1, false);
        do {
            done[column] = true;
            const int here = row_of[column];
            int64_t least = far;
            int next = 0;
            for (int c = 1; c <= n; ++c) {
                if (done[c]) continue;
                const int64_t cost = -gain[(here - 1) * n + c - 1] - row_price[here] - column_price[c];
                if (cost < slack[c]) {
                    slack[c] = cost;
                    before[c] = column;
                }
                if (slack[c] < least) {
                    least = slack[c];
                    next = c;
                }
            }
            for (int c = 0; c <= n; ++c) {
                if (done[c]) {
                    row_price[row_of[c]] += least;
                    column_price[c] -= least;
                } else slack[c] -= least;
            }
            column = next;
        } while (row_of[column]);
        for (; column; column = before[column]) row_of[column] = row_of[before[column]];
    }
    for (int c = 1; c <= n; ++c) rows.data()[c - 1] = row_of[c] - 1;
}

template <class Id, class Weight> void bind_greedy(nb::module_ &m) {
    m.def("greedy", &greedy<Id, Weight>, nb::arg("offsets"), nb::arg("neighbours").noconvert(),
          nb::arg("edges").noconvert().none(), nb::arg("vertices"), nb::arg("training"), nb::arg("coefficients"),
          nb::arg("orders").noconvert(), nb::arg("shares"), nb::arg("owners"), nb::arg("threads"));
}

} // namespace
} // namespace weft

void bind_allocate(nanobind::module_ &m) {
    using namespace weft;
    bind_greedy<int32_t, int32_t>(m);
    bind_greedy<int32_t, int64_t>(m);
    bind_greedy<int64_t, int32_t>(m);
    bind_greedy<int64_t, int64_t>(m);
    m.def("best_naming", &best_naming, nb::arg("gains"), nb::arg("rows"));
}
