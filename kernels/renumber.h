// Global ids -> local ids, in order of first appearance. Two tables with one interface: an array over all vertices where
// that is small, an open-addressing hash table where it is not.
//
// A slot holds a value; one below base() is free. The caller stores base() + local id. Slots are 4 bytes a vertex or one
// cache line's part in the hash table, so a look-up costs one miss, which prefetch() hides.
#pragma once
#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>

#include "memory.h"

namespace weft {

// One 4-byte slot a vertex. Between batches base() moves past all values in use, so nothing needs clearing.
template <class Id> class ArrayTable {
  public:
    explicit ArrayTable(int64_t vertices) : vertices_(vertices) {
        std::fill_n(slots_.reserve(vertices), vertices, -1);
    }
    void begin() {
        base_ = end_;
        if (base_ < LAST) return;
        std::fill_n(slots_.data(), vertices_, -1);
        base_ = end_ = 0;
    }
    void begin_for(int64_t) { begin(); }
    // Values up to base() + values will be stored.
    void reserve(int64_t values, const Id *, int64_t) { end_ = base_ + static_cast<int32_t>(values); }
    int32_t base() const { return base_; }
    void prefetch(Id id) const { __builtin_prefetch(slots_.data() + id, 1); }
    int32_t &slot(Id id) { return slots_.data()[id]; }
    int32_t &shared_slot(Id id) { return slots_.data()[id]; }

  private:
    static constexpr int32_t LAST = 1 << 30;
    Scratch<int32_t> slots_;
    int64_t vertices_;
    int32_t base_ = 0, end_ = 0;
};

// Linear probing in a power of two of slots, at most three quarters full, cleared for each batch; of so many ids at most.
template <class Id> class HashTable {
  public:
    explicit HashTable(int64_t vertices) : vertices_(vertices) {}
    void begin() { reset(bits_); }
    // Where so many values will be stored, and no others: a table of that size, whatever there was before.
    void begin_for(int64_t values) { reset(bits_for(values)); }
    int32_t base() const { return 0; }
    // Room for `values` ids, of which the `known` ones are there already and stay.
    void reserve(int64_t values, const Id *known_ids, int64_t known) {
        const int bits = bits_for(values);
        if (bits <= bits_) return;
        reset(bits);
        for (int64_t i = 0; i < known; ++i) slot(known_ids[i]) = static_cast<int32_t>(i);
    }
    void prefetch(Id id) const { __builtin_prefetch(slots_.data() + home(id), 1); }
    int32_t &slot(Id id) {
        for (uint64_t at = home(id);; at = (at + 1) & mask_) {
            Slot &slot = slots_.data()[at];
            if (slot.id == id) return slot.value;
            if (slot.id == EMPTY) {
                slot.id = id;
                return slot.value;
            }
        }
    }
    // The same for several threads at once: a slot is claimed by exchanging its id.
    int32_t &shared_slot(Id id) {
        for (uint64_t at = home(id);; at = (at + 1) & mask_) {
            Slot &slot = slots_.data()[at];
            std::atomic_ref<Id> claimed(slot.id);
            Id there = claimed.load(std::memory_order_relaxed);
            if (there == EMPTY && claimed.compare_exchange_strong(there, id, std::memory_order_relaxed)) return slot.value;
            if (there == id) return slot.value;
        }
    }

  private:
    struct Slot {
        Id id;
        int32_t value;
    };
    static constexpr Id EMPTY = -1;

    int bits_for(int64_t values) const {
        const int64_t distinct = std::min(values, vertices_);
        return std::bit_width(static_cast<uint64_t>(distinct + distinct / 3));
    }
    uint64_t home(Id id) const { return (static_cast<uint64_t>(id) * 0x9E3779B97F4A7C15ull) >> shift_; }
    void reset(int bits) {
        bits = std::max(bits, 10);
        const uint64_t slots = uint64_t{1} << bits;
        bits_ = 0; // where there is no memory
        std::memset(static_cast<void *>(slots_.reserve(slots)), 0xFF, slots * sizeof(Slot)); // id and value -1
        bits_ = bits;
        shift_ = 64 - bits_;
        mask_ = slots - 1;
    }

    Scratch<Slot> slots_;
    int64_t vertices_;
    int bits_ = 0, shift_ = 64;
    uint64_t mask_ = 0;
};

} // namespace weft
