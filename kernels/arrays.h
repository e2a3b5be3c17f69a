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

} // namespace weft
