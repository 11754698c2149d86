// Large messages: announced like any message, on the user's communicator, so that MPI matches, probes and orders them;
// their segments follow on a communicator of ours, each sent as soon as it is sealed.
//
// Segments go on in every call that waits or tests. No more of them are with MPI than the plan allows, at either end;
// what a sender still has is handed to MPI before a call in which it would wait without us: the rest, in one message.
// Where the rank has workers, they seal and open several segments of a message at a time; only the rank's own thread
// calls MPI.
//
// Nor may many of them wait at a receiver who is busy with another message: libfabric's tcp provider reads no more from
// a peer of whom it holds 64 messages that nobody has asked for, and the one that is waited for may be behind them. So
// now and then a segment is sent synchronously, which tells how many have been asked for, and a rest is one message
// however long it is.
#pragma once

#include <mpi.h>

#include <chrono>
#include <deque>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/result.hpp"
#include "comm/buffer.hpp"
#include "comm/in_transit.hpp"
#include "comm/native.hpp"
#include "engine/buffer_pool.hpp"
#include "engine/plan.hpp"
#include "engine/workers.hpp"
#include "seal/message.hpp"
#include "seal/segments.hpp"

namespace cryptmpi::comm {

/// What large messages have with MPI.
struct Traffic {
    std::size_t sends = 0;                             // messages on their way from this rank
    std::size_t out = 0;                               // bytes of segments on their way
    std::size_t in = 0;                                // bytes of segments that are waited for
    std::unordered_map<int, std::size_t> unasked;      // segments and rests that a rank may not have asked for yet
    std::unordered_map<int, std::size_t> rests;        // on their way from a rank
    std::size_t in_rests = 0;                          // bytes of them, from all ranks
    std::chrono::steady_clock::time_point moved = {};  // when a receiver took a segment
};

/// What all large messages of a process share.
struct SegmentTransport {
    const Native& mpi;
    const engine::Plans& plans;
    engine::BufferPool& pool;
    engine::Workers& workers;
    Traffic& traffic;
    LeftWithMpi& left;
    MPI_Comm comm;         // the members of MPI_COMM_WORLD, in their order
    int tag_of_hints = 0;  // comm/hints.hpp
};

/// Tells a rank that may probe what comes in synchronous mode: the announcement that follows on the program's
/// communicator, or a whole message as long as one. Nobody waits for `hint`. Returns MPI's code.
int send_hint(const SegmentTransport& transport, int world_rank, const std::uint8_t wire[seal::kAnnouncedWire],
              InTransit& hint);

/// Room for a packed segment for each thread, of a message whose bytes have gaps between them; none for others.
using Scratch = std::vector<engine::Buffer>;

/// The segments of one message on their way to a rank.
class Outgoing {
public:
    /// Of the message's bytes at `place`.
    Outgoing(const SegmentTransport& transport, seal::Segments segments, int world_rank, Place place);
    ~Outgoing();
    Outgoing(const Outgoing&) = delete;
    Outgoing& operator=(const Outgoing&) = delete;

    /// `without_receiver`: all, if it was waited for long enough that nobody takes segments.
    enum class Amount : std::uint8_t { what_has_room, without_receiver, all };
    /// Seals segments and hands them to MPI. Returns MPI's code, or the error of sealing: after one, the same each
    /// time, as what was not handed over never comes.
    Result<int> send(Amount amount);
    bool all_sent() const { return next_ == segments_.count(); }

    void announced(InTransit announcement) { announcement_ = std::move(announcement); }
    /// Before a message in synchronous mode is announced. Returns MPI's code.
    int send_hint(const std::uint8_t* announcement) { return comm::send_hint(transport_, to_, announcement, hint_); }

    /// Looks what MPI is done with.
    void advance();
    /// The hint is not waited for: no receiver who has the announcement need look for it. It is then left with MPI.
    bool done() const { return all_sent() && travelling_.empty() && announcement_.request == MPI_REQUEST_NULL; }
    /// May the send end? At the latest when no receiver has taken a segment for longer than the plan is patient; not
    /// before the announcement has gone: that of a synchronous send has then been received.
    bool may_end() {
        return done() || (all_sent() && announcement_.request == MPI_REQUEST_NULL && times_out_of_patience() != 0);
    }

private:
    struct Travelling : InTransit {
        Travelling() = default;
        Travelling(LeftWithMpi& left, engine::Buffer memory, std::uint32_t asks)
            : InTransit(left, Transfer::send, std::move(memory)), asked(asks) {}
        std::uint32_t asked = 0;  // how many the receiver has asked for when MPI is done with this one; 0: unknown
    };
    SegmentTransport transport_;
    seal::Segments segments_;
    const engine::Plan& plan_;
    int to_;
    std::size_t& unasked_;  // of all messages to this rank
    InTransit announcement_;
    InTransit hint_;
    /// How often the plan's patience has run out since a receiver took a segment. Counts from the first time it is
    /// asked: while the program computes, nobody waits for the receiver.
    std::uint32_t times_out_of_patience();
    bool may_send_rest(Amount amount);
    bool has_room(std::uint32_t position, std::size_t bytes) const;
    std::uint32_t next_chunk() const;
    Result<int> send_more(Amount amount);
    Result<int> send_chunk(std::uint32_t count);
    Result<int> send_rest();
    Result<void> seal(std::uint32_t position, std::uint8_t* wire, std::size_t thread, const Scratch& scratch) const;
    int hand_over(Travelling one, int tag);
    void was_asked_for(std::uint32_t count);

    Place place_;
    std::uint32_t next_ = 0;
    std::uint32_t handed_ = 0;  // segments to MPI, or the rest, which is one
    std::uint32_t asked_ = 0;   // of these, how many the receiver is known to have asked for
    std::deque<Travelling> travelling_;
    std::uint32_t telling_ = 0;  // those of them that tell what was asked for
    std::optional<std::chrono::steady_clock::time_point> waits_since_;
    Result<int> result_ = MPI_SUCCESS;
};

/// The segments of one message on their way from a rank.
class Incoming {
public:
    /// To `place`; nowhere: they are taken from MPI and thrown away.
    Incoming(const SegmentTransport& transport, seal::Segments segments, int world_rank, Place place);
    ~Incoming();
    Incoming(const Incoming&) = delete;
    Incoming& operator=(const Incoming&) = delete;

    std::size_t length() const { return segments_.announcement().length; }
    /// Opens what has come. True if the message is there whole.
    bool advance();
    /// Why it will not be: the message is not what its sender sent. Nothing of it is left in the buffer, and what still
    /// comes is thrown away.
    const std::optional<Error>& failure() const { return failure_; }
    /// All of the message, where MPI has to spread it.
    const engine::Buffer& packed() const { return place_.packed; }

private:
    /// A segment that MPI is done with.
    struct Came {
        InTransit travelled;  // nothing, of one that came with the rest
        const std::uint8_t* at;
        std::size_t size;
        Result<void> opened = {};
    };
    void receive_what_has_room();
    void receive_next();
    std::uint32_t taken() const { return opened_ + static_cast<std::uint32_t>(came_.size()); }
    bool take_next();
    bool take_from_rest();
    bool may_receive_rest() const;
    void look_for_rest();
    void receive_rest(MPI_Message& message, std::size_t size);
    void receive_no_more_than(std::uint32_t count);
    void open_all();
    Result<void> open(std::uint32_t position, const Came& one, std::size_t thread, const Scratch& scratch) const;
    void fail(Error error);

    SegmentTransport transport_;
    seal::Segments segments_;
    const engine::Plan& plan_;
    int from_;
    std::size_t& rests_;  // of all messages from this rank
    Place place_;
    std::uint32_t posted_ = 0;
    std::uint32_t opened_ = 0;
    std::deque<InTransit> travelling_;
    std::vector<Came> came_;  // not opened yet
    std::uint32_t alone_;     // segments that come one by one; the others come with the rest
    InTransit rest_;
    std::uint32_t in_vain_ = 0;  // attempts
    std::optional<Error> failure_;
};

}  // namespace cryptmpi::comm
