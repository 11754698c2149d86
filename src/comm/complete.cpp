#include "comm/complete.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>

#include "comm/calls.hpp"
#include "comm/in_transit.hpp"
#include "comm/quiet.hpp"
#include "comm/received.hpp"
#include "comm/waiting.hpp"

namespace cryptmpi::comm {
namespace {

int call_handler(Layer& layer, const Operation& operation, int code) {
    return raise_on_comm(layer, layer.living(operation.communicator), code);
}

bool is_truncation(Layer& layer, int code) {
    int error_class = MPI_SUCCESS;
    return layer.mpi.Error_class(code, &error_class) == MPI_SUCCESS && error_class == MPI_ERR_TRUNCATE;
}

/// Asks MPI for the status of a request that has yet to end. MPICH raises the error of a message that was cut off,
/// though on no communicator of its own, and once more when the request ends, on its own.
int ask_quietly(Layer& layer, MPI_Request request, int& done, MPI_Status* status) {
    std::optional<QuietElsewhere> quiet;
    if (!layer.threads()) quiet.emplace(layer.mpi);
    return layer.mpi.Request_get_status(request, &done, status);
}

/// Of a blocking receive, which is in no table.
int wait_for_segments(Layer& layer, Operation& operation, MPI_Status& status) {
    Attempts attempts;
    while (!operation.incoming->advance() && !operation.incoming->failure()) {
        progress(layer);
        attempts.failed();
    }
    return finish_incoming(layer, operation, status);
}

}  // namespace

bool was_told(Layer& layer, const Operation& operation) {
    return operation.error_is_mpis && forgets_told_errors(layer);
}

void put_back(Layer& layer, MPI_Request handle, std::unique_ptr<Operation> operation) {
    if (!operation->persistent) return;
    operation->state = Operation::State::inactive;
    layer.requests().add(handle, std::move(operation));
}

void keep_result(Operation& operation, const MPI_Status& status, int result) {
    operation.status = status;
    operation.result = result;
    operation.state = Operation::State::finished;
}

bool is_kept(Layer& layer, MPI_Request request, const Operation& operation, int code) {
    if (code == MPI_SUCCESS || request == MPI_REQUEST_NULL) return false;
    int done = 0;
    return !operation.persistent || (ask_quietly(layer, request, done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0);
}

int settle(Layer& layer, Operation& operation, MPI_Status& status, int code) {
    if (operation.is_finished()) {
        const int error = status.MPI_ERROR;
        status = operation.status;
        status.MPI_ERROR = error;
        return operation.result;
    }
    if (operation.kind == Operation::Kind::send) return code;
    if (operation.kind == Operation::Kind::construct) {
        if (code == MPI_SUCCESS) operation.at_end();
        return code;
    }
    if (code == MPI_SUCCESS) return finish_receive(layer, operation, status);
    operation.posted.withdraw();
    operation.error_is_mpis = true;
    const Communicator& communicator = *operation.communicator;
    if (is_truncation(layer, code) && communicator.has(status.MPI_SOURCE) && communicator.sealed(status.MPI_SOURCE)) {
        cut_off(layer, operation, status);
    }
    return code;
}

int conclude(Layer& layer, Operation& operation, MPI_Status& status, int code) {
    int result = settle(layer, operation, status, code);
    if (operation.incoming && !operation.is_finished()) result = wait_for_segments(layer, operation, status);
    const bool is_new = result != MPI_SUCCESS && code == MPI_SUCCESS && !was_told(layer, operation);
    return is_new ? call_handler(layer, operation, result) : result;
}

int conclude_held(Layer& layer, Operation& operation, std::unique_ptr<Held> held, MPI_Status& status) {
    int result = deliver_held(layer, operation, std::move(held), status);
    if (operation.incoming) result = wait_for_segments(layer, operation, status);
    return result != MPI_SUCCESS ? call_handler(layer, operation, result) : result;
}

namespace {

/// MPI's code, or that of a segment which could not be sealed.
int send_more(Layer& layer, const Operation& operation, Outgoing::Amount amount) {
    auto sent = operation.outgoing->send(amount);
    if (sent) return *sent;
    return layer.integrity_error(fmt::format("a message to rank {}: {}", operation.peer, sent.error().line));
}

/// Asks MPI whether the message of a receive has come, of which the operation then has the status. MPI's code.
int ask_for_message(Layer& layer, MPI_Request request, Operation& operation, int& done) {
    const auto& mpi = layer.mpi;
    if (operation.stand_in) return mpi.Test(&operation.stand_in->request, &done, &operation.status);
    // Only what comes as it is can be longer than the room for it, which may then be of any source.
    return operation.peer == MPI_ANY_SOURCE ? ask_quietly(layer, request, done, &operation.status)
                                            : mpi.Request_get_status(request, &done, &operation.status);
}

/// It has, or MPI failed with `code`. What came to another request is in that one's memory; MPI's persistent request
/// goes on with its own.
int settle_message(Layer& layer, Operation& operation, int code) {
    const std::unique_ptr<InTransit> stand_in = std::move(operation.stand_in);
    if (stand_in) std::swap(operation.wire, stand_in->wire);
    const int result = settle(layer, operation, operation.status, code);
    if (stand_in) std::swap(operation.wire, stand_in->wire);
    return result;
}

/// What has to happen for one operation to go on.
void advance(Layer& layer, MPI_Request request, Operation& operation) {
    const auto& mpi = layer.mpi;
    const bool is_token = operation.completion == Operation::Completion::of_token;
    int native = 1;
    if (operation.kind == Operation::Kind::send) {
        Outgoing& outgoing = *operation.outgoing;
        outgoing.advance();
        using Amount = Outgoing::Amount;
        const int sent = send_more(layer, operation, Amount::without_receiver);
        if (!is_token && mpi.Request_get_status(request, &native, MPI_STATUS_IGNORE) != MPI_SUCCESS) native = 1;
        if (sent == MPI_SUCCESS && (native == 0 || !outgoing.may_end())) return;
        // Of a message that failed, nobody waits for what MPI has of it.
        const bool goes_on = sent == MPI_SUCCESS && !outgoing.done();
        if (goes_on) layer.leftovers().outgoing.push_back(std::move(operation.outgoing));
        operation.outgoing.reset();
        operation.result = sent;
    } else {
        if (!operation.incoming) {
            const int code = ask_for_message(layer, request, operation, native);
            if (code == MPI_SUCCESS && native == 0) return;
            operation.result = settle_message(layer, operation, code);
        }
        if (operation.incoming) {
            if (!operation.incoming->advance() && !operation.incoming->failure()) return;
            operation.result = finish_incoming(layer, operation, operation.status);
        }
    }
    operation.state = Operation::State::finished;
    if (is_token) mpi.Grequest_complete(request);
}

}  // namespace

namespace {

/// A receive of which nothing has come, as far as we know: only MPI can tell.
bool is_quiet(const Operation& operation) {
    return operation.kind == Operation::Kind::receive && !operation.incoming && !operation.is_finished();
}

/// Lets the one at this place go on. False: it has finished, and another one is there now. That is done at once: an
/// error handler of the program's, which MPI may call while the next one is looked at, may throw.
bool advance_at(Layer& layer, std::size_t place) {
    auto& unfinished = layer.requests().unfinished;
    const auto [request, operation] = unfinished[place];
    advance(layer, request, *operation);
    if (!operation->is_finished()) return true;
    unfinished[place] = unfinished.back();
    unfinished.pop_back();
    return false;
}

/// Of the quiet ones, those whose turn it is.
void advance_quiet(Layer& layer) {
    Requests& requests = layer.requests();
    std::size_t looks = 0;
    for (std::size_t steps = requests.unfinished.size(); steps > 0 && looks < kLooks; --steps) {
        if (requests.next_unfinished >= requests.unfinished.size()) requests.next_unfinished = 0;
        const std::size_t place = requests.next_unfinished;
        const bool quiet = is_quiet(*requests.unfinished[place].operation);
        if (quiet) ++looks;
        if (!quiet || advance_at(layer, place)) ++requests.next_unfinished;
    }
}

}  // namespace

void advance_named(Layer& layer, std::span<const MPI_Request> requests) {
    Requests& all = layer.requests();
    if (all.unfinished.size() <= kLooks || requests.size() > kLooks) return;
    for (const MPI_Request request : requests) {
        const Operation* const operation = all.find(request);
        if (!is_unfinished(operation) || !is_quiet(*operation)) continue;
        const auto found = std::find_if(all.unfinished.begin(), all.unfinished.end(),
                                        [&](const auto& one) { return one.operation == operation; });
        if (found != all.unfinished.end())
            (void)advance_at(layer, static_cast<std::size_t>(found - all.unfinished.begin()));
    }
}

void advance_all(Layer& layer) {
    auto& unfinished = layer.requests().unfinished;
    for (std::size_t i = 0; i < unfinished.size();) {
        if (is_quiet(*unfinished[i].operation) || advance_at(layer, i)) ++i;
    }
    advance_quiet(layer);
    layer.leftovers().outgoing.remove_if([](const auto& one) {
        one->advance();
        return one->done();
    });
    layer.leftovers().incoming.remove_if([](const auto& one) { return one->advance(); });
    if (!layer.left_with_mpi().empty()) layer.left_with_mpi().look();
}

void send_rest(Layer& layer) {
    layer.due_before_wait().clear();
    const auto guard = layer.guard();
    for (const auto& [request, operation] : layer.requests().unfinished) {
        if (!operation->outgoing) continue;
        // Who waits for the operation comes here again, and is told of what failed.
        [[maybe_unused]] const auto sent = operation->outgoing->send(Outgoing::Amount::all);
    }
}

void send_rest_before_waits(Layer& layer) {
    layer.due_before_wait().set(layer);
}

int wait_one(Layer& layer, MPI_Request* request, MPI_Status* status) {
    auto guard = layer.guard();
    const MPI_Request handle = *request;
    if (!may_block(layer)) {
        if (guard) guard.unlock();
        return repeat(layer, [&](int& done) { return Test(layer, request, &done, status); });
    }
    if (!is_active(layer.requests().find(handle))) {
        if (guard) guard.unlock();
        return layer.mpi.Wait(request, status);
    }
    auto operation = layer.requests().take(handle);
    if (guard) guard.unlock();
    MPI_Status own;
    MPI_Status& mine = status == MPI_STATUS_IGNORE ? own : *status;
    const int code = layer.mpi.Wait(request, &mine);
    if (layer.threads()) guard.lock();
    if (is_kept(layer, *request, *operation, code)) {
        layer.requests().add(handle, std::move(operation));
        return code;
    }
    const int result = conclude(layer, *operation, mine, code);
    put_back(layer, handle, std::move(operation));
    return result;
}

namespace {

bool has_ended(Layer& layer, MPI_Request& request, MPI_Status& status) {
    if (is_unfinished(layer.requests().find(request))) return false;
    int done = 0;
    return layer.mpi.Test(&request, &done, &status) != MPI_SUCCESS || done != 0;
}

/// What MPI has of an operation that ends earlier than MPI's request on it.
void leave_with_mpi(Layer& layer, Operation& operation, MPI_Request request) {
    const bool cancels = operation.kind == Operation::Kind::receive && !operation.posted.may_be_cancelled;
    layer.left_with_mpi().take(cancels ? Transfer::receive : Transfer::send, request, std::move(operation.wire));
}

/// The user has given it up, and MPI is done with it, or cannot say: `now` is then the request.
void end_orphan(Layer& layer, MPI_Request handle, MPI_Request now, MPI_Status& status) {
    auto operation = layer.requests().take(handle);
    if (!operation) return;
    if (!operation->persistent && now != MPI_REQUEST_NULL) {
        leave_with_mpi(layer, *operation, now);
        layer.requests().buffered -= operation->buffered;
        return;
    }
    // Nobody is left who could be told of an error, but what came must not stay unchecked in his buffer.
    [[maybe_unused]] const int result = settle(layer, *operation, status, MPI_SUCCESS);
    layer.requests().buffered -= operation->buffered;
    if (operation->persistent) {
        MPI_Request persistent = handle;
        layer.mpi.Request_free(&persistent);
    }
}

}  // namespace

namespace {

void look_at_orphans(Layer& layer, std::size_t most) {
    Requests& requests = layer.requests();
    auto& orphans = requests.orphans;
    for (std::size_t looks = std::min(most, orphans.size()); looks > 0; --looks) {
        if (requests.next_orphan >= orphans.size()) requests.next_orphan = 0;
        const MPI_Request handle = orphans[requests.next_orphan];
        MPI_Request now = handle;
        MPI_Status status;
        if (!has_ended(layer, now, status)) {
            ++requests.next_orphan;
            continue;
        }
        orphans[requests.next_orphan] = orphans.back();
        orphans.pop_back();
        end_orphan(layer, handle, now, status);
    }
}

}  // namespace

void collect_orphans(Layer& layer, Orphans which) {
    const auto& orphans = layer.requests().orphans;
    for (Attempts attempts;; attempts.failed()) {
        progress(layer);
        look_at_orphans(layer, which == Orphans::some ? kLooks : orphans.size());
        if (which != Orphans::until_none || orphans.empty()) return;
    }
}

void end_leftovers(Layer& layer) {
    const auto& leftovers = layer.leftovers();
    // What belongs to a message that failed may never come.
    const auto is_coming = [](const auto& one) { return !one->failure(); };
    Attempts attempts;
    while (!leftovers.outgoing.empty() ||
           std::any_of(leftovers.incoming.begin(), leftovers.incoming.end(), is_coming)) {
        progress(layer);
        attempts.failed();
    }
}

}  // namespace cryptmpi::comm
