// What else is asked of requests: their status while they stay, and that they are given up or cancelled.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "comm/calls.hpp"
#include "comm/complete.hpp"

namespace cryptmpi::comm {

int Request_get_status(Layer& layer, MPI_Request request, int* flag, MPI_Status* status) {
    if (flag == nullptr) return layer.mpi.Request_get_status(request, flag, status);
    const auto guard = layer.guard();
    progress(layer, {&request, 1});
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
    collect_orphans(layer, Orphans::some);
    return MPI_SUCCESS;
}

namespace {

bool cannot_be_cancelled(const Operation& operation) {
    // A send that is cancelled leaves a hole in its lane, which the receiver must take for an attack. MPI lets a cancel
    // come too late.
    if (operation.kind == Operation::Kind::send || operation.is_finished()) return true;
    // Nor can a message be sent back whose announcement was received, or that a probe has taken out of the queue.
    return operation.completion == Operation::Completion::of_token || operation.incoming || operation.stand_in;
}

}  // namespace

int Cancel(Layer& layer, MPI_Request* request) {
    if (request == nullptr) return layer.mpi.Cancel(request);
    const auto guard = layer.guard();
    Operation* operation = layer.requests().find(*request);
    if (!is_active(operation)) return layer.mpi.Cancel(request);  // MPI says what is wrong with it
    if (cannot_be_cancelled(*operation)) return MPI_SUCCESS;
    operation->posted.may_be_cancelled = true;
    return layer.mpi.Cancel(request);
}

}  // namespace cryptmpi::comm
