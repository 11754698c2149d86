// Mistakes in the program's arguments that are told before anything is sent, as MPI tells them.
#pragma once

#include <mpi.h>

#include "comm/layer.hpp"

namespace cryptmpi::comm {

/// What is wrong with elements at an address, raised on `comm`: what MPI says of it, which is asked by a message to
/// nobody, or what we say where it does not mind. No call with wrong arguments comes to MPI as it is: an MPI that does
/// not look at them would send the program's data in clear. MPI_SUCCESS: there are none, which need no type in some
/// MPIs.
int say_what_is_wrong(Layer& layer, MPI_Comm comm, const void* at, MPI_Count count, MPI_Datatype type);
/// The same of a tag below 0.
int refuse_tag(Layer& layer, MPI_Comm comm);

/// The program's buffer. Its error has been raised on `comm` when this returns one.
inline int make_buffer(Layer& layer, MPI_Comm comm, const void* at, MPI_Count count, MPI_Datatype type, bool keep,
                       UserBuffer& out) {
    if (count < 0 || type == MPI_DATATYPE_NULL) [[unlikely]] {
        const int code = say_what_is_wrong(layer, comm, at, count, type);
        if (code != MPI_SUCCESS) return code;
    }
    const int code = UserBuffer::make(layer.types(), comm, at, count, type, keep, out);
    if (code != MPI_SUCCESS || !out.is_wrong()) [[likely]] {
        return code;
    }
    return say_what_is_wrong(layer, comm, at, count, type);
}

/// The same of a message that is sent with this tag.
inline int make_message(Layer& layer, MPI_Comm comm, const void* at, MPI_Count count, MPI_Datatype type, int tag,
                        bool keep, UserBuffer& out) {
    if (tag < 0) [[unlikely]] {
        return refuse_tag(layer, comm);
    }
    return make_buffer(layer, comm, at, count, type, keep, out);
}

/// MPI_IN_PLACE stands where it must not: MPI's error, raised on `comm`.
int refuse_in_place(Layer& layer, MPI_Comm comm);

/// May elements of the type be combined by the operation? MPI's error, raised on `comm`, if not: otherwise one rank
/// alone would find out, while others wait for it.
int check_operation(Layer& layer, MPI_Comm comm, MPI_Datatype type, MPI_Op op);

/// The class of MPI's error, MPI_SUCCESS where it does not mind: asked once for each count.
int answer_to(Layer& layer, Question ask, int count);

/// What is sent from `out` is where `in` has it come, which this MPI may not take: its error, raised on `comm`. `ask`
/// makes such a call.
int check_alias(Layer& layer, MPI_Comm comm, const void* out, const UserBuffer& in, Question ask);

}  // namespace cryptmpi::comm
