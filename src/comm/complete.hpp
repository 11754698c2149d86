// The end of requests, whichever call of MPI's they end in (wait.cpp, request.cpp).
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>
#include <span>

#include "comm/attempts.hpp"
#include "comm/layer.hpp"

namespace cryptmpi::comm {

/// MPI is done with the operation, with `code`: its result for the user, in `status` and the value returned. No error
/// handler has been called for what we found.
int settle(Layer& layer, Operation& operation, MPI_Status& status, int code);

/// The same for a blocking call: calls the communicator's error handler where MPI has not.
int conclude(Layer& layer, Operation& operation, MPI_Status& status, int code);

/// Did the handler hear of the error when MPI, whose error it is, ended the request, though MPI calls that a success?
bool was_told(Layer& layer, const Operation& operation);

/// A message that we hold comes to a blocking receive: returns its error code, with the handler called.
int conclude_held(Layer& layer, Operation& operation, std::unique_ptr<Held> held, MPI_Status& status);

/// After its end, a persistent operation waits for its next start, and others are gone.
void put_back(Layer& layer, MPI_Request handle, std::unique_ptr<Operation> operation);

/// MPI keeps the request, though the operation is done: whoever asks for it again gets the same.
void keep_result(Operation& operation, const MPI_Status& status, int result);

/// Null: it is none of ours.
inline bool is_active(const Operation* operation) {
    return operation != nullptr && operation->is_active();
}
inline bool is_unfinished(const Operation* operation) {
    return operation != nullptr && operation->is_unfinished();
}

/// After an error: has MPI kept the request, and what it works on? It is the user's still, who may ask for it again.
bool is_kept(Layer& layer, MPI_Request request, const Operation& operation, int code);

/// MPI waits in a call of its own, in which nothing large goes on: only if there is nothing large.
inline bool may_block(Layer& layer) {
    return layer.requests().unfinished.empty();
}

/// How many requests a call asks MPI about that nobody named, and how many that it was given. Each question makes MPI's
/// own progress, with a call of the kernel: thousands of receives that wait would make every call as slow.
inline constexpr std::size_t kLooks = 8;

/// The rare part of progress(). Of receives whose messages have not come some are looked at, in turn.
void advance_all(Layer& layer);

/// Lets these go on that a call asks for, where they are few, though it is not their turn. After advance_all().
void advance_named(Layer& layer, std::span<const MPI_Request> requests);

/// Lets everything large go on that is not finished. Every call that waits or tests comes here.
inline void progress(Layer& layer) {
    if (layer.anything_goes_on()) [[unlikely]] {
        advance_all(layer);
    }
}

/// The same in a call that asks for these.
inline void progress(Layer& layer, std::span<const MPI_Request> named) {
    if (layer.anything_goes_on()) [[unlikely]] {
        advance_all(layer);
        advance_named(layer, named);
    }
}

/// There are segments that MPI has not got yet: it does before this process waits in a call of MPI's own.
void send_rest_before_waits(Layer& layer);

/// Calls a Test form, which says whether it is done, until it is. Among our threads, the lock has to change hands.
template <class Attempt>
int repeat(const Layer& layer, Attempt attempt) {
    for (Attempts attempts(layer.threads() ? 1 : Attempts::kEvery);; attempts.failed()) {
        int done = 0;
        const int code = attempt(done);
        if (done != 0 || code != MPI_SUCCESS) return code;
    }
}

/// Waits for one request, ours or MPI's.
int wait_one(Layer& layer, MPI_Request* request, MPI_Status* status);

/// Looks whether requests that the user has given up are done.
enum class Orphans {
    some,  // at some, in turn
    each,
    until_none,  // waits for them
};
void collect_orphans(Layer& layer, Orphans which);

/// Waits until the segments that were left to go on by themselves have arrived.
void end_leftovers(Layer& layer);

}  // namespace cryptmpi::comm
