#include "channel/courier.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "channel/connection.hpp"
#include "channel/epoll.hpp"
#include "channel/real.hpp"

namespace cryptmpi::channel {

namespace {
constexpr long kRound_ns = 200'000'000;  // how often deadlines are looked at
constexpr long kLeave_ns =
    5'000'000;                 // what waits for a writable socket is left to the program's own calls for so long
constexpr int kIdleMs = 1000;  // then the thread ends

/// The end of a connection that the program has closed before: its descriptor is ours.
void drop(Process& process, Entry& entry) {
    const int fd = entry.descriptor();
    std::unique_lock holders(process.holders_lock());  // as where the program closes it
    Entry* last = process.table().remove(fd);
    bool free = false;
    if (last == nullptr) {
        holders.unlock();
    } else {
        free = end(process, *last, std::move(holders));
    }
    real::close(fd);
    process.table().forget(fd);
    if (free) process.table().recycle(last);
}

}  // namespace

void Courier::carry(Entry& entry) {
    // A round that was on its way may have brought it to its end already, and another thread found that it is native.
    Shared* const shared = entry.shared.load();
    if (shared == nullptr) return;
    const std::lock_guard guard(lock_);
    parcels_.push_back({&entry, shared});
    if (bell_ < 0) bell_ = process_.table().own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    const std::uint64_t one = 1;
    if (running_ && real::write(bell_, &one, sizeof one) > 0) return;
    if (running_) return;  // the bell is ringing already
    running_ = real::own_thread(run, this);
}

void Courier::after_fork_in_child() {
    new (&lock_) std::mutex;  // whoever held it is not in this process
    running_ = false;
    parcels_.clear();
    if (bell_ >= 0) process_.table().disown(bell_);
    bell_ = -1;
}

void* Courier::run(void* courier) {
    while (static_cast<Courier*>(courier)->round()) {
    }
    return nullptr;
}

bool Courier::round() {
    pollfd bell{bell_, POLLIN, 0};
    std::vector<Parcel> parcels;
    {
        const std::lock_guard guard(lock_);
        parcels.swap(parcels_);
    }
    if (parcels.empty()) {
        const timespec idle{kIdleMs / 1000, 0};
        if (real::ppoll(&bell, 1, &idle, nullptr) > 0) return hear_bell();
        const std::lock_guard guard(lock_);
        running_ = !parcels_.empty();
        return running_;
    }
    work(parcels);
    std::vector<pollfd> polls{bell};
    long wait_ns = kRound_ns;
    for (const Parcel& parcel : parcels) {
        const State state = parcel.shared->state.load();
        if (state == State::open) {
            wait_ns = kLeave_ns;
        } else {
            // Of a descriptor that was closed meanwhile it wakes us for nothing.
            polls.push_back({parcel.entry->descriptor(), handshake_events(*parcel.entry), 0});
        }
    }
    if (!parcels.empty()) {
        const timespec wait{0, wait_ns};
        real::ppoll(polls.data(), polls.size(), &wait, nullptr);
        if ((polls.front().revents & POLLIN) != 0) hear_bell();
    }
    const std::lock_guard guard(lock_);
    parcels_.insert(parcels_.end(), parcels.begin(), parcels.end());
    return true;
}

/// One step of each; keeps those that have more to go.
void Courier::work(std::vector<Parcel>& parcels) {
    const std::lock_guard guard(work_lock_);
    if (process_.finishing()) parcels.clear();
    std::erase_if(parcels, [&](const Parcel& parcel) {
        if (parcel.entry->shared.load() != parcel.shared) return true;  // closed meanwhile
        if (!carried(process_, *parcel.entry)) return false;
        if (parcel.entry->shared.load() == parcel.shared && parcel.shared->lingering.load())
            drop(process_, *parcel.entry);
        return true;
    });
}

bool Courier::hear_bell() const {
    std::uint64_t rings = 0;
    return real::read(bell_, &rings, sizeof rings) > 0 || errno == EAGAIN;
}

}  // namespace cryptmpi::channel
