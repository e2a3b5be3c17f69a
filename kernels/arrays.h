// The arrays that cross from Python: contiguous, on the CPU, never copied, never owned here.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <cstdint>
#include <optional>

namespace weft {

namespace nb = nanobind;

template <class T, size_t D = 1> using Array = nb::ndarray<T, nb::ndim<D>, nb::c_contig, nb::device::cpu>;
template <class T, size_t D = 1> using In = Array<const T, D>;
template <class T, size_t D = 1> using MaybeIn = std::optional<In<T, D>>;

template <class A> auto data_or_null(const std::optional<A> &array) { return array ? array->data() : nullptr; }

constexpr int64_t EDGES_A_THREAD = 1 << 12; // fewer edges than this are not worth another thread

// Fetches the cache lines of a row that will be read soon.
template <class T> inline void prefetch_row(const T *row, int64_t width) {
    const char *at = reinterpret_cast<const char *>(row), *end = reinterpret_cast<const char *>(row + width);
    for (; at < end; at += 64) __builtin_prefetch(at);
}

// The dot product of two rows, in eight sums of fixed order: it runs in vectors, and gives the same bits wherever it stands.
template <class T> inline T dot(const T *__restrict a, const T *__restrict b, int64_t count) {
    T sums[8] = {}, rest = 0;
    const int64_t whole = count / 8 * 8;
    for (int64_t c = 0; c < whole; c += 8)
        for (int64_t lane = 0; lane < 8; ++lane) sums[lane] += a[c + lane] * b[c + lane];
    for (int64_t c = whole; c < count; ++c) rest += a[c] * b[c];
    return (((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]))) + rest;
}

} // namespace weft
