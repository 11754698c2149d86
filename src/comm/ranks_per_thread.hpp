// Which hardware threads the ranks of a node may use: what they say to one another.
#pragma once

#include <mpi.h>

#include "comm/native.hpp"
#include "engine/hardware_threads.hpp"

namespace cryptmpi::comm {

/// How many ranks of this node may run on each hardware thread; `own` are this rank's. By all ranks of `comm`.
engine::PerHardwareThread ranks_of_node(const Native& mpi, MPI_Comm comm, const engine::HardwareThreads& own);

}  // namespace cryptmpi::comm
