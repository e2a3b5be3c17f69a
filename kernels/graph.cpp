// Making graphs: counting and placing edges into neighbour lists, cleaning lists, ids of names, random graphs.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "arrays.h"
#include "memory.h"
#include "parallel.h"
#include "random.h"

namespace weft {
namespace {

// Adds each edge to its destination's count (to its source's too if undirected). Returns the first edge with an id outside
// of [0, vertices), or -1.
template <class Id> int64_t count_edges(In<Id> src, In<Id> dst, Array<int64_t> counts, bool undirected) {
    const int64_t edges = src.shape(0), vertices = counts.shape(0);
    const Id *from = src.data(), *to = dst.data();
    int64_t *count = counts.data();
    nb::gil_scoped_release released;
    for (int64_t e = 0; e < edges; ++e) {
        if (from[e] < 0 || to[e] < 0 || from[e] >= vertices || to[e] >= vertices) return e;
        ++count[to[e]];
        if (undirected) ++count[from[e]];
    }
    return -1;
}

// Puts each edge whose destination lies in [first, first + next.size) at that destination's next free place. What
// there is no room for is counted only.
template <class Id, class Out>
void place_edges(In<Id> src, In<Id> dst, int64_t first, Array<int64_t> next, Array<Out> indices, MaybeIn<float> weight,
                 std::optional<Array<float>> out_weight, MaybeIn<int32_t> type, std::optional<Array<int32_t>> out_type,
                 bool undirected) {
    const int64_t edges = src.shape(0), rows = next.shape(0), room = indices.shape(0);
    const Id *from = src.data(), *to = dst.data();
    const float *w = data_or_null(weight);
    const int32_t *t = data_or_null(type);
    int64_t *place = next.data();
    Out *out = indices.data();
    float *out_w = data_or_null(out_weight);
    int32_t *out_t = data_or_null(out_type);
    nb::gil_scoped_release released;
    auto put = [&](int64_t row, Id source, int64_t e) {
        if (row < 0 || row >= rows) return;
        const int64_t at = place[row]++;
        if (at >= room) return;
        out[at] = static_cast<Out>(source);
        if (w) out_w[at] = w[e];
        if (t) out_t[at] = t[e];
    };
    constexpr int64_t AHEAD = 16;
    for (int64_t e = 0; e < edges; ++e) {
        if (e + AHEAD < edges) {
            const int64_t row = static_cast<int64_t>(to[e + AHEAD]) - first;
            if (row >= 0 && row < rows) __builtin_prefetch(place + row, 1);
        }
        put(static_cast<int64_t>(to[e]) - first, from[e], e);
        if (undirected) put(static_cast<int64_t>(from[e]) - first, to[e], e);
    }
}

enum class Loops { keep, remove, add };

// Which edges of one list stay: all but repeats of (source, type) and, if wanted, self-loops.
template <class Id> class Cleaner {
  public:
    Cleaner(bool drop_duplicates, Loops loops) : drop_(drop_duplicates), loops_(loops) {}

    void begin(int64_t degree) {
        if (!drop_) return;
        mask_ = std::bit_ceil(static_cast<uint64_t>(2 * degree + 2)) - 1;
        seen_.assign(mask_ + 1, {-1, 0});
    }
    bool keeps(Id source, Id own, int32_t type) {
        if (source == own && loops_ == Loops::remove) return false;
        return !drop_ || fresh(source, type);
    }

  private:
    bool fresh(Id source, int32_t type) {
        uint64_t at = chain(static_cast<uint64_t>(source), static_cast<uint32_t>(type)) & mask_;
        for (;; at = (at + 1) & mask_) {
            if (seen_[at].first == -1) {
                seen_[at] = {source, type};
                return true;
            }
            if (seen_[at] == std::pair<Id, int32_t>{source, type}) return false;
        }
    }

    bool drop_;
    Loops loops_;
    uint64_t mask_ = 0;
    std::vector<std::pair<Id, int32_t>> seen_;
};

// Cleans the lists of the vertices from `first` on, in order; the outputs have room for one more edge a list if loops are
// added. Writes each list's new length and returns the number of edges.
template <class Id>
int64_t clean_lists(In<int64_t> indptr, In<Id> indices, MaybeIn<float> weight, MaybeIn<int32_t> type, int64_t first,
                    bool drop_duplicates, int loops, Array<int64_t> lengths, Array<Id> out,
                    std::optional<Array<float>> out_weight, std::optional<Array<int32_t>> out_type) {
    const int64_t rows = lengths.shape(0), *offset = indptr.data();
    const Id *source = indices.data();
    const float *w = data_or_null(weight);
    const int32_t *t = data_or_null(type);
    Id *to = out.data();
    float *to_w = data_or_null(out_weight);
    int32_t *to_t = data_or_null(out_type);
    nb::gil_scoped_release released;
    Cleaner<Id> cleaner(drop_duplicates, static_cast<Loops>(loops));
    int64_t at = 0;
    for (int64_t i = 0; i < rows; ++i) {
        const Id own = static_cast<Id>(first + i);
        const int64_t begin = at;
        bool looped = false;
        cleaner.begin(offset[i + 1] - offset[i]);
        for (int64_t e = offset[i]; e < offset[i + 1]; ++e) {
            if (!cleaner.keeps(source[e], own, t ? t[e] : 0)) continue;
            looped |= source[e] == own;
            to[at] = source[e];
            if (w) to_w[at] = w[e];
            if (t) to_t[at] = t[e];
            ++at;
        }
        if (static_cast<Loops>(loops) == Loops::add && !looped) {
            to[at] = own;
            if (w) to_w[at] = 1;
            if (t) to_t[at] = 0;
            ++at;
        }
        lengths.data()[i] = at - begin;
    }
    return at;
}

// Names -> 0, 1, 2, ... in order of first appearance. Names are byte strings; 64-bit integers are strings of 8 bytes.
class NameTable {
  public:
    NameTable() : slots_(1 << 10, -1), offsets_{0} {}

    // The ids of the names in an Arrow buffer; unknown ones are added, or -1 if `add` is false.
    template <class Offset> void look_up(In<Offset> offsets, In<uint8_t> bytes, bool add, Array<int64_t> out) {
        const int64_t count = out.shape(0);
        const Offset *offset = offsets.data();
        const auto *text = reinterpret_cast<const char *>(bytes.data());
        nb::gil_scoped_release released;
        constexpr int64_t SOME = 32; // names that are on their way at once: a slot, then where its name is, then that
        uint64_t hashes[SOME];
        for (int64_t first = 0; first < count; first += SOME) {
            const int64_t here = std::min(SOME, count - first);
            const auto length = [&](int64_t i) { return static_cast<size_t>(offset[first + i + 1] - offset[first + i]); };
            for (int64_t i = 0; i < here; ++i) {
                hashes[i] = hash(text + offset[first + i], length(i));
                __builtin_prefetch(&slots_[hashes[i] & (slots_.size() - 1)]);
            }
            for (int64_t i = 0; i < here; ++i)
                if (const int64_t id = slots_[hashes[i] & (slots_.size() - 1)]; id >= 0) __builtin_prefetch(&offsets_[id]);
            for (int64_t i = 0; i < here; ++i)
                if (const int64_t id = slots_[hashes[i] & (slots_.size() - 1)]; id >= 0)
                    __builtin_prefetch(text_.data() + offsets_[id]);
            for (int64_t i = 0; i < here; ++i)
                out.data()[first + i] = find(text + offset[first + i], length(i), hashes[i], add);
        }
    }
    int64_t size() const { return static_cast<int64_t>(offsets_.size()) - 1; }
    nb::bytes text() const { return nb::bytes(text_.data(), text_.size()); }
    void offsets(Array<int64_t> out) const { std::copy(offsets_.begin(), offsets_.end(), out.data()); }

  private:
    static uint64_t hash(const char *name, size_t length) {
        uint64_t h = mix64(length);
        for (; length >= 8; name += 8, length -= 8) {
            uint64_t word;
            std::memcpy(&word, name, 8);
            h = mix64(h ^ word);
        }
        uint64_t word = 0;
        std::memcpy(&word, name, length);
        return mix64(h ^ word);
    }
    bool is(int64_t id, const char *name, size_t length) const {
        return static_cast<size_t>(offsets_[id + 1] - offsets_[id]) == length &&
               !std::memcmp(text_.data() + offsets_[id], name, length);
    }
    int64_t find(const char *name, size_t length, uint64_t hashed, bool add) {
        const uint64_t mask = slots_.size() - 1;
        uint64_t at = hashed & mask;
        for (; slots_[at] != -1; at = (at + 1) & mask)
            if (is(slots_[at], name, length)) return slots_[at];
        if (!add) return -1;
        const int64_t id = size();
        text_.append(name, length);
        offsets_.push_back(static_cast<int64_t>(text_.size()));
        slots_[at] = id;
        if (2 * static_cast<uint64_t>(size()) > slots_.size()) grow();
        return id;
    }
    void grow() {
        slots_.assign(2 * slots_.size(), -1);
        const uint64_t mask = slots_.size() - 1;
        for (int64_t id = 0; id < size(); ++id) {
            uint64_t at = hash(text_.data() + offsets_[id], static_cast<size_t>(offsets_[id + 1] - offsets_[id])) & mask;
            while (slots_[at] != -1) at = (at + 1) & mask;
            slots_[at] = id;
        }
    }

    std::vector<int64_t> slots_, offsets_;
    std::string text_;
};

// R-MAT: each edge falls into one of four quarters, level by level, with probabilities a, b, c and the rest; edges that
// fall outside of the vertices are drawn again. Edge i hangs on (key, i) alone.
void rmat_edges(uint64_t key, int64_t first, int64_t vertices, double a, double b, double c, In<int32_t> relabel,
                Array<int32_t> src, Array<int32_t> dst, int threads) {
    const int levels = std::bit_width(static_cast<uint64_t>(std::max<int64_t>(vertices - 1, 1)));
    const auto at = [](double p) { return static_cast<uint32_t>(p * 65536); };
    const uint32_t in_a = at(a), in_b = at(a + b), in_c = at(a + b + c);
    nb::gil_scoped_release released;
    parallel_for(src.shape(0), threads, 1 << 14, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            Stream stream(key, static_cast<uint64_t>(first + i));
            int64_t u, v;
            do {
                u = v = 0;
                uint64_t bits = 0;
                for (int level = 0; level < levels; ++level) {
                    if (level % 4 == 0) bits = stream.next();
                    const uint32_t quarter = bits & 0xFFFF;
                    bits >>= 16;
                    const bool right = (quarter >= in_a && quarter < in_b) || quarter >= in_c, low = quarter >= in_b;
                    u = 2 * u + low;
                    v = 2 * v + right;
                }
            } while (u >= vertices || v >= vertices);
            src.data()[i] = relabel.data()[u];
            dst.data()[i] = relabel.data()[v];
        }
    });
}

// Edges of communities: one end by weight among all vertices, the other by weight within its block, its class, or among
// all. Vertices of a block lie side by side, so do the blocks of a class; `sums` are the running sums of weights, and `guide`
// says where the sums that are cut into equal cells first exceed the bounds of each, so that few need to be searched.
void community_edges(uint64_t key, int64_t first, In<double> sums, In<int64_t> guide, In<int64_t> block_bounds,
                     In<int64_t> class_bounds, double in_block, double in_class, In<int32_t> relabel, Array<int32_t> src,
                     Array<int32_t> dst, int threads) {
    const double *sum = sums.data();
    const int64_t vertices = sums.shape(0) - 1, cells = static_cast<int64_t>(guide.shape(0)) - 1, *at = guide.data();
    auto find = [&](double target, int64_t begin, int64_t end, int64_t low, int64_t high) {
        return std::clamp<int64_t>(std::upper_bound(sum + begin, sum + end, target) - sum - 1, low, high - 1);
    };
    auto draw = [&](Stream &stream, int64_t low, int64_t high) {
        const double share = 1.0 - unit(stream.next()), target = sum[low] + share * (sum[high] - sum[low]);
        if (low > 0 || high < vertices) return find(target, low, high + 1, low, high);
        const auto cell = static_cast<int64_t>(share * static_cast<double>(cells)); // or one beside it, as sums are rounded
        return find(target, at[std::max<int64_t>(cell - 1, 0)], at[std::min(cell + 2, cells)], low, high);
    };
    auto around = [&](In<int64_t> &bounds, int64_t vertex) {
        const int64_t *begin = bounds.data(), *end = begin + bounds.shape(0);
        const int64_t *next = std::upper_bound(begin, end, vertex);
        return std::pair{next[-1], next[0]};
    };
    nb::gil_scoped_release released;
    parallel_for(src.shape(0), threads, 1 << 14, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            Stream stream(key, static_cast<uint64_t>(first + i));
            const int64_t v = draw(stream, 0, vertices);
            const double where = unit(stream.next());
            auto [low, high] = where <= in_block              ? around(block_bounds, v)
                               : where <= in_block + in_class ? around(class_bounds, v)
                                                              : std::pair{int64_t{0}, vertices};
            int64_t u = draw(stream, low, high);
            for (int tries = 0; u == v && tries < 8; ++tries) u = draw(stream, low, high);
            src.data()[i] = relabel.data()[u];
            dst.data()[i] = relabel.data()[v];
        }
    });
}

template <class Id> void bind_edges(nb::module_ &m) {
    m.def("count_edges", &count_edges<Id>, nb::arg("src").noconvert(), nb::arg("dst").noconvert(), nb::arg("counts"),
          nb::arg("undirected"));
    auto bind_place = [&]<class Out>(Out) {
        m.def("place_edges", &place_edges<Id, Out>, nb::arg("src").noconvert(), nb::arg("dst").noconvert(),
              nb::arg("first"), nb::arg("next"), nb::arg("indices").noconvert(), nb::arg("weight").none(),
              nb::arg("out_weight").none(), nb::arg("type").none(), nb::arg("out_type").none(), nb::arg("undirected"));
    };
    bind_place(int32_t{});
    bind_place(int64_t{});
    m.def("clean_lists", &clean_lists<Id>, nb::arg("indptr"), nb::arg("indices").noconvert(), nb::arg("weight").none(),
          nb::arg("type").none(), nb::arg("first"), nb::arg("drop_duplicates"), nb::arg("loops"), nb::arg("lengths"),
          nb::arg("out").noconvert(), nb::arg("out_weight").none(), nb::arg("out_type").none());
}

} // namespace
} // namespace weft

void bind_graph(nanobind::module_ &m) {
    using namespace weft;
    bind_edges<int32_t>(m);
    bind_edges<int64_t>(m);
    nb::class_<NameTable>(m, "NameTable", "Names to ids, in order of first appearance.")
        .def(nb::init<>())
        .def("look_up", &NameTable::look_up<int32_t>, nb::arg("offsets").noconvert(), nb::arg("bytes"), nb::arg("add"),
             nb::arg("out"))
        .def("look_up", &NameTable::look_up<int64_t>, nb::arg("offsets").noconvert(), nb::arg("bytes"), nb::arg("add"),
             nb::arg("out"))
        .def("__len__", &NameTable::size)
        .def("text", &NameTable::text)
        .def("offsets", &NameTable::offsets, nb::arg("out"));
    m.def("rmat_edges", &rmat_edges, nb::arg("key"), nb::arg("first"), nb::arg("vertices"), nb::arg("a"), nb::arg("b"),
          nb::arg("c"), nb::arg("relabel"), nb::arg("src"), nb::arg("dst"), nb::arg("threads"));
    m.def("community_edges", &community_edges, nb::arg("key"), nb::arg("first"), nb::arg("sums"), nb::arg("guide"),
          nb::arg("block_bounds"), nb::arg("class_bounds"), nb::arg("in_block"), nb::arg("in_class"), nb::arg("relabel"),
          nb::arg("src"), nb::arg("dst"), nb::arg("threads"));
}
