// Keyed dropout, and what the process does with freed memory.
#include <malloc.h>

#include "arrays.h"
#include "parallel.h"
#include "random.h"

namespace weft {
namespace {

// out[i, j] is 0 where the 32 bits of (key, row_keys[i], j) fall below `threshold`, else `scale`. One mix gives the bits
// of two neighbouring columns.
template <class T>
void dropout_mask(uint64_t key, In<int64_t> row_keys, uint64_t threshold, double scale, Array<T, 2> out, int threads) {
    const int64_t rows = out.shape(0), width = out.shape(1);
    const T kept = static_cast<T>(scale);
    nb::gil_scoped_release released;
    parallel_for(rows, threads, 256, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const uint64_t state = chain(key, static_cast<uint64_t>(row_keys.data()[i]));
            T *to = out.data() + i * width;
            for (int64_t pair = 0; pair < width / 2; ++pair) {
                const uint64_t bits = mix64(state + static_cast<uint64_t>(pair));
                to[2 * pair] = (bits & 0xFFFFFFFFu) < threshold ? T{0} : kept;
                to[2 * pair + 1] = (bits >> 32) < threshold ? T{0} : kept;
            }
            if (width % 2)
                to[width - 1] = (mix64(state + static_cast<uint64_t>(width / 2)) & 0xFFFFFFFFu) < threshold ? T{0} : kept;
        }
    });
}

// Tells the C library to keep freed memory instead of handing it back: a training step frees and takes the same hundreds
// of megabytes each batch, and the faults of fresh pages cost more than what is computed in them.
bool keep_freed_memory() {
#ifdef __GLIBC__
    return mallopt(M_MMAP_MAX, 0) && mallopt(M_TRIM_THRESHOLD, -1) && mallopt(M_TOP_PAD, 64 << 20);
#else
    return false;
#endif
}

// Large blocks are the system's own, each by itself, and go back when they are freed: what is held is what is in use.
bool return_freed_memory() {
#ifdef __GLIBC__
    return mallopt(M_MMAP_MAX, 1 << 16) && mallopt(M_MMAP_THRESHOLD, 1 << 18) && mallopt(M_TRIM_THRESHOLD, 1 << 20) &&
           mallopt(M_TOP_PAD, 1 << 17);
#else
    return false;
#endif
}

} // namespace
} // namespace weft

void bind_dropout(nanobind::module_ &m) {
    using namespace weft;
    auto bind = [&]<class T>(T) {
        m.def("dropout_mask", &dropout_mask<T>, nb::arg("key"), nb::arg("row_keys"), nb::arg("threshold"), nb::arg("scale"),
              nb::arg("out").noconvert(), nb::arg("threads"));
    };
    bind(float{});
    bind(double{});
    m.def("return_freed_memory", &return_freed_memory, "Give large blocks back when freed; False where that is not possible.");
    m.def("keep_freed_memory", &keep_freed_memory, "Keep freed memory in the process; False where that is not possible.");
}
