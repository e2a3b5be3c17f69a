// Vertices dealt to parts one after the other (or a block at a time), each to where its neighbours are and room is left.
#include <algorithm>
#include <cmath>
#include <vector>

#include "arrays.h"

namespace weft {
namespace {

// What one part should have, may have at most, and has.
struct Part {
    double target, room, training_room;
    int64_t load = 0, training = 0;
    double factor = 0, fullness = 0; // both follow the load: Rule::update

    Part(double target, double training_target, double slack)
        : target(target), room(target * slack), training_room(training_target * slack) {}
    // Training vertices have a limit of their own when they come alone; blocks are too coarse to keep to two limits.
    bool fits(int64_t more, bool trains) const {
        return static_cast<double>(load + more) <= room &&
               (!trains || training_room == 0 || static_cast<double>(training + 1) <= training_room);
    }
};

// Linear deterministic greedy: neighbours in the part, times the room left in it; of training vertices too where they are
// counted.
struct ByRoom {
    void update(Part &part) const {
        const double room = std::max(0.0, 1 - static_cast<double>(part.load) / part.room);
        const bool counted = part.training_room > 0;
        const double training = counted ? std::max(0.0, 1 - static_cast<double>(part.training) / part.training_room) : 1;
        part.factor = room * training;
        part.fullness = static_cast<double>(part.load) / part.target;
    }
    double score(double gain, const Part &part) const { return gain * part.factor; }
};

// Fennel: neighbours in the part, less what one more vertex there costs: the derivative of load^1.5, which is `cost` where
// the part has what it should have. All vertices cost the same, lest heavy ones (those that train) go apart from light ones.
struct ByCost {
    double cost;
    void update(Part &part) const {
        part.fullness = static_cast<double>(part.load) / part.target;
        part.factor = cost * std::sqrt(part.fullness);
    }
    double score(double gain, const Part &part) const { return gain - part.factor; }
};

// The mesh, and where its vertices are so far (-1: nowhere).
template <class Id> struct Placed {
    const int64_t *offset;
    const Id *neighbour;
    const int32_t *edge;
    int32_t *owner;

    // Adds the weight of a vertex's edges to each part.
    void gather(int64_t vertex, std::vector<int64_t> &gain) const {
        for (int64_t e = offset[vertex]; e < offset[vertex + 1]; ++e) {
            const int32_t at = owner[neighbour[e]];
            if (at >= 0) gain[at] += edge ? edge[e] : 1;
        }
    }

    // Fetches what the vertices that come soon will need: places, then lists, then where the neighbours are.
    void prefetch(In<int64_t> &order, int64_t i) const {
        constexpr int64_t PLACES = 12, LISTS = 6, OWNERS = 2, MOST = 64;
        const int64_t *place = order.data(), count = order.shape(0);
        if (i + PLACES < count) __builtin_prefetch(offset + place[i + PLACES]);
        if (i + LISTS < count) {
            const int64_t v = place[i + LISTS];
            prefetch_row(neighbour + offset[v], std::min(MOST, offset[v + 1] - offset[v]));
        }
        if (i + OWNERS < count) {
            const int64_t v = place[i + OWNERS], end = std::min(offset[v + 1], offset[v] + MOST);
            for (int64_t e = offset[v]; e < end; ++e) __builtin_prefetch(owner + neighbour[e]);
        }
    }
};

// The part with the best score among those with room, the emptier one of two equals; without any, the one that it overfills
// least.
template <class Rule>
size_t choose(const Rule &rule, const std::vector<Part> &parts, const std::vector<int64_t> &gain, int64_t load, bool trains) {
    const size_t none = parts.size();
    size_t best = none;
    double most = 0;
    for (size_t p = 0; p < parts.size(); ++p) {
        const Part &part = parts[p];
        if (!part.fits(load, trains)) continue;
        const double score = rule.score(static_cast<double>(gain[p]), part);
        if (best == none || score > most || (score == most && part.fullness < parts[best].fullness)) {
            best = p;
            most = score;
        }
    }
    if (best != none) return best;
    auto after = [&](const Part &part) { return static_cast<double>(part.load + load) / part.target; };
    auto emptier = [&](const Part &a, const Part &b) { return after(a) < after(b); };
    return std::min_element(parts.begin(), parts.end(), emptier) - parts.begin();
}

// One pass. Loads begin at nothing, while neighbours that this pass has not come to yet count where `owners` has them.
// `order` holds all vertices; those between two `bounds` are dealt together. How many vertices moved?
template <class Id, class Rule>
int64_t deal(const Rule &rule, const Placed<Id> &placed, const int64_t *weight, const int64_t *trains, In<int64_t> &order,
             MaybeIn<int64_t> bounds, std::vector<Part> &parts) {
    const int64_t *place = order.data(), *bound = data_or_null(bounds);
    const int64_t groups = bounds ? bounds->shape(0) - 1 : order.shape(0);
    for (Part &part : parts) rule.update(part);
    std::vector<int64_t> gain(parts.size());
    int64_t moved = 0;
    for (int64_t g = 0; g < groups; ++g) {
        const int64_t begin = bound ? bound[g] : g, end = bound ? bound[g + 1] : g + 1;
        if (begin == end) continue;
        const int32_t before = placed.owner[place[begin]];
        for (int64_t i = begin; i < end; ++i) placed.owner[place[i]] = -1; // a block's own edges draw it nowhere
        std::fill(gain.begin(), gain.end(), 0);
        int64_t load = 0, seeds = 0;
        for (int64_t i = begin; i < end; ++i) {
            placed.prefetch(order, i);
            load += weight[place[i]];
            if (trains) seeds += trains[place[i]];
            placed.gather(place[i], gain);
        }
        const auto best = static_cast<int32_t>(choose(rule, parts, gain, load, seeds == 1 && end == begin + 1));
        for (int64_t i = begin; i < end; ++i) placed.owner[place[i]] = best;
        if (best != before) moved += end - begin;
        parts[best].load += load;
        parts[best].training += seeds;
        rule.update(parts[best]);
    }
    return moved;
}

std::vector<Part> parts_of(In<double> targets, MaybeIn<double> training_targets, double slack) {
    std::vector<Part> parts;
    for (size_t p = 0; p < targets.size(); ++p)
        parts.emplace_back(targets.data()[p], training_targets ? training_targets->data()[p] : 0.0, slack);
    return parts;
}

template <class Id>
int64_t deal_by_room(In<int64_t> offsets, In<Id> neighbours, MaybeIn<int32_t> edges, In<int64_t> weights,
                     MaybeIn<int64_t> training, In<int64_t> order, MaybeIn<int64_t> bounds, In<double> targets,
                     MaybeIn<double> training_targets, double slack, Array<int32_t> owners) {
    auto parts = parts_of(targets, training_targets, slack);
    const Placed<Id> placed{offsets.data(), neighbours.data(), data_or_null(edges), owners.data()};
    nb::gil_scoped_release released;
    return deal(ByRoom{}, placed, weights.data(), data_or_null(training), order, bounds, parts);
}

template <class Id>
int64_t deal_by_cost(In<int64_t> offsets, In<Id> neighbours, MaybeIn<int32_t> edges, In<int64_t> weights,
                     MaybeIn<int64_t> training, In<int64_t> order, In<double> targets, MaybeIn<double> training_targets,
                     double slack, double cost, Array<int32_t> owners) {
    auto parts = parts_of(targets, training_targets, slack);
    const Placed<Id> placed{offsets.data(), neighbours.data(), data_or_null(edges), owners.data()};
    nb::gil_scoped_release released;
    return deal(ByCost{cost}, placed, weights.data(), data_or_null(training), order, std::nullopt, parts);
}

template <class Id> void bind_ids(nb::module_ &m) {
    m.def("deal_by_room", &deal_by_room<Id>, nb::arg("offsets"), nb::arg("neighbours").noconvert(),
          nb::arg("edges").none(), nb::arg("weights"), nb::arg("training").none(), nb::arg("order"),
          nb::arg("bounds").none(), nb::arg("targets"), nb::arg("training_targets").none(), nb::arg("slack"),
          nb::arg("owners"));
    m.def("deal_by_cost", &deal_by_cost<Id>, nb::arg("offsets"), nb::arg("neighbours").noconvert(),
          nb::arg("edges").none(), nb::arg("weights"), nb::arg("training").none(), nb::arg("order"), nb::arg("targets"),
          nb::arg("training_targets").none(), nb::arg("slack"), nb::arg("cost"), nb::arg("owners"));
}

} // namespace
} // namespace weft

void bind_streaming(nanobind::module_ &m) {
    weft::bind_ids<int32_t>(m);
    weft::bind_ids<int64_t>(m);
}
