// A completion queue: what the provider has completed is opened, and waits for the program.
#include <algorithm>
#include <array>

#include "fabric/libfabric/objects.hpp"

namespace cryptmpi::fabric::libfabric {
namespace {

// Of completions.
constexpr std::size_t kBatch = 64;

}  // namespace

// HOT PATH
ssize_t Queue::make_progress(std::size_t most) {
    for (Endpoint* endpoint : endpoints) {
        if (Queue* const other = endpoint->other_than(*this)) other->take(kBatch);
        endpoint->flush();
        endpoint->listen();
        endpoint->remote.go_on();
    }
    const ssize_t got = take(most);
    for (const Endpoint* endpoint : endpoints) {
        if (Queue* const other = endpoint->other_than(*this)) other->wake();
    }
    return got;
}

void Queue::wake() {
    if (!has_descriptor || is_woken || (ready.empty() && failed.empty())) return;
    is_woken = true;
    real->ops->signal(real);
}

// HOT PATH
ssize_t Queue::take(std::size_t most) {
    std::array<fi_cq_tagged_entry, kBatch> came;
    const ssize_t got = real->ops->read(real, came.data(), std::clamp<std::size_t>(most, 1, kBatch));
    if (got == -FI_EAVAIL) return take_failure();
    for (ssize_t i = 0; i < got; ++i) {
        if (came[i].op_context == nullptr) continue;  // of none of our calls
        auto& operation = *static_cast<Operation*>(came[i].op_context);
        if (operation.endpoint == nullptr) continue;
        fi_addr_t from = FI_ADDR_NOTAVAIL;
        if (operation.endpoint->complete(operation, came[i], from)) ready.push_back({came[i], from});
    }
    return got;
}

ssize_t Queue::take_failure() {
    struct {
        fi_cq_err_entry entry;
        std::array<std::uint8_t, 64> beyond;  // what a newer libfabric writes behind it
    } failure = {};
    fi_cq_err_entry& entry = failure.entry;
    const ssize_t got = real->ops->readerr(real, &entry, 0);
    if (got <= 0) return got;
    entry.err_data_size = 0;  // the provider's, and only until the next call
    auto* const operation = static_cast<Operation*>(entry.op_context);
    if (operation != nullptr && operation->endpoint == nullptr) {
        entry.op_context = nullptr;
        if (!operation->is_ours()) failed.push_back(entry);
    } else if (operation == nullptr || operation->endpoint->fail(*operation, entry)) {
        failed.push_back(entry);
    }
    return got;
}

}  // namespace cryptmpi::fabric::libfabric
