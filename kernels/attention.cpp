// Attention along the edges of a block: logits, soft-max over each destination's edges, weighted sum, in one pass over the
// destinations; and the gradients, first by destination (of the logits), then by source through the transposed block.
#include <algorithm>
#include <cmath>
#include <vector>

#include "arrays.h"
#include "exponential.h"
#include "parallel.h"

namespace weft {
namespace {

constexpr int64_t EDGES_AHEAD = 8;
constexpr int64_t ROWS_A_PIECE = 256; // sums over all rows go piece by piece, so that threads do not change their order

template <class T> constexpr T NO_EDGES = T(-1e30); // the log of a sum of nothing, finite so that differences are

template <class T> T leaky(T x, T slope) { return x > 0 ? x : slope * x; }

struct Shape {
    int64_t heads, columns;
    int64_t width() const { return heads * columns; }
};

// The shape as numbers that the compiler knows, for usual ones: its loops then become a few registers. 0: known at run time.
template <int H, int F> struct Known {
    static int64_t heads(Shape shape) { return H ? H : shape.heads; }
    static int64_t columns(Shape shape) { return F ? F : shape.columns; }
};
template <class Call> void with_shape(Shape shape, Call &&call) {
    const auto is = [&](int64_t heads, int64_t columns) { return shape.heads == heads && shape.columns == columns; };
    if (is(4, 8)) return call(Known<4, 8>{});
    if (is(8, 8)) return call(Known<8, 8>{});
    if (is(4, 16)) return call(Known<4, 16>{});
    if (is(4, 32)) return call(Known<4, 32>{});
    if (is(1, 16)) return call(Known<1, 16>{});
    if (is(1, 64)) return call(Known<1, 64>{});
    call(Known<0, 0>{});
}

// Turns the logits of a destination's edges into soft-max probabilities, in place; `lse` gets the log of the sum of their
// exponentials, by which soft-maxes of parts of a list can be merged.
template <class C, class T> void soft_max(T *p, int64_t edges, Shape shape, std::vector<T> &scratch, T *lse) {
    const int64_t heads = C::heads(shape);
    scratch.assign(2 * heads, T{0});
    T *top = scratch.data(), *sum = top + heads;
    std::copy_n(p, heads, top);
    for (int64_t e = 1; e < edges; ++e)
        for (int64_t h = 0; h < heads; ++h) top[h] = std::max(top[h], p[e * heads + h]);
    for (int64_t e = 0; e < edges; ++e)
        for (int64_t h = 0; h < heads; ++h) p[e * heads + h] -= top[h];
    exp_negative(p, edges * heads);
    for (int64_t e = 0; e < edges; ++e)
        for (int64_t h = 0; h < heads; ++h) sum[h] += p[e * heads + h];
    for (int64_t h = 0; h < heads; ++h) {
        if (lse) lse[h] = top[h] + std::log(sum[h]);
        sum[h] = T{1} / sum[h];
    }
    for (int64_t e = 0; e < edges; ++e)
        for (int64_t h = 0; h < heads; ++h) p[e * heads + h] *= sum[h];
}

// out[h] += p[h] keep[h] x[h] for each head of one edge.
template <class C, class T> void add_scaled(T *__restrict out, const T *__restrict x, const T *p, const T *keep, Shape shape) {
    const int64_t f = C::columns(shape);
    for (int64_t h = 0, heads = C::heads(shape); h < heads; ++h) {
        const T factor = keep ? p[h] * keep[h] : p[h];
        for (int64_t c = 0; c < f; ++c) out[h * f + c] += factor * x[h * f + c];
    }
}

template <class C, class T> void head_dots(const T *a, const T *b, T *out, Shape shape) {
    const int64_t f = C::columns(shape);
    for (int64_t h = 0, heads = C::heads(shape); h < heads; ++h) out[h] = dot(a + h * f, b + h * f, f);
}

// d(logit) from d(p), and from d(lse) where that has a gradient: p (dp + dlse - sum over the destination's edges of p dp), in
// place over dp.
template <class C, class T>
void soft_max_backward(T *dp, const T *p, int64_t edges, Shape shape, std::vector<T> &scratch, const T *dlse) {
    const int64_t heads = C::heads(shape);
    scratch.assign(heads, T{0});
    if (dlse)
        for (int64_t h = 0; h < heads; ++h) scratch[h] = -dlse[h];
    for (int64_t e = 0; e < edges; ++e)
        for (int64_t h = 0; h < heads; ++h) scratch[h] += p[e * heads + h] * dp[e * heads + h];
    for (int64_t e = 0; e < edges; ++e)
        for (int64_t h = 0; h < heads; ++h) dp[e * heads + h] = p[e * heads + h] * (dp[e * heads + h] - scratch[h]);
}

// The parts of GAT's logits, each of them optional: leaky(a_src[source] + a_dst[destination] + edge).
template <class T> struct Logits {
    const T *a_src, *a_dst, *edge;
    T slope;
    T raw(int64_t e, int64_t s, int64_t i, int64_t h, int64_t heads) const {
        return (a_src ? a_src[s * heads + h] + a_dst[i * heads + h] : T{0}) + (edge ? edge[e * heads + h] : T{0});
    }
};

template <class T>
void gat(In<int64_t> indptr, In<int32_t> src, MaybeIn<T, 2> a_src, MaybeIn<T, 2> a_dst, MaybeIn<T, 2> edge_logits,
         MaybeIn<T, 2> keep, In<T, 3> x, Array<T, 2> p, Array<T, 3> out, std::optional<Array<T, 2>> lse, double slope,
         int threads) {
    const Shape shape{static_cast<int64_t>(x.shape(1)), static_cast<int64_t>(x.shape(2))};
    const Logits<T> logits{data_or_null(a_src), data_or_null(a_dst), data_or_null(edge_logits), static_cast<T>(slope)};
    T *log_sums = data_or_null(lse);
    const int64_t *offset = indptr.data(), rows = indptr.shape(0) - 1;
    const int32_t *source = src.data();
    const T *kept = data_or_null(keep);
    nb::gil_scoped_release released;
    with_shape(shape, [&]<class C>(C) {
        const int64_t heads = C::heads(shape), width = heads * C::columns(shape);
        parallel_rows(offset, rows, threads, EDGES_A_THREAD, [&](int64_t begin, int64_t end) {
            std::vector<T> scratch;
            for (int64_t i = begin; i < end; ++i) {
                const int64_t first = offset[i], stop = offset[i + 1];
                T *to = out.data() + i * width;
                std::fill_n(to, width, T{0});
                T *log_sum = log_sums ? log_sums + i * heads : nullptr;
                if (first == stop) {
                    if (log_sum) std::fill_n(log_sum, heads, NO_EDGES<T>);
                    continue;
                }
                for (int64_t e = first; e < stop; ++e) {
                    if (e + 2 * EDGES_AHEAD < offset[end]) {
                        const int64_t ahead = source[e + 2 * EDGES_AHEAD];
                        prefetch_row(x.data() + ahead * width, width);
                        if (logits.a_src) __builtin_prefetch(logits.a_src + ahead * heads);
                    }
                    for (int64_t h = 0; h < heads; ++h)
                        p.data()[e * heads + h] = leaky(logits.raw(e, source[e], i, h, heads), logits.slope);
                }
                soft_max<C>(p.data() + first * heads, stop - first, shape, scratch, log_sum);
                for (int64_t e = first; e < stop; ++e)
                    add_scaled<C>(to, x.data() + source[e] * width, p.data() + e * heads, kept ? kept + e * heads : nullptr,
                                  shape);
            }
        });
    });
}

// By destination: for each edge the pair of what the pass by source needs, shares[E, 2, H]: p keep, and the gradient of the
// sum inside leaky; and g_dst[n_dst, H], the sum of the latter over each destination.
template <class T>
void gat_backward_dst(In<int64_t> indptr, In<int32_t> src, MaybeIn<T, 2> a_src, MaybeIn<T, 2> a_dst,
                      MaybeIn<T, 2> edge_logits, MaybeIn<T, 2> keep, In<T, 3> x, In<T, 2> p, In<T, 3> g,
                      MaybeIn<T, 2> g_lse, Array<T, 3> shares, Array<T, 2> g_dst, double slope, int threads) {
    const Shape shape{static_cast<int64_t>(x.shape(1)), static_cast<int64_t>(x.shape(2))};
    const Logits<T> logits{data_or_null(a_src), data_or_null(a_dst), data_or_null(edge_logits), static_cast<T>(slope)};
    const int64_t *offset = indptr.data(), rows = indptr.shape(0) - 1;
    const int32_t *source = src.data();
    const T *kept = data_or_null(keep);
    nb::gil_scoped_release released;
    with_shape(shape, [&]<class C>(C) {
        const int64_t heads = C::heads(shape), width = heads * C::columns(shape);
        parallel_rows(offset, rows, threads, EDGES_A_THREAD, [&](int64_t begin, int64_t end) {
            std::vector<T> scratch, dp, bends;
            for (int64_t i = begin; i < end; ++i) {
                const int64_t first = offset[i], stop = offset[i + 1];
                T *total = g_dst.data() + i * heads;
                std::fill_n(total, heads, T{0});
                if (const size_t size = (stop - first) * heads; size > dp.size()) dp.resize(size), bends.resize(size);
                for (int64_t e = first; e < stop; ++e) {
                    if (e + 2 * EDGES_AHEAD < offset[end]) {
                        const int64_t ahead = source[e + 2 * EDGES_AHEAD];
                        prefetch_row(x.data() + ahead * width, width);
                        if (logits.a_src) __builtin_prefetch(logits.a_src + ahead * heads);
                    }
                    T *own = dp.data() + (e - first) * heads, *bend = bends.data() + (e - first) * heads;
                    head_dots<C>(g.data() + i * width, x.data() + source[e] * width, own, shape);
                    for (int64_t h = 0; h < heads; ++h)
                        bend[h] = logits.raw(e, source[e], i, h, heads) > 0 ? T{1} : logits.slope;
                    if (kept)
                        for (int64_t h = 0; h < heads; ++h) own[h] *= kept[e * heads + h];
                }
                soft_max_backward<C>(dp.data(), p.data() + first * heads, stop - first, shape, scratch,
                                     g_lse ? g_lse->data() + i * heads : nullptr);
                for (int64_t e = first; e < stop; ++e) {
                    const T *own = dp.data() + (e - first) * heads, *bend = bends.data() + (e - first) * heads;
                    T *share = shares.data() + 2 * e * heads;
                    for (int64_t h = 0; h < heads; ++h) {
                        share[h] = p.data()[e * heads + h];
                        share[heads + h] = own[h] * bend[h];
                        total[h] += share[heads + h];
                    }
                    if (kept)
                        for (int64_t h = 0; h < heads; ++h) share[h] *= kept[e * heads + h];
                }
            }
        });
    });
}

// By source: gx[s] = sum of p keep g[dst], g_src[s] = sum of the gradients at its edges.
template <class T>
void gat_backward_src(In<int64_t> t_indptr, In<int32_t> t_dst, In<int32_t> t_edge, In<T, 3> shares, In<T, 3> g,
                      Array<T, 3> gx, Array<T, 2> g_src, int threads) {
    const Shape shape{static_cast<int64_t>(g.shape(1)), static_cast<int64_t>(g.shape(2))};
    const int64_t *offset = t_indptr.data(), rows = t_indptr.shape(0) - 1;
    const int32_t *dst = t_dst.data(), *edge = t_edge.data();
    nb::gil_scoped_release released;
    with_shape(shape, [&]<class C>(C) {
        const int64_t heads = C::heads(shape), width = heads * C::columns(shape);
        parallel_rows(offset, rows, threads, EDGES_A_THREAD, [&](int64_t begin, int64_t end) {
            for (int64_t s = begin; s < end; ++s) {
                T *to = gx.data() + s * width, *total = g_src.data() + s * heads;
                std::fill_n(to, width, T{0});
                std::fill_n(total, heads, T{0});
                for (int64_t at = offset[s]; at < offset[s + 1]; ++at) {
                    if (at + EDGES_AHEAD < offset[end]) {
                        prefetch_row(g.data() + dst[at + EDGES_AHEAD] * width, width);
                        __builtin_prefetch(shares.data() + 2 * heads * edge[at + EDGES_AHEAD]);
                    }
                    const T *share = shares.data() + 2 * heads * edge[at];
                    add_scaled<C>(to, g.data() + dst[at] * width, share, static_cast<const T *>(nullptr), shape);
                    for (int64_t h = 0; h < heads; ++h) total[h] += share[heads + h];
                }
            }
        });
    });
}

// out[n, H] = <att[h], x[n, h]>: a row's own part of GAT's logits.
template <class T> void head_terms(In<T, 3> x, In<T, 2> att, Array<T, 2> out, int threads) {
    const Shape shape{static_cast<int64_t>(x.shape(1)), static_cast<int64_t>(x.shape(2))};
    const int64_t rows = out.shape(0);
    nb::gil_scoped_release released;
    with_shape(shape, [&]<class C>(C) {
        const int64_t heads = C::heads(shape), width = heads * C::columns(shape);
        parallel_for(rows, threads, EDGES_A_THREAD, [&](int64_t begin, int64_t end) {
            for (int64_t i = begin; i < end; ++i)
                head_dots<C>(x.data() + i * width, att.data(), out.data() + i * heads, shape);
        });
    });
}

// Its gradients: gx += g att, and the sums for att over each piece of rows, g_att[pieces, H F].
template <class T>
void head_terms_backward(In<T, 3> x, In<T, 2> att, In<T, 2> g, Array<T, 3> gx, Array<T, 2> g_att, int threads) {
    const Shape shape{static_cast<int64_t>(x.shape(1)), static_cast<int64_t>(x.shape(2))};
    const int64_t rows = g.shape(0), pieces = (rows + ROWS_A_PIECE - 1) / ROWS_A_PIECE;
    if (static_cast<int64_t>(g_att.shape(0)) < pieces) throw std::invalid_argument("head_terms_backward: g_att is too short");
    nb::gil_scoped_release released;
    with_shape(shape, [&]<class C>(C) {
        const int64_t heads = C::heads(shape), width = heads * C::columns(shape);
        const int64_t f = C::columns(shape);
        parallel_for(pieces, threads, 4, [&](int64_t from, int64_t to) {
            for (int64_t piece = from; piece < to; ++piece) {
                T *__restrict sums = g_att.data() + piece * width;
                std::fill_n(sums, width, T{0});
                for (int64_t i = piece * ROWS_A_PIECE; i < std::min(rows, (piece + 1) * ROWS_A_PIECE); ++i)
                    for (int64_t h = 0, heads = C::heads(shape); h < heads; ++h) {
                        const T factor = g.data()[i * shape.heads + h];
                        const T *__restrict row = x.data() + i * width + h * f, *__restrict vector = att.data() + h * f;
                        T *__restrict gradient = gx.data() + i * width + h * f, *__restrict sum = sums + h * f;
                        for (int64_t c = 0; c < f; ++c) {
                            gradient[c] += factor * vector[c];
                            sum[c] += factor * row[c];
                        }
                    }
            }
        });
    });
}

// GATv2: logits <att, leaky(xl[source] + xr[destination])>.
template <class T>
void gatv2(In<int64_t> indptr, In<int32_t> src, In<T, 3> xl, In<T, 3> xr, In<T, 2> att, MaybeIn<T, 2> keep, Array<T, 2> p,
           Array<T, 3> out, double slope, int threads) {
    const Shape shape{static_cast<int64_t>(xl.shape(1)), static_cast<int64_t>(xl.shape(2))};
    const int64_t *offset = indptr.data(), rows = indptr.shape(0) - 1;
    const int32_t *source = src.data();
    const T *kept = data_or_null(keep), bend = static_cast<T>(slope);
    nb::gil_scoped_release released;
    with_shape(shape, [&]<class C>(C) {
        const int64_t heads = C::heads(shape), width = heads * C::columns(shape);
        parallel_rows(offset, rows, threads, EDGES_A_THREAD, [&](int64_t begin, int64_t end) {
            std::vector<T> scratch, joined(width);
            for (int64_t i = begin; i < end; ++i) {
                const int64_t first = offset[i], stop = offset[i + 1];
                T *to = out.data() + i * width;
                std::fill_n(to, width, T{0});
                if (first == stop) continue;
                const T *__restrict own = xr.data() + i * width;
                for (int64_t e = first; e < stop; ++e) {
                    if (e + EDGES_AHEAD < offset[end]) prefetch_row(xl.data() + source[e + EDGES_AHEAD] * width, width);
                    const T *__restrict row = xl.data() + source[e] * width;
                    for (int64_t c = 0; c < width; ++c) joined[c] = leaky(row[c] + own[c], bend);
                    head_dots<C>(joined.data(), att.data(), p.data() + e * heads, shape);
                }
                soft_max<C>(p.data() + first * heads, stop - first, shape, scratch, static_cast<T *>(nullptr));
                for (int64_t e = first; e < stop; ++e)
                    add_scaled<C>(to, xl.data() + source[e] * width, p.data() + e * heads, kept ? kept + e * heads : nullptr,
                                  shape);
            }
        });
    });
}

// By destination: d_logit[E, H], g_xr[n_dst, H F] and, a piece of rows each, the sums for g_att[pieces, H F].
template <class T>
void gatv2_backward_dst(In<int64_t> indptr, In<int32_t> src, In<T, 3> xl, In<T, 3> xr, In<T, 2> att, MaybeIn<T, 2> keep,
                        In<T, 2> p, In<T, 3> g, Array<T, 2> d_logit, Array<T, 3> g_xr, Array<T, 2> g_att, double slope,
                        int threads) {
    const Shape shape{static_cast<int64_t>(xl.shape(1)), static_cast<int64_t>(xl.shape(2))};
    const int64_t *offset = indptr.data(), rows = indptr.shape(0) - 1, heads = shape.heads, width = shape.width();
    const int64_t f = shape.columns, pieces = (rows + ROWS_A_PIECE - 1) / ROWS_A_PIECE;
    const int32_t *source = src.data();
    const T *kept = data_or_null(keep), bend = static_cast<T>(slope);
    if (static_cast<int64_t>(g_att.shape(0)) < pieces) throw std::invalid_argument("gatv2_backward_dst: g_att is too short");
    nb::gil_scoped_release released;
    parallel_for(pieces, threads, 4, [&](int64_t from, int64_t to) {
        std::vector<T> scratch;
        for (int64_t piece = from; piece < to; ++piece) {
            T *__restrict sums = g_att.data() + piece * width;
            std::fill_n(sums, width, T{0});
            for (int64_t i = piece * ROWS_A_PIECE; i < std::min(rows, (piece + 1) * ROWS_A_PIECE); ++i) {
                const int64_t first = offset[i], stop = offset[i + 1];
                T *__restrict own_gradient = g_xr.data() + i * width;
                const T *__restrict own = xr.data() + i * width;
                std::fill_n(own_gradient, width, T{0});
                for (int64_t e = first; e < stop; ++e) {
                    if (e + EDGES_AHEAD < offset[rows]) prefetch_row(xl.data() + source[e + EDGES_AHEAD] * width, width);
                    T *dp = d_logit.data() + e * heads;
                    head_dots<Known<0, 0>>(g.data() + i * width, xl.data() + source[e] * width, dp, shape);
                    if (kept)
                        for (int64_t h = 0; h < heads; ++h) dp[h] *= kept[e * heads + h];
                }
                soft_max_backward<Known<0, 0>>(d_logit.data() + first * heads, p.data() + first * heads, stop - first, shape,
                                               scratch, static_cast<const T *>(nullptr));
                for (int64_t e = first; e < stop; ++e)
                    for (int64_t h = 0; h < heads; ++h) {
                        const T d = d_logit.data()[e * heads + h];
                        const T *__restrict row = xl.data() + source[e] * width;
                        for (int64_t c = h * f; c < (h + 1) * f; ++c) {
                            const T joined = row[c] + own[c];
                            own_gradient[c] += d * att.data()[c] * (joined > 0 ? T{1} : bend);
                            sums[c] += d * leaky(joined, bend);
                        }
                    }
            }
        }
    });
}

template <class T>
void gatv2_backward_src(In<int64_t> t_indptr, In<int32_t> t_dst, In<int32_t> t_edge, In<T, 3> xl, In<T, 3> xr, In<T, 2> att,
                        MaybeIn<T, 2> keep, In<T, 2> p, In<T, 2> d_logit, In<T, 3> g, Array<T, 3> g_xl, double slope,
                        int threads) {
    const Shape shape{static_cast<int64_t>(xl.shape(1)), static_cast<int64_t>(xl.shape(2))};
    const int64_t *offset = t_indptr.data(), rows = t_indptr.shape(0) - 1, heads = shape.heads, width = shape.width();
    const int64_t f = shape.columns;
    const int32_t *dst = t_dst.data(), *edge = t_edge.data();
    const T *kept = data_or_null(keep), bend = static_cast<T>(slope);
    nb::gil_scoped_release released;
    parallel_rows(offset, rows, threads, EDGES_A_THREAD, [&](int64_t begin, int64_t end) {
        for (int64_t s = begin; s < end; ++s) {
            T *__restrict to = g_xl.data() + s * width;
            const T *__restrict own = xl.data() + s * width;
            std::fill_n(to, width, T{0});
            for (int64_t at = offset[s]; at < offset[s + 1]; ++at) {
                if (at + EDGES_AHEAD < offset[end]) {
                    prefetch_row(g.data() + dst[at + EDGES_AHEAD] * width, width);
                    prefetch_row(xr.data() + dst[at + EDGES_AHEAD] * width, width);
                }
                const T *__restrict gradient = g.data() + dst[at] * width, *__restrict other = xr.data() + dst[at] * width;
                for (int64_t h = 0; h < heads; ++h) {
                    const int64_t e = edge[at] * heads + h;
                    const T share = kept ? p.data()[e] * kept[e] : p.data()[e], d = d_logit.data()[e];
                    for (int64_t c = h * f; c < (h + 1) * f; ++c)
                        to[c] += share * gradient[c] + d * att.data()[c] * (own[c] + other[c] > 0 ? T{1} : bend);
                }
            }
        }
    });
}

template <class T> void bind_for(nb::module_ &m) {
    m.def("gat", &gat<T>, nb::arg("indptr"), nb::arg("src"), nb::arg("a_src").none(), nb::arg("a_dst").none(),
          nb::arg("edge_logits").none(), nb::arg("keep").none(), nb::arg("x").noconvert(), nb::arg("p").noconvert(),
          nb::arg("out").noconvert(), nb::arg("lse").none(), nb::arg("slope"), nb::arg("threads"));
    m.def("gat_backward_dst", &gat_backward_dst<T>, nb::arg("indptr"), nb::arg("src"), nb::arg("a_src").none(),
          nb::arg("a_dst").none(), nb::arg("edge_logits").none(), nb::arg("keep").none(), nb::arg("x").noconvert(),
          nb::arg("p").noconvert(), nb::arg("g").noconvert(), nb::arg("g_lse").none(), nb::arg("shares").noconvert(),
          nb::arg("g_dst").noconvert(),
          nb::arg("slope"), nb::arg("threads"));
    m.def("gat_backward_src", &gat_backward_src<T>, nb::arg("t_indptr"), nb::arg("t_dst"), nb::arg("t_edge"),
          nb::arg("shares").noconvert(), nb::arg("g").noconvert(), nb::arg("gx").noconvert(), nb::arg("g_src").noconvert(),
          nb::arg("threads"));
    m.def("head_terms", &head_terms<T>, nb::arg("x").noconvert(), nb::arg("att").noconvert(), nb::arg("out").noconvert(),
          nb::arg("threads"));
    m.def("head_terms_backward", &head_terms_backward<T>, nb::arg("x").noconvert(), nb::arg("att").noconvert(),
          nb::arg("g").noconvert(), nb::arg("gx").noconvert(), nb::arg("g_att").noconvert(), nb::arg("threads"));
    m.def("gatv2", &gatv2<T>, nb::arg("indptr"), nb::arg("src"), nb::arg("xl").noconvert(), nb::arg("xr").noconvert(),
          nb::arg("att").noconvert(), nb::arg("keep").none(), nb::arg("p").noconvert(), nb::arg("out").noconvert(),
          nb::arg("slope"), nb::arg("threads"));
    m.def("gatv2_backward_dst", &gatv2_backward_dst<T>, nb::arg("indptr"), nb::arg("src"), nb::arg("xl").noconvert(),
          nb::arg("xr").noconvert(), nb::arg("att").noconvert(), nb::arg("keep").none(), nb::arg("p").noconvert(),
          nb::arg("g").noconvert(), nb::arg("d_logit").noconvert(), nb::arg("g_xr").noconvert(),
          nb::arg("g_att").noconvert(), nb::arg("slope"), nb::arg("threads"));
    m.def("gatv2_backward_src", &gatv2_backward_src<T>, nb::arg("t_indptr"), nb::arg("t_dst"), nb::arg("t_edge"),
          nb::arg("xl").noconvert(), nb::arg("xr").noconvert(), nb::arg("att").noconvert(), nb::arg("keep").none(),
          nb::arg("p").noconvert(), nb::arg("d_logit").noconvert(), nb::arg("g").noconvert(), nb::arg("g_xl").noconvert(),
          nb::arg("slope"), nb::arg("threads"));
}

} // namespace
} // namespace weft

void bind_attention(nanobind::module_ &m) {
    weft::bind_for<float>(m);
    weft::bind_for<double>(m);
    m.attr("ROWS_A_PIECE") = weft::ROWS_A_PIECE;
}
