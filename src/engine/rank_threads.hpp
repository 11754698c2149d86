// How many threads of a rank seal and open together: those that would be idle otherwise, or as many as the user says.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>

#include "engine/hardware_threads.hpp"
#include "engine/workers.hpp"

namespace cryptmpi::engine {

/// How many hardware threads the program uses by itself: `openmp` (OMP_NUM_THREADS; 0: it says nothing), or as many as
/// there are where it uses OpenMP, or several threads that call MPI, and nobody says how many.
std::size_t program_threads(std::size_t openmp, bool several_call);

class RankThreads {
public:
    /// `setting`: their number, or 0; `own`: that the rank may run on.
    RankThreads(int setting, std::size_t program_threads, const HardwareThreads& own);

    const HardwareThreads& own() const { return own_; }
    /// May there be any, if no other rank of the node uses the same hardware threads?
    bool must_ask() const { return setting_ == 0 && threads_of_rank(share_, program_threads_) > 1; }
    /// How many ranks of the node may run on each hardware thread, this one among them.
    void share_with(const PerHardwareThread& ranks) { share_ = own_.share(ranks); }

    Workers::Settings workers() const;

private:
    std::size_t setting_;
    std::size_t program_threads_;
    HardwareThreads own_;
    std::size_t share_;
};

/// As far as a rank can tell without MPI; `node_ranks`: on its node, this one among them, 0: nobody says. By `setting`
/// 0 only ranks have any, and only where their number is known. `is_rank`: as of ranks_of_node.
Workers::Settings workers_without_mpi(int setting, std::size_t program_threads, int node_ranks,
                                      const HardwareThreads& own, const std::function<bool(pid_t)>& is_rank);

}  // namespace cryptmpi::engine
