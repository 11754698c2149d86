#include "fabric/ucx/ends.hpp"

#include <utility>

namespace cryptmpi::fabric::ucx {
namespace {

/// HOT PATH. What this thread looked up last, while nothing has gone since.
std::atomic<std::uint64_t> forgotten{0};
template <class Handle, class Found>
struct Last {
    Handle handle = nullptr;
    Found found = {};
    std::uint64_t at = 0;
};
thread_local Last<ucp_worker_h, Worker*> last_worker;
thread_local Last<ucp_ep_h, Endpoint> last_endpoint;

template <class Map, class Handle>
auto take_from(Map& map, Handle handle) {
    const auto found = map.find(handle);
    if (found == map.end()) return typename Map::mapped_type{};
    auto taken = std::move(found->second);
    map.erase(found);
    return taken;
}

}  // namespace

void Worker::add(Operation& operation) {
    const std::lock_guard guard(operations_lock_);
    operation.before = nullptr;
    operation.after = first_;
    if (first_ != nullptr) first_->before = &operation;
    first_ = &operation;
}

void Worker::remove(Operation& operation) {
    const std::lock_guard guard(operations_lock_);
    if (operation.before != nullptr) operation.before->after = operation.after;
    if (operation.after != nullptr) operation.after->before = operation.before;
    if (first_ == &operation) first_ = operation.after;
    operation.before = operation.after = nullptr;
}

Operation* Worker::find(const void* request) const {
    const std::lock_guard guard(operations_lock_);
    for (Operation* at = first_; at != nullptr; at = at->after) {
        if (at->request == request) return at;
    }
    return nullptr;
}

void Ends::begin(const void* request, Operation& operation, const bool& over) {
    const std::lock_guard guard(under_way_lock_);
    if (over) return;  // the operation is no more
    operation.over = nullptr;
    under_way_[request] = &operation;
    under_way_count_.store(under_way_.size());
}

void Ends::end(const void* request, Operation& operation) {
    const std::lock_guard guard(under_way_lock_);
    if (operation.over != nullptr) *operation.over = true;
    under_way_.erase(request);
    under_way_count_.store(under_way_.size());
}

bool Ends::is_under_way(const void* request) const {
    if (under_way_count_.load() == 0) return false;
    const std::lock_guard guard(under_way_lock_);
    return under_way_.contains(request);
}

bool Ends::abandon(const void* request, bool but_call_back) {
    if (under_way_count_.load() == 0) return false;
    const std::lock_guard guard(under_way_lock_);
    const auto found = under_way_.find(request);
    if (found == under_way_.end()) return false;
    found->second->abandon(but_call_back);
    return true;
}

void Ends::note(const void* request, std::optional<ucs_status_t> status) {
    if (!status && noted_count_.load() == 0) return;
    const std::lock_guard guard(noted_lock_);
    noted_.erase(request);
    if (status) noted_.emplace(request, *status);
    noted_count_.store(noted_.size());
}

ucs_status_t Ends::status_of(const void* request, ucs_status_t of_ucx) const {
    if (of_ucx != UCS_OK || noted_count_.load() == 0) return of_ucx;
    const std::lock_guard guard(noted_lock_);
    const auto found = noted_.find(request);
    return found == noted_.end() ? of_ucx : found->second;
}

Ends& Ends::get() {
    static auto& one = *new Ends;
    return one;
}

void Ends::note(ucp_context_h context, const Asked& asked) {
    const std::unique_lock guard(lock_);
    asked_[context] = asked;
}

Ends::Asked Ends::asked_of(ucp_context_h context) const {
    const std::shared_lock guard(lock_);
    const auto found = asked_.find(context);
    return found == asked_.end() ? Asked{} : found->second;
}

void Ends::add(ucp_worker_h handle, std::unique_ptr<Worker> worker) {
    const std::unique_lock guard(lock_);
    workers_[handle] = std::move(worker);
    forgotten.fetch_add(1);
}

Worker* Ends::find(ucp_worker_h handle) const {
    const std::uint64_t now = forgotten.load(std::memory_order_acquire);
    if (last_worker.handle == handle && last_worker.at == now) [[likely]] {
        return last_worker.found;
    }
    const std::shared_lock guard(lock_);
    const auto found = workers_.find(handle);
    if (found == workers_.end()) return nullptr;
    last_worker = {handle, found->second.get(), now};
    return found->second.get();
}

std::unique_ptr<Worker> Ends::take(ucp_worker_h handle) {
    const std::unique_lock guard(lock_);
    forgotten.fetch_add(1);
    auto worker = take_from(workers_, handle);
    std::erase_if(endpoints_, [&](const auto& one) { return one.second.worker == worker.get(); });
    std::erase_if(held_, [&](const auto& one) { return one.second->worker == worker.get(); });
    return worker;
}

void Ends::add(ucp_ep_h handle, const Endpoint& endpoint) {
    const std::unique_lock guard(lock_);
    endpoints_[handle] = endpoint;
    forgotten.fetch_add(1);
}

Endpoint Ends::find(ucp_ep_h handle) const {
    const std::uint64_t now = forgotten.load(std::memory_order_acquire);
    if (last_endpoint.handle == handle && last_endpoint.at == now) [[likely]] {
        return last_endpoint.found;
    }
    const std::shared_lock guard(lock_);
    const auto found = endpoints_.find(handle);
    if (found == endpoints_.end()) return {};
    last_endpoint = {handle, found->second, now};
    return found->second;
}

ucp_ep_h Ends::find(const Worker& worker, const Peer* peer) const {
    const std::shared_lock guard(lock_);
    for (const auto& [handle, endpoint] : endpoints_) {
        if (endpoint.worker == &worker && endpoint.peer == peer) return handle;
    }
    return nullptr;
}

void Ends::forget(ucp_ep_h handle) {
    const std::unique_lock guard(lock_);
    endpoints_.erase(handle);
    forgotten.fetch_add(1);
}

void Ends::hold(ucp_tag_message_h message, std::unique_ptr<Operation> operation) {
    const std::unique_lock guard(lock_);
    held_[message] = std::move(operation);
}

std::unique_ptr<Operation> Ends::take(ucp_tag_message_h message) {
    const std::unique_lock guard(lock_);
    return take_from(held_, message);
}

void Ends::keep(void* data, engine::Buffer buffer) {
    const std::unique_lock guard(lock_);
    kept_[data] = std::move(buffer);
}

bool Ends::release(void* data) {
    const std::unique_lock guard(lock_);
    return kept_.erase(data) != 0;
}

}  // namespace cryptmpi::fabric::ucx
