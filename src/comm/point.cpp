#include "comm/point.hpp"

#include <algorithm>
#include <climits>
#include <utility>

#include "comm/attempts.hpp"
#include "comm/calls.hpp"
#include "comm/complete.hpp"
#include "comm/native_call.hpp"
#include "comm/received.hpp"
#include "comm/status.hpp"

namespace cryptmpi::comm {

using seal::kMessageOverhead;

int native_send(const Native& mpi, Mode mode, const ByteCount& bytes, const void* at, int to, int tag, MPI_Comm comm) {
    switch (mode) {
        case Mode::synchronous:
            return mpi.Ssend(at, bytes.count(), bytes.type(), to, tag, comm);
        case Mode::ready:
            return mpi.Rsend(at, bytes.count(), bytes.type(), to, tag, comm);
        case Mode::buffered:  // its ciphertext is in memory of ours: it is sent from there (buffered.cpp)
        case Mode::standard:
            break;
    }
    return mpi.Send(at, bytes.count(), bytes.type(), to, tag, comm);
}

int native_isend(const Native& mpi, Mode mode, const ByteCount& bytes, const void* at, int to, int tag, MPI_Comm comm,
                 MPI_Request* request) {
    switch (mode) {
        case Mode::synchronous:
            return mpi.Issend(at, bytes.count(), bytes.type(), to, tag, comm, request);
        case Mode::ready:
            return mpi.Irsend(at, bytes.count(), bytes.type(), to, tag, comm, request);
        case Mode::buffered:
        case Mode::standard:
            break;
    }
    return mpi.Isend(at, bytes.count(), bytes.type(), to, tag, comm, request);
}

namespace {

/// A probe that finds a message as long as an announcement has to look into it, and must not end its send by that.
int tell_who_probes(Layer& layer, const Communicator& communicator, int to, const std::uint8_t* wire) {
    InTransit hint;
    return send_hint(layer.transport(), communicator.world_ranks()[static_cast<std::size_t>(to)], wire, hint);
}

}  // namespace

int seal_message(Layer& layer, Communicator& communicator, const UserBuffer& buffer, int to, int tag, bool synchronous,
                 std::uint8_t* wire) {
    engine::Buffer packed;
    const std::uint8_t* plain = nullptr;
    if (const int code = plain_bytes(layer.pool(), buffer, packed, plain); code != MPI_SUCCESS) return code;
    if (auto done = communicator.seal(to, tag, plain, buffer.size(), wire); !done) {
        return layer.raise(communicator.handle(), done.error().line);
    }
    const bool is_hinted = synchronous && buffer.size() == seal::kAnnouncementSize;
    return is_hinted ? tell_who_probes(layer, communicator, to, wire) : MPI_SUCCESS;
}

Communicator* find_sealed_to(Layer& layer, MPI_Comm comm, int to) {
    Communicator* communicator = layer.find(comm);
    const bool sealed = communicator != nullptr && communicator->has(to) && communicator->sealed(to);
    return sealed ? communicator : nullptr;
}

int announce_message(Layer& layer, Communicator& communicator, const UserBuffer& buffer, int to, int tag,
                     bool synchronous, std::uint8_t* wire, std::unique_ptr<Outgoing>& outgoing) {
    const int world_rank = communicator.world_ranks()[static_cast<std::size_t>(to)];
    const SegmentTransport& transport = layer.transport();
    const auto [first, others] = transport.plans.of(buffer.size())
                                     .segments_of(buffer.size(), transport.workers.ready(), transport.traffic.sends);
    const seal::Announcement announcement{buffer.size(), first, others, layer.next_mark(world_rank), synchronous};
    Place place = find_place(layer.pool(), buffer, buffer.size());
    if (place.packed.size() != 0) {
        if (const int code = buffer.pack(place.packed.data()); code != MPI_SUCCESS) return code;
    }
    auto segments = communicator.announce(to, tag, announcement, wire);
    if (!segments) return layer.raise(communicator.handle(), segments.error().line);
    outgoing = std::make_unique<Outgoing>(transport, std::move(*segments), world_rank, std::move(place));
    return synchronous ? outgoing->send_hint(wire) : MPI_SUCCESS;
}

int send_segments(Layer& layer, MPI_Comm comm, Outgoing& outgoing, bool all) {
    // Another thread may be waiting in MPI already.
    const bool rest_can_follow = !all && !layer.threads();
    auto code = outgoing.send(rest_can_follow ? Outgoing::Amount::what_has_room : Outgoing::Amount::all);
    if (!code) return layer.raise(comm, code.error().line);
    if (!outgoing.all_sent()) send_rest_before_waits(layer);
    return *code;
}

namespace {

/// Announces a large message. From then on its owner may give it up at any time: what MPI has of it stays with MPI.
/// No `outgoing` afterwards: nothing goes, and the error handler has heard why, even where MPI's code says nothing.
int begin_large(Layer& layer, Mode mode, Communicator& communicator, const UserBuffer& buffer, int to, int tag,
                std::unique_ptr<Outgoing>& outgoing) {
    InTransit announcement(layer.left_with_mpi(), Transfer::send, layer.buffer(seal::kAnnouncedWire));
    const engine::Buffer& wire = announcement.wire;
    int code = announce_message(layer, communicator, buffer, to, tag, mode == Mode::synchronous, wire.data(), outgoing);
    if (code != MPI_SUCCESS) return code;
    code = native_isend(layer.mpi, mode, ByteCount(layer.mpi, wire.size()), wire.data(), to, tag, communicator.handle(),
                        &announcement.request);
    if (code == MPI_SUCCESS && announcement.request != MPI_REQUEST_NULL) {
        outgoing->announced(std::move(announcement));
    } else {
        outgoing.reset();
    }
    return code;
}

/// A blocking send: no more segments are with MPI at once than the plan allows, while the receiver takes them.
int send_large(Layer& layer, Mode mode, Communicator& communicator, const UserBuffer& buffer, int to, int tag) {
    const MPI_Comm comm = communicator.handle();
    std::unique_ptr<Outgoing> outgoing;
    const int code = begin_large(layer, mode, communicator, buffer, to, tag, outgoing);
    if (!outgoing) return code;
    Attempts attempts;
    while (!outgoing->all_sent()) {
        auto sent = outgoing->send(Outgoing::Amount::without_receiver);
        if (!sent) return layer.raise(comm, sent.error().line);
        if (*sent != MPI_SUCCESS) return *sent;
        progress(layer);
        outgoing->advance();
        attempts.failed();
    }
    while (!outgoing->may_end()) {
        progress(layer);
        outgoing->advance();
        attempts.failed();
    }
    if (!outgoing->done()) layer.leftovers().outgoing.push_back(std::move(outgoing));
    return MPI_SUCCESS;
}

/// A buffered send leaves nothing in the user's buffer.
int start_large(Layer& layer, Mode mode, Communicator& communicator, const UserBuffer& buffer, int to, int tag,
                MPI_Request* request) {
    auto operation = std::make_unique<Operation>();
    int code = begin_large(layer, mode, communicator, buffer, to, tag, operation->outgoing);
    if (!operation->outgoing) return code;
    code = send_segments(layer, communicator.handle(), *operation->outgoing, mode == Mode::buffered);
    if (code != MPI_SUCCESS) return code;
    operation->communicator = layer.share(communicator.handle());
    operation->peer = to;
    *request = make_token(layer.mpi);
    operation->completion = Operation::Completion::of_token;
    layer.requests().unfinished.push_back({*request, operation.get()});
    layer.requests().add(*request, std::move(operation));
    return MPI_SUCCESS;
}

/// MPIs give one handle for all sends that are done already: then the buffer is free, and there is nothing to keep. One
/// that takes messages back gives each its own, and Cancel has to know them.
bool is_over(Layer& layer, MPI_Request request) {
    int done = 0;
    return !layer.takes_back_sent() && layer.mpi.Request_get_status(request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS &&
           done != 0;
}

}  // namespace

int start_send(Layer& layer, Mode mode, Communicator& communicator, const UserBuffer& buffer, int to, int tag,
               MPI_Request* request) {
    *request = MPI_REQUEST_NULL;
    if (layer.transport().plans.in_segments(buffer.size())) {
        return start_large(layer, mode, communicator, buffer, to, tag, request);
    }
    auto operation = std::make_unique<Operation>();
    operation->wire = layer.buffer(buffer.size() + kMessageOverhead);
    const bool synchronous = mode == Mode::synchronous;
    if (const int code = seal_message(layer, communicator, buffer, to, tag, synchronous, operation->wire.data());
        code != MPI_SUCCESS) {
        return code;
    }
    const ByteCount bytes(layer.mpi, operation->wire.size());
    const int code =
        native_isend(layer.mpi, mode, bytes, operation->wire.data(), to, tag, communicator.handle(), request);
    if (code != MPI_SUCCESS || *request == MPI_REQUEST_NULL) return code;
    if (!is_over(layer, *request)) layer.requests().add(*request, std::move(operation));
    return MPI_SUCCESS;
}

// MPI gets all of the buffer that there is (Buffer::room), so that of a message which is too long for its receive as
// much as possible is still opened, and is known to be so long because its sender said so.
std::size_t receive_room(int from, std::size_t capacity) {
    // Any source may be this rank, or one of its node, whose messages come as they are.
    const bool native = from == MPI_ANY_SOURCE;
    const std::size_t whole = native ? capacity : std::min(capacity, engine::Plan::kLargestWhole);
    return std::max(whole, seal::kAnnouncementSize) + kMessageOverhead;
}

namespace {

extern "C" {
int query_token(void* state, MPI_Status* status) {
    const auto& mpi = *static_cast<const Native*>(state);
    mpi.Status_set_elements(status, MPI_BYTE, 0);
    mpi.Status_set_cancelled(status, 0);
    status->MPI_SOURCE = MPI_UNDEFINED;
    status->MPI_TAG = MPI_UNDEFINED;
    return MPI_SUCCESS;
}
int free_token(void* /*state*/) {
    return MPI_SUCCESS;
}
int cancel_token(void* /*state*/, int /*complete*/) {
    return MPI_SUCCESS;
}
}

}  // namespace

MPI_Request make_token(const Native& mpi) {
    MPI_Request request = MPI_REQUEST_NULL;
    mpi.Grequest_start(query_token, free_token, cancel_token, const_cast<Native*>(&mpi), &request);
    return request;
}

int start_receive(Layer& layer, Communicator& communicator, UserBuffer buffer, int from, int tag,
                  MPI_Request* request) {
    auto operation = std::make_unique<Operation>();
    operation->kind = Operation::Kind::receive;
    if (engine::Plan::may_be_in_segments(buffer.size())) operation->completion = Operation::Completion::after_mpi;
    operation->user = std::move(buffer);
    operation->communicator = layer.share(communicator.handle());
    operation->peer = from;
    operation->tag = tag;
    auto held = communicator.take_held(from, tag);
    if (held && held->message == MPI_MESSAGE_NULL) {
        start_with_held(layer, std::move(operation), std::move(held), request);
        return MPI_SUCCESS;
    }
    operation->wire = layer.buffer(receive_room(from, operation->user.size()));
    mark_unwritten(operation->wire);
    const ByteCount bytes(layer.mpi, operation->wire.room());
    *request = MPI_REQUEST_NULL;
    const int code =
        held ? layer.mpi.Imrecv(operation->wire.data(), bytes.count(), bytes.type(), &held->message, request)
             : layer.mpi.Irecv(operation->wire.data(), bytes.count(), bytes.type(), from, tag, communicator.handle(),
                               request);
    if (code != MPI_SUCCESS || *request == MPI_REQUEST_NULL) return code;
    if (held) {
        operation->posted = std::move(held->posted);
    } else {
        communicator.post(from, tag, operation->posted);
    }
    if (operation->is_unfinished()) layer.requests().unfinished.push_back({*request, operation.get()});
    layer.requests().add(*request, std::move(operation));
    return MPI_SUCCESS;
}

void start_with_held(Layer& layer, std::unique_ptr<Operation> operation, std::unique_ptr<Held> held,
                     MPI_Request* request) {
    *request = make_token(layer.mpi);
    operation->completion = Operation::Completion::of_token;
    operation->status = {};
    operation->result = deliver_held(layer, *operation, std::move(held), operation->status);
    if (operation->incoming) {
        layer.requests().unfinished.push_back({*request, operation.get()});
    } else {
        operation->state = Operation::State::finished;
        layer.mpi.Grequest_complete(*request);
    }
    layer.requests().add(*request, std::move(operation));
}

namespace {

template <class NativeCall>
int send(Layer& layer, Mode mode, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
         NativeCall native) {
    auto guard = layer.guard();
    Communicator* communicator = find_sealed_to(layer, comm, to);
    if (communicator == nullptr) {
        if (guard) guard.unlock();
        return native(layer.mpi);
    }
    UserBuffer buffer;
    if (const int code = make_message(layer, comm, at, count, type, tag, false, buffer); code != MPI_SUCCESS) {
        return code;
    }
    if (!layer.threads() && layer.transport().plans.in_segments(buffer.size())) {
        return send_large(layer, mode, *communicator, buffer, to, tag);
    }
    if (layer.threads() || !layer.requests().unfinished.empty()) {
        // The numbers must be in the order of sending, and no lock may be held while MPI blocks. What is large must go
        // on meanwhile.
        MPI_Request request = MPI_REQUEST_NULL;
        const int code = start_send(layer, mode, *communicator, buffer, to, tag, &request);
        if (guard) guard.unlock();
        return code != MPI_SUCCESS ? code : wait_one(layer, &request, MPI_STATUS_IGNORE);
    }
    const auto wire = layer.buffer(buffer.size() + kMessageOverhead);
    const bool synchronous = mode == Mode::synchronous;
    if (const int code = seal_message(layer, *communicator, buffer, to, tag, synchronous, wire.data());
        code != MPI_SUCCESS) {
        return code;
    }
    return native_send(layer.mpi, mode, ByteCount(layer.mpi, wire.size()), wire.data(), to, tag, comm);
}

// HOT PATH
template <class NativeCall>
[[gnu::always_inline]] inline int isend(Layer& layer, Mode mode, const void* at, MPI_Count count, MPI_Datatype type,
                                        int to, int tag, MPI_Comm comm, MPI_Request* request, NativeCall native) {
    const auto guard = layer.guard();
    Communicator* communicator = find_sealed_to(layer, comm, to);
    if (communicator == nullptr) return native(layer.mpi);
    // To nobody: an MPI that does not look would send before it finds no request.
    if (request == nullptr) return layer.mpi.Isend(nullptr, 0, MPI_BYTE, MPI_PROC_NULL, tag, comm, request);
    UserBuffer buffer;
    if (const int code = make_message(layer, comm, at, count, type, tag, false, buffer); code != MPI_SUCCESS) {
        return code;
    }
    return start_send(layer, mode, *communicator, buffer, to, tag, request);
}

}  // namespace

int Send(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    return send(layer, Mode::standard, at, count, type, to, tag, comm,
                CRYPTMPI_NATIVE(Send, count, at, Count{count}, type, to, tag, comm));
}

int Ssend(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    return send(layer, Mode::synchronous, at, count, type, to, tag, comm,
                CRYPTMPI_NATIVE(Ssend, count, at, Count{count}, type, to, tag, comm));
}

int Rsend(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    return send(layer, Mode::ready, at, count, type, to, tag, comm,
                CRYPTMPI_NATIVE(Rsend, count, at, Count{count}, type, to, tag, comm));
}

int Isend(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
          MPI_Request* request) {
    return isend(layer, Mode::standard, at, count, type, to, tag, comm, request,
                 CRYPTMPI_NATIVE(Isend, count, at, Count{count}, type, to, tag, comm, request));
}

int Issend(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
           MPI_Request* request) {
    return isend(layer, Mode::synchronous, at, count, type, to, tag, comm, request,
                 CRYPTMPI_NATIVE(Issend, count, at, Count{count}, type, to, tag, comm, request));
}

int Irsend(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
           MPI_Request* request) {
    return isend(layer, Mode::ready, at, count, type, to, tag, comm, request,
                 CRYPTMPI_NATIVE(Irsend, count, at, Count{count}, type, to, tag, comm, request));
}

int Recv(Layer& layer, void* at, MPI_Count count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
         MPI_Status* status) {
    auto guard = layer.guard();
    Communicator* communicator = layer.find(comm);
    if (communicator == nullptr || !may_be_sealed(*communicator, from)) {
        if (guard) guard.unlock();
        return CRYPTMPI_NATIVE(Recv, count, at, Count{count}, type, from, tag, comm, status)(layer.mpi);
    }
    UserBuffer buffer;
    if (const int code = make_buffer(layer, comm, at, count, type, false, buffer); code != MPI_SUCCESS) return code;
    if (layer.threads() || !layer.requests().unfinished.empty() || !communicator->held().empty()) {
        MPI_Request request = MPI_REQUEST_NULL;
        const int code = start_receive(layer, *communicator, std::move(buffer), from, tag, &request);
        if (guard) guard.unlock();
        return code != MPI_SUCCESS ? code : wait_one(layer, &request, status);
    }
    Operation operation;
    operation.kind = Operation::Kind::receive;
    operation.wire = layer.buffer(receive_room(from, buffer.size()));
    mark_unwritten(operation.wire);
    operation.user = std::move(buffer);
    operation.communicator = layer.share(comm);
    communicator->post(from, tag, operation.posted);
    MPI_Status own = {};
    MPI_Status& mine = status == MPI_STATUS_IGNORE ? own : *status;
    Unfilled unfilled(mine);
    const ByteCount bytes(layer.mpi, operation.wire.room());
    const int code = layer.mpi.Recv(operation.wire.data(), bytes.count(), bytes.type(), from, tag, comm, &mine);
    if (unfilled.was_left()) return code;
    return conclude(layer, operation, mine, code);
}

int Irecv(Layer& layer, void* at, MPI_Count count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
          MPI_Request* request) {
    const auto guard = layer.guard();
    Communicator* communicator = layer.find(comm);
    if (communicator == nullptr || !may_be_sealed(*communicator, from) || request == nullptr) {
        return CRYPTMPI_NATIVE(Irecv, count, at, Count{count}, type, from, tag, comm, request)(layer.mpi);
    }
    UserBuffer buffer;
    if (const int code = make_buffer(layer, comm, at, count, type, true, buffer); code != MPI_SUCCESS) return code;
    return start_receive(layer, *communicator, std::move(buffer), from, tag, request);
}

namespace {

int largest_tag(const Native& mpi) {
    int* largest = nullptr;
    int found = 0;
    mpi.Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&largest), &found);
    return found != 0 ? *largest : INT_MAX;
}

/// The status of a receive from MPI_PROC_NULL.
void set_nobody(const Native& mpi, MPI_Status& status) {
    status.MPI_SOURCE = MPI_PROC_NULL;
    status.MPI_TAG = MPI_ANY_TAG;
    mpi.Status_set_cancelled(&status, 0);
    set_size(mpi, status, 0);
}

/// What is wrong with the send of MPI_Sendrecv, raised on its communicator: MPI would say so only when its receive may
/// have taken a message already.
int check_send(Layer& layer, const Communicator& communicator, const void* at, MPI_Count count, MPI_Datatype type,
               int to, int tag) {
    const MPI_Comm comm = communicator.handle();
    if (to != MPI_PROC_NULL && !communicator.has(to)) return raise_on_comm(layer, comm, MPI_ERR_RANK);
    constexpr int kEveryMpiHas = 32767;
    if (tag > kEveryMpiHas && tag > largest_tag(layer.mpi)) return raise_on_comm(layer, comm, MPI_ERR_TAG);
    UserBuffer buffer;
    return make_message(layer, comm, at, count, type, tag, false, buffer);
}

/// Nothing may come into the user's buffer when the call has returned.
void give_up_receive(Layer& layer, MPI_Request& request) {
    if (Cancel(layer, &request) == MPI_SUCCESS) {
        wait_one(layer, &request, MPI_STATUS_IGNORE);
    } else {
        Request_free(layer, &request);
    }
}

}  // namespace

int Sendrecv(Layer& layer, const void* out, MPI_Count out_count, MPI_Datatype out_type, int to, int out_tag, void* in,
             MPI_Count in_count, MPI_Datatype in_type, int from, int in_tag, MPI_Comm comm, MPI_Status* status) {
    {
        auto guard = layer.guard();
        const Communicator* const communicator = layer.find(comm);
        if (communicator == nullptr) {
            if (guard) guard.unlock();
            return CRYPTMPI_NATIVE(Sendrecv, std::max(out_count, in_count), out, Count{out_count}, out_type, to,
                                   out_tag, in, Count{in_count}, in_type, from, in_tag, comm, status)(layer.mpi);
        }
        const int wrong = check_send(layer, *communicator, out, out_count, out_type, to, out_tag);
        if (wrong != MPI_SUCCESS) return wrong;
    }
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    const int posted = Irecv(layer, in, in_count, in_type, from, in_tag, comm, &requests[0]);
    if (posted != MPI_SUCCESS || requests[0] == MPI_REQUEST_NULL) return posted;
    int sent = Isend(layer, out, out_count, out_type, to, out_tag, comm, &requests[1]);
    if (sent != MPI_SUCCESS || requests[1] == MPI_REQUEST_NULL) {
        give_up_receive(layer, requests[0]);
        return sent;
    }
    sent = wait_one(layer, &requests[1], MPI_STATUS_IGNORE);
    const int received = wait_one(layer, &requests[0], status);
    // MPICH 4.0 gives a receive from nobody the status of an older one.
    if (from == MPI_PROC_NULL && received == MPI_SUCCESS && status != MPI_STATUS_IGNORE) set_nobody(layer.mpi, *status);
    return received != MPI_SUCCESS ? received : sent;
}

int Sendrecv_replace(Layer& layer, void* at, MPI_Count count, MPI_Datatype type, int to, int out_tag, int from,
                     int in_tag, MPI_Comm comm, MPI_Status* status) {
    auto guard = layer.guard();
    Communicator* communicator = layer.find(comm);
    if (communicator == nullptr) {
        if (guard) guard.unlock();
        return CRYPTMPI_NATIVE(Sendrecv_replace, count, at, Count{count}, type, to, out_tag, from, in_tag, comm,
                               status)(layer.mpi);
    }
    UserBuffer buffer;
    if (const int code = make_buffer(layer, comm, at, count, type, false, buffer); code != MPI_SUCCESS) return code;
    const auto copy = layer.buffer(buffer.size());
    if (const int code = buffer.pack(copy.data()); code != MPI_SUCCESS) return code;
    const ByteCount bytes(layer.mpi, copy.size());
    if (guard) guard.unlock();
    return Sendrecv(layer, copy.data(), bytes.count(), bytes.type(), to, out_tag, at, count, type, from, in_tag, comm,
                    status);
}

}  // namespace cryptmpi::comm
