// Mistakes in the program's arguments that are told before anything is sent, as MPI tells them.
#pragma once

#include <mpi.h>

#include "comm/layer.hpp"

namespace cryptmpi::comm {

/// May elements of the type be combined by the operation? MPI's error, raised on `comm`, if not: otherwise one rank
/// alone would find out, while others wait for it.
int check_operation(Layer& layer, MPI_Comm comm, MPI_Datatype type, MPI_Op op);

/// The class of MPI's error, MPI_SUCCESS where it does not mind: asked once for each count.
int answer_to(Layer& layer, Question ask, int count);

/// What is sent from `out` is where `in` has it come, which this MPI may not take: its error, raised on `comm`. `ask`
/// makes such a call.
int check_alias(Layer& layer, MPI_Comm comm, const void* out, const UserBuffer& in, Question ask);

}  // namespace cryptmpi::comm
