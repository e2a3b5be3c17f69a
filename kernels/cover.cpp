// The cheapest vertex cover of a bipartite graph whose sides have a cost each. By König's theorem it is read off a maximum
// matching; where a left vertex may be matched `left_cost` times and a right one `right_cost` times, the matching is a flow
// and the cover a minimum cut. Augmenting paths are found a length at a time (Hopcroft and Karp; Dinic, for a flow), after
// leaves have been matched, which is never wrong (Karp and Sipser) and leaves little else to do in sparse graphs. Nothing
// recurses: paths may be as long as the graph.
#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "arrays.h"

namespace weft {
namespace {

// Edges by their right vertex (where an edge is numbered), and by their left one.
struct Bipartite {
    std::vector<int32_t> left_start, right_start, left; // left[e]
    std::vector<int32_t> right, edge;                   // at a place in a left vertex's list: the other end, the edge

    // `of(e)` is the pair (left, right) of the e-th edge given.
    template <class F> Bipartite(int64_t lefts, int64_t rights, int64_t edges, F &&of)
        : left_start(lefts + 1, 0), right_start(rights + 1, 0), left(edges), right(edges), edge(edges) {
        for (int64_t e = 0; e < edges; ++e) {
            const auto [l, r] = of(e);
            ++left_start[l + 1];
            ++right_start[r + 1];
        }
        std::partial_sum(left_start.begin(), left_start.end(), left_start.begin());
        std::partial_sum(right_start.begin(), right_start.end(), right_start.begin());
        std::vector<int32_t> next_left(left_start.begin(), left_start.end() - 1);
        std::vector<int32_t> next_right(right_start.begin(), right_start.end() - 1);
        for (int64_t e = 0; e < edges; ++e) {
            const auto [l, r] = of(e);
            const int32_t at = next_left[l]++;
            right[at] = static_cast<int32_t>(r);
            edge[at] = next_right[r]++;
            left[edge[at]] = static_cast<int32_t>(l);
        }
    }
    int32_t lefts() const { return static_cast<int32_t>(left_start.size()) - 1; }
    int32_t rights() const { return static_cast<int32_t>(right_start.size()) - 1; }
};

// What each vertex has left of its cost, and what flows through each edge.
struct Flow {
    std::vector<int32_t> left, right, edge;

    Flow(const Bipartite &graph, int32_t left_cost, int32_t right_cost)
        : left(graph.lefts(), left_cost), right(graph.rights(), right_cost), edge(graph.left.size(), 0) {}
};

// Matches leaves as long as there are any, then the next left vertex with whatever it has, and so on.
class Leaves {
  public:
    Leaves(const Bipartite &graph, Flow &flow)
        : graph_(graph), flow_(flow), lefts_(graph.lefts()), degree_(lefts_ + graph.rights()), gone_(degree_.size(), 0) {
        for (int32_t l = 0; l < lefts_; ++l) degree_[l] = graph.left_start[l + 1] - graph.left_start[l];
        for (int32_t r = 0; r < graph.rights(); ++r) degree_[lefts_ + r] = graph.right_start[r + 1] - graph.right_start[r];
        for (size_t v = 0; v < degree_.size(); ++v)
            if (degree_[v] == 1) leaves_.push_back(static_cast<int32_t>(v));
        for (int32_t l = 0; l < lefts_; ++l) {
            match_leaves();
            if (!gone_[l]) match(l);
        }
    }

  private:
    void match_leaves() {
        while (!leaves_.empty()) {
            const int32_t v = leaves_.back();
            leaves_.pop_back();
            if (!gone_[v] && degree_[v] == 1) match(v);
        }
    }

    // Calls f(neighbour, edge) for those of v that are still there, until it returns false.
    template <class F> void each(int32_t v, F &&f) const {
        if (v < lefts_) {
            for (int32_t at = graph_.left_start[v]; at < graph_.left_start[v + 1]; ++at)
                if (const int32_t u = lefts_ + graph_.right[at]; !gone_[u] && !f(u, graph_.edge[at])) return;
        } else {
            for (int32_t e = graph_.right_start[v - lefts_]; e < graph_.right_start[v - lefts_ + 1]; ++e)
                if (const int32_t u = graph_.left[e]; !gone_[u] && !f(u, e)) return;
        }
    }

    int32_t &room(int32_t v) { return v < lefts_ ? flow_.left[v] : flow_.right[v - lefts_]; }

    // Gives all that v has to its neighbours, as far as they take it; then v leaves the graph, and who is full with it.
    void match(int32_t v) {
        each(v, [&](int32_t u, int32_t e) {
            const int32_t sent = std::min(room(v), room(u));
            flow_.edge[e] += sent;
            room(v) -= sent;
            room(u) -= sent;
            if (!room(u)) remove(u);
            return room(v) > 0;
        });
        remove(v);
    }

    void remove(int32_t v) {
        gone_[v] = 1;
        each(v, [&](int32_t u, int32_t) {
            if (--degree_[u] == 1) leaves_.push_back(u);
            return true;
        });
    }

    const Bipartite &graph_;
    Flow &flow_;
    int32_t lefts_;
    std::vector<int32_t> degree_, leaves_;
    std::vector<uint8_t> gone_;
};

// Makes a flow as large as it can be.
class Augmenting {
  public:
    Augmenting(const Bipartite &graph, Flow &flow)
        : graph_(graph), flow_(flow), left_level_(graph.lefts()), right_level_(graph.rights()), next_left_(graph.lefts()),
          next_right_(graph.rights()) {
        while (levels()) {
            std::copy(graph.left_start.begin(), graph.left_start.end() - 1, next_left_.begin());
            std::copy(graph.right_start.begin(), graph.right_start.end() - 1, next_right_.begin());
            for (const int32_t l : starts_)
                while (flow_.left[l] > 0 && push(l)) {}
        }
    }

    // Lefts that have some left, and those that an alternating path leads to from them, are not in the cover.
    bool covers(int32_t left) const { return left_level_[left] == UNREACHED && listed(left); }

  private:
    static constexpr int32_t UNREACHED = std::numeric_limits<int32_t>::max();

    bool listed(int32_t left) const { return graph_.left_start[left] < graph_.left_start[left + 1]; } // has it an edge?

    // Breadth first from the lefts that have some left, forth along any edge and back along those that something flows
    // through, up to the level at which a right has some left. Is there one?
    bool levels() {
        std::fill(left_level_.begin(), left_level_.end(), UNREACHED);
        std::fill(right_level_.begin(), right_level_.end(), UNREACHED);
        starts_.clear();
        for (int32_t l = 0; l < graph_.lefts(); ++l)
            if (flow_.left[l] > 0 && listed(l)) starts_.push_back(l);
        for (const int32_t l : starts_) left_level_[l] = 0;
        queue_ = starts_;
        int32_t deepest = UNREACHED;
        for (size_t at = 0; at < queue_.size() && left_level_[queue_[at]] <= deepest; ++at) {
            const int32_t l = queue_[at], level = left_level_[l];
            for (int32_t place = graph_.left_start[l]; place < graph_.left_start[l + 1]; ++place) {
                const int32_t r = graph_.right[place];
                if (right_level_[r] != UNREACHED) continue;
                right_level_[r] = level;
                if (flow_.right[r] > 0) deepest = level;
                for (int32_t e = graph_.right_start[r]; e < graph_.right_start[r + 1]; ++e)
                    if (const int32_t back = graph_.left[e]; flow_.edge[e] > 0 && left_level_[back] == UNREACHED) {
                        left_level_[back] = level + 1;
                        queue_.push_back(back);
                    }
            }
        }
        return deepest != UNREACHED;
    }

    // Sends what it can along one path of rising levels to a right that has some left, depth first.
    bool push(int32_t start) {
        forth_.clear();
        back_.clear();
        for (int32_t l = start;;) {
            const int32_t r = step(l);
            if (r >= 0 && flow_.right[r] > 0) return send(start, r);
            if (r >= 0) {
                if (const int32_t next = step_back(r); next >= 0) {
                    l = next;
                    continue;
                }
                forth_.pop_back(); // a right from which nothing leads on
                ++next_left_[l];
                continue;
            }
            if (l == start) return false;
            back_.pop_back(); // nor from this left: back to the right before it, and on
            const int32_t before = last_right();
            ++next_right_[before];
            if (const int32_t next = step_back(before); next >= 0) {
                l = next;
                continue;
            }
            l = back_.empty() ? start : graph_.left[back_.back()];
            forth_.pop_back();
            ++next_left_[l];
        }
    }

    int32_t last_right() const { return graph_.right[forth_.back()]; }

    // From a left on to a right of its level.
    int32_t step(int32_t l) {
        for (int32_t &place = next_left_[l]; place < graph_.left_start[l + 1]; ++place)
            if (const int32_t r = graph_.right[place]; right_level_[r] == left_level_[l]) {
                forth_.push_back(place);
                return r;
            }
        return -1;
    }

    // From a right back to a left of the next level, from which something flows into it.
    int32_t step_back(int32_t r) {
        for (int32_t &e = next_right_[r]; e < graph_.right_start[r + 1]; ++e)
            if (const int32_t l = graph_.left[e]; flow_.edge[e] > 0 && left_level_[l] == right_level_[r] + 1) {
                back_.push_back(e);
                return l;
            }
        return -1;
    }

    bool send(int32_t start, int32_t right) {
        int32_t sent = std::min(flow_.left[start], flow_.right[right]);
        for (const int32_t e : back_) sent = std::min(sent, flow_.edge[e]);
        for (const int32_t place : forth_) flow_.edge[graph_.edge[place]] += sent;
        for (const int32_t e : back_) flow_.edge[e] -= sent;
        flow_.left[start] -= sent;
        flow_.right[right] -= sent;
        return true;
    }

    const Bipartite &graph_;
    Flow &flow_;
    std::vector<int32_t> left_level_, right_level_, next_left_, next_right_, starts_, queue_, forth_, back_;
};

// Flags the lefts of a cheapest cover. Of several it is the one with the most lefts, whichever way it is found.
void solve(const Bipartite &graph, int64_t left_cost, int64_t right_cost, uint8_t *chosen) {
    const int64_t common = std::gcd(left_cost, right_cost);
    Flow flow(graph, static_cast<int32_t>(left_cost / common), static_cast<int32_t>(right_cost / common));
    const Leaves leaves(graph, flow);
    const Augmenting augmented(graph, flow);
    for (int32_t l = 0; l < graph.lefts(); ++l) chosen[l] = augmented.covers(l);
}

constexpr int64_t MOST = std::numeric_limits<int32_t>::max() / 2; // costs, vertices and edges

// `chosen[l]` becomes whether left vertex l is in a cheapest cover; rights of an edge without a chosen left are the rest.
void minimum_cover(In<int64_t> indptr, In<int32_t> right, int64_t rights, int64_t left_cost, int64_t right_cost,
                   Array<uint8_t> chosen) {
    const auto lefts = static_cast<int64_t>(indptr.size()) - 1, edges = static_cast<int64_t>(right.size());
    if (static_cast<int64_t>(chosen.size()) != lefts || std::min(left_cost, right_cost) < 1)
        throw std::invalid_argument("minimum_cover: the shapes do not fit, or a cost is not positive");
    if (std::max({lefts, rights, edges, left_cost, right_cost}) > MOST) throw std::invalid_argument("minimum_cover: too large");
    nb::gil_scoped_release released;
    std::vector<int32_t> left(edges);
    for (int64_t l = 0; l < lefts; ++l)
        std::fill(left.begin() + indptr.data()[l], left.begin() + indptr.data()[l + 1], static_cast<int32_t>(l));
    const Bipartite graph(lefts, rights, edges, [&](int64_t e) { return std::pair(left[e], right.data()[e]); });
    solve(graph, left_cost, right_cost, chosen.data());
}

// Which remote sources of a block to pull, so that the least moves: on the left are these sources, on the right the pairs of
// a destination and an owner of some of its sources, who may push it their sum instead. `pulled` has a flag a source.
void exact_cover(In<int64_t> indptr, In<int32_t> src, In<uint16_t> member, int64_t rank, int64_t size, int64_t pull,
                 int64_t push, Array<uint8_t> pulled) {
    const auto rows = static_cast<int64_t>(indptr.size()) - 1, sources = static_cast<int64_t>(member.size());
    if (static_cast<int64_t>(pulled.size()) != sources || std::min(pull, push) < 1)
        throw std::invalid_argument("exact_cover: the shapes do not fit, or a cost is not positive");
    if (std::max({sources, static_cast<int64_t>(src.size()), pull, push}) > MOST)
        throw std::invalid_argument("exact_cover: too large");
    const int64_t *offset = indptr.data();
    const uint16_t *owner = member.data();
    nb::gil_scoped_release released;
    std::vector<std::pair<int32_t, int32_t>> remote;
    std::vector<int64_t> last(size, -1);
    std::vector<int32_t> pair(size);
    int32_t pairs = 0;
    for (int64_t row = 0; row < rows; ++row)
        for (int64_t e = offset[row]; e < offset[row + 1]; ++e) {
            const int32_t u = src.data()[e];
            const uint16_t from = owner[u];
            if (from == rank) continue;
            if (last[from] != row) pair[from] = pairs++;
            last[from] = row;
            remote.emplace_back(u, pair[from]);
        }
    const Bipartite graph(sources, pairs, static_cast<int64_t>(remote.size()), [&](int64_t e) { return remote[e]; });
    solve(graph, pull, push, pulled.data());
}

} // namespace
} // namespace weft

void bind_cover(nanobind::module_ &m) {
    using namespace weft;
    m.def("minimum_cover", &minimum_cover, nb::arg("indptr"), nb::arg("right"), nb::arg("rights"), nb::arg("left_cost"),
          nb::arg("right_cost"), nb::arg("chosen"));
    m.def("exact_cover", &exact_cover, nb::arg("indptr"), nb::arg("src"), nb::arg("member"), nb::arg("rank"),
          nb::arg("size"), nb::arg("pull"), nb::arg("push"), nb::arg("pulled"));
}
