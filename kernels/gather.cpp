// Rows of a table at given ids, into memory of the caller.
#include <bit>
#include <cstring>
#ifdef __F16C__
#include <immintrin.h>
#endif

#include "arrays.h"
#include "parallel.h"

namespace weft {
namespace {

constexpr int64_t ROWS_AHEAD = 12; // rows in flight: enough to hide a miss, few enough to stay in the first-level cache

inline float half_to_float(uint16_t half) {
    const uint32_t sign = (half & 0x8000u) << 16, magnitude = half & 0x7FFFu;
    uint32_t bits;
    if (magnitude >= 0x7C00) bits = 0x7F800000u | (magnitude << 13);          // infinity, NaN
    else if (magnitude >= 0x0400) bits = (magnitude << 13) + 0x38000000u;      // normal
    else return (sign ? -1.0f : 1.0f) * static_cast<float>(magnitude) * 0x1p-24f; // subnormal, zero
    return std::bit_cast<float>(bits | sign);
}

template <class T> void copy_row(const T *from, T *to, int64_t width) { std::memcpy(to, from, width * sizeof(T)); }

void copy_row(const uint16_t *from, float *to, int64_t width) {
    int64_t c = 0;
#ifdef __F16C__
    for (; c + 8 <= width; c += 8)
        _mm256_storeu_ps(to + c, _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i *>(from + c))));
#endif
    for (; c < width; ++c) to[c] = half_to_float(from[c]);
}

// Row i of the output, or row at[i] where `at` is given, becomes the table's row ids[i].
template <class From, class To, class Id>
void gather_rows(In<From, 2> table, In<Id> ids, Array<To, 2> out, MaybeIn<int64_t> at, int threads) {
    const int64_t rows = table.shape(0), width = table.shape(1), count = ids.shape(0), outputs = out.shape(0);
    if ((at ? static_cast<int64_t>(at->shape(0)) : outputs) != count || static_cast<int64_t>(out.shape(1)) != width)
        throw std::invalid_argument("gather_rows: there must be a row for each id, as wide as the table's");
    const int64_t *place = data_or_null(at);
    const From *from = table.data();
    const Id *id = ids.data();
    To *to = out.data();
    nb::gil_scoped_release released;
    parallel_for(count, threads, EDGES_A_THREAD, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            if (i + ROWS_AHEAD < end) prefetch_row(from + id[i + ROWS_AHEAD] * width, width);
            if (id[i] < 0 || id[i] >= rows)
                throw std::out_of_range("gather_rows: id " + std::to_string(id[i]) + " is outside of the table's " +
                                        std::to_string(rows) + " rows");
            const int64_t row = place ? place[i] : i;
            if (row < 0 || row >= outputs) throw std::out_of_range("gather_rows: a place outside of the output");
            copy_row(from + static_cast<int64_t>(id[i]) * width, to + row * width, width);
        }
    });
}

template <class From, class To> void bind_gather_of(nb::module_ &m) {
    auto bind = [&]<class Id>(Id) {
        m.def("gather_rows", &gather_rows<From, To, Id>, nb::arg("table").noconvert(), nb::arg("ids").noconvert(),
              nb::arg("out").noconvert(), nb::arg("at").none(), nb::arg("threads"));
    };
    bind(int32_t{});
    bind(int64_t{});
}

} // namespace
} // namespace weft

void bind_gather(nanobind::module_ &m) {
    weft::bind_gather_of<float, float>(m);
    weft::bind_gather_of<double, double>(m);
    weft::bind_gather_of<uint16_t, float>(m); // half precision, seen as uint16
}
