// e^x for many x <= 0, in place.
#pragma once
#include <cstdint>

namespace weft {

void exp_negative(float *x, int64_t count);
void exp_negative(double *x, int64_t count);

} // namespace weft
