// A call that would move user data in clear becomes an MPI error, raised where MPI raises its own: through the error
// handler of the communicator, window or file. Each returns the error's code.
#pragma once

#include <mpi.h>

namespace cryptmpi::interpose {

int refuse_to_comm(const char* procedure, const char* reason, MPI_Comm comm);
int refuse_to_win(const char* procedure, const char* reason, MPI_Win win);
int refuse_to_file(const char* procedure, const char* reason, MPI_File file);
/// Where the call names none of these: through MPI_COMM_WORLD's, if there is one.
int refuse_to_anyone(const char* procedure, const char* reason);

/// What these return.
int refused_code();

}  // namespace cryptmpi::interpose
