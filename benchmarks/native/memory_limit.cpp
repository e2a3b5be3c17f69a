// Random reads a second from an array of the given number of megabytes: a chain in which each read names the next, and
// reads that are all known beforehand and prefetched, on one thread.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

template <class F> double seconds(F &&f) {
    const auto start = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

int main(int, char **argv) {
    const size_t count = std::strtoull(argv[1], nullptr, 10) * (1 << 20) / 4, reads = 20'000'000;
    std::vector<uint32_t> next(count), order(reads);
    std::iota(next.begin(), next.end(), 0u);
    std::mt19937_64 random(1);
    for (size_t i = count - 1; i > 0; --i) std::swap(next[i], next[random() % i]); // one cycle through all
    for (auto &at : order) at = random() % count;
    uint32_t at = 0;
    const double chain = seconds([&] { for (size_t i = 0; i < reads / 10; ++i) at = next[at]; });
    uint64_t sum = at;
    const double ahead = seconds([&] {
        for (size_t i = 0; i < reads; ++i) {
            if (i + 64 < reads) __builtin_prefetch(&next[order[i + 64]]);
            sum += next[order[i]];
        }
    });
    std::printf("{\"dependent\": %.1f, \"prefetched\": %.1f, \"check\": %d}\n", reads / 10 / chain / 1e6, reads / ahead / 1e6,
                static_cast<int>(sum & 1));
}
