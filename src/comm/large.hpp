// Large messages: announced like any message, on the user's communicator, so that MPI matches, probes and orders them;
// their segments follow on a communicator of ours, each sent as soon as it is sealed.
//
// Segments go on in every call that waits or tests. No more of them are with MPI than the plan allows, at either end;
// what a sender still has is handed to MPI at once before a call in which it would wait without us. Where the rank has
// workers, they seal and open several segments of a message at a time; only the rank's own thread calls MPI.
#pragma once

#include <mpi.h>

#include <chrono>
#include <deque>
#include <optional>
#include <vector>

#include "base/result.hpp"
#include "comm/buffer.hpp"
#include "engine/buffer_pool.hpp"
#include "engine/plan.hpp"
#include "engine/workers.hpp"
#include "native.hpp"
#include "seal/segments.hpp"

namespace cryptmpi::comm {

/// What large messages have with MPI.
struct Traffic {
    std::size_t sends = 0;                             // messages on their way from this rank
    std::size_t out = 0;                               // bytes of segments on their way
    std::size_t in = 0;                                // bytes of segments that are waited for
    std::chrono::steady_clock::time_point moved = {};  // when a receiver took a segment
};

/// What all large messages of a process share.
struct Ways {
    const interpose::Native& mpi;
    const engine::Plans& plans;
    engine::BufferPool& pool;
    engine::Workers& workers;
    Traffic& traffic;
    MPI_Comm comm;  // the members of MPI_COMM_WORLD, in their order
};

/// The segments of one message on their way to a rank.
class Outgoing {
public:
    /// Of the message's bytes at `plain`; `packed` is their memory where it is not the user's.
    Outgoing(const Ways& ways, seal::Segments segments, int world_rank, const std::uint8_t* plain,
             engine::Buffer packed);
    ~Outgoing();
    Outgoing(const Outgoing&) = delete;
    Outgoing& operator=(const Outgoing&) = delete;

    enum class Amount : std::uint8_t { what_has_room, all };
    /// Seals segments and hands them to MPI. Returns MPI's code, or the error of sealing.
    Result<int> send(Amount amount);
    bool all_sent() const { return next_ == segments_.count(); }

    /// MPI's request for the announcement, and the memory that it is sent from.
    void announced(MPI_Request request, engine::Buffer wire);

    /// Looks what MPI is done with.
    void advance();
    bool done() const { return all_sent() && travelling_.empty() && announcement_ == MPI_REQUEST_NULL; }
    /// May the send end? At the latest when no receiver has taken a segment for longer than the plan is patient; not
    /// before the announcement has gone: that of a synchronous send has then been received.
    bool may_end() { return done() || (all_sent() && announcement_ == MPI_REQUEST_NULL && out_of_patience()); }
    /// Counts from the first time it is asked: while the program computes, nobody waits for the receiver.
    bool out_of_patience();

private:
    struct Travelling {
        engine::Buffer wire;
        MPI_Request request;
    };
    Ways ways_;
    seal::Segments segments_;
    const engine::Plan& plan_;
    int to_;
    engine::Buffer announcement_wire_;
    MPI_Request announcement_ = MPI_REQUEST_NULL;
    std::uint32_t next_chunk(Amount amount) const;
    Result<int> send_chunk(std::uint32_t count);
    Result<void> seal(std::uint32_t position, Travelling& one, std::size_t thread) const;
    int hand_over(Travelling one);

    const std::uint8_t* plain_;
    engine::Buffer packed_;
    std::uint32_t next_ = 0;
    std::deque<Travelling> travelling_;
    std::optional<std::chrono::steady_clock::time_point> waits_since_;
};

/// The segments of one message on their way from a rank.
class Incoming {
public:
    /// Into `out`, the length of the message; null: they are taken from MPI and thrown away.
    Incoming(const Ways& ways, seal::Segments segments, int world_rank, std::uint8_t* out);
    ~Incoming();
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
    /// A segment that MPI is done with.
    struct Came {
        engine::Buffer wire;
        std::size_t size;
        Result<void> opened = {};
    };
    void receive_what_has_room();
    void receive_next();
    bool take_next();
    void open_all();

    Ways ways_;
    seal::Segments segments_;
    const engine::Plan& plan_;
    int from_;
    std::uint8_t* out_;
    std::uint32_t posted_ = 0;
    std::uint32_t opened_ = 0;
    std::deque<Travelling> travelling_;
    std::vector<Came> came_;  // not opened yet
    std::optional<Error> failure_;
};

}  // namespace cryptmpi::comm
