#include "comm/received.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <string>
#include <utility>

#include "comm/errors.hpp"
#include "comm/status.hpp"
#include "report/verdict.hpp"

namespace cryptmpi::comm {

using seal::kMessageOverhead;

namespace {

std::string describe(int from, int tag) {
    return fmt::format("the message from rank {} with tag {}", from, tag);
}

/// The segments of a large message begin to come to a receive.
int receive_segments(Layer& layer, Operation& operation, seal::Segments segments, int from, MPI_Status& status) {
    const std::size_t length = segments.announcement().length;
    const std::size_t capacity = operation.user.size();
    const int world_rank = operation.communicator->world_ranks()[static_cast<std::size_t>(from)];
    if (length > capacity) {
        layer.leftovers().incoming.push_back(
            std::make_unique<Incoming>(layer.transport(), std::move(segments), world_rank, Place()));
        set_size(layer.mpi, status, capacity);
        return MPI_ERR_TRUNCATE;
    }
    operation.incoming = std::make_unique<Incoming>(layer.transport(), std::move(segments), world_rank,
                                                    find_place(layer.pool(), operation.user, length));
    set_size(layer.mpi, status, length);
    return MPI_SUCCESS;
}

/// Opened data of a whole message comes to the user.
int hand_over(Layer& layer, const Operation& operation, const std::uint8_t* plain, std::size_t size,
              MPI_Status& status) {
    const std::size_t capacity = operation.user.size();
    const std::size_t fits = std::min(size, capacity);
    set_size(layer.mpi, status, fits);
    if (const int code = operation.user.unpack(plain, fits); code != MPI_SUCCESS) return code;
    return size > capacity ? MPI_ERR_TRUNCATE : MPI_SUCCESS;
}

int integrity_error(Layer& layer, int from, int tag, const Error& error, MPI_Status& status) {
    set_size(layer.mpi, status, 0);
    return layer.integrity_error(describe(from, tag) + " " + error.line);
}

/// What the memory of a receive begins with before MPI has it: nobody can send a message that begins so.
std::uint64_t unwritten_header() {
    static const std::uint64_t header = [] {
        std::random_device random;
        return std::uint64_t{random()} << 32 | random();
    }();
    return header;
}

bool was_written(const engine::Buffer& wire) {
    const std::uint64_t header = unwritten_header();
    return std::memcmp(wire.data(), &header, sizeof header) != 0;
}

extern "C" {
void hear_nothing(MPI_Comm* /*comm*/, int* /*code*/, ...) {}
}

/// MPI calls a receive a success, but did not write what it says, or wrote although it says that nothing came: the
/// message was longer than its room, and a handler of the program's has heard of it. (An empty message that is nothing
/// else did come: nobody sends one.)
bool was_told_as_cut_off(Layer& layer, const Operation& operation, std::size_t came) {
    const bool contradicts = was_written(operation.wire) ? came == 0 : came >= seal::kMessageHeaderSize;
    if (!contradicts) return false;
    const MPI_Comm comm = layer.living(operation.communicator);
    const auto& mpi = layer.mpi;
    const bool may_be_hidden =
        hides_told_errors(mpi, comm) || hides_told_errors(mpi, MPI_COMM_WORLD) || hides_told_errors(mpi, MPI_COMM_SELF);
    return may_be_hidden && forgets_told_errors(layer);
}

// protocol: M29
/// MPI names a sender that there is not: only who writes MPI's packets could make it do so.
int came_from_nobody(Layer& layer, MPI_Status& status) {
    const Error error{"is of no member of the communicator: MPI's own packets were altered", EBADMSG};
    return integrity_error(layer, status.MPI_SOURCE, status.MPI_TAG, error, status);
}

}  // namespace

int cut_off(Layer& layer, Operation& operation, MPI_Status& status) {
    const int from = status.MPI_SOURCE;
    const int tag = status.MPI_TAG;
    operation.communicator->came_truncated(operation.posted, from, tag);
    ++layer.rank_report().part().cut_off;
    layer.say(fmt::format(
        "{} was cut off by MPI, since it is longer than {} bytes, and could not be opened: altered on the way{}",
        describe(from, tag), operation.wire.room(), report::kOrOtherSizes));
    set_size(layer.mpi, status, operation.user.size());
    return MPI_ERR_TRUNCATE;
}

void mark_unwritten(engine::Buffer& wire) {
    const std::uint64_t header = unwritten_header();
    std::memcpy(wire.data(), &header, sizeof header);
}

bool forgets_told_errors(Layer& layer) {
    const auto& mpi = layer.mpi;
    const MPI_Comm comm = layer.alone();
    if (comm == MPI_COMM_NULL) return false;
    // One thread at a time asks anything on the communicator of this rank alone.
    const std::lock_guard hold(layer.answers().lock);
    MPI_Errhandler before = MPI_ERRHANDLER_NULL;
    MPI_Errhandler deaf = MPI_ERRHANDLER_NULL;
    mpi.Comm_get_errhandler(comm, &before);
    mpi.Comm_create_errhandler(hear_nothing, &deaf);
    mpi.Comm_set_errhandler(comm, deaf);
    const int code = mpi.Send(nullptr, -1, MPI_BYTE, MPI_PROC_NULL, 0, comm);
    mpi.Comm_set_errhandler(comm, before);
    mpi.Errhandler_free(&before);
    mpi.Errhandler_free(&deaf);
    return code == MPI_SUCCESS;
}

void drop_hint(Layer& layer, const Communicator& communicator, int from, const std::uint8_t* announcement) {
    layer.hints().drop(communicator.world_ranks()[static_cast<std::size_t>(from)], announcement);
}

void drop_hint_of_whole(Layer& layer, const Communicator& communicator, int from, const std::uint8_t* wire,
                        std::size_t size) {
    if (size != seal::kAnnouncedWire) [[likely]] {
        return;
    }
    layer.hints().drop_if_come(communicator.world_ranks()[static_cast<std::size_t>(from)], wire);
}

int deliver_held(Layer& layer, Operation& operation, std::unique_ptr<Held> held, MPI_Status& status) {
    status.MPI_SOURCE = held->source;
    status.MPI_TAG = held->tag;
    layer.mpi.Status_set_cancelled(&status, 0);
    if (held->segments) return receive_segments(layer, operation, std::move(*held->segments), held->source, status);
    return hand_over(layer, operation, held->plain.data(), held->size, status);
}

int finish_receive(Layer& layer, Operation& operation, MPI_Status& status) {
    if (!operation.posted.waits()) return status.MPI_ERROR;
    Communicator& communicator = *operation.communicator;
    operation.posted.withdraw();
    if (operation.posted.may_be_cancelled) [[unlikely]] {
        int cancelled = 0;
        layer.mpi.Test_cancelled(&status, &cancelled);
        if (cancelled != 0) return MPI_SUCCESS;
    }

    const int from = status.MPI_SOURCE;
    const int tag = status.MPI_TAG;
    const std::size_t came = wire_size(layer.mpi, status);
    const std::uint8_t* const wire = operation.wire.data();
    if (!communicator.has(from)) return came_from_nobody(layer, status);
    if (!communicator.sealed(from)) {
        // It came as it is, into a buffer that has room for a sealed one.
        return hand_over(layer, operation, wire, std::min(came, operation.wire.room()), status);
    }
    if (was_told_as_cut_off(layer, operation, came)) [[unlikely]] {
        // Where nothing was written, nobody can be sure that it was told: it is once more.
        operation.error_is_mpis = came == 0;
        return cut_off(layer, operation, status);
    }
    if (came > operation.wire.room()) return cut_off(layer, operation, status);
    if (seal::announces(wire, came)) {
        auto segments = communicator.open_announcement(operation.posted, from, tag, wire, came);
        if (!segments) return integrity_error(layer, from, tag, segments.error(), status);
        if (segments->announcement().synchronous) drop_hint(layer, communicator, from, wire);
        return receive_segments(layer, operation, std::move(*segments), from, status);
    }
    const std::size_t size = came < kMessageOverhead ? 0 : came - kMessageOverhead;
    const bool in_place = size <= operation.user.size() && (operation.user.contiguous() != nullptr || size == 0);
    engine::Buffer opened;
    if (!in_place) opened = layer.buffer(size);
    std::uint8_t* const out = in_place ? operation.user.contiguous() : opened.data();
    if (auto done = communicator.open(operation.posted, from, tag, wire, came, out); !done) {
        return integrity_error(layer, from, tag, done.error(), status);
    }
    drop_hint_of_whole(layer, communicator, from, wire, came);
    if (!in_place) return hand_over(layer, operation, out, size, status);
    set_size(layer.mpi, status, size);
    return MPI_SUCCESS;
}

int finish_incoming(Layer& layer, Operation& operation, MPI_Status& status) {
    auto incoming = std::move(operation.incoming);
    if (incoming->failure()) {
        const Error error = *incoming->failure();
        layer.leftovers().incoming.push_back(std::move(incoming));
        return integrity_error(layer, status.MPI_SOURCE, status.MPI_TAG, error, status);
    }
    const engine::Buffer& packed = incoming->packed();
    return packed.size() == 0 ? MPI_SUCCESS : operation.user.unpack(packed.data(), packed.size());
}

}  // namespace cryptmpi::comm
