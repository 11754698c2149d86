// Point-to-point operations: the one way to send and the one way to receive that the blocking, non-blocking and
// persistent calls, and Sendrecv, are made of.
#pragma once

#include <mpi.h>

#include "comm/arguments.hpp"
#include "comm/layer.hpp"

namespace cryptmpi::comm {

/// The four modes of sending: MPI's own calls for each form.
enum class Mode { standard, buffered, synchronous, ready };

int native_send(const Native& mpi, Mode mode, const ByteCount& bytes, const void* at, int to, int tag, MPI_Comm comm);
int native_isend(const Native& mpi, Mode mode, const ByteCount& bytes, const void* at, int to, int tag, MPI_Comm comm,
                 MPI_Request* request);

/// The communicator, if a message to `to` is sealed. Null: MPI does it, or says that there is nobody of that rank.
Communicator* find_sealed_to(Layer& layer, MPI_Comm comm, int to);

/// Starts sending a sealed message. The user's buffer is free when this returns.
int start_send(Layer& layer, Mode mode, Communicator& communicator, const UserBuffer& buffer, int to, int tag,
               MPI_Request* request);

/// The same as a buffered send, in memory of ours.
int start_buffered(Layer& layer, Communicator& communicator, const UserBuffer& buffer, int to, int tag);

/// Seals the user's data as the next message to `to` with `tag`, to be sent: kMessageOverhead more bytes than it has.
/// Not for large messages.
int seal_message(Layer& layer, Communicator& communicator, const UserBuffer& buffer, int to, int tag, bool synchronous,
                 std::uint8_t* wire);

/// A large message to `to`: its announcement is at `wire` (kAnnouncedWire bytes), to be sent; its segments have yet to,
/// from the user's buffer, unless MPI had to pack it.
int announce_message(Layer& layer, Communicator& communicator, const UserBuffer& buffer, int to, int tag,
                     bool synchronous, std::uint8_t* wire, std::unique_ptr<Outgoing>& outgoing);
/// Hands segments to MPI: all, or what has room while the rest can follow in later calls.
int send_segments(Layer& layer, MPI_Comm comm, Outgoing& outgoing, bool all);

/// Bytes of ours that a receive of so many bytes of data needs for what MPI gives it.
std::size_t receive_room(int from, std::size_t capacity);

/// A request of ours that MPI has no operation for, to be ended by MPI_Grequest_complete.
MPI_Request make_token(const Native& mpi);

/// A message that we hold comes to a non-blocking receive (deliver_held), with a request of ours.
void start_with_held(Layer& layer, std::unique_ptr<Operation> operation, std::unique_ptr<Held> held,
                     MPI_Request* request);

/// Posts a receive for a message that may be sealed.
int start_receive(Layer& layer, Communicator& communicator, UserBuffer buffer, int from, int tag, MPI_Request* request);

}  // namespace cryptmpi::comm
