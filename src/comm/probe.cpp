// Probe, and receiving what was probed: the user sees the size of his message, not of what travels.
#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "comm/calls.hpp"
#include "comm/complete.hpp"
#include "comm/native_call.hpp"
#include "comm/point.hpp"
#include "comm/received.hpp"
#include "comm/status.hpp"

namespace cryptmpi::comm {
namespace {

// The flag of a probe that MPI has not answered: it found an error, and has told it, even where its code says nothing.
constexpr int kUnanswered = -1;

void show_user_size(Layer& layer, const Communicator& communicator, MPI_Status& status) {
    if (!communicator.has(status.MPI_SOURCE) || !communicator.sealed(status.MPI_SOURCE)) return;
    const std::size_t size = wire_size(layer.mpi, status);
    set_size(layer.mpi, status, size - std::min(size, seal::kMessageOverhead));
}

/// Takes a message out of MPI's queue and looks what it is. `status` is MPI's.
int take(Layer& layer, Communicator& communicator, MPI_Message message, const MPI_Status& status, Held& held) {
    held.source = status.MPI_SOURCE;
    held.tag = status.MPI_TAG;
    const auto wire = layer.buffer(wire_size(layer.mpi, status));
    Posted posted;
    communicator.post(held.source, held.tag, posted);
    const ByteCount bytes(layer.mpi, wire.size());
    const int code = layer.mpi.Mrecv(wire.data(), bytes.count(), bytes.type(), &message, MPI_STATUS_IGNORE);
    posted.withdraw();
    if (code != MPI_SUCCESS) return code;
    const auto failed = [&](const Error& error) {
        return layer.raise(communicator.handle(),
                           fmt::format("the message from rank {} with tag {} {}", held.source, held.tag, error.line));
    };
    if (seal::announces(wire.data(), wire.size())) {
        auto segments = communicator.open_announcement(posted, held.source, held.tag, wire.data(), wire.size());
        if (!segments) return failed(segments.error());
        if (segments->announcement().synchronous) drop_hint(layer, communicator, held.source, wire.data());
        held.size = segments->announcement().length;
        held.segments = std::move(*segments);
        return MPI_SUCCESS;
    }
    held.size = wire.size() - std::min(wire.size(), seal::kMessageOverhead);
    held.plain = layer.buffer(held.size);
    auto done = communicator.open(posted, held.source, held.tag, wire.data(), wire.size(), held.plain.data());
    if (!done) return failed(done.error());
    drop_hint_of_whole(layer, communicator, held.source, wire.data(), wire.size());
    return MPI_SUCCESS;
}

/// The size of what MPI found does not tell the user's: it may announce a large message.
bool may_announce(Layer& layer, const Communicator& communicator, const MPI_Status& status) {
    return communicator.has(status.MPI_SOURCE) && communicator.sealed(status.MPI_SOURCE) &&
           wire_size(layer.mpi, status) == seal::kAnnouncedWire;
}

/// How long the message is that MPI has found, or whose announcement, if it is in synchronous mode. To receive it would
/// end its send.
std::optional<std::size_t> told_length(Layer& layer, Communicator& communicator, const MPI_Status& status) {
    const int from = status.MPI_SOURCE;
    const auto number = communicator.first_in_queue(from, status.MPI_TAG);
    if (!number) return std::nullopt;
    for (const Hint& hint : layer.hints().of(communicator.world_ranks()[static_cast<std::size_t>(from)])) {
        if (const auto length = communicator.peek(from, status.MPI_TAG, *number, hint.data())) return length;
    }
    return std::nullopt;
}

/// Takes what MPI found out of its queue, and receives it only where its length is not known otherwise.
int keep(Layer& layer, Communicator& communicator, MPI_Message message, const MPI_Status& status, Held& held) {
    std::optional<std::size_t> length;
    if (may_announce(layer, communicator, status)) {
        length = told_length(layer, communicator, status);
        if (!length) return take(layer, communicator, message, status, held);
    } else {
        const std::size_t size = wire_size(layer.mpi, status);
        length = size - std::min(size, seal::kMessageOverhead);
    }
    held.source = status.MPI_SOURCE;
    held.tag = status.MPI_TAG;
    held.size = *length;
    held.message = message;
    communicator.post(held.source, held.tag, held.posted);
    return MPI_SUCCESS;
}

/// Takes the messages of a sender up to the first with this tag out of MPI's queue: all of them, so that what MPI still
/// has of him is younger than what we hold.
int hold_until(Layer& layer, Communicator& communicator, int source, int tag) {
    for (;;) {
        MPI_Message message = MPI_MESSAGE_NULL;
        MPI_Status status;
        int found = 0;
        const int code = layer.mpi.Improbe(source, MPI_ANY_TAG, communicator.handle(), &found, &message, &status);
        if (code != MPI_SUCCESS || found == 0) return code;
        auto held = std::make_unique<Held>();
        if (const int failed = keep(layer, communicator, message, status, *held); failed != MPI_SUCCESS) return failed;
        communicator.held().push_back(std::move(held));
        if (status.MPI_TAG == tag) return MPI_SUCCESS;
    }
}

void describe_held(Layer& layer, const Held& held, MPI_Status& status) {
    status.MPI_SOURCE = held.source;
    status.MPI_TAG = held.tag;
    layer.mpi.Status_set_cancelled(&status, 0);
    set_size(layer.mpi, status, held.size);
}

const Held* find_held(Communicator& communicator, int from, int tag) {
    for (const auto& held : communicator.held()) {
        if (held->matches(from, tag)) return held.get();
    }
    return nullptr;
}

}  // namespace

int Iprobe(Layer& layer, int from, int tag, MPI_Comm comm, int* flag, MPI_Status* status) {
    const auto guard = layer.guard();
    Communicator* communicator = layer.find(comm);
    if (communicator == nullptr || flag == nullptr) return layer.mpi.Iprobe(from, tag, comm, flag, status);
    progress(layer);
    MPI_Status own = {};
    MPI_Status& mine = status == MPI_STATUS_IGNORE ? own : *status;
    for (;;) {
        if (const Held* held = find_held(*communicator, from, tag)) {
            describe_held(layer, *held, mine);
            *flag = 1;
            return MPI_SUCCESS;
        }
        int found = kUnanswered;
        const int code = layer.mpi.Iprobe(from, tag, comm, &found, &mine);
        if (code != MPI_SUCCESS || found == kUnanswered) return code;
        *flag = found;
        if (found == 0) return code;
        if (!may_announce(layer, *communicator, mine)) {
            show_user_size(layer, *communicator, mine);
            return code;
        }
        if (const auto length = told_length(layer, *communicator, mine)) {
            set_size(layer.mpi, mine, *length);
            return code;
        }
        const int failed = hold_until(layer, *communicator, mine.MPI_SOURCE, mine.MPI_TAG);
        if (failed != MPI_SUCCESS) return failed;
    }
}

int Probe(Layer& layer, int from, int tag, MPI_Comm comm, MPI_Status* status) {
    auto guard = layer.guard();
    Communicator* communicator = layer.find(comm);
    if (communicator == nullptr) {
        if (guard) guard.unlock();
        return layer.mpi.Probe(from, tag, comm, status);
    }
    const bool may_block = !layer.threads() && layer.requests().unfinished.empty() && communicator->held().empty();
    if (guard) guard.unlock();
    if (may_block) {
        MPI_Status own = {};
        MPI_Status& mine = status == MPI_STATUS_IGNORE ? own : *status;
        Unfilled unfilled(mine);
        const int code = layer.mpi.Probe(from, tag, comm, &mine);
        if (unfilled.was_left() || code != MPI_SUCCESS || !may_announce(layer, *communicator, mine)) {
            if (code == MPI_SUCCESS) show_user_size(layer, *communicator, mine);
            return code;
        }
    }
    return repeat(layer, [&](int& done) {
        done = kUnanswered;
        return Iprobe(layer, from, tag, comm, &done, status);
    });
}

namespace {

/// A handle of MPI's for a message that MPI has given out: that of an empty one, from this rank to itself.
MPI_Message make_message(Layer& layer) {
    const auto& mpi = layer.mpi;
    MPI_Request request = MPI_REQUEST_NULL;
    // Nothing else goes from a rank to itself there.
    const MPI_Comm comm = layer.own_traffic();
    mpi.Isend(nullptr, 0, MPI_BYTE, layer.world_rank(), 0, comm, &request);
    MPI_Message message = MPI_MESSAGE_NULL;
    for (int found = 0; found == 0;) {
        mpi.Improbe(layer.world_rank(), 0, comm, &found, &message, MPI_STATUS_IGNORE);
    }
    mpi.Request_free(&request);
    return message;
}

void give_out(Layer& layer, MPI_Comm comm, std::unique_ptr<Held> held, MPI_Message* message, MPI_Status& status) {
    describe_held(layer, *held, status);
    if (held->message != MPI_MESSAGE_NULL) {
        *message = held->message;
        layer.matched()[*message] = {layer.share(comm), std::move(held->posted), nullptr};
        return;
    }
    *message = make_message(layer);
    layer.matched()[*message] = {layer.share(comm), {}, std::move(held)};
}

/// After MPI's matching probe: the message is taken out of the queue, as a receive would.
int note_matched(Layer& layer, Communicator& communicator, MPI_Message* message, MPI_Status& status) {
    if (*message == MPI_MESSAGE_NULL || *message == MPI_MESSAGE_NO_PROC) return MPI_SUCCESS;
    const bool has_sender = communicator.has(status.MPI_SOURCE);
    if (has_sender && !communicator.sealed(status.MPI_SOURCE)) return MPI_SUCCESS;
    std::optional<std::size_t> length;
    const bool is_unknown = may_announce(layer, communicator, status);
    if (is_unknown) length = told_length(layer, communicator, status);
    if (is_unknown && !length) {
        auto held = std::make_unique<Held>();
        const int code = take(layer, communicator, *message, status, *held);
        if (code == MPI_SUCCESS) give_out(layer, communicator.handle(), std::move(held), message, status);
        return code;
    }
    Layer::Matched& matched = layer.matched()[*message];
    matched.communicator = layer.share(communicator.handle());
    // One of a sender that there is not is refused when it is received.
    communicator.post(has_sender ? status.MPI_SOURCE : MPI_PROC_NULL, status.MPI_TAG, matched.posted);
    if (length) {
        set_size(layer.mpi, status, *length);
    } else {
        show_user_size(layer, communicator, status);
    }
    return MPI_SUCCESS;
}

}  // namespace

int Improbe(Layer& layer, int from, int tag, MPI_Comm comm, int* flag, MPI_Message* message, MPI_Status* status) {
    const auto guard = layer.guard();
    Communicator* communicator = layer.find(comm);
    const bool whole = flag != nullptr && message != nullptr;
    if (communicator == nullptr || !whole) return layer.mpi.Improbe(from, tag, comm, flag, message, status);
    progress(layer);
    MPI_Status own = {};
    MPI_Status& mine = status == MPI_STATUS_IGNORE ? own : *status;
    if (auto held = communicator->take_held(from, tag)) {
        give_out(layer, comm, std::move(held), message, mine);
        *flag = 1;
        return MPI_SUCCESS;
    }
    int found = kUnanswered;
    const int code = layer.mpi.Improbe(from, tag, comm, &found, message, &mine);
    if (code != MPI_SUCCESS || found == kUnanswered) return code;
    *flag = found;
    return found == 0 ? code : note_matched(layer, *communicator, message, mine);
}

int Mprobe(Layer& layer, int from, int tag, MPI_Comm comm, MPI_Message* message, MPI_Status* status) {
    auto guard = layer.guard();
    Communicator* communicator = layer.find(comm);
    if (communicator == nullptr || message == nullptr) {
        if (guard) guard.unlock();
        return layer.mpi.Mprobe(from, tag, comm, message, status);
    }
    // Two threads' messages must be noted in the order in which MPI gave them out.
    if (layer.threads() || !layer.requests().unfinished.empty() || !communicator->held().empty()) {
        if (guard) guard.unlock();
        return repeat(layer, [&](int& done) {
            done = kUnanswered;
            return Improbe(layer, from, tag, comm, &done, message, status);
        });
    }
    MPI_Status own = {};
    MPI_Status& mine = status == MPI_STATUS_IGNORE ? own : *status;
    Unfilled unfilled(mine);
    const int code = layer.mpi.Mprobe(from, tag, comm, message, &mine);
    return unfilled.was_left() || code != MPI_SUCCESS ? code : note_matched(layer, *communicator, message, mine);
}

namespace {

/// The operation that receives a matched message.
std::unique_ptr<Operation> receive_matched(Layer& layer, Layer::Matched& matched, UserBuffer buffer) {
    auto operation = std::make_unique<Operation>();
    operation->kind = Operation::Kind::receive;
    operation->communicator = matched.communicator;
    operation->user = std::move(buffer);
    if (matched.held) return operation;
    operation->posted = std::move(matched.posted);
    operation->wire = layer.buffer(receive_room(operation->posted.source, operation->user.size()));
    mark_unwritten(operation->wire);
    return operation;
}

/// The message behind a handle of make_message() is with us.
int end_message(Layer& layer, MPI_Message* message) {
    return layer.mpi.Mrecv(nullptr, 0, MPI_BYTE, message, MPI_STATUS_IGNORE);
}

}  // namespace

int Mrecv(Layer& layer, void* at, MPI_Count count, MPI_Datatype type, MPI_Message* message, MPI_Status* status) {
    auto guard = layer.guard();
    if (message == nullptr || !layer.matched().contains(*message)) {
        if (guard) guard.unlock();
        return CRYPTMPI_NATIVE(Mrecv, count, at, Count{count}, type, message, status)(layer.mpi);
    }
    if (layer.threads()) {
        // No lock may be held while segments come.
        MPI_Request request = MPI_REQUEST_NULL;
        const int code = Imrecv(layer, at, count, type, message, &request);
        if (guard) guard.unlock();
        return code != MPI_SUCCESS ? code : wait_one(layer, &request, status);
    }
    UserBuffer buffer;
    const MPI_Comm comm = layer.living(layer.matched().at(*message).communicator);
    if (const int code = make_buffer(layer, comm, at, count, type, false, buffer); code != MPI_SUCCESS) return code;
    auto matched = std::move(layer.matched().extract(*message).mapped());
    const auto operation = receive_matched(layer, matched, std::move(buffer));
    MPI_Status own = {};
    MPI_Status& mine = status == MPI_STATUS_IGNORE ? own : *status;
    if (matched.held) {
        const int code = end_message(layer, message);
        return code != MPI_SUCCESS ? code : conclude_held(layer, *operation, std::move(matched.held), mine);
    }
    const ByteCount bytes(layer.mpi, operation->wire.room());
    Unfilled unfilled(mine);
    const int code = layer.mpi.Mrecv(operation->wire.data(), bytes.count(), bytes.type(), message, &mine);
    if (unfilled.was_left()) return code;
    return conclude(layer, *operation, mine, code);
}

int Imrecv(Layer& layer, void* at, MPI_Count count, MPI_Datatype type, MPI_Message* message, MPI_Request* request) {
    const auto guard = layer.guard();
    if (message == nullptr || request == nullptr || !layer.matched().contains(*message)) {
        return CRYPTMPI_NATIVE(Imrecv, count, at, Count{count}, type, message, request)(layer.mpi);
    }
    UserBuffer buffer;
    const MPI_Comm comm = layer.living(layer.matched().at(*message).communicator);
    if (const int code = make_buffer(layer, comm, at, count, type, true, buffer); code != MPI_SUCCESS) return code;
    auto matched = std::move(layer.matched().extract(*message).mapped());
    auto operation = receive_matched(layer, matched, std::move(buffer));
    if (matched.held) {
        const int code = end_message(layer, message);
        if (code == MPI_SUCCESS) start_with_held(layer, std::move(operation), std::move(matched.held), request);
        return code;
    }
    const ByteCount bytes(layer.mpi, operation->wire.room());
    *request = MPI_REQUEST_NULL;
    const int code = layer.mpi.Imrecv(operation->wire.data(), bytes.count(), bytes.type(), message, request);
    if (code != MPI_SUCCESS || *request == MPI_REQUEST_NULL) return code;
    if (engine::Plan::may_be_in_segments(operation->user.size())) {
        operation->completion = Operation::Completion::after_mpi;
        layer.requests().unfinished.push_back({*request, operation.get()});
    }
    layer.requests().add(*request, std::move(operation));
    return MPI_SUCCESS;
}

}  // namespace cryptmpi::comm
