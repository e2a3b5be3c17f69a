// Nets and moves, bound: see nets.h and moves.h.
#include "nets.h"

#include <nanobind/stl/pair.h>

#include "moves.h"

namespace weft {
namespace {

// rows[needs][phase][owner] of an allocation.
void rows_of(const Nets &nets, In<int32_t> parts, Array<double, 3> rows) {
    const auto count = static_cast<int64_t>(rows.shape(0));
    nets.check_parts(parts, count);
    Traffic traffic(count, nets.phases());
    nb::gil_scoped_release released;
    std::vector<int64_t> last(count, -1);
    for (int64_t e = 0; e < nets.count(); ++e) {
        const int64_t slot = nets.phase(e) * count + parts.data()[nets.owner(e)];
        for (int64_t at = nets.members().begin[e]; at < nets.members().begin[e + 1]; ++at) {
            const int32_t needs = parts.data()[nets.members().members[at]];
            if (last[needs] == e) continue;
            last[needs] = e;
            traffic.add(needs, slot, nets.weight(e));
        }
    }
    std::copy(traffic.rows.begin(), traffic.rows.end(), rows.data());
}

} // namespace
} // namespace weft

void bind_nets(nanobind::module_ &m) {
    using namespace weft;
    nb::class_<Nets>(m, "Nets", "Rows of sampled batches, and the vertices whose parts need them.")
        .def(nb::init<int64_t>(), nb::arg("vertices"))
        .def("vertices", &Nets::vertices)
        .def("count", &Nets::count)
        .def("pins", &Nets::pins)
        .def("phases", &Nets::phases)
        .def("keep_copies", &Nets::keep_copies, nb::arg("rows"))
        .def("start", &Nets::start, nb::arg("needs"))
        .def("hop", &Nets::hop, nb::arg("indptr"), nb::arg("src"), nb::arg("num_src"))
        .def("gather", &Nets::gather, nb::arg("indptr"), nb::arg("src"))
        .def("finish", &Nets::finish, nb::arg("owners"), nb::arg("weight"), nb::arg("phase"))
        .def("cover", &Nets::cover, nb::arg("indptr"), nb::arg("src"), nb::arg("vertices"), nb::arg("parts"),
             nb::arg("count"), nb::arg("costs"), nb::arg("phases"))
        .def("append", &Nets::append, nb::arg("others"))
        .def("reserve", &Nets::reserve, nb::arg("times"))
        .def("clear", &Nets::clear)
        .def("fold", &Nets::fold, nb::arg("groups"), nb::arg("onto"))
        .def("rows", &rows_of, nb::arg("parts"), nb::arg("rows"));
    nb::class_<Moves>(m, "Moves", "An allocation, whose vertices move to where the rows of nets cost least.")
        .def(nb::init<Nets &, Array<int32_t>, In<int64_t, 2>, In<int64_t, 2>, In<double>, In<double, 2>, int>(), nb::arg("nets"),
             nb::arg("owners").noconvert(), nb::arg("weights"), nb::arg("limits"), nb::arg("seconds"), nb::arg("pairs"), nb::arg("threads"),
             nb::keep_alive<1, 2>())
        .def("go", &Moves::go, nb::arg("order"), nb::arg("power"), nb::arg("rent"), nb::arg("loss"), nb::arg("doubt"), nb::arg("threads"))
        .def("rouse", &Moves::rouse)
        .def("rows", &Moves::rows, nb::arg("rows"));
}
