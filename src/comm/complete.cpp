#include "comm/complete.hpp"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "comm/calls.hpp"
#include "comm/point.hpp"

namespace cryptmpi::comm {
namespace {

int call_handler(Layer& layer, const Operation& operation, int code) {
    const MPI_Comm handle = operation.communicator ? operation.communicator->handle() : MPI_COMM_WORLD;
    // The user may have freed it while the operation was on its way.
    const bool lives = !operation.communicator || layer.share(handle) == operation.communicator;
    layer.mpi.Comm_call_errhandler(lives ? handle : MPI_COMM_WORLD, code);
    return code;
}

bool is_truncation(Layer& layer, int code) {
    int error_class = MPI_SUCCESS;
    return layer.mpi.Error_class(code, &error_class) == MPI_SUCCESS && error_class == MPI_ERR_TRUNCATE;
}

/// After its end, a persistent operation waits for its next start, and others are gone.
void put_back(Layer& layer, MPI_Request handle, std::unique_ptr<Operation> operation) {
    if (!operation->persistent) return;
    operation->active = false;
    operation->finished = false;
    layer.requests().add(handle, std::move(operation));
}

bool is_active(const Operation* operation) {
    return operation != nullptr && operation->active;
}

/// The requests of one call that are ours, out of the table while MPI works on them: another thread may get their
/// handles as soon as MPI gives them back.
class Taken {
public:
    Taken(Layer& layer, int count, const MPI_Request* requests) : layer_(layer) {
        for (int i = 0; i < count; ++i) {
            if (is_active(layer.requests().find(requests[i]))) {
                ours_.push_back({i, requests[i], layer.requests().take(requests[i])});
            }
        }
    }
    bool none() const { return ours_.empty(); }

    /// MPI completed all of them. Returns whether one of them failed, then in its status.
    bool settle_all(MPI_Status* statuses, bool in_status) {
        bool failed = false;
        for (One& one : ours_) {
            MPI_Status& status = statuses[one.index];
            const int native = in_status ? status.MPI_ERROR : MPI_SUCCESS;
            if (native == MPI_ERR_PENDING) {
                layer_.requests().add(one.handle, std::move(one.operation));
                continue;
            }
            const int code = settle(layer_, *one.operation, status, native);
            if (code != MPI_SUCCESS) {
                failed = true;
                status.MPI_ERROR = code;
                failed_.push_back(one.index);
            }
            put_back(layer_, one.handle, std::move(one.operation));
        }
        return failed;
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

/// The user's array of statuses, or one of ours where he wants none.
class Statuses {
public:
    Statuses(int count, MPI_Status* users) : at_(users) {
        if (users == MPI_STATUSES_IGNORE) {
            own_.resize(static_cast<std::size_t>(std::max(count, 1)));
            at_ = own_.data();
        }
    }
    MPI_Status* data() { return at_; }

private:
    std::vector<MPI_Status> own_;
    MPI_Status* at_;
};

/// Of a call that completed `count` requests in `statuses`: MPI's code, or, where only ours failed, MPI_ERR_IN_STATUS.
int conclude_several(Layer& layer, Taken& taken, int count, MPI_Status* statuses, int code) {
    const bool in_status = code == MPI_ERR_IN_STATUS;
    if (code != MPI_SUCCESS && !in_status) {
        taken.put_all_back();
        return code;
    }
    if (!taken.settle_all(statuses, in_status)) return code;
    if (in_status) return code;
    for (int i = 0; i < count; ++i) {
        if (!taken.has_failed(i)) statuses[i].MPI_ERROR = MPI_SUCCESS;
    }
    layer.mpi.Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_IN_STATUS);
    return MPI_ERR_IN_STATUS;
}

/// One of several requests ended, at `handle` before.
int conclude_one(Layer& layer, MPI_Request handle, MPI_Status& status, int code) {
    Operation* found = layer.requests().find(handle);
    if (!is_active(found)) return code;
    auto operation = layer.requests().take(handle);
    const int result = conclude(layer, *operation, status, code);
    put_back(layer, handle, std::move(operation));
    return result;
}

}  // namespace

int settle(Layer& layer, Operation& operation, MPI_Status& status, int code) {
    if (operation.finished) {
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
    operation.communicator->withdraw(operation.posted);
    operation.is_posted = false;
    if (is_truncation(layer, code) && may_be_sealed(*operation.communicator, status.MPI_SOURCE)) {
        operation.communicator->came_truncated(status.MPI_SOURCE, status.MPI_TAG);
        set_size(layer.mpi, status, operation.user.size());
    }
    return code;
}

int conclude(Layer& layer, Operation& operation, MPI_Status& status, int code) {
    const int result = settle(layer, operation, status, code);
    return result != MPI_SUCCESS && code == MPI_SUCCESS ? call_handler(layer, operation, result) : result;
}

int wait_one(Layer& layer, MPI_Request* request, MPI_Status* status) {
    auto guard = layer.guard();
    const MPI_Request handle = *request;
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
    const int result = conclude(layer, *operation, mine, code);
    put_back(layer, handle, std::move(operation));
    return result;
}

void collect_orphans(Layer& layer, bool all) {
    auto& orphans = layer.requests().orphans;
    std::size_t kept = 0;
    for (MPI_Request& orphan : orphans) {
        const MPI_Request handle = orphan;
        MPI_Status status;
        int done = 0;
        do {
            if (layer.mpi.Test(&orphan, &done, &status) != MPI_SUCCESS) done = 1;
            if (done == 0 && all) sched_yield();
        } while (done == 0 && all);
        if (done == 0) {
            orphans[kept++] = handle;
            continue;
        }
        auto operation = layer.requests().take(handle);
        if (!operation) continue;
        // Nobody is left who could be told of an error, but what came must not stay unchecked in his buffer.
        [[maybe_unused]] const int result = settle(layer, *operation, status, MPI_SUCCESS);
        layer.requests().buffered -= operation->buffered;
        if (operation->persistent) {
            MPI_Request persistent = handle;
            layer.mpi.Request_free(&persistent);
        }
    }
    orphans.resize(kept);
}

int Wait(MPI_Request* request, MPI_Status* status) {
    return wait_one(Layer::get(), request, status);
}

int Test(MPI_Request* request, int* flag, MPI_Status* status) {
    Layer& layer = Layer::get();
    const auto guard = layer.guard();
    const MPI_Request handle = *request;
    if (!is_active(layer.requests().find(handle))) return layer.mpi.Test(request, flag, status);
    MPI_Status own;
    MPI_Status& mine = status == MPI_STATUS_IGNORE ? own : *status;
    const int code = layer.mpi.Test(request, flag, &mine);
    return code == MPI_SUCCESS && *flag == 0 ? code : conclude_one(layer, handle, mine, code);
}

int Waitall(int count, MPI_Request* requests, MPI_Status* statuses) {
    Layer& layer = Layer::get();
    auto guard = layer.guard();
    Taken taken(layer, count, requests);
    if (guard) guard.unlock();
    if (taken.none()) return layer.mpi.Waitall(count, requests, statuses);
    Statuses mine(count, statuses);
    const int code = layer.mpi.Waitall(count, requests, mine.data());
    if (layer.threads()) guard.lock();
    return conclude_several(layer, taken, count, mine.data(), code);
}

int Testall(int count, MPI_Request* requests, int* flag, MPI_Status* statuses) {
    Layer& layer = Layer::get();
    const auto guard = layer.guard();
    Taken taken(layer, count, requests);
    if (taken.none()) return layer.mpi.Testall(count, requests, flag, statuses);
    Statuses mine(count, statuses);
    const int code = layer.mpi.Testall(count, requests, flag, mine.data());
    if (*flag == 0 && code == MPI_SUCCESS) {
        taken.put_all_back();
        return code;
    }
    return conclude_several(layer, taken, count, mine.data(), code);
}

int Testany(int count, MPI_Request* requests, int* index, int* flag, MPI_Status* status) {
    Layer& layer = Layer::get();
    const auto guard = layer.guard();
    if (layer.requests().empty()) return layer.mpi.Testany(count, requests, index, flag, status);
    const std::vector<MPI_Request> handles(requests, requests + std::max(count, 0));
    MPI_Status own;
    MPI_Status& mine = status == MPI_STATUS_IGNORE ? own : *status;
    const int code = layer.mpi.Testany(count, requests, index, flag, &mine);
    if (*flag == 0 || *index == MPI_UNDEFINED) return code;
    return conclude_one(layer, handles[static_cast<std::size_t>(*index)], mine, code);
}

int Waitany(int count, MPI_Request* requests, int* index, MPI_Status* status) {
    Layer& layer = Layer::get();
    auto guard = layer.guard();
    if (layer.requests().empty()) {
        if (guard) guard.unlock();
        return layer.mpi.Waitany(count, requests, index, status);
    }
    if (layer.threads()) {
        guard.unlock();
        for (int flag = 0;;) {
            const int code = Testany(count, requests, index, &flag, status);
            if (flag != 0 || code != MPI_SUCCESS) return code;
            sched_yield();
        }
    }
    const std::vector<MPI_Request> handles(requests, requests + std::max(count, 0));
    MPI_Status own;
    MPI_Status& mine = status == MPI_STATUS_IGNORE ? own : *status;
    const int code = layer.mpi.Waitany(count, requests, index, &mine);
    if (*index == MPI_UNDEFINED) return code;
    return conclude_one(layer, handles[static_cast<std::size_t>(*index)], mine, code);
}

namespace {

/// Waitsome or Testsome, after MPI.
int conclude_some(Layer& layer, const std::vector<MPI_Request>& handles, int done, const int* indices,
                  MPI_Status* statuses, int code) {
    if (done == MPI_UNDEFINED || (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS)) return code;
    bool failed = false;
    for (int i = 0; i < done; ++i) {
        const MPI_Request handle = handles[static_cast<std::size_t>(indices[i])];
        MPI_Status& status = statuses[i];
        int result = code == MPI_ERR_IN_STATUS ? status.MPI_ERROR : MPI_SUCCESS;
        if (is_active(layer.requests().find(handle))) {
            auto operation = layer.requests().take(handle);
            result = settle(layer, *operation, status, result);
            put_back(layer, handle, std::move(operation));
        }
        if (result == MPI_SUCCESS) continue;
        if (!failed && code == MPI_SUCCESS) {
            for (int k = 0; k < done; ++k) statuses[k].MPI_ERROR = MPI_SUCCESS;
        }
        failed = true;
        status.MPI_ERROR = result;
    }
    if (!failed || code == MPI_ERR_IN_STATUS) return code;
    layer.mpi.Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_IN_STATUS);
    return MPI_ERR_IN_STATUS;
}

}  // namespace

int Testsome(int count, MPI_Request* requests, int* done, int* indices, MPI_Status* statuses) {
    Layer& layer = Layer::get();
    const auto guard = layer.guard();
    if (layer.requests().empty()) return layer.mpi.Testsome(count, requests, done, indices, statuses);
    const std::vector<MPI_Request> handles(requests, requests + std::max(count, 0));
    Statuses mine(count, statuses);
    const int code = layer.mpi.Testsome(count, requests, done, indices, mine.data());
    return conclude_some(layer, handles, *done, indices, mine.data(), code);
}

int Waitsome(int count, MPI_Request* requests, int* done, int* indices, MPI_Status* statuses) {
    Layer& layer = Layer::get();
    auto guard = layer.guard();
    if (layer.requests().empty()) {
        if (guard) guard.unlock();
        return layer.mpi.Waitsome(count, requests, done, indices, statuses);
    }
    if (layer.threads()) {
        guard.unlock();
        for (;;) {
            const int code = Testsome(count, requests, done, indices, statuses);
            if (*done != 0 || code != MPI_SUCCESS) return code;
            sched_yield();
        }
    }
    const std::vector<MPI_Request> handles(requests, requests + std::max(count, 0));
    Statuses mine(count, statuses);
    const int code = layer.mpi.Waitsome(count, requests, done, indices, mine.data());
    return conclude_some(layer, handles, *done, indices, mine.data(), code);
}

int Request_get_status(MPI_Request request, int* flag, MPI_Status* status) {
    Layer& layer = Layer::get();
    const auto guard = layer.guard();
    Operation* operation = layer.requests().find(request);
    if (!is_active(operation)) return layer.mpi.Request_get_status(request, flag, status);
    if (!operation->finished) {
        const int code = layer.mpi.Request_get_status(request, flag, &operation->status);
        if (code != MPI_SUCCESS || *flag == 0) return code;
        operation->result = settle(layer, *operation, operation->status, MPI_SUCCESS);
        operation->finished = true;
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

bool any_is_ours(Layer& layer, int count, const MPI_Request* requests) {
    const auto guard = layer.guard();
    return std::any_of(requests, requests + std::max(count, 0),
                       [&](MPI_Request request) { return is_active(layer.requests().find(request)); });
}

MPI_Status* at(MPI_Status* statuses, int i) {
    return statuses == MPI_STATUSES_IGNORE ? MPI_STATUS_IGNORE : statuses + i;
}

}  // namespace

int Request_get_status_all(int count, const MPI_Request requests[], int* flag, MPI_Status* statuses) {
    Layer& layer = Layer::get();
    if (!any_is_ours(layer, count, requests)) {
        return layer.mpi.Request_get_status_all(count, requests, flag, statuses);
    }
    *flag = 1;
    for (int i = 0; i < count && *flag != 0; ++i) {
        const int code = Request_get_status(requests[i], flag, at(statuses, i));
        if (code != MPI_SUCCESS) return code;
    }
    return MPI_SUCCESS;
}

int Request_get_status_any(int count, const MPI_Request requests[], int* index, int* flag, MPI_Status* status) {
    Layer& layer = Layer::get();
    if (!any_is_ours(layer, count, requests)) {
        return layer.mpi.Request_get_status_any(count, requests, index, flag, status);
    }
    *flag = 0;
    *index = MPI_UNDEFINED;
    for (int i = 0; i < count; ++i) {
        if (requests[i] == MPI_REQUEST_NULL) continue;
        const int code = Request_get_status(requests[i], flag, status);
        if (*flag != 0) *index = i;
        if (code != MPI_SUCCESS || *flag != 0) return code;
    }
    return MPI_SUCCESS;
}

int Request_get_status_some(int count, const MPI_Request requests[], int* done, int* indices, MPI_Status* statuses) {
    Layer& layer = Layer::get();
    if (!any_is_ours(layer, count, requests)) {
        return layer.mpi.Request_get_status_some(count, requests, done, indices, statuses);
    }
    *done = 0;
    for (int i = 0; i < count; ++i) {
        if (requests[i] == MPI_REQUEST_NULL) continue;
        int flag = 0;
        const int code = Request_get_status(requests[i], &flag, at(statuses, *done));
        if (code != MPI_SUCCESS) return code;
        if (flag != 0) indices[(*done)++] = i;
    }
    return MPI_SUCCESS;
}

int Request_free(MPI_Request* request) {
    Layer& layer = Layer::get();
    const auto guard = layer.guard();
    Operation* operation = layer.requests().find(*request);
    if (operation == nullptr) return layer.mpi.Request_free(request);
    if (!operation->active) {
        const auto gone = layer.requests().take(*request);
        return layer.mpi.Request_free(request);
    }
    layer.requests().orphans.push_back(*request);
    *request = MPI_REQUEST_NULL;
    collect_orphans(layer, false);
    return MPI_SUCCESS;
}

int Cancel(MPI_Request* request) {
    Layer& layer = Layer::get();
    const auto guard = layer.guard();
    const Operation* operation = layer.requests().find(*request);
    // A send that is cancelled leaves a hole in its lane, which the receiver must take for an attack. MPI lets a cancel
    // come too late.
    if (operation != nullptr && operation->kind == Operation::Kind::send) return MPI_SUCCESS;
    return layer.mpi.Cancel(request);
}

}  // namespace cryptmpi::comm
