#include <nanobind/nanobind.h>

#include "random.h"

namespace nb = nanobind;

void bind_sampling(nb::module_ &m) {
    m.def("mix64", &weft::mix64, nb::arg("x"), "One round of keyed mixing; the twin of weft.keys.mix64.");
}
