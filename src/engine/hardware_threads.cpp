#include "engine/hardware_threads.hpp"

#include <sched.h>

#include <algorithm>
#include <memory>
#include <numeric>

namespace cryptmpi::engine {
namespace {

constexpr std::size_t kForCommunication = 2;  // the paper's T1
constexpr std::size_t kMostThreads = 8;       // the paper's t on its InfiniBand cluster

struct FreeSet {
    void operator()(cpu_set_t* set) const { CPU_FREE(set); }
};
using Set = std::unique_ptr<cpu_set_t, FreeSet>;
constexpr std::size_t kSetSize = CPU_ALLOC_SIZE(kMostHardwareThreads);

Set empty_set() {
    Set set(CPU_ALLOC(kMostHardwareThreads));
    if (set) CPU_ZERO_S(kSetSize, set.get());
    return set;
}

}  // namespace

HardwareThreads HardwareThreads::of_thread(pid_t thread) {
    HardwareThreads found;
    const Set set = empty_set();
    if (!set || sched_getaffinity(thread, kSetSize, set.get()) != 0) return found;
    for (std::size_t number = 0; number < kMostHardwareThreads; ++number) {
        if (CPU_ISSET_S(number, kSetSize, set.get())) found.add(number);
    }
    return found;
}

std::size_t HardwareThreads::count() const {
    return static_cast<std::size_t>(std::accumulate(in_.begin(), in_.end(), 0));
}

std::size_t HardwareThreads::share(const PerHardwareThread& processes) const {
    constexpr double kRounding = 1e-6;  // thirds do not add up to one
    double mine = 0;
    for (std::size_t number = 0; number < kMostHardwareThreads; ++number) {
        if (has(number)) mine += 1.0 / std::max(processes[number], 1);
    }
    return static_cast<std::size_t>(mine + kRounding);
}

bool HardwareThreads::apply_to(pthread_attr_t& attributes) const {
    const Set set = empty_set();
    if (!set || count() == 0) return false;
    for (std::size_t number = 0; number < kMostHardwareThreads; ++number) {
        if (has(number)) CPU_SET_S(number, kSetSize, set.get());
    }
    return pthread_attr_setaffinity_np(&attributes, kSetSize, set.get()) == 0;
}

std::size_t threads_of_rank(std::size_t share, std::size_t program_threads) {
    const std::size_t kept = std::max(kForCommunication, program_threads + 1);
    return share <= kept ? 1 : std::min(share - kept, kMostThreads);
}

}  // namespace cryptmpi::engine
