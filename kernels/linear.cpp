// Products of tall matrices with small ones, in float32: what dense layers do to rows. General libraries reach a third of
// this arithmetic's limit on such shapes (and less on processors that are not their maker's); tiles that stay in registers
// and a packed small matrix that stays in the first-level cache come close to it.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "arrays.h"
#include "memory.h"
#include "parallel.h"

namespace weft {
namespace {

#ifdef __AVX512F__
constexpr int64_t LANES = 16;
#else
constexpr int64_t LANES = 8;
#endif
typedef float Vector __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

constexpr int WIDEST = LANES == 16 ? 4 : 2;  // vectors across a tile
constexpr int64_t PANEL = WIDEST * LANES;    // columns of a tile
constexpr int64_t PIECE = 256;               // rows whose products with the gradient are summed before they are stored
constexpr int64_t PARTS = 16;                // of a sum over all rows; fixed, so that threads do not change its order
constexpr int64_t ROWS_A_THREAD = 512;
constexpr int64_t TILES = 24;                // rows of weights that tiles of any width divide
constexpr int64_t PRODUCTS_A_THREAD = 1 << 22; // fewer are not worth another thread than there are parts

Vector load(const float *at) { return *reinterpret_cast<const Vector *>(at); }
void store(float *at, Vector value) { *reinterpret_cast<Vector *>(at) = value; }
Vector all(float value) { return value - Vector{}; }

// How many rows a tile of W vectors has: as many sums as there are registers, less those that hold the matrices.
template <int W> constexpr int64_t ROWS = LANES == 16 ? (W == 4 ? 6 : W == 3 ? 8 : 12) : (W == 2 ? 6 : 12);

// Calls f with the number of vectors that `columns` (at most a panel's) take, as a constant.
template <int W = WIDEST, class F> void with_vectors(int64_t columns, F &&f) {
    if constexpr (W == 1) f(std::integral_constant<int, 1>{});
    else if (columns > (W - 1) * LANES) f(std::integral_constant<int, W>{});
    else with_vectors<W - 1>(columns, f);
}

// Calls f with `rows` (at most R) as a constant.
template <int R, class F> void with_rows(int64_t rows, F &&f) {
    if constexpr (R == 1) f(std::integral_constant<int, 1>{});
    else if (rows == R) f(std::integral_constant<int, R>{});
    else with_rows<R - 1>(rows, f);
}

int64_t vectors_of(int64_t columns) { return (std::min(columns, PANEL) + LANES - 1) / LANES; }

// The small matrix b[depth, columns] (given through its strides) as panels, the rows of a panel side by side; the last one
// is as narrow as its columns allow.
void pack(const float *b, int64_t depth, int64_t columns, int64_t row_stride, int64_t column_stride, float *panels) {
    for (int64_t first = 0; first < columns; first += PANEL) {
        const int64_t width = vectors_of(columns - first) * LANES;
        for (int64_t k = 0; k < depth; ++k)
            for (int64_t c = first; c < first + width; ++c)
                *panels++ = c < columns ? b[k * row_stride + c * column_stride] : 0.0f;
    }
}

// One product of a sum of products: rows, and the packed small matrix that they are multiplied by.
struct Factor {
    const float *rows;
    int64_t depth;
    float *packed;
};

// A tile of y: R rows of each factor, from row i on, times a panel of W vectors, all summed; plus `bias` for each row, plus
// what `plus` holds there.
template <int R, int W>
void tile(const Factor *factors, int count, int64_t i, int64_t first, const float *bias, const float *plus, float *y,
          int64_t stride, int64_t width) {
    Vector sum[R][W];
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < W; ++v) sum[r][v] = load(bias + v * LANES);
    for (int f = 0; f < count; ++f) {
        const int64_t depth = factors[f].depth;
        const float *x = factors[f].rows + i * depth, *panel = factors[f].packed + first * depth;
        for (int64_t k = 0; k < depth; ++k, panel += W * LANES) {
            Vector b[W];
            for (int v = 0; v < W; ++v) b[v] = load(panel + v * LANES);
#pragma GCC unroll 12
            for (int r = 0; r < R; ++r) {
                const Vector a = all(x[r * depth + k]);
                for (int v = 0; v < W; ++v) sum[r][v] += a * b[v];
            }
        }
    }
    for (int r = 0; r < R; ++r) {
        float *to = y + r * stride;
        const float *add = plus ? plus + r * stride : nullptr;
        int64_t c = 0;
        for (int v = 0; v < W && c + LANES <= width; ++v, c += LANES)
            store(to + c, add ? sum[r][v] + load(add + c) : sum[r][v]);
        for (; c < width; ++c) to[c] = sum[r][c / LANES][c % LANES] + (add ? add[c] : 0.0f);
    }
}

// y[rows, columns] = x b (+ x2 b2) (+ bias) (+ plus), and the memory that its packed matrices take.
struct Product {
    Factor factors[2];
    const float *matrices[2];
    int count = 0;
    const float *bias, *plus;
    float *y;
    int64_t rows, columns;
    float *start = nullptr; // what each row's sums begin with

    Product(Array<float, 2> &to, const float *bias, const float *plus)
        : bias(bias), plus(plus), y(to.data()), rows(to.shape(0)), columns(to.shape(1)) {}

    void add(const In<float, 2> &x, const In<float, 2> &by, bool transposed) {
        const auto depth = static_cast<int64_t>(x.shape(1));
        if (static_cast<int64_t>(x.shape(0)) < rows || static_cast<int64_t>(by.shape(transposed)) != depth ||
            static_cast<int64_t>(by.shape(!transposed)) != columns)
            throw std::invalid_argument("multiply: the shapes do not fit");
        matrices[count] = by.data();
        factors[count++] = {x.data(), depth, nullptr};
    }
    int64_t depth() const { return factors[0].depth + (count > 1 ? factors[1].depth : 0); }
    int64_t padded() const { return (columns + PANEL - 1) / PANEL * PANEL; }
    int64_t memory() const { return padded() * (depth() + 1); }
    void prepare(float *free, bool transposed) {
        start = free;
        std::fill_n(start, padded(), 0.0f);
        if (bias) std::copy_n(bias, columns, start);
        free += padded();
        for (int f = 0; f < count; free += padded() * factors[f++].depth) {
            factors[f].packed = free;
            pack(matrices[f], factors[f].depth, columns, transposed ? 1 : columns, transposed ? factors[f].depth : 1, free);
        }
    }
    void run(int64_t begin, int64_t end) const {
        for (int64_t first = 0; first < columns; first += PANEL)
            with_vectors(columns - first, [&]<int W>(std::integral_constant<int, W>) {
                const int64_t width = std::min(PANEL, columns - first);
                for (int64_t i = begin; i < end; i += ROWS<W>)
                    with_rows<ROWS<W>>(std::min(ROWS<W>, end - i), [&]<int R>(std::integral_constant<int, R>) {
                        const int64_t at = i * columns + first;
                        tile<R, W>(factors, count, i, first, start + first, plus ? plus + at : nullptr, y + at, columns, width);
                    });
            });
    }
};

// Products of the same first rows pass over them together, while some of these stay in the second-level cache.
void compute(Product *products, int count, bool transposed, int threads) {
    Scratch<float> memory;
    int64_t room = 0, deepest = 1, most = 0;
    for (int p = 0; p < count; ++p) room += products[p].memory();
    float *free = memory.reserve(room);
    for (int p = 0; p < count; free += products[p++].memory()) {
        products[p].prepare(free, transposed);
        deepest = std::max(deepest, products[p].depth());
        most = std::max(most, products[p].rows);
    }
    const int64_t some = std::max<int64_t>(48, (1 << 16) / deepest / 24 * 24);
    parallel_for(most, threads, ROWS_A_THREAD, [&](int64_t begin, int64_t end) {
        for (int64_t chunk = begin; chunk < end; chunk += some)
            for (int p = 0; p < count; ++p) products[p].run(chunk, std::min({chunk + some, end, products[p].rows}));
    });
}

// y = x b (+ x2 b2) (+ bias) (+ plus); b and b2 are the matrices, or their transposes.
void multiply(In<float, 2> x, In<float, 2> matrix, MaybeIn<float, 2> x2, MaybeIn<float, 2> matrix2, bool transposed,
              MaybeIn<float> bias, MaybeIn<float, 2> plus, Array<float, 2> y, int threads) {
    Product product(y, data_or_null(bias), data_or_null(plus));
    product.add(x, matrix, transposed);
    if (x2) product.add(*x2, matrix2.value(), transposed);
    nb::gil_scoped_release released;
    compute(&product, 1, transposed, threads);
}

// y = x b^T, and of the first rows y2 = x b2^T (+ bias2): x is read once.
void multiply_pair(In<float, 2> x, In<float, 2> matrix, In<float, 2> matrix2, MaybeIn<float> bias2, Array<float, 2> y,
                   Array<float, 2> y2, int threads) {
    Product products[] = {{y, nullptr, nullptr}, {y2, data_or_null(bias2), nullptr}};
    products[0].add(x, matrix, true);
    products[1].add(x, matrix2, true);
    nb::gil_scoped_release released;
    compute(products, 2, true, threads);
}

// A tile of g^T x over some rows: R columns of g times W vectors of x, added to `sums`.
template <int R, int W>
void outer_tile(const float *g, int64_t g_stride, const float *x, int64_t x_stride, int64_t rows, float *sums,
                int64_t stride) {
    Vector sum[R][W];
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < W; ++v) sum[r][v] = load(sums + r * stride + v * LANES);
    for (int64_t i = 0; i < rows; ++i) {
        Vector b[W];
        for (int v = 0; v < W; ++v) b[v] = load(x + i * x_stride + v * LANES);
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r) {
            const Vector a = all(g[i * g_stride + r]);
            for (int v = 0; v < W; ++v) sum[r][v] += a * b[v];
        }
    }
    for (int r = 0; r < R; ++r)
        for (int v = 0; v < W; ++v) store(sums + r * stride + v * LANES, sum[r][v]);
}

// The gradient w[m, k] = g^T x of a dense layer's weights, over the rows that g has.
struct Outer {
    const float *g;
    int64_t rows, m;
    float *w, *sums = nullptr;

    Outer(const In<float, 2> &g, const In<float, 2> &x, Array<float, 2> &w)
        : g(g.data()), rows(g.shape(0)), m(g.shape(1)), w(w.data()) {
        if (g.shape(0) > x.shape(0) || static_cast<int64_t>(w.shape(0)) != m || w.shape(1) != x.shape(1))
            throw std::invalid_argument("multiply_transposed: the shapes do not fit");
    }
    // Of slices of w's rows, all of whole tiles, the first row of one.
    int64_t cut(int64_t slice, int64_t slices) const { return slice == slices ? m : m * slice / slices / TILES * TILES; }
    void add(int64_t from, int64_t end, int64_t i, int64_t count, const float *x, int64_t stride, int64_t k, int64_t padded,
             float *to) const {
        for (int64_t first = 0; first < k; first += PANEL)
            with_vectors(k - first, [&]<int W>(std::integral_constant<int, W>) {
                static_assert(TILES % ROWS<W> == 0);
                for (int64_t row = from; row < end; row += ROWS<W>)
                    with_rows<ROWS<W>>(std::min(ROWS<W>, end - row), [&]<int R>(std::integral_constant<int, R>) {
                        outer_tile<R, W>(g + i * m + row, m, x + first, stride, count, to + row * padded + first, padded);
                    });
            });
    }
};

// Rows come in PARTS, each with sums of its own; where more threads are worth it than there are parts, these come in slices.
void accumulate(Outer *outers, int count, const In<float, 2> &rows_of_x, int threads) {
    const int64_t n = rows_of_x.shape(0), k = rows_of_x.shape(1), padded = (k + LANES - 1) / LANES * LANES;
    const float *x = rows_of_x.data();
    const int64_t parts = std::clamp<int64_t>(n / PIECE, 1, PARTS);
    Scratch<float> memory;
    int64_t room = 0, most = 0;
    for (int o = 0; o < count; ++o) {
        room += parts * outers[o].m * padded;
        most = std::max(most, outers[o].m);
    }
    const int64_t worth = std::min<int64_t>(threads, n * k * most / PRODUCTS_A_THREAD);
    const int64_t slices = std::clamp<int64_t>((worth + parts - 1) / parts, 1, most / TILES + 1);
    float *free = memory.reserve(room);
    for (int o = 0; o < count; free += parts * outers[o++].m * padded) outers[o].sums = free;
    parallel_for(parts * slices, threads, 1, [&](int64_t from, int64_t to) {
        Scratch<float> copy;
        float *piece = copy.reserve(PIECE * padded);
        std::fill_n(piece, PIECE * padded, 0.0f);
        for (int64_t at = from; at < to; ++at) {
            const int64_t part = at / slices, slice = at % slices;
            for (int o = 0; o < count; ++o) {
                const int64_t first = part * outers[o].m + outers[o].cut(slice, slices);
                const int64_t end = part * outers[o].m + outers[o].cut(slice + 1, slices);
                std::fill(outers[o].sums + first * padded, outers[o].sums + end * padded, 0.0f);
            }
            for (int64_t i = n * part / parts, last = n * (part + 1) / parts; i < last; i += PIECE) {
                const int64_t rows = std::min(PIECE, last - i);
                // A vector past a row's end holds the next row's first columns, whose products are left out at the end. Only
                // where x ends there may be none.
                const bool ends = (i + rows - 1) * k + padded > n * k;
                if (ends)
                    for (int64_t r = 0; r < rows; ++r) std::memcpy(piece + r * padded, x + (i + r) * k, k * sizeof(float));
                for (int o = 0; o < count; ++o)
                    if (const int64_t some = std::min(rows, outers[o].rows - i); some > 0)
                        outers[o].add(outers[o].cut(slice, slices), outers[o].cut(slice + 1, slices), i, some,
                                      ends ? piece : x + i * k, ends ? padded : k, k, padded,
                                      outers[o].sums + part * outers[o].m * padded);
            }
        }
    });
    for (int o = 0; o < count; ++o)
        parallel_for(outers[o].m, threads, (1 << 17) / (parts * padded + 1) + 1, [&](int64_t from, int64_t end) {
            for (int64_t row = from; row < end; ++row) {
                float *to = outers[o].w + row * k;
                const float *sums = outers[o].sums + row * padded;
                std::copy_n(sums, k, to);
                for (int64_t part = 1; part < parts; ++part)
                    for (int64_t c = 0; c < k; ++c) to[c] += sums[part * outers[o].m * padded + c];
            }
        });
}

void multiply_transposed(In<float, 2> g, In<float, 2> x, Array<float, 2> w, int threads) {
    if (g.shape(0) != x.shape(0)) throw std::invalid_argument("multiply_transposed: the shapes do not fit");
    Outer outer(g, x, w);
    nb::gil_scoped_release released;
    accumulate(&outer, 1, x, threads);
}

// w = g^T x, and of the first rows w2 = g2^T x: x is read once.
void multiply_transposed_pair(In<float, 2> g, In<float, 2> g2, In<float, 2> x, Array<float, 2> w, Array<float, 2> w2,
                              int threads) {
    Outer outers[] = {{g, x, w}, {g2, x, w2}};
    nb::gil_scoped_release released;
    accumulate(outers, 2, x, threads);
}

} // namespace
} // namespace weft

void bind_linear(nanobind::module_ &m) {
    using namespace weft;
    m.def("multiply", &multiply, nb::arg("x").noconvert(), nb::arg("matrix").noconvert(),
          nb::arg("x2").none(), nb::arg("matrix2").none(), nb::arg("transposed"), nb::arg("bias").none(),
          nb::arg("plus").none(), nb::arg("y").noconvert(), nb::arg("threads"));
    m.def("multiply_pair", &multiply_pair, nb::arg("x").noconvert(), nb::arg("matrix").noconvert(),
          nb::arg("matrix2").noconvert(), nb::arg("bias2").none(), nb::arg("y").noconvert(), nb::arg("y2").noconvert(),
          nb::arg("threads"));
    m.def("multiply_transposed_pair", &multiply_transposed_pair, nb::arg("g").noconvert(), nb::arg("g2").noconvert(),
          nb::arg("x").noconvert(), nb::arg("w").noconvert(), nb::arg("w2").noconvert(), nb::arg("threads"));
    m.def("multiply_transposed", &multiply_transposed, nb::arg("g").noconvert(), nb::arg("x").noconvert(),
          nb::arg("w").noconvert(), nb::arg("threads"));
}
