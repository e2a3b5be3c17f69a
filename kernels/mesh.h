// A weighted graph as partitioners see it, and sums by key over the neighbours of one vertex at a time.
#pragma once
#include <algorithm>
#include <bit>
#include <stdexcept>
#include <vector>

#include "arrays.h"
#include "random.h"

namespace weft {

// Every edge both ways, once, without self-loops. Each vertex has two weights: what it counts for in the balance, and how
// many training vertices it stands for.
template <class Id, class Weight> struct Mesh {
    const int64_t *offsets;
    const Id *neighbours;
    const Weight *edges; // or null: 1 each
    const int64_t *vertices, *training;
    int64_t count;

    int64_t weight(int64_t edge) const { return edges ? edges[edge] : 1; }
    int64_t degree(int64_t vertex) const { return offsets[vertex + 1] - offsets[vertex]; }
};

template <class Id, class Weight>
Mesh<Id, Weight> mesh_of(const In<int64_t> &offsets, const In<Id> &neighbours, const MaybeIn<Weight> &edges,
                         const In<int64_t> &vertices, const In<int64_t> &training) {
    const auto count = static_cast<int64_t>(offsets.size()) - 1;
    const size_t entries = neighbours.size();
    if (count < 0 || offsets.data()[count] != static_cast<int64_t>(entries) || (edges && edges->size() != entries) ||
        static_cast<int64_t>(vertices.size()) != count || static_cast<int64_t>(training.size()) != count)
        throw std::invalid_argument("the arrays of the mesh do not fit each other");
    return {offsets.data(), neighbours.data(), data_or_null(edges), vertices.data(), training.data(), count};
}

// Sums by key, cleared for each vertex; keys come out in order of first appearance.
class Tally {
  public:
    // At most `entries` different keys will come.
    void begin(int64_t entries) {
        const uint64_t room = std::bit_ceil(static_cast<uint64_t>(2 * entries + 2));
        mask_ = room - 1;
        if (slots_.size() < room) slots_.resize(room);
        std::fill_n(slots_.begin(), room, Slot{-1, 0});
        keys_.clear();
    }
    void add(int64_t key, int64_t weight) {
        Slot &slot = find(key);
        if (slot.key < 0) {
            slot.key = key;
            keys_.push_back(key);
        }
        slot.sum += weight;
    }
    const std::vector<int64_t> &keys() const { return keys_; }
    int64_t sum(int64_t key) { return find(key).sum; }

  private:
    struct Slot {
        int64_t key, sum;
    };
    Slot &find(int64_t key) {
        uint64_t at = (static_cast<uint64_t>(key) * GOLDEN >> 32) & mask_;
        while (slots_[at].key >= 0 && slots_[at].key != key) at = (at + 1) & mask_;
        return slots_[at];
    }

    uint64_t mask_ = 0;
    std::vector<Slot> slots_;
    std::vector<int64_t> keys_;
};

} // namespace weft
