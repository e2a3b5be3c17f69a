// The compiled core: arrays in, arrays out, no torch. One bind_* function a source file.
#include <nanobind/nanobind.h>

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace nb = nanobind;

void bind_aggregate(nb::module_ &m);
void bind_allocate(nb::module_ &m);
void bind_attention(nb::module_ &m);
void bind_blocks(nb::module_ &m);
void bind_coarsen(nb::module_ &m);
void bind_contract(nb::module_ &m);
void bind_cover(nb::module_ &m);
void bind_dropout(nb::module_ &m);
void bind_gather(nb::module_ &m);
void bind_graph(nb::module_ &m);
void bind_growing(nb::module_ &m);
void bind_linear(nb::module_ &m);
void bind_links(nb::module_ &m);
void bind_lists(nb::module_ &m);
void bind_mesh(nb::module_ &m);
void bind_nets(nb::module_ &m);
void bind_quality(nb::module_ &m);
void bind_refine(nb::module_ &m);
void bind_sampling(nb::module_ &m);
void bind_shares(nb::module_ &m);
void bind_split(nb::module_ &m);
void bind_spread(nb::module_ &m);
void bind_streaming(nb::module_ &m);
void bind_traces(nb::module_ &m);

namespace {

// The level of instructions that these kernels were compiled for.
#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__)
constexpr const char *LEVEL = "x86-64-v4";
#elif defined(__AVX2__) && defined(__FMA__)
constexpr const char *LEVEL = "x86-64-v3";
#elif defined(__SSE4_2__)
constexpr const char *LEVEL = "x86-64-v2";
#elif defined(__x86_64__)
constexpr const char *LEVEL = "x86-64";
#elif defined(__aarch64__)
constexpr const char *LEVEL = "aarch64";
#else
constexpr const char *LEVEL = "this machine's";
#endif

// Where there is nothing to choose from, a choice must not be ignored.
void check_choice() {
    const char *most = std::getenv("WEFT_KERNELS");
    if (!*WEFT_LEVELS && most && *most && most != std::string(LEVEL))
        throw std::runtime_error(std::string("WEFT_KERNELS=") + most + ", but these kernels were compiled for " + LEVEL +
                                 " only: leave it out, or install a wheel, which has several levels");
}

} // namespace

NB_MODULE(_kernels, m) {
    // Where a script's last loss lives until Python ends, so does what it hangs on: no fault, and no user's business.
    nb::set_leak_warnings(false);
    check_choice();
    m.attr("LEVEL") = LEVEL;
    m.attr("LEVELS") = WEFT_LEVELS; // those to choose from
    m.attr("NATIVE") = bool(WEFT_NATIVE);
    m.attr("COMPILER") = WEFT_COMPILER;
    m.attr("COMMIT") = WEFT_COMMIT;
    m.doc() = "Weft's compiled kernels. Arrays are numpy's or any DLPack buffer; outputs are the caller's; the GIL is released.";
    bind_aggregate(m);
    bind_allocate(m);
    bind_attention(m);
    bind_blocks(m);
    bind_coarsen(m);
    bind_contract(m);
    bind_cover(m);
    bind_dropout(m);
    bind_gather(m);
    bind_graph(m);
    bind_growing(m);
    bind_linear(m);
    bind_links(m);
    bind_lists(m);
    bind_mesh(m);
    bind_nets(m);
    bind_quality(m);
    bind_refine(m);
    bind_sampling(m);
    bind_shares(m);
    bind_split(m);
    bind_spread(m);
    bind_streaming(m);
    bind_traces(m);
}
