// The cheapest vertex cover of a bipartite graph whose sides have a cost each: a minimum cut, by Dinic's algorithm. Left
// vertices hang on the source by edges of one capacity, right ones on the sink by edges of the other; the edges between
// have no limit.
#include <algorithm>
#include <limits>
#include <stdexcept>
#include <vector>

#include "arrays.h"

namespace weft {
namespace {

class Flow {
  public:
    Flow(const int64_t *indptr, const int32_t *right, int64_t lefts, int64_t rights, int64_t left_cost, int64_t right_cost)
        : indptr_(indptr), right_(right), lefts_(lefts), from_source_(lefts, left_cost), to_sink_(rights, right_cost),
          flow_(indptr[lefts], 0), back_start_(rights + 1, 0), back_left_(indptr[lefts]), back_edge_(indptr[lefts]) {
        for (int64_t e = 0; e < indptr[lefts]; ++e) ++back_start_[right[e] + 1];
        for (int64_t r = 0; r < rights; ++r) back_start_[r + 1] += back_start_[r];
        std::vector<int64_t> next(back_start_.begin(), back_start_.end() - 1);
        for (int64_t l = 0; l < lefts; ++l)
            for (int64_t e = indptr[l]; e < indptr[l + 1]; ++e) {
                back_left_[next[right[e]]] = static_cast<int32_t>(l);
                back_edge_[next[right[e]]++] = e;
            }
        greedy();
        while (levels()) {
            std::copy(indptr_, indptr_ + lefts_, next_left_.begin());
            std::copy(back_start_.begin(), back_start_.end() - 1, next_right_.begin());
            for (int64_t l = 0; l < lefts_; ++l)
                while (from_source_[l] > 0 && level_left_[l] == 0) {
                    const int64_t sent = push(l, from_source_[l]);
                    if (!sent) break;
                    from_source_[l] -= sent;
                }
        }
    }

    // Lefts that the source no longer reaches are in the cover.
    bool covers(int64_t left) const { return level_left_[left] < 0; }

  private:
    void greedy() {
        for (int64_t l = 0; l < lefts_; ++l)
            for (int64_t e = indptr_[l]; e < indptr_[l + 1] && from_source_[l] > 0; ++e) {
                const int64_t sent = std::min(from_source_[l], to_sink_[right_[e]]);
                from_source_[l] -= sent;
                to_sink_[right_[e]] -= sent;
                flow_[e] += sent;
            }
    }

    // Breadth first from the source over what is left of the capacities; is the sink within reach?
    bool levels() {
        const auto rights = static_cast<int64_t>(to_sink_.size());
        level_left_.assign(lefts_, -1);
        level_right_.assign(rights, -1);
        next_left_.resize(lefts_);
        next_right_.resize(rights);
        queue_.clear();
        bool reached = false;
        for (int64_t l = 0; l < lefts_; ++l)
            if (from_source_[l] > 0) {
                level_left_[l] = 0;
                queue_.push_back(l);
            }
        for (size_t at = 0; at < queue_.size(); ++at) {
            const int64_t v = queue_[at];
            if (v < lefts_) {
                for (int64_t e = indptr_[v]; e < indptr_[v + 1]; ++e)
                    if (level_right_[right_[e]] < 0) {
                        level_right_[right_[e]] = level_left_[v] + 1;
                        reached |= to_sink_[right_[e]] > 0;
                        queue_.push_back(lefts_ + right_[e]);
                    }
            } else {
                const int64_t r = v - lefts_;
                for (int64_t b = back_start_[r]; b < back_start_[r + 1]; ++b)
                    if (flow_[back_edge_[b]] > 0 && level_left_[back_left_[b]] < 0) {
                        level_left_[back_left_[b]] = level_right_[r] + 1;
                        queue_.push_back(back_left_[b]);
                    }
            }
        }
        return reached;
    }

    // Sends up to `room` along one path of rising levels from a left vertex to the sink, depth first without recursion.
    int64_t push(int64_t start, int64_t room) {
        path_.clear();
        int64_t v = start;
        for (;;) {
            bool moved = false;
            if (v < lefts_) {
                for (int64_t &e = next_left_[v]; e < indptr_[v + 1]; ++e)
                    if (level_right_[right_[e]] == level_left_[v] + 1) {
                        path_.push_back({e, true});
                        v = lefts_ + right_[e];
                        moved = true;
                        break;
                    }
            } else {
                const int64_t r = v - lefts_;
                if (to_sink_[r] > 0) return send(r, room);
                for (int64_t &b = next_right_[r]; b < back_start_[r + 1]; ++b) {
                    const int64_t l = back_left_[b];
                    if (flow_[back_edge_[b]] > 0 && level_left_[l] == level_right_[r] + 1) {
                        path_.push_back({back_edge_[b], false});
                        v = l;
                        moved = true;
                        break;
                    }
                }
            }
            if (moved) continue;
            if (path_.empty()) return 0;
            const auto [edge, forward] = path_.back(); // a dead end: step back and past it
            path_.pop_back();
            v = forward ? left_of(edge) : lefts_ + right_[edge];
            v < lefts_ ? ++next_left_[v] : ++next_right_[v - lefts_];
        }
    }

    int64_t left_of(int64_t edge) const { return std::upper_bound(indptr_, indptr_ + lefts_ + 1, edge) - indptr_ - 1; }

    int64_t send(int64_t right, int64_t room) {
        room = std::min(room, to_sink_[right]);
        for (auto [edge, forward] : path_)
            if (!forward) room = std::min(room, flow_[edge]);
        for (auto [edge, forward] : path_) flow_[edge] += forward ? room : -room;
        to_sink_[right] -= room;
        return room;
    }

    const int64_t *indptr_;
    const int32_t *right_;
    int64_t lefts_;
    std::vector<int64_t> from_source_, to_sink_, flow_, back_start_;
    std::vector<int32_t> back_left_;
    std::vector<int64_t> back_edge_, next_left_, next_right_, queue_;
    std::vector<int32_t> level_left_, level_right_;
    std::vector<std::pair<int64_t, bool>> path_;
};

// `chosen[l]` becomes whether left vertex l is in a cheapest cover; rights of an edge without a chosen left are the rest.
void minimum_cover(In<int64_t> indptr, In<int32_t> right, int64_t rights, int64_t left_cost, int64_t right_cost,
                   Array<uint8_t> chosen) {
    const auto lefts = static_cast<int64_t>(indptr.size()) - 1;
    if (static_cast<int64_t>(chosen.size()) != lefts || left_cost < 1 || right_cost < 1)
        throw std::invalid_argument("minimum_cover: the shapes do not fit, or a cost is not positive");
    nb::gil_scoped_release released;
    const Flow flow(indptr.data(), right.data(), lefts, rights, left_cost, right_cost);
    for (int64_t l = 0; l < lefts; ++l) chosen.data()[l] = flow.covers(l);
}

} // namespace
} // namespace weft

void bind_cover(nanobind::module_ &m) {
    using namespace weft;
    m.def("minimum_cover", &minimum_cover, nb::arg("indptr"), nb::arg("right"), nb::arg("rights"), nb::arg("left_cost"),
          nb::arg("right_cost"), nb::arg("chosen"));
}
