// Which hardware threads a process may run on, and how many of them would be idle if nobody helped it.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <array>
#include <cstddef>

namespace cryptmpi::engine {

/// A number for each hardware thread, by the system's numbers.
inline constexpr std::size_t kMostHardwareThreads = 2048;
using PerHardwareThread = std::array<int, kMostHardwareThreads>;

/// A set of them.
class HardwareThreads {
public:
    /// None.
    HardwareThreads() = default;
    /// Those that the calling thread may run on; none where the system does not say.
    static HardwareThreads of_this_thread() { return of_thread(0); }
    /// Those of another, by the system's number; of a process, its first thread has the process's.
    static HardwareThreads of_thread(pid_t thread);

    std::size_t count() const;
    bool has(std::size_t number) const { return in_[number] != 0; }
    void add(std::size_t number) { in_[number] = 1; }
    /// 1 for each of the set, 0 for others.
    const PerHardwareThread& members() const { return in_; }

    /// The whole ones that are left to each process, where `processes` may run on each, this one among them.
    std::size_t share(const PerHardwareThread& processes) const;

    /// A thread made with the attributes runs on these. False: the set is empty, or the system does not let it.
    bool apply_to(pthread_attr_t& attributes) const;

private:
    PerHardwareThread in_ = {};
};

/// How many threads of a rank seal and open together, whose share of the hardware threads is T0: T0 - T1, of which T1
/// is for communication (CryptMPI 2020, IV-C), or for the program's own threads where it has several. At least one, and
/// no more than the papers' ciphers gained by.
std::size_t threads_of_rank(std::size_t share, std::size_t program_threads);

}  // namespace cryptmpi::engine
