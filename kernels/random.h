// Keyed randomness: every draw is a pure function of its key, so that who evaluates it, and in which order, is no matter.
#pragma once
#include <cstdint>

namespace weft {

constexpr uint64_t GOLDEN = 0x9E3779B97F4A7C15ull;

// The finaliser of splitmix64: a bijection of 64 bits that passes for random.
inline uint64_t mix64(uint64_t x) {
    x += GOLDEN;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

// The key of a part below a key; weft.keys.key folds its arguments with it.
inline uint64_t chain(uint64_t key, uint64_t part) { return mix64(key ^ mix64(part)); }

// A number below n, by multiplying and keeping the upper half: no division, bias n / 2^64.
inline uint64_t below(uint64_t random, uint64_t n) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(random) * n) >> 64);
}

// A number in (0, 1], from the upper 53 bits.
inline double unit(uint64_t random) { return (static_cast<double>(random >> 11) + 1.0) * 0x1.0p-53; }

// The stream of one vertex under one layer's key.
struct Stream {
    uint64_t state;
    Stream(uint64_t key, uint64_t part) : state(chain(key, part)) {}
    uint64_t next() { return mix64(state += GOLDEN); }
};

} // namespace weft
