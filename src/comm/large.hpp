// Large messages: announced like any message, on the user's communicator, so that MPI matches, probes and orders them;
// their segments follow on a communicator of ours, each sent as soon as it is sealed.
//
// A sender hands all segments to MPI before its call returns, so that no progress of a message hangs on what the
// program calls next; a receiver takes them while it waits or tests.
#pragma once

#include <mpi.h>

#include <chrono>
#include <deque>
#include <optional>

#include "base/result.hpp"
#include "comm/buffer.hpp"
#include "engine/buffer_pool.hpp"
#include "engine/plan.hpp"
#include "native.hpp"
#include "seal/segments.hpp"

namespace cryptmpi::comm {

/// What all large messages of a process share.
struct Ways {
    const interpose::Native& mpi;
    const engine::Plan& plan;
    engine::BufferPool& pool;
    MPI_Comm comm;  // the members of MPI_COMM_WORLD, in their order
};

/// The segments of one message on their way to a rank.
class Outgoing {
public:
    Outgoing(const Ways& ways, seal::Segments segments, int world_rank);
    Outgoing(const Outgoing&) = delete;
    Outgoing& operator=(const Outgoing&) = delete;

    /// Seals the next segment of `plain` and hands it to MPI. Returns MPI's code, or the error of sealing.
    Result<int> send_next(const std::uint8_t* plain);
    bool all_sent() const { return next_ == segments_.count(); }
    /// May one more be sent without keeping more than the plan's number with MPI?
    bool has_room() const { return travelling_.size() < ways_.plan.in_flight; }

    /// MPI's request for the announcement, and the memory that it is sent from.
    void announced(MPI_Request request, engine::Buffer wire);

    /// Looks what MPI is done with.
    void advance();
    bool done() const { return all_sent() && travelling_.empty() && announcement_ == MPI_REQUEST_NULL; }
    /// May the send end? At the latest when the receiver has not taken a segment for longer than the plan is patient;
    /// not before the announcement has gone: that of a synchronous send has then been received.
    bool may_end() const { return done() || (announcement_ == MPI_REQUEST_NULL && out_of_patience()); }
    bool out_of_patience() const { return std::chrono::steady_clock::now() > until_; }

private:
    struct Travelling {
        engine::Buffer wire;
        MPI_Request request;
    };
    Ways ways_;
    seal::Segments segments_;
    int to_;
    engine::Buffer announcement_wire_;
    MPI_Request announcement_ = MPI_REQUEST_NULL;
    std::uint32_t next_ = 0;
    std::deque<Travelling> travelling_;
    std::chrono::steady_clock::time_point until_;
};

/// The segments of one message on their way from a rank.
class Incoming {
public:
    /// Into `out`, the length of the message; null: they are taken from MPI and thrown away.
    Incoming(const Ways& ways, seal::Segments segments, int world_rank, std::uint8_t* out);
    Incoming(const Incoming&) = delete;
    Incoming& operator=(const Incoming&) = delete;

    std::size_t length() const { return segments_.announcement().length; }
    /// Opens what has come. True if the message is there whole.
    bool advance();
    /// Why it will not be: the message is not what its sender sent. Nothing of it is left in the buffer, and what still
    /// comes is thrown away.
    const std::optional<Error>& failure() const { return failure_; }

private:
    struct Travelling {
        engine::Buffer wire;
        MPI_Request request;
    };
    void receive_next();
    void take(const std::uint8_t* wire, std::size_t size);

    Ways ways_;
    seal::Segments segments_;
    int from_;
    std::uint8_t* out_;
    std::uint32_t posted_ = 0;
    std::uint32_t opened_ = 0;
    std::deque<Travelling> travelling_;
    std::optional<Error> failure_;
};

}  // namespace cryptmpi::comm
