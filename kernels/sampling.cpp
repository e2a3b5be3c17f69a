// Seeds to blocks, hop by hop: draw positions, read the neighbours there, renumber them. What costs is cache misses, so
// each thread works in small chunks of edges and keeps three in flight: while one chunk's positions are drawn (and its
// neighbours prefetched), the previous chunk's neighbours are read (and their slots prefetched), and the one before that
// is renumbered.
#include <nanobind/stl/vector.h>

#include <barrier>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>

#include "arrays.h"
#include "draw.h"
#include "memory.h"
#include "parallel.h"
#include "random.h"
#include "renumber.h"

namespace weft {
namespace {

template <class T> using Out = nb::ndarray<nb::numpy, T, nb::ndim<1>>;

// The in-neighbour lists of the vertices [first, first + rows): a whole graph or one owner's slice of it.
template <class Id> struct Lists {
    const int64_t *indptr;
    const Id *indices;
    const float *weights;        // or null: uniform
    const int64_t *original_ids; // of these vertices, or null: a vertex's id is its key
    int64_t first, rows;
    const int64_t *all_ids = nullptr;  // of all vertices, for draws by neighbour; or null
    const float *importance = nullptr; // of all vertices, for layer-wise draws
};

enum class Draw { BY_VERTEX, BY_NEIGHBOUR, BY_LAYER };

// How the neighbours of one hop are drawn.
struct Hop {
    int64_t fanout; // below 0: all
    uint64_t key;
    bool replace = false;
    Draw draw = Draw::BY_VERTEX;
    double scale = 0; // by layer: of the importance
};

template <class T> struct Output {
    Pool::Handle buffer;
    int64_t size = 0;
    T *data() const { return reinterpret_cast<T *>(buffer->memory.get()); }
};

template <class Id> struct HopResult {
    Output<int64_t> indptr;
    Output<int32_t> src;
    std::optional<Output<int64_t>> edge_ids;
    int64_t num_dst, num_src;
};

constexpr int64_t CHUNK = 256;      // edges; a chunk's neighbours fit the first-level cache
constexpr int64_t AHEAD = 24;       // destinations between prefetching an indptr entry and reading it
constexpr int64_t GRAIN = 1 << 14;  // edges that are worth a thread
constexpr int64_t LISTS_A_THREAD = 1 << 10; // lists to go through, likewise

// One thread's way through its destinations: draws positions, a chunk of edges at a time.
template <class Id> class Drawer {
  public:
    Drawer(const Lists<Id> &lists, const Hop &hop, const Id *vertices, const int64_t *begin, const int64_t *degree,
           const int64_t *offset, int64_t from, int64_t to)
        : lists_(lists), hop_(hop), vertices_(vertices), begin_(begin), degree_(degree), offset_(offset), at_(from), to_(to) {}

    // Writes the next positions to `out` (room for CHUNK) and prefetches their neighbours; 0 at the end.
    int64_t next(int64_t *out) {
        int64_t count = 0;
        while (at_ < to_) {
            const int64_t wanted = offset_[at_ + 1] - offset_[at_] - done_;
            if (count + wanted > CHUNK && !splittable(wanted) && count) break;
            const int64_t taken = take(out + count, wanted, CHUNK - count);
            for (int64_t i = 0; i < taken; ++i) __builtin_prefetch(lists_.indices + out[count + i]);
            count += taken;
            if (taken < wanted) {
                done_ += taken;
                break;
            }
            done_ = 0;
            ++at_;
            if (count >= CHUNK - LANES) break;
        }
        return count;
    }

  private:
    // Lists that are too long for a chunk come in pieces: whole lists as they are, drawn ones by way of `long_`.
    bool splittable(int64_t wanted) const { return wanted > CHUNK || done_ > 0; }

    int64_t take(int64_t *out, int64_t wanted, int64_t room) {
        const int64_t taken = std::min(wanted, room);
        const int64_t degree = degree_[at_], begin = begin_[at_], drawn = offset_[at_ + 1] - offset_[at_];
        if (hop_.fanout < 0 || (!hop_.replace && drawn == degree)) {
            for (int64_t i = 0; i < taken; ++i) out[i] = begin + done_ + i;
        } else if (drawn <= CHUNK && done_ == 0 && taken == wanted) {
            draw(out, drawn, degree, begin);
        } else {
            if (done_ == 0) draw(long_.reserve(drawn), drawn, degree, begin);
            std::copy_n(long_.data() + done_, taken, out);
        }
        return taken;
    }

    void draw(int64_t *out, int64_t k, int64_t degree, int64_t begin) {
        if (k == 0) return;
        const Id *list = lists_.indices + begin;
        if (hop_.draw == Draw::BY_NEIGHBOUR) {
            draw_smallest(hop_.key, list, lists_.all_ids, degree, k, begin, out, smallest_);
            return;
        }
        if (hop_.draw == Draw::BY_LAYER) {
            draw_sampled(hop_.key, hop_.scale, lists_.importance, list, lists_.all_ids, degree, k, begin, out);
            return;
        }
        const int64_t vertex = vertices_[at_];
        Stream stream(hop_.key, lists_.original_ids ? lists_.original_ids[vertex - lists_.first] : vertex);
        const float *weight = lists_.weights ? lists_.weights + begin : nullptr;
        if (weight && hop_.replace) draw_weighted_replacing(stream, weight, degree, k, begin, out, sums_);
        else if (weight) draw_weighted(stream, weight, degree, k, begin, out, arrivals_);
        else if (hop_.replace) draw_replacing(stream, degree, k, begin, out);
        else if (k <= LANES && degree < (int64_t{1} << 32)) draw_few(stream, degree, static_cast<int>(k), begin, out);
        else draw_many(stream, degree, k, begin, out, set_);
    }

    const Lists<Id> &lists_;
    const Hop &hop_;
    const Id *vertices_;
    const int64_t *begin_, *degree_, *offset_;
    int64_t at_, to_, done_ = 0;
    Scratch<int64_t> long_;
    std::vector<int64_t> set_;
    std::vector<double> sums_;
    std::vector<std::pair<double, int64_t>> arrivals_;
    Smallest smallest_;
};

struct Chunk {
    int64_t count = 0;
    int64_t position[CHUNK];
};

// Takes the edges of destinations [from, to) through the three stages. `renumber(edge, ids, count)` gets the sources of
// the edges from `edge` on.
template <class Id, class Table, class Renumber>
void draw_edges(Drawer<Id> drawer, const Lists<Id> &lists, const Table &table, int64_t edge, int64_t *edge_ids,
                Renumber &&renumber) {
    Chunk drawn;
    alignas(64) Id ids[2][CHUNK];
    int64_t counts[2] = {0, 0};
    drawn.count = drawer.next(drawn.position);
    for (int turn = 0; drawn.count || counts[0] || counts[1]; turn ^= 1) {
        // `drawn` waits for its neighbours; ids[turn ^ 1] wait for their slots.
        Id *read = ids[turn];
        counts[turn] = drawn.count;
        int64_t position[CHUNK];
        std::copy_n(drawn.position, drawn.count, position);
        drawn.count = counts[turn] ? drawer.next(drawn.position) : 0;
        for (int64_t i = 0; i < counts[turn]; ++i) {
            read[i] = lists.indices[position[i]];
            table.prefetch(read[i]);
        }
        if (edge_ids) {
            std::copy_n(position, counts[turn], edge_ids);
            edge_ids += counts[turn];
        }
        renumber(edge, ids[turn ^ 1], counts[turn ^ 1]);
        edge += counts[turn ^ 1];
        counts[turn ^ 1] = 0;
    }
}

// Samples batches, reusing its tables and buffers. One call at a time.
template <class Id, class Table> class Sampler {
  public:
    Sampler(Table table, std::shared_ptr<Pool> pool) : table_(std::move(table)), pool_(std::move(pool)) {}

    Output<Id> vertices_result() {
        Output<Id> out{Pool::take(pool_, known_ * sizeof(Id)), known_};
        std::copy_n(vertices_.data(), known_, out.data());
        return out;
    }

    void start(const Lists<Id> &lists, const Id *seeds, int64_t count) {
        table_.begin();
        table_.reserve(count, nullptr, 0);
        vertices_.reserve(count);
        known_ = expanded_ = 0;
        for (int64_t i = 0; i < count; ++i) {
            if (seeds[i] < lists.first || seeds[i] >= lists.first + lists.rows)
                throw std::invalid_argument("seed " + std::to_string(seeds[i]) + " is not a vertex of this graph: ids are " +
                                            std::to_string(lists.first) + " to " +
                                            std::to_string(lists.first + lists.rows - 1));
            int32_t &slot = table_.slot(seeds[i]);
            if (slot >= table_.base())
                throw std::invalid_argument("seed " + std::to_string(seeds[i]) + " comes twice: seeds must be distinct");
            slot = table_.base() + static_cast<int32_t>(known_);
            vertices_.data()[known_++] = seeds[i];
        }
    }

    HopResult<Id> hop(const Lists<Id> &lists, const Hop &hop, bool want_edge_ids, int threads) {
        const int64_t num_dst = known_;
        HopResult<Id> result{{Pool::take(pool_, (num_dst + 1) * sizeof(int64_t)), num_dst + 1}, {}, {}, num_dst, 0};
        int64_t *offset = result.indptr.data();
        measure(lists, hop, offset, threads);
        const int64_t edges = offset[num_dst];
        if (num_dst + edges >= (int64_t{1} << 30))
            throw std::overflow_error("a block of more than 2^30 edges: use smaller batches or fanouts, or more workers");
        result.src = {Pool::take(pool_, edges * sizeof(int32_t)), edges};
        if (want_edge_ids) result.edge_ids = {Pool::take(pool_, edges * sizeof(int64_t)), edges};
        vertices_.extend(num_dst + edges, num_dst);
        table_.reserve(num_dst + edges, vertices_.data(), num_dst);
        const int used = useful_threads(edges, threads, GRAIN);
        used == 1 ? draw_alone(lists, hop, result) : draw_together(lists, hop, result, used);
        result.num_src = known_;
        return result;
    }

  private:
    // Where each destination's list begins, its degree, and how many edges it will get.
    void measure(const Lists<Id> &lists, const Hop &hop, int64_t *offset, int threads) {
        begin_.extend(known_, expanded_);
        degree_.extend(known_, expanded_);
        const Id *vertices = vertices_.data();
        int64_t *begin = begin_.data(), *degree = degree_.data();
        parallel_for(known_ - expanded_, threads, GRAIN, [&](int64_t from, int64_t to) {
            for (int64_t i = expanded_ + from; i < expanded_ + to; ++i) {
                if (i + AHEAD < expanded_ + to) __builtin_prefetch(lists.indptr + (vertices[i + AHEAD] - lists.first));
                const int64_t row = static_cast<int64_t>(vertices[i]) - lists.first;
                if (row < 0 || row >= lists.rows)
                    throw std::invalid_argument("vertex " + std::to_string(vertices[i]) +
                                                " has no neighbour list in this slice of the graph");
                begin[i] = lists.indptr[row];
                degree[i] = lists.indptr[row + 1] - begin[i];
            }
        });
        expanded_ = known_;
        offset[0] = 0;
        const bool by_layer = hop.draw == Draw::BY_LAYER;
        if (hop.fanout >= 0 && (by_layer || lists.weights)) { // lists are gone through
            parallel_for(known_, threads, LISTS_A_THREAD, [&](int64_t from, int64_t to) {
                for (int64_t i = from; i < to; ++i)
                    offset[i + 1] = by_layer ? count_sampled(hop.key, hop.scale, lists.importance, lists.indices + begin[i],
                                                             lists.all_ids, degree[i])
                                             : drawn(lists, hop, begin[i], degree[i]);
            });
            std::partial_sum(offset, offset + known_ + 1, offset);
            return;
        }
        for (int64_t i = 0; i < known_; ++i) offset[i + 1] = offset[i] + drawn(lists, hop, begin[i], degree[i]);
    }

    static int64_t drawn(const Lists<Id> &lists, const Hop &hop, int64_t begin, int64_t degree) {
        int64_t candidates = degree;
        if (lists.weights && hop.fanout >= 0) {
            candidates = 0;
            for (int64_t e = begin; e < begin + degree; ++e) candidates += lists.weights[e] > 0;
        }
        if (hop.fanout < 0) return degree;
        if (hop.replace) return candidates ? hop.fanout : 0;
        return std::min(candidates, hop.fanout);
    }

    Drawer<Id> drawer(const Lists<Id> &lists, const Hop &hop, const HopResult<Id> &result, int64_t from, int64_t to) const {
        return {lists, hop, vertices_.data(), begin_.data(), degree_.data(), result.indptr.data(), from, to};
    }

    // One thread numbers sources as it meets them, without a branch on whether a source is new.
    void draw_alone(const Lists<Id> &lists, const Hop &hop, HopResult<Id> &result) {
        int32_t *src = result.src.data();
        Id *vertices = vertices_.data();
        const int32_t base = table_.base();
        int64_t known = known_;
        int64_t *edge_ids = result.edge_ids ? result.edge_ids->data() : nullptr;
        draw_edges(drawer(lists, hop, result, 0, result.num_dst), lists, table_, 0, edge_ids,
                   [&](int64_t edge, const Id *ids, int64_t count) {
                       for (int64_t i = 0; i < count; ++i) {
                           int32_t &slot = table_.slot(ids[i]);
                           const bool fresh = slot < base;
                           const int32_t value = fresh ? base + static_cast<int32_t>(known) : slot;
                           slot = value;
                           vertices[known] = ids[i];
                           known += fresh;
                           src[edge + i] = value - base;
                       }
                   });
        known_ = known;
    }

    // Several threads give the same numbers as one: each source's slot first gets the earliest edge that names it, then
    // those first edges are counted off in order.
    void draw_together(const Lists<Id> &lists, const Hop &hop, HopResult<Id> &result, int threads) {
        const int64_t num_dst = result.num_dst, edges = result.src.size, *offset = result.indptr.data();
        ids_.reserve(edges);
        firsts_.reserve(edges);
        std::vector<int64_t> fresh(threads, 0);
        auto cut = [&](int t) { return std::lower_bound(offset, offset + num_dst, edges * t / threads) - offset; };
        std::barrier meet(threads);
        on_threads(threads, [&](int t) {
            const int64_t from = cut(t), to = t + 1 == threads ? num_dst : cut(t + 1);
            int64_t met = 0;
            try {
                met = note_firsts(lists, hop, result, from, to);
            } catch (...) {
                meet.arrive_and_drop(); // the others must not wait for this thread
                throw;
            }
            meet.arrive_and_wait();
            fresh[t] = drop_undercut(offset[from], met, num_dst);
            meet.arrive_and_wait();
            number_firsts(offset[from], fresh[t], std::accumulate(fresh.begin(), fresh.begin() + t, num_dst));
            meet.arrive_and_wait();
            int32_t *src = result.src.data();
            for (int64_t e = offset[from]; e < offset[to]; ++e) {
                if (e + AHEAD < offset[to]) table_.prefetch(ids_.data()[e + AHEAD]);
                src[e] = table_.shared_slot(ids_.data()[e]) - table_.base();
            }
        });
        known_ = std::accumulate(fresh.begin(), fresh.end(), num_dst);
    }

    // Draws a thread's edges; those that were the earliest of their source when they came go to `firsts_`. How many?
    int64_t note_firsts(const Lists<Id> &lists, const Hop &hop, HopResult<Id> &result, int64_t from, int64_t to) {
        const int64_t start = result.indptr.data()[from];
        const int32_t base = table_.base(), provisional = base + static_cast<int32_t>(result.num_dst);
        int32_t *mine = firsts_.data() + start;
        Id *ids = ids_.data();
        int64_t met = 0;
        draw_edges(drawer(lists, hop, result, from, to), lists, table_, start,
                   result.edge_ids ? result.edge_ids->data() + start : nullptr,
                   [&](int64_t edge, const Id *read, int64_t count) {
                       for (int64_t i = 0; i < count; ++i) {
                           const auto at = static_cast<int32_t>(edge + i);
                           ids[at] = read[i];
                           mine[met] = at;
                           met += lower(table_.shared_slot(read[i]), base, provisional + at);
                       }
                   });
        return met;
    }

    // Keeps those of `met` first edges that no other thread undercut; how many remain?
    int64_t drop_undercut(int64_t start, int64_t met, int64_t num_dst) {
        const int32_t provisional = table_.base() + static_cast<int32_t>(num_dst);
        int32_t *mine = firsts_.data() + start;
        const Id *ids = ids_.data();
        int64_t kept = 0;
        for (int64_t i = 0; i < met; ++i) {
            if (i + AHEAD < met) table_.prefetch(ids[mine[i + AHEAD]]);
            mine[kept] = mine[i];
            kept += table_.shared_slot(ids[mine[i]]) == provisional + mine[i];
        }
        return kept;
    }

    void number_firsts(int64_t start, int64_t count, int64_t local) {
        const int32_t *mine = firsts_.data() + start;
        for (int64_t i = 0; i < count; ++i, ++local) {
            if (i + AHEAD < count) table_.prefetch(ids_.data()[mine[i + AHEAD]]);
            const Id id = ids_.data()[mine[i]];
            vertices_.data()[local] = id;
            table_.shared_slot(id) = table_.base() + static_cast<int32_t>(local);
        }
    }

    // Lowers a shared slot to `value` unless it holds a lower one in use; says whether it did.
    static bool lower(int32_t &slot, int32_t base, int32_t value) {
        std::atomic_ref<int32_t> shared(slot);
        int32_t there = shared.load(std::memory_order_relaxed);
        while (there < base || there > value)
            if (shared.compare_exchange_weak(there, value, std::memory_order_relaxed)) return true;
        return false;
    }

    Table table_;
    std::shared_ptr<Pool> pool_;
    Scratch<Id> vertices_, ids_;
    Scratch<int32_t> firsts_;
    Scratch<int64_t> begin_, degree_;
    int64_t known_ = 0, expanded_ = 0;
};

template <class T> Out<T> to_numpy(Output<T> output) {
    T *data = output.data();
    nb::capsule owner(output.buffer.release(),
                      [](void *buffer) noexcept { Pool::give_back(static_cast<Pool::Buffer *>(buffer)); });
    return Out<T>(data, {static_cast<size_t>(output.size)}, owner);
}

template <class Id, class Table> class Binding {
  public:
    explicit Binding(Table table) : pool_(std::make_shared<Pool>()), sampler_(std::move(table), pool_) {}

    nb::tuple sample(In<int64_t> indptr, In<Id> indices, In<Id> seeds, const std::vector<int64_t> &fanouts,
                     const std::vector<uint64_t> &keys, MaybeIn<int64_t> original_ids,
                     MaybeIn<float> weights, bool replace, bool edge_ids, int64_t first, int threads) {
        const Lists<Id> lists{indptr.data(),        indices.data(), data_or_null(weights),
                              data_or_null(original_ids), first,          static_cast<int64_t>(indptr.size()) - 1};
        std::vector<Hop> hops;
        for (size_t i = 0; i < fanouts.size(); ++i) hops.push_back({fanouts[i], keys.at(i), replace});
        return run(lists, seeds, hops, edge_ids, threads);
    }

    nb::tuple sample_by_neighbour(In<int64_t> indptr, In<Id> indices, In<Id> seeds, const std::vector<int64_t> &fanouts,
                                  const std::vector<uint64_t> &keys, MaybeIn<int64_t> all_ids, bool edge_ids,
                                  int64_t first, int threads) {
        Lists<Id> lists = whole(indptr, indices, all_ids, first);
        std::vector<Hop> hops;
        for (size_t i = 0; i < fanouts.size(); ++i) hops.push_back({fanouts[i], keys.at(i), false, Draw::BY_NEIGHBOUR});
        return run(lists, seeds, hops, edge_ids, threads);
    }

    nb::tuple sample_by_layer(In<int64_t> indptr, In<Id> indices, In<Id> seeds, const std::vector<double> &scales,
                              const std::vector<uint64_t> &keys, MaybeIn<int64_t> all_ids, In<float> importance,
                              bool edge_ids, int64_t first, int threads) {
        Lists<Id> lists = whole(indptr, indices, all_ids, first);
        lists.importance = importance.data();
        std::vector<Hop> hops;
        for (size_t i = 0; i < scales.size(); ++i)
            hops.push_back({scales[i] < 0 ? -1 : 0, keys.at(i), false, Draw::BY_LAYER, scales[i]});
        return run(lists, seeds, hops, edge_ids, threads);
    }

  private:
    static Lists<Id> whole(const In<int64_t> &indptr, const In<Id> &indices, const MaybeIn<int64_t> &all_ids, int64_t first) {
        const auto rows = static_cast<int64_t>(indptr.size()) - 1;
        return {indptr.data(), indices.data(), nullptr, nullptr, first, rows, data_or_null(all_ids)};
    }

    nb::tuple run(const Lists<Id> &lists, const In<Id> &seeds, const std::vector<Hop> &how, bool edge_ids, int threads) {
        std::vector<HopResult<Id>> hops;
        Output<Id> vertices;
        {
            nb::gil_scoped_release released;
            std::lock_guard lock(mutex_);
            sampler_.start(lists, seeds.data(), static_cast<int64_t>(seeds.size()));
            for (const Hop &hop : how) hops.push_back(sampler_.hop(lists, hop, edge_ids, threads));
            vertices = sampler_.vertices_result();
        }
        nb::list blocks;
        for (auto &hop : hops) {
            nb::object ids = hop.edge_ids ? nb::cast(to_numpy(std::move(*hop.edge_ids))) : nb::none();
            blocks.append(nb::make_tuple(to_numpy(std::move(hop.indptr)), to_numpy(std::move(hop.src)), hop.num_src, ids));
        }
        return nb::make_tuple(to_numpy(std::move(vertices)), blocks);
    }

    std::mutex mutex_;
    std::shared_ptr<Pool> pool_;
    Sampler<Id, Table> sampler_;
};

template <class Id, class Table> void bind_sampler(nb::module_ &m, const char *name, const char *doc) {
    using Self = Binding<Id, Table>;
    nb::class_<Self>(m, name, doc)
        .def("__init__", [](Self *self, int64_t vertices) { new (self) Self(Table(vertices)); }, nb::arg("vertices"))
        .def("sample", &Self::sample, nb::arg("indptr"), nb::arg("indices"), nb::arg("seeds"), nb::arg("fanouts"),
             nb::arg("keys"), nb::arg("original_ids").none(), nb::arg("weights").none(), nb::arg("replace"),
             nb::arg("edge_ids"), nb::arg("first"), nb::arg("threads"),
             "Vertices and, per hop from the seeds outwards, (indptr, src, num_src, edge_ids or None).")
        .def("sample_by_neighbour", &Self::sample_by_neighbour, nb::arg("indptr"), nb::arg("indices"), nb::arg("seeds"),
             nb::arg("fanouts"), nb::arg("keys"), nb::arg("all_ids").none(), nb::arg("edge_ids"), nb::arg("first"),
             nb::arg("threads"), "The same by LABOR: each list's neighbours of the smallest random numbers.")
        .def("sample_by_layer", &Self::sample_by_layer, nb::arg("indptr"), nb::arg("indices"), nb::arg("seeds"),
             nb::arg("scales"), nb::arg("keys"), nb::arg("all_ids").none(), nb::arg("importance"), nb::arg("edge_ids"),
             nb::arg("first"), nb::arg("threads"),
             "The same layer by layer: neighbours in the hop's sample, whose chance is scale x importance; below 0: all.");
}

} // namespace
} // namespace weft

void bind_sampling(nanobind::module_ &m) {
    using namespace weft;
    m.def("mix64", &mix64, nb::arg("x"), "One round of keyed mixing; the twin of weft.keys.mix64.");
    bind_sampler<int32_t, ArrayTable<int32_t>>(m, "ArraySampler32", "int32 ids, 4 bytes a vertex for renumbering.");
    bind_sampler<int32_t, HashTable<int32_t>>(m, "HashSampler32", "int32 ids, a hash table for renumbering.");
    bind_sampler<int64_t, HashTable<int64_t>>(m, "HashSampler64", "int64 ids, a hash table for renumbering.");
}
