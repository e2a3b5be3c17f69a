// Which in-edges of a vertex a sample takes: positions in its neighbour list. Node-wise draws come from the vertex's own
// stream of randomness; shared ones from a random number that each neighbour has under the hop's key, whoever lists it.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "memory.h"
#include "random.h"

namespace weft {

constexpr int LANES = 16; // picks that fit one vector register of 32-bit numbers

// k of n positions without replacement (k < n), by Floyd's method: k draws, and a repeated one takes the newest position.
// The picks so far are compared all at once, which beats any set for small k.
inline void draw_few(Stream &stream, int64_t n, int k, int64_t begin, int64_t *out) {
    alignas(64) uint32_t picks[LANES];
    std::fill_n(picks, LANES, std::numeric_limits<uint32_t>::max());
    for (int j = 0; j < k; ++j) {
        const uint32_t newest = static_cast<uint32_t>(n - k + j);
        uint32_t pick = static_cast<uint32_t>(below(stream.next(), newest + uint64_t{1}));
        uint32_t repeated = 0;
        for (int lane = 0; lane < LANES; ++lane) repeated |= picks[lane] == pick;
        pick = repeated ? newest : pick;
        picks[j] = pick;
        out[j] = begin + pick;
    }
}

// The same for any k, with a small open-addressing set.
inline void draw_many(Stream &stream, int64_t n, int64_t k, int64_t begin, int64_t *out, std::vector<int64_t> &set) {
    const uint64_t mask = std::bit_ceil(static_cast<uint64_t>(2 * k)) - 1;
    set.assign(mask + 1, -1);
    auto insert = [&](int64_t value) {
        uint64_t at = mix64(static_cast<uint64_t>(value)) & mask;
        while (set[at] != -1 && set[at] != value) at = (at + 1) & mask;
        return std::exchange(set[at], value) != value;
    };
    for (int64_t j = 0; j < k; ++j) {
        const int64_t newest = n - k + j;
        int64_t pick = static_cast<int64_t>(below(stream.next(), newest + 1));
        if (!insert(pick)) insert(pick = newest);
        out[j] = begin + pick;
    }
}

// k positions with replacement.
inline void draw_replacing(Stream &stream, int64_t n, int64_t k, int64_t begin, int64_t *out) {
    for (int64_t j = 0; j < k; ++j) out[j] = begin + static_cast<int64_t>(below(stream.next(), n));
}

// k positions with replacement, each with probability proportional to its weight.
inline void draw_weighted_replacing(Stream &stream, const float *weight, int64_t n, int64_t k, int64_t begin,
                                    int64_t *out, std::vector<double> &sums) {
    sums.resize(n);
    double total = 0;
    for (int64_t i = 0; i < n; ++i) sums[i] = total += weight[i];
    for (int64_t j = 0; j < k; ++j) {
        const double target = unit(stream.next()) * total; // in (0, total]: a weight of zero is never met
        out[j] = begin + (std::lower_bound(sums.begin(), sums.end(), target) - sums.begin());
    }
}

// k positions without replacement by weight (Efraimidis and Spirakis): the k smallest of exponential variates with the
// weights as rates. Edge i's variate hangs on (vertex, i) alone.
inline void draw_weighted(Stream &stream, const float *weight, int64_t n, int64_t k, int64_t begin, int64_t *out,
                          std::vector<std::pair<double, int64_t>> &arrivals) {
    arrivals.clear();
    for (int64_t i = 0; i < n; ++i) {
        const double uniform = unit(stream.next());
        if (weight[i] > 0) arrivals.emplace_back(-std::log(uniform) / weight[i], i);
    }
    std::partial_sort(arrivals.begin(), arrivals.begin() + k, arrivals.end());
    for (int64_t j = 0; j < k; ++j) out[j] = begin + arrivals[j].second;
}

constexpr int64_t SOME = 512; // list entries whose random numbers are made at once: they stay in the first-level cache

// Calls f(from, count, random numbers) for pieces of a list; `ids` are all vertices' original ids, or null. A vertex's
// number is that of the hop's stream at the place of its id.
template <class Id, class F> void in_pieces_of(uint64_t key, const Id *list, const int64_t *ids, int64_t n, F &&f) {
    alignas(64) uint64_t random[SOME];
    for (int64_t from = 0; from < n; from += SOME) {
        const int64_t count = std::min(SOME, n - from);
        const Id *__restrict part = list + from;
        if (ids)
            for (int64_t i = 0; i < count; ++i) random[i] = mix64(key + GOLDEN * static_cast<uint64_t>(ids[part[i]]));
        else
            for (int64_t i = 0; i < count; ++i) random[i] = mix64(key + GOLDEN * static_cast<uint64_t>(part[i]));
        f(from, count, random);
    }
}

struct Smallest {
    Scratch<uint64_t> low, ordered;
    Scratch<int64_t> where;
};

// Those of a list's random numbers that are not above a bound, and their positions. How many?
template <class Id>
int64_t collect(uint64_t key, const Id *list, const int64_t *ids, int64_t n, uint64_t bound, Smallest &found) {
    uint64_t *low = found.low.reserve(n);
    int64_t *where = found.where.reserve(n), count = 0;
    in_pieces_of(key, list, ids, n, [&](int64_t from, int64_t some, const uint64_t *random) {
        for (int64_t i = 0; i < some; ++i) {
            low[count] = random[i];
            where[count] = from + i;
            count += random[i] <= bound;
        }
    });
    return count;
}

// k of a list's n positions (0 < k < n), ascending: those of the smallest random numbers. Equal numbers belong to copies of
// one neighbour: the first copies are taken. Nearly always all k lie below a bound that few numbers pass, so that only
// those few are put in order.
template <class Id>
void draw_smallest(uint64_t key, const Id *list, const int64_t *ids, int64_t n, int64_t k, int64_t begin, int64_t *out,
                   Smallest &found) {
    constexpr uint64_t any = std::numeric_limits<uint64_t>::max();
    const double share = (k + 4 * std::sqrt(static_cast<double>(k)) + 4) / n;
    int64_t count = collect(key, list, ids, n, share < 1 ? static_cast<uint64_t>(share * 0x1p64) : any, found);
    if (count < k) count = collect(key, list, ids, n, any, found);
    const uint64_t *low = found.low.data();
    uint64_t *ordered = found.ordered.reserve(count);
    std::copy_n(low, count, ordered);
    std::nth_element(ordered, ordered + (k - 1), ordered + count);
    const uint64_t last = ordered[k - 1];
    int64_t ties = k - std::count_if(ordered, ordered + k, [&](uint64_t number) { return number < last; });
    for (int64_t i = 0, taken = 0; taken < k; ++i) {
        const bool tied = low[i] == last && ties > 0;
        out[taken] = begin + found.where.data()[i];
        taken += low[i] < last || tied;
        ties -= tied;
    }
}

// Is a vertex in the layer's sample? Its chance is scale x importance, at most 1.
inline bool sampled(uint64_t random, double scale, float importance) {
    return static_cast<double>(random >> 11) * 0x1p-53 < std::min(1.0, scale * static_cast<double>(importance));
}

// How many of a list's neighbours are in the layer's sample?
template <class Id>
int64_t count_sampled(uint64_t key, double scale, const float *importance, const Id *list, const int64_t *ids, int64_t n) {
    int64_t count = 0;
    in_pieces_of(key, list, ids, n, [&](int64_t from, int64_t some, const uint64_t *random) {
        for (int64_t i = 0; i < some; ++i) count += sampled(random[i], scale, importance[list[from + i]]);
    });
    return count;
}

// The positions of those k (0 < k), ascending.
template <class Id>
void draw_sampled(uint64_t key, double scale, const float *importance, const Id *list, const int64_t *ids, int64_t n,
                  int64_t k, int64_t begin, int64_t *out) {
    int64_t taken = 0;
    in_pieces_of(key, list, ids, n, [&](int64_t from, int64_t some, const uint64_t *random) {
        for (int64_t i = 0; i < some && taken < k; ++i) {
            out[taken] = begin + from + i;
            taken += sampled(random[i], scale, importance[list[from + i]]);
        }
    });
}

} // namespace weft
