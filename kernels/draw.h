// Which in-edges of a vertex a sample takes: positions in its neighbour list, from the vertex's own stream of randomness.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

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

} // namespace weft
