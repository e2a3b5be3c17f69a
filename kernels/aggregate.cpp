// Sums of rows along the edges of a block, and what their gradients need. One thread writes an output row, in edge order,
// so that results do not depend on the number of threads. The same sum over the transposed block is the backward.
#include <algorithm>
#include <bit>
#include <type_traits>
#include <utility>

#include "arrays.h"
#include "parallel.h"

namespace weft {
namespace {

constexpr int64_t EDGES_AHEAD = 8;   // edges between prefetching a row and adding it
constexpr int64_t NARROW_AHEAD = 16; // likewise, of rows that are a cache line or two
constexpr int NARROW = 32;           // columns of rows that are added up in registers

// The edges into (or, transposed, out of) some rows. `edge` maps a position here to the edge's own number.
struct Edges {
    const int64_t *indptr;
    const int32_t *other;
    const int32_t *edge;
    int64_t rows;
    int64_t number(int64_t at) const { return edge ? edge[at] : at; }
};

Edges edges_of(const In<int64_t> &indptr, const In<int32_t> &other, const MaybeIn<int32_t> &edge) {
    return {indptr.data(), other.data(), data_or_null(edge), static_cast<int64_t>(indptr.shape(0)) - 1};
}

// out[c] += w[0] x[0][c] + w[1] x[1][c] + ..., four rows a pass so that `out` is loaded and stored once for them.
template <class T> void add_rows(T *__restrict out, const T *const *x, const T *w, int rows, int64_t width) {
    if (rows == 4) {
        const T *__restrict a = x[0], *__restrict b = x[1], *__restrict c = x[2], *__restrict d = x[3];
        for (int64_t i = 0; i < width; ++i) out[i] = (((out[i] + w[0] * a[i]) + w[1] * b[i]) + w[2] * c[i]) + w[3] * d[i];
        return;
    }
    for (int r = 0; r < rows; ++r) {
        const T *__restrict a = x[r];
        for (int64_t i = 0; i < width; ++i) out[i] += w[r] * a[i];
    }
}

// out[at[i]] += rows[i], in order. Of the output's rows, a few side by side are in turn in one piece and the next: who has a
// piece goes over all places, so that a row's sum is in the same order whatever the number of threads.
template <class T> void add_rows_at(In<T, 2> rows, In<int64_t> at, Array<T, 2> out, int threads) {
    constexpr int64_t TOGETHER = 8, NARROW_BYTES = 64;
    const int64_t count = rows.shape(0), width = rows.shape(1), room = out.shape(0);
    if (static_cast<int64_t>(at.shape(0)) != count || static_cast<int64_t>(out.shape(1)) != width)
        throw std::invalid_argument("add_rows_at: there must be a place for each row, as wide as the output's");
    const T *from = rows.data();
    const int64_t *place = at.data();
    T *to = out.data();
    nb::gil_scoped_release released;
    for (int64_t i = 0; i < count; ++i)
        if (place[i] < 0 || place[i] >= room) throw std::out_of_range("add_rows_at: a place outside of the output");
    const auto add = [=](int64_t i) {
        T *__restrict row = to + place[i] * width;
        const T *__restrict added = from + i * width;
        for (int64_t c = 0; c < width; ++c) row[c] += added[c];
    };
    // One thread reads the rows in order, several with gaps, at half as much time again: two gain too little on one. Narrow
    // rows are added in less time than it takes to look whose they are.
    const bool alone = threads < 4 || width * static_cast<int64_t>(sizeof(T)) < NARROW_BYTES;
    const int used = alone ? 1 : useful_threads(count, threads, EDGES_A_THREAD);
    if (used == 1) {
        for (int64_t i = 0; i < count; ++i) {
            if (i + EDGES_AHEAD < count) prefetch_row(to + place[i + EDGES_AHEAD] * width, width);
            add(i);
        }
        return;
    }
    const unsigned pieces = std::bit_ceil(4u * static_cast<unsigned>(used)); // so that a row's is some bits of its place
    in_pieces(used, static_cast<int>(pieces), [&](int piece) {
        int64_t waiting[EDGES_AHEAD], met = 0; // rows whose memory is on its way
        for (int64_t i = 0; i < count; ++i) {
            if ((place[i] / TOGETHER & (pieces - 1)) != piece) continue;
            prefetch_row(to + place[i] * width, width);
            prefetch_row(from + i * width, width);
            if (met >= EDGES_AHEAD) add(waiting[met % EDGES_AHEAD]);
            waiting[met++ % EDGES_AHEAD] = i;
        }
        for (int64_t last = std::max<int64_t>(0, met - EDGES_AHEAD); last < met; ++last) add(waiting[last % EDGES_AHEAD]);
    });
}

// Rows of a width that the compiler knows stay in registers while a list is gone over.
template <int W, class T>
void sum_narrow(const Edges &edges, const T *__restrict from, const T *scale, T *__restrict to, int64_t begin, int64_t end,
                bool mean, bool onto) {
    const int64_t last = edges.indptr[end];
    for (int64_t i = begin; i < end; ++i) {
        T sum[W] = {};
        T *__restrict row = to + i * W;
        if (onto) std::copy_n(row, W, sum);
        const int64_t first = edges.indptr[i], stop = edges.indptr[i + 1];
        for (int64_t at = first; at < stop; ++at) {
            if (at + NARROW_AHEAD < last) prefetch_row(from + edges.other[at + NARROW_AHEAD] * int64_t{W}, W);
            const T factor = scale ? scale[edges.number(at)] : T{1};
            const T *__restrict added = from + edges.other[at] * int64_t{W};
            for (int c = 0; c < W; ++c) sum[c] += factor * added[c];
        }
        if (mean && stop - first > 1)
            for (int c = 0; c < W; ++c) sum[c] /= static_cast<T>(stop - first);
        std::copy_n(sum, W, row);
    }
}

template <class T>
void sum_wide(const Edges &edges, const T *from, const T *scale, T *to, int64_t width, int64_t begin, int64_t end, bool mean,
              bool onto) {
    const int64_t last = edges.indptr[end];
    for (int64_t i = begin; i < end; ++i) {
        T *row = to + i * width;
        if (!onto) std::fill_n(row, width, T{0});
        const int64_t stop = edges.indptr[i + 1];
        for (int64_t at = edges.indptr[i]; at < stop;) {
            const T *rows[4];
            T factors[4];
            const int some = static_cast<int>(std::min<int64_t>(4, stop - at));
            for (int r = 0; r < some; ++r, ++at) {
                if (at + EDGES_AHEAD < last) prefetch_row(from + edges.other[at + EDGES_AHEAD] * width, width);
                rows[r] = from + edges.other[at] * width;
                factors[r] = scale ? scale[edges.number(at)] : T{1};
            }
            add_rows(row, rows, factors, some, width);
        }
        const int64_t degree = stop - edges.indptr[i];
        if (mean && degree > 1)
            for (int64_t c = 0; c < width; ++c) row[c] /= static_cast<T>(degree);
    }
}

// Calls f with the width as a constant, if it is one of 1 to sizeof...(W).
template <class F, int... W> bool with_width(int64_t width, F &&f, std::integer_sequence<int, W...>) {
    return ((width == W + 1 && (f(std::integral_constant<int, W + 1>{}), true)) || ...);
}

// With `onto`, what the output holds is added to.
template <class T>
void sum_rows(In<int64_t> indptr, In<int32_t> other, MaybeIn<int32_t> edge, MaybeIn<T> weight, In<T, 2> x, Array<T, 2> out,
              bool mean, bool onto, int threads) {
    const Edges edges = edges_of(indptr, other, edge);
    const T *from = x.data(), *scale = data_or_null(weight);
    T *to = out.data();
    const int64_t width = x.shape(1);
    nb::gil_scoped_release released;
    parallel_rows(edges.indptr, edges.rows, threads, EDGES_A_THREAD, [&](int64_t begin, int64_t end) {
        const auto narrow = [&](auto known) {
            sum_narrow<decltype(known)::value>(edges, from, scale, to, begin, end, mean, onto);
        };
        if (!with_width(width, narrow, std::make_integer_sequence<int, NARROW>{}))
            sum_wide(edges, from, scale, to, width, begin, end, mean, onto);
    });
}

// out[e] = <g[destination of e], x[source of e]>: the gradient of edge weights.
template <class T>
void edge_dot(In<int64_t> indptr, In<int32_t> src, In<T, 2> g, In<T, 2> x, Array<T> out, int threads) {
    const Edges edges = edges_of(indptr, src, {});
    const T *from = x.data(), *gradient = g.data();
    T *to = out.data();
    const int64_t width = x.shape(1);
    nb::gil_scoped_release released;
    parallel_rows(edges.indptr, edges.rows, threads, EDGES_A_THREAD, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
            for (int64_t e = edges.indptr[i]; e < edges.indptr[i + 1]; ++e) {
                if (e + EDGES_AHEAD < edges.indptr[end]) prefetch_row(from + edges.other[e + EDGES_AHEAD] * width, width);
                to[e] = dot(from + edges.other[e] * width, gradient + i * width, width);
            }
    });
}

// The largest of each column, and how many edges attain it (they share the gradient evenly). No edges: zero.
template <class T>
void max_rows(In<int64_t> indptr, In<int32_t> src, In<T, 2> x, Array<T, 2> out, Array<T, 2> ties, int threads) {
    const Edges edges = edges_of(indptr, src, {});
    const T *from = x.data();
    const int64_t width = x.shape(1);
    nb::gil_scoped_release released;
    parallel_rows(edges.indptr, edges.rows, threads, EDGES_A_THREAD, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            T *__restrict best = out.data() + i * width, *__restrict tied = ties.data() + i * width;
            const int64_t first = edges.indptr[i], stop = edges.indptr[i + 1];
            std::fill_n(tied, width, T{1});
            if (first == stop) std::fill_n(best, width, T{0});
            else std::copy_n(from + edges.other[first] * width, width, best);
            for (int64_t e = first + 1; e < stop; ++e) {
                if (e + EDGES_AHEAD < edges.indptr[end]) prefetch_row(from + edges.other[e + EDGES_AHEAD] * width, width);
                const T *__restrict row = from + edges.other[e] * width;
                for (int64_t c = 0; c < width; ++c) {
                    const T there = best[c], value = row[c];
                    const bool taken = (value > there) | (value != value); // what is no number stays: nothing exceeds it
                    tied[c] = taken ? T{1} : tied[c] + (value == there ? T{1} : T{0});
                    best[c] = taken ? value : there;
                }
            }
        }
    });
}

// gx[s] = sum over its edges of g[dst] where x[s] attained the maximum; g is divided by the ties already.
template <class T>
void max_rows_backward(In<int64_t> t_indptr, In<int32_t> t_dst, In<T, 2> g, In<T, 2> best, In<T, 2> x, Array<T, 2> gx,
                       int threads) {
    const Edges edges = edges_of(t_indptr, t_dst, {});
    const int64_t width = x.shape(1);
    nb::gil_scoped_release released;
    parallel_rows(edges.indptr, edges.rows, threads, EDGES_A_THREAD, [&](int64_t begin, int64_t end) {
        for (int64_t s = begin; s < end; ++s) {
            T *__restrict out = gx.data() + s * width;
            const T *__restrict own = x.data() + s * width;
            std::fill_n(out, width, T{0});
            for (int64_t at = edges.indptr[s]; at < edges.indptr[s + 1]; ++at) {
                const T *__restrict gradient = g.data() + edges.other[at] * width;
                const T *__restrict attained = best.data() + edges.other[at] * width;
                for (int64_t c = 0; c < width; ++c) out[c] += own[c] == attained[c] ? gradient[c] : T{0};
            }
        }
    });
}

// FiLM: the sum (or mean) over edges of relu(gamma[dst] x[src] + beta[dst]).
template <class T>
void film(In<int64_t> indptr, In<int32_t> src, In<T, 2> x, In<T, 2> gamma, In<T, 2> beta, Array<T, 2> out, bool mean,
          int threads) {
    const Edges edges = edges_of(indptr, src, {});
    const int64_t width = x.shape(1);
    nb::gil_scoped_release released;
    parallel_rows(edges.indptr, edges.rows, threads, EDGES_A_THREAD, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            T *__restrict to = out.data() + i * width;
            const T *__restrict scale = gamma.data() + i * width, *__restrict shift = beta.data() + i * width;
            std::fill_n(to, width, T{0});
            for (int64_t e = edges.indptr[i]; e < edges.indptr[i + 1]; ++e) {
                if (e + EDGES_AHEAD < edges.indptr[end])
                    prefetch_row(x.data() + edges.other[e + EDGES_AHEAD] * width, width);
                const T *__restrict row = x.data() + edges.other[e] * width;
                for (int64_t c = 0; c < width; ++c) to[c] += std::max(scale[c] * row[c] + shift[c], T{0});
            }
            const int64_t degree = edges.indptr[i + 1] - edges.indptr[i];
            if (mean && degree > 1)
                for (int64_t c = 0; c < width; ++c) to[c] /= static_cast<T>(degree);
        }
    });
}

// Gradients of gamma and beta, by destination; g is divided by the degree already where the mean was taken.
template <class T>
void film_backward_dst(In<int64_t> indptr, In<int32_t> src, In<T, 2> x, In<T, 2> gamma, In<T, 2> beta, In<T, 2> g,
                       Array<T, 2> g_gamma, Array<T, 2> g_beta, int threads) {
    const Edges edges = edges_of(indptr, src, {});
    const int64_t width = x.shape(1);
    nb::gil_scoped_release released;
    parallel_rows(edges.indptr, edges.rows, threads, EDGES_A_THREAD, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            T *__restrict to_gamma = g_gamma.data() + i * width, *__restrict to_beta = g_beta.data() + i * width;
            const T *__restrict scale = gamma.data() + i * width, *__restrict shift = beta.data() + i * width;
            const T *__restrict gradient = g.data() + i * width;
            std::fill_n(to_gamma, width, T{0});
            std::fill_n(to_beta, width, T{0});
            for (int64_t e = edges.indptr[i]; e < edges.indptr[i + 1]; ++e) {
                const T *__restrict row = x.data() + edges.other[e] * width;
                for (int64_t c = 0; c < width; ++c) {
                    const T passed = scale[c] * row[c] + shift[c] > 0 ? gradient[c] : T{0};
                    to_gamma[c] += passed * row[c];
                    to_beta[c] += passed;
                }
            }
        }
    });
}

template <class T>
void film_backward_src(In<int64_t> t_indptr, In<int32_t> t_dst, In<T, 2> x, In<T, 2> gamma, In<T, 2> beta, In<T, 2> g,
                       Array<T, 2> gx, int threads) {
    const Edges edges = edges_of(t_indptr, t_dst, {});
    const int64_t width = x.shape(1);
    nb::gil_scoped_release released;
    parallel_rows(edges.indptr, edges.rows, threads, EDGES_A_THREAD, [&](int64_t begin, int64_t end) {
        for (int64_t s = begin; s < end; ++s) {
            T *__restrict out = gx.data() + s * width;
            const T *__restrict own = x.data() + s * width;
            std::fill_n(out, width, T{0});
            for (int64_t at = edges.indptr[s]; at < edges.indptr[s + 1]; ++at) {
                const int64_t i = edges.other[at] * width;
                const T *__restrict scale = gamma.data() + i, *__restrict shift = beta.data() + i;
                const T *__restrict gradient = g.data() + i;
                for (int64_t c = 0; c < width; ++c)
                    out[c] += scale[c] * own[c] + shift[c] > 0 ? scale[c] * gradient[c] : T{0};
            }
        }
    });
}

template <class T> void bind_for(nb::module_ &m) {
    m.def("sum_rows", &sum_rows<T>, nb::arg("indptr"), nb::arg("other").noconvert(), nb::arg("edge").none(),
          nb::arg("weight").none(), nb::arg("x").noconvert(), nb::arg("out").noconvert(), nb::arg("mean"), nb::arg("onto"),
          nb::arg("threads"));
    m.def("add_rows_at", &add_rows_at<T>, nb::arg("rows").noconvert(), nb::arg("at"), nb::arg("out").noconvert(),
          nb::arg("threads"));
    m.def("edge_dot", &edge_dot<T>, nb::arg("indptr"), nb::arg("src"), nb::arg("g").noconvert(),
          nb::arg("x").noconvert(), nb::arg("out").noconvert(), nb::arg("threads"));
    m.def("max_rows", &max_rows<T>, nb::arg("indptr"), nb::arg("src"), nb::arg("x").noconvert(),
          nb::arg("out").noconvert(), nb::arg("ties").noconvert(), nb::arg("threads"));
    m.def("max_rows_backward", &max_rows_backward<T>, nb::arg("t_indptr"), nb::arg("t_dst"), nb::arg("g").noconvert(),
          nb::arg("best").noconvert(), nb::arg("x").noconvert(), nb::arg("gx").noconvert(), nb::arg("threads"));
    m.def("film", &film<T>, nb::arg("indptr"), nb::arg("src"), nb::arg("x").noconvert(), nb::arg("gamma").noconvert(),
          nb::arg("beta").noconvert(), nb::arg("out").noconvert(), nb::arg("mean"), nb::arg("threads"));
    m.def("film_backward_dst", &film_backward_dst<T>, nb::arg("indptr"), nb::arg("src"), nb::arg("x").noconvert(),
          nb::arg("gamma").noconvert(), nb::arg("beta").noconvert(), nb::arg("g").noconvert(),
          nb::arg("g_gamma").noconvert(), nb::arg("g_beta").noconvert(), nb::arg("threads"));
    m.def("film_backward_src", &film_backward_src<T>, nb::arg("t_indptr"), nb::arg("t_dst"), nb::arg("x").noconvert(),
          nb::arg("gamma").noconvert(), nb::arg("beta").noconvert(), nb::arg("g").noconvert(), nb::arg("gx").noconvert(),
          nb::arg("threads"));
}

} // namespace
} // namespace weft

void bind_aggregate(nanobind::module_ &m) {
    weft::bind_for<float>(m);
    weft::bind_for<double>(m);
}
