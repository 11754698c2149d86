// Raises errors of ours where MPI raises its own: through the error handler of the communicator, window or file.
//
// Where that is the one that ends the job, as it is unless the program sets another, we end the job: MPICH's
// *_call_errhandler would end the calling process alone, and leave the others and the launcher waiting for ever.
#pragma once

#include <mpi.h>

#include "comm/voice.hpp"

namespace cryptmpi::comm {

/// May MPI return MPI_SUCCESS from a call on this communicator that failed? MPICH 5 does where a function of the
/// program's has heard of the error. Open MPI never does.
bool hides_told_errors(const Native& mpi, MPI_Comm comm);

/// Each returns `code`, if the handler returns. A line is printed for a code of MPI's own whose handler ends the job;
/// of codes of ours it has been.
int raise_on_comm(const Voice& voice, MPI_Comm comm, int code);
/// The class of an error that MPI told us of a call of ours, whose name is nothing to the program.
int raise_class_on_comm(const Voice& voice, MPI_Comm comm, int code);
int raise_on_win(const Voice& voice, MPI_Win win, int code);
int raise_on_file(const Voice& voice, MPI_File file, int code);
/// Of a call that names none of these: through MPI_COMM_WORLD's, while there is one.
int raise_on_world(const Voice& voice, int code);
/// Of several requests, one of which at least has failed with an error that the caller found: `first`, of an operation
/// on `comm`. Returns MPI_ERR_IN_STATUS.
int raise_in_status(const Voice& voice, MPI_Comm comm, int first);

}  // namespace cryptmpi::comm
