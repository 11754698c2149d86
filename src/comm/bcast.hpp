#pragma once

#include <mpi.h>

#include "comm/layer.hpp"

namespace cryptmpi::comm {

/// From the root's buffer to all others. `code`: an error that the rank has come with; those of the root are
/// everybody's.
int broadcast(Layer& layer, Communicator& communicator, const UserBuffer& buffer, int root, int code = MPI_SUCCESS);

}  // namespace cryptmpi::comm
