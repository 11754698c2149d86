// What the program is told of its calls: completion queues and counters.
#include <chrono>
#include <cstring>
#include <thread>

#include "fabric/libfabric/table_making.hpp"

namespace cryptmpi::fabric::libfabric {
namespace {

// Between two looks of who waits.
constexpr auto kPause = std::chrono::microseconds(20);

namespace on_fi_ops_cq {

std::size_t size_of(fi_cq_format format) {
    switch (format) {
        case FI_CQ_FORMAT_MSG:
            return sizeof(fi_cq_msg_entry);
        case FI_CQ_FORMAT_DATA:
            return sizeof(fi_cq_data_entry);
        case FI_CQ_FORMAT_TAGGED:
            return sizeof(fi_cq_tagged_entry);
        default:
            return sizeof(fi_cq_entry);
    }
}

void give(const fi_cq_tagged_entry& entry, fi_cq_format format, void* entries, std::size_t place) {
    const std::size_t size = size_of(format);
    std::memcpy(static_cast<char*>(entries) + place * size, &entry, size);
}

/// HOT PATH. What has been opened, of what the provider has completed. Each smaller format is the beginning of the
/// largest.
ssize_t readfrom(fid_cq* shown, void* entries, std::size_t count, fi_addr_t* sources) {
    auto& queue = mine<Queue>(shown);
    const std::lock_guard hold(queue.domain->lock);
    queue.is_woken = false;
    ssize_t code = 0;
    while (queue.ready.empty() && queue.failed.empty() && (code = queue.make_progress(count)) > 0) {
    }
    if (queue.ready.empty()) {
        if (!queue.failed.empty()) return -FI_EAVAIL;
        return code < 0 ? code : -FI_EAGAIN;
    }
    std::size_t given = 0;
    for (; given < count && !queue.ready.empty(); ++given, queue.ready.pop_front()) {
        give(queue.ready.front().entry, queue.format, entries, given);
        if (sources != nullptr) sources[given] = queue.ready.front().from;
    }
    return static_cast<ssize_t>(given);
}

ssize_t read(fid_cq* shown, void* entries, std::size_t count) {
    return readfrom(shown, entries, count, nullptr);
}

ssize_t readerr(fid_cq* shown, fi_cq_err_entry* entry, std::uint64_t) {
    auto& queue = mine<Queue>(shown);
    const std::lock_guard hold(queue.domain->lock);
    if (queue.failed.empty()) return -FI_EAGAIN;
    void* const room = entry->err_data;
    *entry = queue.failed.front();
    entry->err_data = room;
    queue.failed.pop_front();
    return 1;
}

/// Who waits at the provider's descriptor is woken by it; who waits in sreadfrom, or will next, is woken here.
int signal(fid_cq* shown) {
    mine<Queue>(shown).is_signalled.store(true);
    return Passed<&::fi_ops_cq::signal>::call(shown);
}

/// Waits by looking: the provider's own wait would end at completions that the program does not get.
ssize_t sreadfrom(fid_cq* shown, void* entries, std::size_t count, fi_addr_t* sources, const void*, int timeout) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout);
    for (;;) {
        const ssize_t got = readfrom(shown, entries, count, sources);
        if (got != -FI_EAGAIN || mine<Queue>(shown).is_signalled.exchange(false)) return got;
        if (timeout >= 0 && std::chrono::steady_clock::now() >= until) return got;
        std::this_thread::sleep_for(kPause);
    }
}

ssize_t sread(fid_cq* shown, void* entries, std::size_t count, const void* condition, int timeout) {
    return sreadfrom(shown, entries, count, nullptr, condition, timeout);
}

}  // namespace on_fi_ops_cq

/// Who waits for a counter may read no queue: what it counts is opened here, too, and waits there for the program.
namespace on_fi_ops_cntr {

void make_progress(const Counter& counter) {
    const std::lock_guard hold(counter.domain->lock);
    for (const auto& [endpoint, what] : counter.counted) {
        const auto open_all = [](Queue* queue) {
            if (queue == nullptr) return;
            while (queue->make_progress(SIZE_MAX) > 0) {
            }
            queue->wake();
        };
        open_all(endpoint->received);
        if (endpoint->sent != endpoint->received) open_all(endpoint->sent);
    }
}

std::uint64_t read(fid_cntr* shown) {
    auto& counter = mine<Counter>(shown);
    make_progress(counter);
    return counter.real->ops->read(counter.real);
}

std::uint64_t readerr(fid_cntr* shown) {
    auto& counter = mine<Counter>(shown);
    make_progress(counter);
    return counter.real->ops->readerr(counter.real);
}

int wait(fid_cntr* shown, std::uint64_t threshold, int timeout) {
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout);
    const std::uint64_t failed = readerr(shown);
    for (;;) {
        if (read(shown) >= threshold) return 0;
        if (readerr(shown) != failed) return -FI_EAVAIL;
        if (timeout >= 0 && std::chrono::steady_clock::now() >= until) return -FI_ETIMEDOUT;
        std::this_thread::sleep_for(kPause);
    }
}

}  // namespace on_fi_ops_cntr

}  // namespace

#include "fi_ops_cntr.inc"
#include "fi_ops_cq.inc"

}  // namespace cryptmpi::fabric::libfabric
