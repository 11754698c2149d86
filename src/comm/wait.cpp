// Wait and Test, of one request, all, any and some.
#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "comm/calls.hpp"
#include "comm/complete.hpp"

namespace cryptmpi::comm {
namespace {

template <class T>
bool is_missing(int count, const T* array) {
    return count > 0 && array == nullptr;
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

/// The first error among requests that ended together, and whose error handler hears of it: the first one that MPI has
/// not told, if there is any.
struct Failure {
    int code = MPI_SUCCESS;
    MPI_Comm comm = MPI_COMM_WORLD;
    bool told = false;

    bool is_one() const { return code != MPI_SUCCESS; }
    void note(Layer& layer, const Operation& operation, int with) {
        if (is_one() && !told) return;
        const bool is_told = was_told(layer, operation);
        if (!is_one() || !is_told) *this = {with, layer.living(operation.communicator), is_told};
    }
    int raise(Layer& layer) const { return told ? MPI_ERR_IN_STATUS : raise_in_status(layer, comm, code); }
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

    /// MPI completed all of them, or failed. Returns the first error, each of which is in its status.
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
            if (stays_with_mpi(requests[one.index], one)) {
                keep_result(*one.operation, status, code);
                layer_.requests().add(one.handle, std::move(one.operation));
            } else {
                put_back(layer_, one.handle, std::move(one.operation));
            }
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
    /// MPICH's Testall ends none where one fails, and calls the others that have come successful: the program waits for
    /// them once more.
    static bool stays_with_mpi(MPI_Request now, const One& one) {
        return now != MPI_REQUEST_NULL && now == one.handle && !one.operation->persistent;
    }
    Layer& layer_;
    std::vector<One> ours_;
    std::vector<int> failed_;
};

/// The user's requests without those that are not finished, or that MPI need not look at, while it looks at the others.
class Masked {
public:
    Masked(Layer& layer, int count, MPI_Request* requests)
        : requests_(requests), handles_(handles_of(count, requests)) {
        if (may_block(layer)) return;
        for (std::size_t i = 0; i < handles_.size(); ++i) {
            if (is_unfinished(layer.requests().find(handles_[i]))) mask(i);
        }
    }
    Masked(const Masked&) = delete;
    Masked& operator=(const Masked&) = delete;
    ~Masked() {
        for (const std::size_t i : masked_) requests_[i] = handles_[i];
    }
    const Handles& handles() const { return handles_; }
    bool any() const { return !masked_.empty(); }
    void mask(std::size_t i) {
        masked_.push_back(i);
        requests_[i] = MPI_REQUEST_NULL;
    }

private:
    MPI_Request* requests_;
    Handles handles_;
    std::vector<std::size_t> masked_;
};

/// A finished persistent one, from place `from` on. MPI does not name it among others: it may have been done without
/// MPI, and MPICH takes one that Request_get_status has seen complete for inactive.
int find_finished(Layer& layer, const Handles& handles, std::size_t from = 0) {
    if (!layer.requests().any_persistent()) return MPI_UNDEFINED;
    for (std::size_t i = from; i < handles.size(); ++i) {
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
    return first.raise(layer);
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

// What MPI would say of arrays and addresses that are not there, it says itself.

int Wait(Layer& layer, MPI_Request* request, MPI_Status* status) {
    if (request == nullptr) return layer.mpi.Wait(request, status);
    return wait_one(layer, request, status);
}

int Test(Layer& layer, MPI_Request* request, int* flag, MPI_Status* status) {
    if (request == nullptr || flag == nullptr) return layer.mpi.Test(request, flag, status);
    const auto guard = layer.guard();
    const MPI_Request handle = *request;
    progress(layer, {request, 1});
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

namespace {

/// MPI itself failed at the request, and has not ended it: what the program named is none.
bool is_no_request(Layer& layer, int code) {
    int error_class = MPI_SUCCESS;
    return layer.mpi.Error_class(code, &error_class) == MPI_SUCCESS && error_class == MPI_ERR_REQUEST;
}

/// Where MPI must not be left to wait for all. Its Testall is no way to wait: MPICH's fails where one is a file's that
/// is not done yet, and ends none where one of several failed. What failed has been told of.
int wait_for_each(Layer& layer, int count, MPI_Request* requests, MPI_Status* statuses) {
    Statuses mine(count, statuses);
    Each<int> codes(count);
    bool failed = false;
    for (int i = 0; i < count; ++i) {
        const int code = wait_one(layer, requests + i, mine.data() + i);
        if (is_no_request(layer, code)) return code;
        codes.data()[i] = code;
        failed = failed || code != MPI_SUCCESS;
    }
    if (!failed) return MPI_SUCCESS;
    for (int i = 0; i < count; ++i) mine.data()[i].MPI_ERROR = codes[static_cast<std::size_t>(i)];
    return MPI_ERR_IN_STATUS;
}

}  // namespace

int Waitall(Layer& layer, int count, MPI_Request* requests, MPI_Status* statuses) {
    if (is_missing(count, requests)) return layer.mpi.Waitall(count, requests, statuses);
    auto guard = layer.guard();
    if (!may_block(layer)) {
        if (guard) guard.unlock();
        return wait_for_each(layer, count, requests, statuses);
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
    const std::span<MPI_Request> all(requests, static_cast<std::size_t>(std::max(count, 0)));
    progress(layer, all);
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
    progress(layer, {requests, static_cast<std::size_t>(std::max(count, 0))});
    const Masked masked(layer, count, requests);
    const auto& handles = masked.handles();
    MPI_Status own;
    MPI_Status& mine = status == MPI_STATUS_IGNORE ? own : *status;
    *index = find_finished(layer, handles);
    if (*index != MPI_UNDEFINED) {
        *flag = 1;
        const int code = layer.mpi.Wait(&requests[*index], &mine);
        return conclude_one(layer, handles[static_cast<std::size_t>(*index)], requests[*index], mine, code);
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

/// Ends each finished persistent one with MPI, which is to look at the others alone. How many there were; MPI's code is
/// in the status of each.
int end_finished(Layer& layer, Masked& masked, MPI_Request* requests, int* indices, MPI_Status* statuses) {
    int count = 0;
    for (int i = 0; (i = find_finished(layer, masked.handles(), static_cast<std::size_t>(i))) != MPI_UNDEFINED; ++i) {
        statuses[count].MPI_ERROR = layer.mpi.Wait(&requests[i], statuses + count);
        masked.mask(static_cast<std::size_t>(i));
        indices[count++] = i;
    }
    return count;
}

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
    return first.is_one() ? first.raise(layer) : code;
}

}  // namespace

int Testsome(Layer& layer, int count, MPI_Request* requests, int* done, int* indices, MPI_Status* statuses) {
    if (is_missing(count, requests) || done == nullptr || is_missing(count, indices)) {
        return layer.mpi.Testsome(count, requests, done, indices, statuses);
    }
    const auto guard = layer.guard();
    if (layer.requests().empty()) return layer.mpi.Testsome(count, requests, done, indices, statuses);
    progress(layer, {requests, static_cast<std::size_t>(std::max(count, 0))});
    Masked masked(layer, count, requests);
    Statuses mine(count, statuses);
    // Those that are done without MPI, and what MPI is done with: who starts the first ones again and again gets the
    // others, too.
    const int finished = end_finished(layer, masked, requests, indices, mine.data());
    int others = 0;
    int code = layer.mpi.Testsome(count, requests, &others, indices + finished, mine.data() + finished);
    *done = others == MPI_UNDEFINED && !masked.any() ? MPI_UNDEFINED : finished + std::max(others, 0);
    const auto has_failed = [](const MPI_Status& one) { return one.MPI_ERROR != MPI_SUCCESS; };
    if (code == MPI_SUCCESS && std::any_of(mine.data(), mine.data() + finished, has_failed)) {
        std::for_each(mine.data() + finished, mine.data() + *done, [](auto& one) { one.MPI_ERROR = MPI_SUCCESS; });
        code = MPI_ERR_IN_STATUS;
    }
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

}  // namespace cryptmpi::comm
