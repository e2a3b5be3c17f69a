// Memory that is reused: fresh pages cost more than the work done on them (a fault a page), so buffers go back to a pool.
#pragma once
#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

namespace weft {

constexpr size_t HUGE_PAGE = size_t{1} << 21;

struct Free {
    void operator()(void *memory) const { std::free(memory); }
};
using Bytes = std::unique_ptr<std::byte, Free>;

// Fresh memory, in huge pages where it is large: random access into it then misses the TLB far less often.
inline Bytes allocate(size_t bytes) {
    const size_t alignment = bytes >= HUGE_PAGE ? HUGE_PAGE : 64;
    const size_t rounded = (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
    void *memory = std::aligned_alloc(alignment, rounded);
    if (!memory) throw std::bad_alloc();
#ifdef MADV_HUGEPAGE
    if (alignment == HUGE_PAGE) madvise(memory, rounded, MADV_HUGEPAGE);
#endif
    return Bytes(static_cast<std::byte *>(memory));
}

// A growing array without initialisation; contents are lost when it grows.
template <class T> class Scratch {
  public:
    T *reserve(size_t count) {
        if (count > capacity_) grow(count);
        return data();
    }
    // Grows and keeps the first `kept` elements.
    T *extend(size_t count, size_t kept) {
        if (count > capacity_) {
            Bytes old = std::move(memory_);
            grow(count);
            if (kept) std::copy_n(reinterpret_cast<T *>(old.get()), kept, data());
        }
        return data();
    }
    T *data() const { return reinterpret_cast<T *>(memory_.get()); }

  private:
    void grow(size_t count) {
        memory_ = nullptr;
        capacity_ = 0; // where there is no memory
        memory_ = allocate((count + count / 4) * sizeof(T));
        capacity_ = count + count / 4;
    }

    Bytes memory_;
    size_t capacity_ = 0;
};

// Output buffers that come back when their last reader is gone, from whatever thread. At most `KEPT` wait here.
class Pool {
  public:
    struct Buffer {
        std::shared_ptr<Pool> pool; // buffers may outlive the sampler that made them
        Bytes memory;
        size_t capacity;
    };

    struct GiveBack {
        void operator()(Buffer *buffer) const { give_back(buffer); }
    };
    using Handle = std::unique_ptr<Buffer, GiveBack>;

    static Handle take(const std::shared_ptr<Pool> &pool, size_t bytes) {
        const size_t wanted = std::bit_ceil(std::max<size_t>(bytes, 4096));
        {
            std::lock_guard lock(pool->mutex_);
            auto &waiting = pool->waiting_;
            auto best = waiting.end();
            for (auto it = waiting.begin(); it != waiting.end(); ++it)
                if (it->second >= wanted && (best == waiting.end() || it->second < best->second)) best = it;
            if (best != waiting.end() && best->second <= 4 * wanted) {
                Handle buffer(new Buffer{pool, std::move(best->first), best->second});
                waiting.erase(best);
                return buffer;
            }
        }
        return Handle(new Buffer{pool, allocate(wanted), wanted});
    }

    static void give_back(Buffer *buffer) {
        {
            std::lock_guard lock(buffer->pool->mutex_);
            auto &waiting = buffer->pool->waiting_;
            if (waiting.size() == KEPT) waiting.erase(waiting.begin());
            waiting.emplace_back(std::move(buffer->memory), buffer->capacity);
        }
        delete buffer;
    }

  private:
    static constexpr size_t KEPT = 32;
    std::mutex mutex_;
    std::vector<std::pair<Bytes, size_t>> waiting_;
};

} // namespace weft
