#include "fabric/ucx/requests.hpp"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace cryptmpi::fabric::ucx {
namespace {

constexpr std::size_t kAlignment = 64;

}  // namespace

RequestKind RequestKind::of(const ucp_params_t& params) {
    const auto given = [&](std::uint64_t field) { return (params.field_mask & field) != 0; };
    return {given(UCP_PARAM_FIELD_REQUEST_SIZE) ? params.request_size : 0,
            given(UCP_PARAM_FIELD_REQUEST_INIT) ? params.request_init : nullptr,
            given(UCP_PARAM_FIELD_REQUEST_CLEANUP) ? params.request_cleanup : nullptr};
}

Request::~Request() {
    if (memory_ == nullptr) return;
    if (kind_.cleanup != nullptr) kind_.cleanup(memory_);
    std::free(memory_);
}

Requests& Requests::get() {
    static auto& one = *new Requests;
    return one;
}

void Request::tell(ucs_status_t status) const {
    if (callback_.nb == nullptr) return;
    if (is_nb_) {
        callback_.nb(memory_, status);
    } else {
        callback_.nbx(memory_, status, user_data_);
    }
}

/// Under the lock.
void* Requests::give_memory(const std::shared_ptr<Request>& request) {
    const std::size_t room = (std::max<std::size_t>(request->kind_.size, 1) + kAlignment - 1) / kAlignment * kAlignment;
    request->memory_ = std::aligned_alloc(kAlignment, room);
    if (request->memory_ == nullptr) throw std::bad_alloc();
    if (request->kind_.init != nullptr) request->kind_.init(request->memory_);
    all_.emplace(request->memory_, request);
    count_.store(all_.size());
    return request->memory_;
}

void* Requests::hand_out(const std::shared_ptr<Request>& request) {
    const std::lock_guard guard(lock_);
    return request->status_ == UCS_INPROGRESS ? give_memory(request) : nullptr;
}

void* Requests::hand_out_always(const std::shared_ptr<Request>& request) {
    void* memory = nullptr;
    ucs_status_t status = UCS_INPROGRESS;
    {
        const std::lock_guard guard(lock_);
        memory = give_memory(request);
        status = request->status_;
    }
    if (status != UCS_INPROGRESS) request->tell(status);
    return memory;
}

void Requests::end(const std::shared_ptr<Request>& request, ucs_status_t status) {
    {
        const std::lock_guard guard(lock_);
        request->status_ = status;
        if (request->memory_ == nullptr) return;  // whoever began it is told at once
        if (request->is_freed_) {
            all_.erase(request->memory_);
            count_.store(all_.size());
        }
    }
    request->tell(status);
}

std::shared_ptr<Request> Requests::find(const void* memory) const {
    const std::lock_guard guard(lock_);
    const auto found = all_.find(memory);
    return found == all_.end() ? nullptr : found->second;
}

ucs_status_t Requests::status_of(const void* memory) const {
    const std::lock_guard guard(lock_);
    const auto found = all_.find(memory);
    return found == all_.end() ? UCS_ERR_INVALID_PARAM : found->second->status_;
}

void Requests::free(const void* memory, bool but_call_back) {
    std::shared_ptr<Request> gone;
    const std::lock_guard guard(lock_);
    const auto found = all_.find(memory);
    if (found == all_.end()) return;
    if (found->second->status_ == UCS_INPROGRESS) {
        found->second->is_freed_ = true;
        if (!but_call_back) found->second->callback_ = {nullptr};
        return;
    }
    gone = std::move(found->second);
    all_.erase(found);
    count_.store(all_.size());
}

}  // namespace cryptmpi::fabric::ucx
