// What edges count for by attention, the mean over heads, without the rows that they are to weigh: for aggregations that use
// the same shares again and again. The gradient goes through the soft-max once more, so nothing an edge and head is kept.
#include <algorithm>
#include <limits>
#include <vector>

#include "arrays.h"
#include "exponential.h"
#include "parallel.h"

namespace weft {
namespace {

constexpr int64_t SOURCES_AHEAD = 16;

// One vertex's edges as attention goes over them: with loops, those to itself are left out, and it comes last as its own source.
template <class T> struct Vertex {
    std::vector<int64_t> edges; // numbers of those that take part
    std::vector<T> raw, p;      // [edges and the loop, heads]: before the bend, and probabilities
    std::vector<T> top, sum;

    // Returns how many take part.
    int64_t attend(int64_t i, const int64_t *offset, const int32_t *source, const T *a_src, const T *a_dst, int64_t heads,
                   T slope, bool loops, int64_t end) {
        edges.clear();
        for (int64_t e = offset[i]; e < offset[i + 1]; ++e) {
            if (e + SOURCES_AHEAD < end) __builtin_prefetch(a_src + source[e + SOURCES_AHEAD] * heads);
            if (!loops || source[e] != i) edges.push_back(e);
        }
        const int64_t count = static_cast<int64_t>(edges.size()) + loops;
        raw.resize(count * heads);
        p.resize(count * heads);
        top.assign(heads, -std::numeric_limits<T>::infinity());
        sum.assign(heads, T{0});
        for (int64_t k = 0; k < count; ++k) {
            const T *from = a_src + (k < static_cast<int64_t>(edges.size()) ? source[edges[k]] : i) * heads;
            for (int64_t h = 0; h < heads; ++h) {
                const T value = from[h] + a_dst[i * heads + h];
                raw[k * heads + h] = value;
                p[k * heads + h] = value > 0 ? value : slope * value;
                top[h] = std::max(top[h], p[k * heads + h]);
            }
        }
        for (int64_t k = 0; k < count; ++k)
            for (int64_t h = 0; h < heads; ++h) p[k * heads + h] -= top[h];
        exp_negative(p.data(), count * heads);
        for (int64_t k = 0; k < count; ++k)
            for (int64_t h = 0; h < heads; ++h) sum[h] += p[k * heads + h];
        for (int64_t k = 0; k < count; ++k)
            for (int64_t h = 0; h < heads; ++h) p[k * heads + h] /= sum[h];
        return count;
    }
};

// out[edges] and, with loops, own[vertices, 1].
template <class T>
void edge_shares(In<int64_t> indptr, In<int32_t> src, In<T, 2> a_src, In<T, 2> a_dst, MaybeIn<T, 2> keep,
                 MaybeIn<T, 2> own_keep, Array<T> out, Array<T, 2> own, double slope, bool loops, int threads) {
    const int64_t *offset = indptr.data(), rows = indptr.shape(0) - 1, heads = a_src.shape(1);
    const int32_t *source = src.data();
    const T *kept = data_or_null(keep), *own_kept = data_or_null(own_keep);
    T *shares = out.data(), *of_own = own.data();
    nb::gil_scoped_release released;
    parallel_rows(offset, rows, threads, EDGES_A_THREAD, [&](int64_t begin, int64_t end) {
        Vertex<T> vertex;
        for (int64_t i = begin; i < end; ++i) {
            const int64_t count = vertex.attend(i, offset, source, a_src.data(), a_dst.data(), heads, static_cast<T>(slope),
                                                loops, offset[end]);
            std::fill(shares + offset[i], shares + offset[i + 1], T{0});
            for (int64_t k = 0; k < count; ++k) {
                const bool loop = k == static_cast<int64_t>(vertex.edges.size());
                const T *keeps = loop ? own_kept : kept;
                const int64_t at = loop ? i : vertex.edges[k];
                T total{0};
                for (int64_t h = 0; h < heads; ++h)
                    total += keeps ? vertex.p[k * heads + h] * keeps[at * heads + h] : vertex.p[k * heads + h];
                (loop ? of_own : shares)[at] = total / static_cast<T>(heads);
            }
        }
    });
}

// From the gradients of shares: g_edge[edges, heads] of a_src by edge, g_dst[vertices, heads], and g_loop[vertices, heads] of
// a_src by own loops.
template <class T>
void edge_shares_backward(In<int64_t> indptr, In<int32_t> src, In<T, 2> a_src, In<T, 2> a_dst, MaybeIn<T, 2> keep,
                          MaybeIn<T, 2> own_keep, In<T> g, In<T, 2> g_own, Array<T, 2> g_edge, Array<T, 2> g_dst,
                          Array<T, 2> g_loop, double slope, bool loops, int threads) {
    const int64_t *offset = indptr.data(), rows = indptr.shape(0) - 1, heads = a_src.shape(1);
    const int32_t *source = src.data();
    const T *kept = data_or_null(keep), *own_kept = data_or_null(own_keep), bend = static_cast<T>(slope);
    nb::gil_scoped_release released;
    parallel_rows(offset, rows, threads, EDGES_A_THREAD, [&](int64_t begin, int64_t end) {
        Vertex<T> vertex;
        std::vector<T> dp, mean(heads);
        for (int64_t i = begin; i < end; ++i) {
            const int64_t count =
                vertex.attend(i, offset, source, a_src.data(), a_dst.data(), heads, bend, loops, offset[end]);
            T *of_dst = g_dst.data() + i * heads;
            std::fill_n(of_dst, heads, T{0});
            std::fill(g_edge.data() + offset[i] * heads, g_edge.data() + offset[i + 1] * heads, T{0});
            dp.resize(count * heads);
            std::fill(mean.begin(), mean.end(), T{0});
            for (int64_t k = 0; k < count; ++k) {
                const bool loop = k == static_cast<int64_t>(vertex.edges.size());
                const T *keeps = loop ? own_kept : kept;
                const int64_t at = loop ? i : vertex.edges[k];
                const T gradient = (loop ? g_own.data() : g.data())[at] / static_cast<T>(heads);
                for (int64_t h = 0; h < heads; ++h) {
                    dp[k * heads + h] = keeps ? gradient * keeps[at * heads + h] : gradient;
                    mean[h] += vertex.p[k * heads + h] * dp[k * heads + h];
                }
            }
            for (int64_t k = 0; k < count; ++k) {
                const bool loop = k == static_cast<int64_t>(vertex.edges.size());
                T *of_src = loop ? g_loop.data() + i * heads : g_edge.data() + vertex.edges[k] * heads;
                for (int64_t h = 0; h < heads; ++h) {
                    const T steep = vertex.raw[k * heads + h] > 0 ? T{1} : bend;
                    const T value = vertex.p[k * heads + h] * (dp[k * heads + h] - mean[h]) * steep;
                    of_src[h] = value;
                    of_dst[h] += value;
                }
            }
        }
    });
}

template <class T> void bind_for(nb::module_ &m) {
    m.def("edge_shares", &edge_shares<T>, nb::arg("indptr"), nb::arg("src"), nb::arg("a_src").noconvert(),
          nb::arg("a_dst").noconvert(), nb::arg("keep").none(), nb::arg("own_keep").none(), nb::arg("out").noconvert(),
          nb::arg("own").noconvert(), nb::arg("slope"), nb::arg("loops"), nb::arg("threads"));
    m.def("edge_shares_backward", &edge_shares_backward<T>, nb::arg("indptr"), nb::arg("src"), nb::arg("a_src").noconvert(),
          nb::arg("a_dst").noconvert(), nb::arg("keep").none(), nb::arg("own_keep").none(), nb::arg("g").noconvert(),
          nb::arg("g_own").noconvert(), nb::arg("g_edge").noconvert(), nb::arg("g_dst").noconvert(),
          nb::arg("g_loop").noconvert(), nb::arg("slope"), nb::arg("loops"), nb::arg("threads"));
}

} // namespace
} // namespace weft

void bind_shares(nanobind::module_ &m) {
    weft::bind_for<float>(m);
    weft::bind_for<double>(m);
}
