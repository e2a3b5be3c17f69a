// Splitting a loop over threads. Threads are spawned per call: 20 microseconds, against milliseconds of work, and
// nothing global that a fork or another library's pool could trip over.
#pragma once
#include <algorithm>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

namespace weft {

// How many threads are worth it for n items when a thread should have at least `grain` of them.
inline int useful_threads(int64_t n, int threads, int64_t grain) {
    return static_cast<int>(std::clamp<int64_t>(n / std::max<int64_t>(grain, 1), 1, std::max(threads, 1)));
}

// Runs f(thread) for each of `threads` threads, the first on the caller's. The first exception is thrown again.
template <class F> void on_threads(int threads, F &&f) {
    if (threads <= 1) {
        f(0);
        return;
    }
    std::vector<std::exception_ptr> errors(threads);
    auto guarded = [&](int t) {
        try {
            f(t);
        } catch (...) {
            errors[t] = std::current_exception();
        }
    };
    std::vector<std::thread> others;
    others.reserve(threads - 1);
    for (int t = 1; t < threads; ++t) others.emplace_back(guarded, t);
    guarded(0);
    for (auto &other : others) other.join();
    for (auto &error : errors)
        if (error) std::rethrow_exception(error);
}

// Cuts [0, n) into one contiguous range a thread and runs f(begin, end, thread).
template <class F> void parallel_for(int64_t n, int threads, int64_t grain, F &&f) {
    const int used = useful_threads(n, threads, grain);
    on_threads(used, [&](int t) { f(n * t / used, n * (t + 1) / used, t); });
}

// Cuts rows [0, n) of a CSR so that threads get equal numbers of edges plus rows (hubs do not unbalance them).
template <class F> void parallel_rows(const int64_t *indptr, int64_t n, int threads, int64_t grain, F &&f) {
    const int64_t work = indptr[n] - indptr[0] + n;
    const int used = useful_threads(work, threads, grain);
    auto cut = [&](int t) {
        if (t == 0) return int64_t{0};
        if (t == used) return n;
        const int64_t target = work / used * t;
        int64_t low = 0, high = n;
        while (low < high) {
            const int64_t middle = (low + high) / 2;
            (indptr[middle] - indptr[0] + middle < target) ? low = middle + 1 : high = middle;
        }
        return low;
    };
    on_threads(used, [&](int t) { f(cut(t), cut(t + 1), t); });
}

} // namespace weft
