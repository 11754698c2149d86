// The end of requests: every Wait and Test form.
#pragma once

#include <mpi.h>

#include "comm/layer.hpp"

namespace cryptmpi::comm {

/// MPI is done with the operation, with `code`: its result for the user, in `status` and the value returned. No error
/// handler has been called for what we found.
int settle(Layer& layer, Operation& operation, MPI_Status& status, int code);

/// The same for a blocking call: calls the communicator's error handler where MPI has not.
int conclude(Layer& layer, Operation& operation, MPI_Status& status, int code);

/// Waits for one request, ours or MPI's.
int wait_one(Layer& layer, MPI_Request* request, MPI_Status* status);

/// Looks whether requests that the user has given up are done. `all`: waits for them.
void collect_orphans(Layer& layer, bool all);

}  // namespace cryptmpi::comm
