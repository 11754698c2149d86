// Who is in a communicator that MPI made. MPI's ranks find that out by messages of MPI's own, which anybody on the
// network can write: so it is compared with what was asked for, or, where MPI decides, with what the members say of it
// in sealed messages (meeting.hpp). A difference ends the job, before anything is sent on the communicator.
#pragma once

#include <mpi.h>

#include <string>
#include <vector>

#include "comm/native.hpp"
#include "comm/voice.hpp"

namespace cryptmpi::comm {

/// The members' ranks in MPI_COMM_WORLD, in their order.
std::vector<int> world_ranks(const Native& mpi, MPI_Group group);
std::vector<int> world_ranks_of(const Native& mpi, MPI_Comm comm);

/// Ends the job unless `made`, which `by_what` made, has exactly these members, by their ranks in MPI_COMM_WORLD, in
/// this order.
void require_members(Voice& voice, MPI_Comm made, const std::vector<int>& expected, const std::string& by_what);
/// The line that ends the job.
[[noreturn]] void end_for_other_members(Voice& voice, const std::string& by_what);

}  // namespace cryptmpi::comm
