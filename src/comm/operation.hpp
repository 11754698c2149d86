// Requests that carry sealed messages: MPI's own request handle is the user's, and leads to what is ours of it.
#pragma once

#include <mpi.h>
#include <tsl/robin_map.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "comm/buffer.hpp"
#include "comm/communicator.hpp"
#include "comm/large.hpp"

namespace cryptmpi::comm {

/// A send or receive that MPI works on with a buffer of ours.
struct Operation {
    enum class Kind : std::uint8_t { send, receive, construct };
    enum class State : std::uint8_t {
        inactive,  // a persistent one between its starts
        active,
        finished,  // its result is in `status` and `result`; MPI's request still lives (Request_get_status)
    };
    enum class Completion : std::uint8_t {
        with_mpi,   // when MPI is done with the request
        after_mpi,  // the message may be large, and what MPI has is its announcement: complete when `finished`
        of_token,   // MPI has no request that stands for it: the user's is a generalized one of ours
    };

    Kind kind = Kind::send;
    State state = State::active;
    Completion completion = Completion::with_mpi;
    bool persistent = false;
    bool buffered_mode = false;     // a persistent send by Bsend_init
    bool synchronous_mode = false;  // one by Ssend_init
    std::shared_ptr<Communicator> communicator;
    engine::Buffer wire;  // what travels
    UserBuffer user;      // persistent sends and receives: where the user's bytes are
    int peer = 0;         // send: to; receive: from, or MPI_ANY_SOURCE
    int tag = 0;
    Posted posted;                        // an active receive
    std::unique_ptr<InTransit> stand_in;  // a persistent receive of what a probe took out of MPI's queue
    MPI_Status status = {};
    int result = MPI_SUCCESS;
    bool error_is_mpis = false;          // MPI found it, and tells the error handler itself
    std::function<void()> at_end;        // construct: the new communicator's handle is there
    std::size_t buffered = 0;            // bytes of the user's attached buffer that it stands for
    std::unique_ptr<Outgoing> outgoing;  // the segments of a large message
    std::unique_ptr<Incoming> incoming;

    bool is_active() const { return state != State::inactive; }
    bool is_finished() const { return state == State::finished; }
    /// MPI may be done with its request, but the operation is not.
    bool is_unfinished() const { return state == State::active && completion != Completion::with_mpi; }
};

/// Our operations by MPI's handle. MPI gives a handle again only after its request ended.
class Requests {
public:
    bool empty() const { return operations_.empty(); }
    Operation* find(MPI_Request request) {
        if (operations_.empty()) return nullptr;
        const auto found = operations_.find(request);
        return found == operations_.end() ? nullptr : found->second.get();
    }
    void add(MPI_Request request, std::unique_ptr<Operation> operation) {
        if (operation->persistent) ++persistent_;
        operations_[request] = std::move(operation);
    }
    std::unique_ptr<Operation> take(MPI_Request request) {
        const auto found = operations_.find(request);
        if (found == operations_.end()) return nullptr;
        auto operation = std::move(found.value());
        operations_.erase(request);
        if (operation->persistent) --persistent_;
        return operation;
    }
    bool any_persistent() const { return persistent_ != 0; }

    /// Active operations that are large and not finished: they go on in every call that waits or tests.
    struct Unfinished {
        MPI_Request request;
        Operation* operation;
    };
    std::vector<Unfinished> unfinished;
    std::size_t next_unfinished = 0;  // from which on receives are looked at next, whose messages have not come

    /// Requests that the user has given up (Request_free, Bsend): ours until MPI is done with them.
    std::vector<MPI_Request> orphans;
    std::size_t next_orphan = 0;  // which is looked at next
    std::size_t attached = 0;     // size of the buffer that the user attached for buffered sends
    std::size_t buffered = 0;     // of that, taken by sends of ours that are on their way

private:
    /// Handles are addresses, or numbers that differ in a few bits only.
    struct Spread {
        std::size_t operator()(MPI_Request request) const {
            constexpr std::uint64_t kGolden = 0x9E3779B97F4A7C15;
            return static_cast<std::size_t>((std::uint64_t)request * kGolden >> 32);
        }
    };
    tsl::robin_map<MPI_Request, std::unique_ptr<Operation>, Spread> operations_;
    std::size_t persistent_ = 0;  // of them
};

}  // namespace cryptmpi::comm
