#include "comm/complete.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "comm/calls.hpp"
#include "comm/in_transit.hpp"
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

/// After its end, a persistent operation waits for its next start, and others are gone.
void put_back(Layer& layer, MPI_Request handle, std::unique_ptr<Operation> operation) {
    if (!operation->persistent) return;
    operation->state = Operation::State::inactive;
    layer.requests().add(handle, std::move(operation));
}

bool is_active(const Operation* operation) {
    return operation != nullptr && operation->is_active();
}

bool is_unfinished(const Operation* operation) {
    return operation != nullptr && operation->is_unfinished();
}

template <class T>
bool is_missing(int count, const T* array) {
    return count > 0 && array == nullptr;
}

/// After an error: has MPI kept the request, and what it works on? It is the user's still, who may ask for it again.
bool is_kept(Layer& layer, MPI_Request request, const Operation& operation, int code) {
    if (code == MPI_SUCCESS || request == MPI_REQUEST_NULL) return false;
    int done = 0;
    return !operation.persistent ||
           (layer.mpi.Request_get_status(request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0);
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

/// MPI waits in a call of its own, in which nothing large goes on: only if there is nothing large.
bool may_block(Layer& layer) {
    return layer.requests().unfinished.empty();
}

/// Something of each request of a call. Programs ask for few requests in loops, in which malloc would take longer than
/// all the rest.
template <class T>
class Each {
public:
    explicit Each(int count) : size_(static_cast<std::size_t>(std::max(count, 0))) {
        if (size_ > few_.size()) many_ = std::make_unique<T[]>(size_);
    }
    std::size_t size() const { return size_; }
    T* data() { return many_ ? many_.get() : few_.data(); }
    const T* data() const { return many_ ? many_.get() : few_.data(); }
    const T& operator[](std::size_t i) const { return data()[i]; }

private:
    std::size_t size_;
    std::array<T, 64> few_;
    std::unique_ptr<T[]> many_;
};

/// The user's requests as they are: MPI makes MPI_REQUEST_NULL of those that it ends.
using Handles = Each<MPI_Request>;

Handles handles_of(int count, const MPI_Request* requests) {
    Handles handles(count);
    std::copy_n(requests, handles.size(), handles.data());
    return handles;
}

/// The first error among requests that ended together, and whose error handler hears of it.
struct Failure {
    int code = MPI_SUCCESS;
    MPI_Comm comm = MPI_COMM_WORLD;

    bool is_one() const { return code != MPI_SUCCESS; }
    void note(Layer& layer, const Operation& operation, int with) {
        if (!is_one()) *this = {with, layer.living(operation.communicator)};
    }
};

/// The requests of one call that are ours, out of the table while MPI works on them: another thread may get their
/// handles as soon as MPI gives them back.
class Taken {
public:
    Taken(Layer& layer, int count, const MPI_Request* requests) : layer_(layer) {
        if (count > 0 && !layer.requests().empty()) ours_.reserve(static_cast<std::size_t>(count));
        for (int i = 0; i < count; ++i) {
            if (is_active(layer.requests().find(requests[i]))) {
                ours_.push_back({i, requests[i], layer.requests().take(requests[i])});
            }
        }
    }
    bool none() const { return ours_.empty(); }

    /// MPI completed all of them. Returns the first error, each of which is in its status.
    Failure settle_all(const MPI_Request* requests, MPI_Status* statuses, bool in_status) {
        Failure first;
        for (One& one : ours_) {
            MPI_Status& status = statuses[one.index];
            const int native = in_status ? status.MPI_ERROR : MPI_SUCCESS;
            if (native == MPI_ERR_PENDING || is_kept(layer_, requests[one.index], *one.operation, native)) {
                layer_.requests().add(one.handle, std::move(one.operation));
                continue;
            }
            const int code = settle(layer_, *one.operation, status, native);
            if (code != MPI_SUCCESS) {
                first.note(layer_, *one.operation, code);
                status.MPI_ERROR = code;
                failed_.push_back(one.index);
            }
            put_back(layer_, one.handle, std::move(one.operation));
        }
        return first;
    }
    void put_all_back() {
        for (One& one : ours_) layer_.requests().add(one.handle, std::move(one.operation));
        ours_.clear();
    }
    bool has_failed(int index) const { return std::find(failed_.begin(), failed_.end(), index) != failed_.end(); }

private:
    struct One {
        int index;
        MPI_Request handle;
        std::unique_ptr<Operation> operation;
    };
    Layer& layer_;
    std::vector<One> ours_;
    std::vector<int> failed_;
};

/// The user's requests without those that are not finished, while MPI looks at them.
class Masked {
public:
    Masked(Layer& layer, int count, MPI_Request* requests)
        : requests_(requests), handles_(handles_of(count, requests)) {
        if (may_block(layer)) return;
        for (std::size_t i = 0; i < handles_.size(); ++i) {
            if (!is_unfinished(layer.requests().find(handles_[i]))) continue;
            masked_.push_back(i);
            requests_[i] = MPI_REQUEST_NULL;
        }
    }
    Masked(const Masked&) = delete;
    Masked& operator=(const Masked&) = delete;
    ~Masked() {
        for (const std::size_t i : masked_) requests_[i] = handles_[i];
    }
    const Handles& handles() const { return handles_; }
    bool any() const { return !masked_.empty(); }

private:
    MPI_Request* requests_;
    Handles handles_;
    std::vector<std::size_t> masked_;
};

/// A finished persistent one. MPI does not name it among others: it may have been done without MPI, and MPICH takes one
/// that Request_get_status has seen complete for inactive.
int find_finished(Layer& layer, const Handles& handles) {
    if (!layer.requests().any_persistent()) return MPI_UNDEFINED;
    for (std::size_t i = 0; i < handles.size(); ++i) {
        const Operation* operation = layer.requests().find(handles[i]);
        if (operation != nullptr && operation->persistent && operation->is_finished()) return static_cast<int>(i);
    }
    return MPI_UNDEFINED;
}

/// The user's array of statuses, or one of ours where he wants none.
class Statuses {
public:
    Statuses(int count, MPI_Status* users) : own_(users == MPI_STATUSES_IGNORE ? count : 0), users_(users) {
        std::fill_n(own_.data(), own_.size(), MPI_Status{});
    }
    MPI_Status* data() { return users_ == MPI_STATUSES_IGNORE ? own_.data() : users_; }

private:
    Each<MPI_Status> own_;
    MPI_Status* users_;
};

/// Of a call that completed `count` requests in `statuses`: MPI's code, or, where only ours failed, MPI_ERR_IN_STATUS.
int conclude_several(Layer& layer, Taken& taken, int count, const MPI_Request* requests, MPI_Status* statuses,
                     int code) {
    const bool in_status = code == MPI_ERR_IN_STATUS;
    if (code != MPI_SUCCESS && !in_status) {
        taken.put_all_back();
        return code;
    }
    const Failure first = taken.settle_all(requests, statuses, in_status);
    if (!first.is_one() || in_status) return code;
    for (int i = 0; i < count; ++i) {
        if (!taken.has_failed(i)) statuses[i].MPI_ERROR = MPI_SUCCESS;
    }
    return raise_in_status(layer, first.comm, first.code);
}

/// A request ended, or MPI could not say so: `handle` before, `now` after MPI looked at it.
int conclude_one(Layer& layer, MPI_Request handle, MPI_Request now, MPI_Status& status, int code) {
    Operation* found = layer.requests().find(handle);
    if (!is_active(found) || is_kept(layer, now, *found, code)) return code;
    auto operation = layer.requests().take(handle);
    const int result = conclude(layer, *operation, status, code);
    put_back(layer, handle, std::move(operation));
    return result;
}

}  // namespace

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
    const Communicator& communicator = *operation.communicator;
    if (is_truncation(layer, code) && communicator.has(status.MPI_SOURCE) && communicator.sealed(status.MPI_SOURCE)) {
        cut_off(layer, operation, status);
    }
    return code;
}

int conclude(Layer& layer, Operation& operation, MPI_Status& status, int code) {
    int result = settle(layer, operation, status, code);
    if (operation.incoming && !operation.is_finished()) result = wait_for_segments(layer, operation, status);
    return result != MPI_SUCCESS && code == MPI_SUCCESS ? call_handler(layer, operation, result) : result;
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
    return layer.integrity_error("a message to rank " + std::to_string(operation.peer) + ": " + sent.error().line);
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
            const int code = mpi.Request_get_status(request, &native, &operation.status);
            if (code == MPI_SUCCESS && native == 0) return;
            operation.result = settle(layer, operation, operation.status, code);
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

void advance_all(Layer& layer) {
    auto& unfinished = layer.requests().unfinished;
    for (std::size_t i = 0; i < unfinished.size();) {
        const auto [request, operation] = unfinished[i];
        advance(layer, request, *operation);
        if (!operation->is_finished()) {
            ++i;
            continue;
        }
        unfinished[i] = unfinished.back();
        unfinished.pop_back();
    }
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

void collect_orphans(Layer& layer, bool all) {
    auto& orphans = layer.requests().orphans;
    for (Attempts attempts;; attempts.failed()) {
        progress(layer);
        std::size_t kept = 0;
        for (MPI_Request& orphan : orphans) {
            const MPI_Request handle = orphan;
            MPI_Status status;
            if (has_ended(layer, orphan, status)) {
                end_orphan(layer, handle, orphan, status);
            } else {
                orphans[kept++] = handle;
            }
        }
        orphans.resize(kept);
        if (!all || kept == 0) return;
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

// What MPI would say of arrays and addresses that are not there, it says itself.

int Wait(Layer& layer, MPI_Request* request, MPI_Status* status) {
    if (request == nullptr) return layer.mpi.Wait(request, status);
    return wait_one(layer, request, status);
}

int Test(Layer& layer, MPI_Request* request, int* flag, MPI_Status* status) {
    if (request == nullptr || flag == nullptr) return layer.mpi.Test(request, flag, status);
    const auto guard = layer.guard();
    const MPI_Request handle = *request;
    progress(layer);
    const Operation* operation = layer.requests().find(handle);
    if (is_unfinished(operation)) {
        *flag = 0;
        return MPI_SUCCESS;
    }
    if (!is_active(operation)) return layer.mpi.Test(request, flag, status);
    MPI_Status own;
    MPI_Status& mine = status == MPI_STATUS_IGNORE ? own : *status;
    const int code = layer.mpi.Test(request, flag, &mine);
    return code == MPI_SUCCESS && *flag == 0 ? code : conclude_one(layer, handle, *request, mine, code);
}

int Waitall(Layer& layer, int count, MPI_Request* requests, MPI_Status* statuses) {
    if (is_missing(count, requests)) return layer.mpi.Waitall(count, requests, statuses);
    auto guard = layer.guard();
    if (!may_block(layer)) {
        if (guard) guard.unlock();
        return repeat(layer, [&](int& done) { return Testall(layer, count, requests, &done, statuses); });
    }
    Taken taken(layer, count, requests);
    if (guard) guard.unlock();
    if (taken.none()) return layer.mpi.Waitall(count, requests, statuses);
    Statuses mine(count, statuses);
    const int code = layer.mpi.Waitall(count, requests, mine.data());
    if (layer.threads()) guard.lock();
    return conclude_several(layer, taken, count, requests, mine.data(), code);
}

int Testall(Layer& layer, int count, MPI_Request* requests, int* flag, MPI_Status* statuses) {
    if (is_missing(count, requests) || flag == nullptr) return layer.mpi.Testall(count, requests, flag, statuses);
    const auto guard = layer.guard();
    progress(layer);
    const std::span<MPI_Request> all(requests, static_cast<std::size_t>(std::max(count, 0)));
    const auto has = [&](bool (*what)(const Operation*)) {
        return std::any_of(all.begin(), all.end(),
                           [&](MPI_Request request) { return what(layer.requests().find(request)); });
    };
    if (!may_block(layer) && has(is_unfinished)) {
        *flag = 0;
        return MPI_SUCCESS;
    }
    if (layer.requests().empty() || !has(is_active)) return layer.mpi.Testall(count, requests, flag, statuses);
    const Handles handles = handles_of(count, requests);
    Statuses mine(count, statuses);
    // Where one of several fails, MPICH's Testall says nothing of those that are no requests.
    for (int i = 0; i < count; ++i) {
        if (requests[i] == MPI_REQUEST_NULL) mine.data()[i].MPI_ERROR = MPI_SUCCESS;
    }
    const int code = layer.mpi.Testall(count, requests, flag, mine.data());
    if (*flag == 0 && code == MPI_SUCCESS) return code;
    Taken taken(layer, count, handles.data());
    return conclude_several(layer, taken, count, requests, mine.data(), code);
}

int Testany(Layer& layer, int count, MPI_Request* requests, int* index, int* flag, MPI_Status* status) {
    if (is_missing(count, requests) || index == nullptr || flag == nullptr) {
        return layer.mpi.Testany(count, requests, index, flag, status);
    }
    const auto guard = layer.guard();
    if (layer.requests().empty()) return layer.mpi.Testany(count, requests, index, flag, status);
    progress(layer);
    const Masked masked(layer, count, requests);
    const auto& handles = masked.handles();
    MPI_Status own;
    MPI_Status& mine = status == MPI_STATUS_IGNORE ? own : *status;
    *index = find_finished(layer, handles);
    if (*index != MPI_UNDEFINED) {
        *flag = 1;
        layer.mpi.Wait(&requests[*index], &mine);
        return conclude_one(layer, handles[static_cast<std::size_t>(*index)], requests[*index], mine, MPI_SUCCESS);
    }
    const int code = layer.mpi.Testany(count, requests, index, flag, &mine);
    if (*flag != 0 && *index == MPI_UNDEFINED && masked.any()) *flag = 0;
    if (*flag == 0 || *index == MPI_UNDEFINED) return code;
    return conclude_one(layer, handles[static_cast<std::size_t>(*index)], requests[*index], mine, code);
}

int Waitany(Layer& layer, int count, MPI_Request* requests, int* index, MPI_Status* status) {
    if (is_missing(count, requests) || index == nullptr) return layer.mpi.Waitany(count, requests, index, status);
    auto guard = layer.guard();
    if (layer.requests().empty()) {
        if (guard) guard.unlock();
        return layer.mpi.Waitany(count, requests, index, status);
    }
    const Handles handles = handles_of(count, requests);
    if (layer.threads() || !may_block(layer) || find_finished(layer, handles) != MPI_UNDEFINED) {
        if (guard) guard.unlock();
        return repeat(layer, [&](int& done) { return Testany(layer, count, requests, index, &done, status); });
    }
    MPI_Status own;
    MPI_Status& mine = status == MPI_STATUS_IGNORE ? own : *status;
    *index = MPI_UNDEFINED;  // an MPI that fails before it has looked at anything leaves it as it is
    const int code = layer.mpi.Waitany(count, requests, index, &mine);
    if (*index == MPI_UNDEFINED) return code;
    return conclude_one(layer, handles[static_cast<std::size_t>(*index)], requests[*index], mine, code);
}

namespace {

/// Waitsome or Testsome, after MPI.
int conclude_some(Layer& layer, const Handles& handles, const MPI_Request* requests, int done, const int* indices,
                  MPI_Status* statuses, int code) {
    if (done == MPI_UNDEFINED || (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS)) return code;
    Failure first;
    for (int i = 0; i < done; ++i) {
        const MPI_Request handle = handles[static_cast<std::size_t>(indices[i])];
        MPI_Status& status = statuses[i];
        int result = code == MPI_ERR_IN_STATUS ? status.MPI_ERROR : MPI_SUCCESS;
        const Operation* found = layer.requests().find(handle);
        if (is_active(found) && !is_kept(layer, requests[indices[i]], *found, result)) {
            auto operation = layer.requests().take(handle);
            result = settle(layer, *operation, status, result);
            if (result != MPI_SUCCESS && code == MPI_SUCCESS) {
                if (!first.is_one()) std::for_each_n(statuses, done, [](auto& one) { one.MPI_ERROR = MPI_SUCCESS; });
                first.note(layer, *operation, result);
            }
            put_back(layer, handle, std::move(operation));
        }
        if (result != MPI_SUCCESS) status.MPI_ERROR = result;
    }
    return first.is_one() ? raise_in_status(layer, first.comm, first.code) : code;
}

}  // namespace

int Testsome(Layer& layer, int count, MPI_Request* requests, int* done, int* indices, MPI_Status* statuses) {
    if (is_missing(count, requests) || done == nullptr || is_missing(count, indices)) {
        return layer.mpi.Testsome(count, requests, done, indices, statuses);
    }
    const auto guard = layer.guard();
    if (layer.requests().empty()) return layer.mpi.Testsome(count, requests, done, indices, statuses);
    progress(layer);
    const Masked masked(layer, count, requests);
    Statuses mine(count, statuses);
    const int finished = find_finished(layer, masked.handles());
    if (finished != MPI_UNDEFINED) {
        *done = 1;
        indices[0] = finished;
        layer.mpi.Wait(&requests[finished], mine.data());
        return conclude_some(layer, masked.handles(), requests, 1, indices, mine.data(), MPI_SUCCESS);
    }
    const int code = layer.mpi.Testsome(count, requests, done, indices, mine.data());
    if (*done == MPI_UNDEFINED && masked.any()) *done = 0;
    return conclude_some(layer, masked.handles(), requests, *done, indices, mine.data(), code);
}

int Waitsome(Layer& layer, int count, MPI_Request* requests, int* done, int* indices, MPI_Status* statuses) {
    if (is_missing(count, requests) || done == nullptr || is_missing(count, indices)) {
        return layer.mpi.Waitsome(count, requests, done, indices, statuses);
    }
    auto guard = layer.guard();
    if (layer.requests().empty()) {
        if (guard) guard.unlock();
        return layer.mpi.Waitsome(count, requests, done, indices, statuses);
    }
    const Handles handles = handles_of(count, requests);
    if (layer.threads() || !may_block(layer) || find_finished(layer, handles) != MPI_UNDEFINED) {
        if (guard) guard.unlock();
        return repeat(layer, [&](int& some) {
            const int code = Testsome(layer, count, requests, done, indices, statuses);
            some = *done;
            return code;
        });
    }
    Statuses mine(count, statuses);
    const int code = layer.mpi.Waitsome(count, requests, done, indices, mine.data());
    return conclude_some(layer, handles, requests, *done, indices, mine.data(), code);
}

int Request_get_status(Layer& layer, MPI_Request request, int* flag, MPI_Status* status) {
    if (flag == nullptr) return layer.mpi.Request_get_status(request, flag, status);
    const auto guard = layer.guard();
    progress(layer);
    Operation* operation = layer.requests().find(request);
    if (!is_active(operation)) return layer.mpi.Request_get_status(request, flag, status);
    if (is_unfinished(operation)) {
        *flag = 0;
        return MPI_SUCCESS;
    }
    if (!operation->is_finished()) {
        const int code = layer.mpi.Request_get_status(request, flag, &operation->status);
        if (code != MPI_SUCCESS || *flag == 0) return code;
        operation->result = settle(layer, *operation, operation->status, MPI_SUCCESS);
        operation->state = Operation::State::finished;
    }
    *flag = 1;
    if (status != MPI_STATUS_IGNORE) {
        const int error = status->MPI_ERROR;
        *status = operation->status;
        status->MPI_ERROR = error;
    }
    return MPI_SUCCESS;
}

namespace {

/// Of the requests of a call that asks for all, any or some: the active ones that are ours, after some progress, and
/// the array as MPI may look at it. Only MPI knows which of the others are inactive.
class ByOwner {
public:
    ByOwner(Layer& layer, int count, const MPI_Request* requests) : others_(requests, requests + std::max(count, 0)) {
        const auto guard = layer.guard();
        progress(layer);
        for (int i = 0; i < count; ++i) {
            if (!is_active(layer.requests().find(requests[i]))) continue;
            ours_.push_back(i);
            others_[static_cast<std::size_t>(i)] = MPI_REQUEST_NULL;
        }
    }
    const std::vector<int>& ours() const { return ours_; }
    const MPI_Request* others() const { return others_.data(); }

private:
    std::vector<int> ours_;
    std::vector<MPI_Request> others_;
};

MPI_Status* at(MPI_Status* statuses, int i) {
    return statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : statuses + i;
}

}  // namespace

int Request_get_status_all(Layer& layer, int count, const MPI_Request requests[], int* flag, MPI_Status* statuses) {
    const ByOwner by_owner(layer, count, requests);
    const int code = layer.mpi.Request_get_status_all(count, by_owner.others(), flag, statuses);
    if (code != MPI_SUCCESS) return code;
    for (const int i : by_owner.ours()) {
        if (*flag == 0) break;
        const int ours = Request_get_status(layer, requests[i], flag, at(statuses, i));
        if (ours != MPI_SUCCESS) return ours;
    }
    return MPI_SUCCESS;
}

int Request_get_status_any(Layer& layer, int count, const MPI_Request requests[], int* index, int* flag,
                           MPI_Status* status) {
    const ByOwner by_owner(layer, count, requests);
    for (const int i : by_owner.ours()) {
        const int code = Request_get_status(layer, requests[i], flag, status);
        if (code == MPI_SUCCESS && *flag == 0) continue;
        *index = i;
        return code;
    }
    const int code = layer.mpi.Request_get_status_any(count, by_owner.others(), index, flag, status);
    if (*index == MPI_UNDEFINED && !by_owner.ours().empty()) *flag = 0;  // MPI has no active one, we have
    return code;
}

int Request_get_status_some(Layer& layer, int count, const MPI_Request requests[], int* done, int* indices,
                            MPI_Status* statuses) {
    const ByOwner by_owner(layer, count, requests);
    int of_mpi = 0;
    const int code = layer.mpi.Request_get_status_some(count, by_owner.others(), &of_mpi, indices, statuses);
    *done = of_mpi;
    if (code != MPI_SUCCESS || by_owner.ours().empty()) return code;
    *done = std::max(of_mpi, 0);  // MPI_UNDEFINED, where MPI has no active one
    for (const int i : by_owner.ours()) {
        int flag = 0;
        const int ours = Request_get_status(layer, requests[i], &flag, at(statuses, *done));
        if (ours != MPI_SUCCESS) return ours;
        if (flag != 0) indices[(*done)++] = i;
    }
    return MPI_SUCCESS;
}

int Request_free(Layer& layer, MPI_Request* request) {
    if (request == nullptr) return layer.mpi.Request_free(request);
    const auto guard = layer.guard();
    Operation* operation = layer.requests().find(*request);
    if (operation == nullptr) return layer.mpi.Request_free(request);
    if (!operation->is_active()) {
        const auto gone = layer.requests().take(*request);
        return layer.mpi.Request_free(request);
    }
    // What comes to a receive is opened while other calls wait or test, as MPI brings it then.
    if (operation->kind == Operation::Kind::receive && operation->completion == Operation::Completion::with_mpi &&
        !operation->is_finished()) {
        operation->completion = Operation::Completion::after_mpi;
        layer.requests().unfinished.push_back({*request, operation});
    }
    layer.requests().orphans.push_back(*request);
    *request = MPI_REQUEST_NULL;
    collect_orphans(layer, false);
    return MPI_SUCCESS;
}

namespace {

bool cannot_be_cancelled(const Operation& operation) {
    // A send that is cancelled leaves a hole in its lane, which the receiver must take for an attack. MPI lets a cancel
    // come too late.
    if (operation.kind == Operation::Kind::send || operation.is_finished()) return true;
    // Nor can a message be sent back whose announcement was received.
    return operation.completion == Operation::Completion::of_token || operation.incoming;
}

}  // namespace

int Cancel(Layer& layer, MPI_Request* request) {
    if (request == nullptr) return layer.mpi.Cancel(request);
    const auto guard = layer.guard();
    Operation* operation = layer.requests().find(*request);
    if (operation != nullptr && cannot_be_cancelled(*operation)) return MPI_SUCCESS;
    if (operation != nullptr) operation->posted.may_be_cancelled = true;
    return layer.mpi.Cancel(request);
}

}  // namespace cryptmpi::comm
