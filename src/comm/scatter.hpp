#pragma once

#include <mpi.h>

#include <vector>

#include "comm/layer.hpp"

namespace cryptmpi::comm {

/// The root's block i goes to rank i, into `mine` (null: the root's own stays where it is). `uniform`: all blocks have
/// one size. `code`: an error that the rank has come with; the others then get blocks that do not open.
int scatter(Layer& layer, Communicator& communicator, const std::vector<UserBuffer>& blocks, const UserBuffer* mine,
            int root, bool uniform, int code = MPI_SUCCESS);

}  // namespace cryptmpi::comm
