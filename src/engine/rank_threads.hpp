// How many threads of a rank seal and open together: those that would be idle otherwise, or as many as the user says.
#pragma once

#include <cstddef>

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

}  // namespace cryptmpi::engine
