// Persistent requests: MPI's request is bound to a buffer of ours; each start seals the user's data anew, with a number
// of its own.
#include <utility>

#include "comm/calls.hpp"
#include "comm/complete.hpp"
#include "comm/native_call.hpp"
#include "comm/point.hpp"
#include "comm/received.hpp"

namespace cryptmpi::comm {
namespace {

using seal::kMessageOverhead;
using Completion = Operation::Completion;
using State = Operation::State;

Completion completion_of(bool may_be_large) {
    return may_be_large ? Completion::after_mpi : Completion::with_mpi;
}

/// What a persistent operation is made of before MPI's request is.
std::unique_ptr<Operation> prepare(Layer& layer, Operation::Kind kind, MPI_Comm comm, UserBuffer buffer, int peer,
                                   int tag, bool may_be_large) {
    auto operation = std::make_unique<Operation>();
    operation->kind = kind;
    operation->persistent = true;
    operation->state = Operation::State::inactive;
    operation->completion = completion_of(may_be_large);
    operation->communicator = layer.share(comm);
    operation->user = std::move(buffer);
    operation->peer = peer;
    operation->tag = tag;
    return operation;
}

int start_send(Layer& layer, MPI_Request* request, Operation& operation) {
    Communicator& communicator = *operation.communicator;
    if (operation.buffered_mode) {
        // Done at once, and MPI's request stays inactive: MPICH would not name it among others.
        const int code = start_buffered(layer, communicator, operation.user, operation.peer, operation.tag);
        if (code == MPI_SUCCESS) operation.state = State::finished;
        return code;
    }
    const bool is_large = operation.completion == Operation::Completion::after_mpi;
    const int sealed = is_large
                           ? announce_message(layer, communicator, operation.user, operation.peer, operation.tag,
                                              operation.synchronous_mode, operation.wire.data(), operation.outgoing)
                           : seal_message(layer, communicator, operation.user, operation.peer, operation.tag,
                                          operation.synchronous_mode, operation.wire.data());
    if (sealed != MPI_SUCCESS) return sealed;
    if (const int code = layer.mpi.Start(request); code != MPI_SUCCESS || !is_large) return code;
    const int sent = send_segments(layer, communicator.handle(), *operation.outgoing, false);
    if (sent == MPI_SUCCESS) return sent;
    // MPI has the announcement: the request is active, and ends with the error.
    operation.outgoing.reset();
    operation.result = sent;
    operation.state = State::finished;
    return sent;
}

/// Of a message that is still with MPI, whose bytes may have yet to come. The request of the persistent receive cannot
/// take it: another one does, and that one stays inactive. It has room for all of the message, so that what is too long
/// for the user is found by us, when his request ends.
int receive_with_mpi(Layer& layer, Operation& operation, Held& held) {
    auto stand_in = std::make_unique<InTransit>(layer.left_with_mpi(), Transfer::receive,
                                                layer.buffer(receive_room(held.source, held.size)));
    mark_unwritten(stand_in->wire);
    const ByteCount bytes(layer.mpi, stand_in->wire.room());
    const int code =
        layer.mpi.Imrecv(stand_in->wire.data(), bytes.count(), bytes.type(), &held.message, &stand_in->request);
    if (code != MPI_SUCCESS) return code;
    if (stand_in->request == MPI_REQUEST_NULL) {
        // A handler of the program's has heard why.
        operation.error_is_mpis = true;
        operation.result = MPI_ERR_OTHER;
        operation.state = State::finished;
        return MPI_SUCCESS;
    }
    operation.posted = std::move(held.posted);
    operation.completion = Completion::after_mpi;
    operation.stand_in = std::move(stand_in);
    return MPI_SUCCESS;
}

/// Of a message that a probe took out of MPI's queue.
int receive_held(Layer& layer, Operation& operation, std::unique_ptr<Held> held) {
    operation.status = {};
    if (held->message != MPI_MESSAGE_NULL) return receive_with_mpi(layer, operation, *held);
    operation.result = deliver_held(layer, operation, std::move(held), operation.status);
    if (!operation.incoming) operation.state = State::finished;
    return MPI_SUCCESS;
}

int start_receive(Layer& layer, MPI_Request* request, Operation& operation) {
    Communicator& communicator = *operation.communicator;
    // Another request may have stood in for MPI's at the start before.
    operation.completion = completion_of(engine::Plan::may_be_in_segments(operation.user.size()));
    if (auto held = communicator.take_held(operation.peer, operation.tag)) {
        return receive_held(layer, operation, std::move(held));
    }
    mark_unwritten(operation.wire);
    const int code = layer.mpi.Start(request);
    if (code != MPI_SUCCESS) return code;
    communicator.post(operation.peer, operation.tag, operation.posted);
    return code;
}

int start(Layer& layer, MPI_Request* request, Operation& operation) {
    // MPI's own request may be inactive then, or be taken once more, with what was sealed for the first start.
    if (operation.is_active()) return raise_on_world(layer, MPI_ERR_REQUEST);
    operation.error_is_mpis = false;
    const int code = operation.kind == Operation::Kind::send ? start_send(layer, request, operation)
                                                             : start_receive(layer, request, operation);
    if (code != MPI_SUCCESS) return code;
    if (!operation.is_active()) operation.state = State::active;
    if (operation.is_unfinished()) layer.requests().unfinished.push_back({*request, &operation});
    return code;
}

template <class Make, class NativeCall>
int send_init(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request, Mode mode, Make make, NativeCall native) {
    const auto guard = layer.guard();
    Communicator* communicator = find_sealed_to(layer, comm, to);
    if (communicator == nullptr || request == nullptr) return native(layer.mpi);  // nothing is sent before its start
    UserBuffer buffer;
    if (const int code = make_message(layer, comm, at, count, type, tag, true, buffer); code != MPI_SUCCESS) {
        return code;
    }
    // Of a buffered send, the user's request is done at once.
    const bool is_large = mode != Mode::buffered && layer.transport().plans.in_segments(buffer.size());
    auto operation = prepare(layer, Operation::Kind::send, comm, std::move(buffer), to, tag, is_large);
    operation->buffered_mode = mode == Mode::buffered;
    operation->synchronous_mode = mode == Mode::synchronous;
    operation->wire = layer.buffer(is_large ? seal::kAnnouncedWire : operation->user.size() + kMessageOverhead);
    const ByteCount bytes(layer.mpi, operation->wire.size());
    *request = MPI_REQUEST_NULL;
    const int code = make(layer.mpi, operation->wire.data(), bytes);
    if (code == MPI_SUCCESS && *request != MPI_REQUEST_NULL) layer.requests().add(*request, std::move(operation));
    return code;
}

/// MPI's own procedures for persistent sends.
using SendInit = decltype(Native::Send_init) Native::*;

/// Makes the request that travels by `init`, which is of the user's mode.
template <class NativeCall>
int send_init_as(SendInit init, Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag,
                 MPI_Comm comm, MPI_Request* request, NativeCall native) {
    const auto make = [&](const auto& mpi, void* wire, const ByteCount& bytes) {
        return (mpi.*init)(wire, bytes.count(), bytes.type(), to, tag, comm, request);
    };
    const Mode mode = init == &Native::Ssend_init ? Mode::synchronous : Mode::standard;
    return send_init(layer, at, count, type, to, tag, comm, request, mode, make, native);
}

}  // namespace

int Send_init(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request* request) {
    return send_init_as(&Native::Send_init, layer, at, count, type, to, tag, comm, request,
                        CRYPTMPI_NATIVE(Send_init, count, at, Count{count}, type, to, tag, comm, request));
}

int Ssend_init(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
               MPI_Request* request) {
    return send_init_as(&Native::Ssend_init, layer, at, count, type, to, tag, comm, request,
                        CRYPTMPI_NATIVE(Ssend_init, count, at, Count{count}, type, to, tag, comm, request));
}

int Rsend_init(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
               MPI_Request* request) {
    return send_init_as(&Native::Rsend_init, layer, at, count, type, to, tag, comm, request,
                        CRYPTMPI_NATIVE(Rsend_init, count, at, Count{count}, type, to, tag, comm, request));
}

int Bsend_init(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
               MPI_Request* request) {
    return send_init(
        layer, at, count, type, to, tag, comm, request, Mode::buffered,
        [&](auto& mpi, void*, const ByteCount&) {
            // The user's request is done as soon as it is started: what travels is a request of ours. This one is never
            // started. (To MPI_PROC_NULL, it would always be complete in Intel MPI.)
            return mpi.Send_init(nullptr, 0, MPI_BYTE, 0, 0, MPI_COMM_SELF, request);
        },
        CRYPTMPI_NATIVE(Bsend_init, count, at, Count{count}, type, to, tag, comm, request));
}

int Recv_init(Layer& layer, void* at, MPI_Count count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request* request) {
    const auto guard = layer.guard();
    Communicator* communicator = layer.find(comm);
    if (communicator == nullptr || !may_be_sealed(*communicator, from) || request == nullptr) {
        return CRYPTMPI_NATIVE(Recv_init, count, at, Count{count}, type, from, tag, comm, request)(layer.mpi);
    }
    UserBuffer buffer;
    if (const int code = make_buffer(layer, comm, at, count, type, true, buffer); code != MPI_SUCCESS) return code;
    const bool may_be_large = engine::Plan::may_be_in_segments(buffer.size());
    auto operation = prepare(layer, Operation::Kind::receive, comm, std::move(buffer), from, tag, may_be_large);
    operation->wire = layer.buffer(receive_room(from, operation->user.size()));
    const ByteCount bytes(layer.mpi, operation->wire.room());
    *request = MPI_REQUEST_NULL;
    const int code = layer.mpi.Recv_init(operation->wire.data(), bytes.count(), bytes.type(), from, tag, comm, request);
    if (code == MPI_SUCCESS && *request != MPI_REQUEST_NULL) layer.requests().add(*request, std::move(operation));
    return code;
}

int Start(Layer& layer, MPI_Request* request) {
    const auto guard = layer.guard();
    Operation* operation = request == nullptr ? nullptr : layer.requests().find(*request);
    return operation == nullptr ? layer.mpi.Start(request) : start(layer, request, *operation);
}

int Startall(Layer& layer, int count, MPI_Request* requests) {
    if (requests == nullptr || count < 0) return layer.mpi.Startall(count, requests);
    for (int i = 0; i < count; ++i) {
        if (const int code = Start(layer, &requests[i]); code != MPI_SUCCESS) return code;
    }
    return MPI_SUCCESS;
}

}  // namespace cryptmpi::comm
