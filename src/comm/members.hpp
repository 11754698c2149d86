// Who is in a communicator that MPI made. MPI's ranks find that out by messages of MPI's own, which anybody on the
// network can write: so it is compared with what was asked for, or, where MPI decides, with what the members say of it
// in sealed messages. A difference ends the job, before anything is sent on the communicator.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "native.hpp"

namespace cryptmpi::comm {

class Communicator;
class Layer;

/// The members' ranks in MPI_COMM_WORLD, in their order.
std::vector<int> world_ranks(const interpose::Native& mpi, MPI_Group group);
std::vector<int> world_ranks_of(const interpose::Native& mpi, MPI_Comm comm);

/// Ends the job unless `made`, which `by_what` made, has exactly these members, by their ranks in MPI_COMM_WORLD, in
/// this order.
void require_members(Layer& layer, MPI_Comm made, const std::vector<int>& expected, const std::string& by_what);
/// The line that ends the job.
[[noreturn]] void end_for_other_members(Layer& layer, const std::string& by_what);

/// What each member has, in the order of ranks. It goes up a binomial tree and down again, each message sealed for one
/// rank, inside nodes, too; one that does not open ends the job. By all members at the same time, with as many bytes
/// each.
std::vector<std::uint8_t> tell_all(Layer& layer, Communicator& communicator, std::span<const std::uint8_t> mine);

/// What rank 0 has in `bytes` comes to those of all others, down the same tree, in the same way.
void hand_down(Layer& layer, Communicator& communicator, std::span<std::uint8_t> bytes);

}  // namespace cryptmpi::comm
