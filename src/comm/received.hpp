// What has come to a receive: it is opened and checked, and the user gets it.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>

#include "comm/layer.hpp"

namespace cryptmpi::comm {

/// Whether messages that a receive from `from` (or MPI_ANY_SOURCE) matches may be sealed.
inline bool may_be_sealed(const Communicator& communicator, int from) {
    return from == MPI_ANY_SOURCE || (communicator.has(from) && communicator.sealed(from));
}

/// MPI is done with a receive into `operation.wire`: opens, checks, hands over. `status` is MPI's, and is made the
/// user's. Returns the operation's error code; no handler has been called. The segments of a large message have then
/// yet to come (`operation.incoming`).
int finish_receive(Layer& layer, Operation& operation, MPI_Status& status);

/// MPI had no room for all of a message that may be sealed: nothing of it can be authentic. The program gets MPI's own
/// error, since its receive may be too small, and a line says that somebody may have lengthened it. It is no failed
/// open: a program may send more than is received, and handle that.
int cut_off(Layer& layer, Operation& operation, MPI_Status& status);

/// Before MPI gets the memory of a receive: afterwards it shows whether MPI has written there.
void mark_unwritten(engine::Buffer& wire);

/// Does this MPI return MPI_SUCCESS of what failed, once a handler of the program's has heard of it, as MPICH 5 does?
bool forgets_told_errors(Layer& layer);

/// `operation.incoming` is there, or has failed: hands over. As above.
int finish_incoming(Layer& layer, Operation& operation, MPI_Status& status);

/// A message that we hold comes to the receive. Returns its error code; `operation.incoming` may then have yet to come.
int deliver_held(Layer& layer, Operation& operation, std::unique_ptr<Held> held, MPI_Status& status);

/// An announcement in synchronous mode has been received.
void drop_hint(Layer& layer, const Communicator& communicator, int from, const std::uint8_t* announcement);

/// A whole message has been received, which may have been in synchronous mode if it is as long as an announcement.
void drop_hint_of_whole(Layer& layer, const Communicator& communicator, int from, const std::uint8_t* wire,
                        std::size_t size);

}  // namespace cryptmpi::comm
