// Which hardware threads the ranks of this node may run on, as far as one of them can see that without MPI.
#pragma once

#include <sys/types.h>

#include <functional>

#include "engine/hardware_threads.hpp"

namespace cryptmpi::engine {

/// How many ranks may run on each hardware thread, this process among them, whose own these are. A launcher starts a
/// node's ranks from one process: the others are those of our siblings of which `is_rank` says so. Those of
/// `node_ranks` that are not among them may run anywhere.
PerHardwareThread ranks_of_node(const HardwareThreads& own, int node_ranks, const std::function<bool(pid_t)>& is_rank);

}  // namespace cryptmpi::engine
