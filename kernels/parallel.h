// Splitting a loop over threads. Threads are spawned per call: 20 microseconds, against milliseconds of work, and
// nothing global that a fork or another library's pool could trip over.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

namespace weft {

// How many threads are worth it for n items when a thread should have at least `grain` of them.
inline int useful_threads(int64_t n, int threads, int64_t grain) {
    return static_cast<int>(std::clamp<int64_t>(n / std::max<int64_t>(grain, 1), 1, std::max(threads, 1)));
}

// Runs f(thread) for each of `threads` threads, the first on the caller's. The first exception is thrown again. None begins
// before all are there: where the system refuses one, nothing has happened yet, and none waits for another.
template <class F> void on_threads(int threads, F &&f) {
    if (threads <= 1) {
        f(0);
        return;
    }
    std::vector<std::exception_ptr> errors(threads);
    enum : int { WAIT, RUN, LEAVE };
    std::atomic<int> signal{WAIT};
    auto guarded = [&](int t) {
        signal.wait(WAIT);
        if (signal == LEAVE) return;
        try {
            f(t);
        } catch (...) {
            errors[t] = std::current_exception();
        }
    };
    std::vector<std::thread> others;
    others.reserve(threads - 1);
    auto let = [&](int what) {
        signal = what;
        signal.notify_all();
    };
    const auto leave = [&] {
        let(LEAVE);
        for (auto &other : others) other.join();
    };
    try {
        for (int t = 1; t < threads; ++t) others.emplace_back(guarded, t);
    } catch (const std::system_error &) {
        leave();
        throw std::runtime_error("the system started " + std::to_string(others.size() + 1) + " of " +
                                 std::to_string(threads) +
                                 " threads: ask for fewer, or raise its limits on processes and memory");
    } catch (...) { // no memory for another
        leave();
        throw;
    }
    let(RUN);
    guarded(0);
    for (auto &other : others) other.join();
    for (auto &error : errors)
        if (error) std::rethrow_exception(error);
}

// Threads take pieces in turn: one that shares its core with other work (the loader's, say) takes fewer, and none waits
// for it. Which thread takes a piece is no matter, as a piece's results are its own.
constexpr int PIECES_A_THREAD = 8;

// Runs f(piece) for each of `pieces`.
template <class F> void in_pieces(int threads, int pieces, F &&f) {
    std::atomic<int> next{0};
    on_threads(threads, [&](int) {
        for (int piece; (piece = next.fetch_add(1, std::memory_order_relaxed)) < pieces;) f(piece);
    });
}

// Cuts [0, n) into contiguous ranges and runs f(begin, end) for each.
template <class F> void parallel_for(int64_t n, int threads, int64_t grain, F &&f) {
    const int used = useful_threads(n, threads, grain);
    const int pieces = used == 1 ? 1 : static_cast<int>(std::min<int64_t>(n, used * PIECES_A_THREAD));
    in_pieces(used, pieces, [&](int piece) { f(n * piece / pieces, n * (piece + 1) / pieces); });
}

// Cuts rows [0, n) of a CSR into ranges of equal numbers of edges plus rows (hubs do not unbalance them).
template <class F> void parallel_rows(const int64_t *indptr, int64_t n, int threads, int64_t grain, F &&f) {
    const int64_t work = indptr[n] - indptr[0] + n;
    const int used = useful_threads(work, threads, grain);
    const int pieces = used == 1 ? 1 : used * PIECES_A_THREAD;
    auto cut = [&](int piece) {
        if (piece == 0) return int64_t{0};
        if (piece == pieces) return n;
        const int64_t target = work / pieces * piece;
        int64_t low = 0, high = n;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            (indptr[middle] - indptr[0] + middle < target) ? low = middle + 1 : high = middle;
        }
        return low;
    };
    in_pieces(used, pieces, [&](int piece) { f(cut(piece), cut(piece + 1)); });
}

} // namespace weft
