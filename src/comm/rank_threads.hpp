// How many threads of this rank seal and open together: those that would be idle otherwise, or as many as the user
// says.
#pragma once

#include <mpi.h>

#include <cstddef>

#include "engine/hardware_threads.hpp"
#include "engine/workers.hpp"
#include "native.hpp"

namespace cryptmpi::comm {

class RankThreads {
public:
    /// `setting`: their number, or 0; `several_call`: MPI is called by several threads of the program.
    RankThreads(int setting, bool several_call);

    /// May there be any, if no other rank of the node uses the same hardware threads?
    bool must_ask() const { return setting_ == 0 && engine::threads_of_rank(share_, program_threads_) > 1; }
    /// Looks which hardware threads the other ranks of the node may use. By all ranks of `comm`, or none.
    void ask(const interpose::Native& mpi, MPI_Comm comm);

    engine::Workers::Settings workers() const;

private:
    std::size_t setting_;
    std::size_t program_threads_;
    engine::HardwareThreads own_;
    std::size_t share_;
};

}  // namespace cryptmpi::comm
