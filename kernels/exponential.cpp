// A file of its own, for it must be compiled as it is written, without contraction: the reduction below lives on rounding.
#include "exponential.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace weft {
namespace {

// 2^n times a polynomial on [-ln 2 / 2, ln 2 / 2]; relative error below 2e-7, and the loop over it vectorises.
inline float exponential(float x) {
    x = std::max(x, -87.0f);
    const float n = std::floor(x * 1.44269504088896341f + 0.5f);
    const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return p * std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
}

} // namespace

void exp_negative(float *x, int64_t count) {
    for (int64_t i = 0; i < count; ++i) x[i] = exponential(x[i]);
}

void exp_negative(double *x, int64_t count) {
    for (int64_t i = 0; i < count; ++i) x[i] = std::exp(x[i]);
}

} // namespace weft
