#include "channel/courier.hpp"

#include "channel/connection.hpp"
#include "channel/real.hpp"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

namespace cryptmpi::channel {

namespace {
constexpr long kRound_ns = 200'000'000;  // how often deadlines are looked at
}  // namespace

void Courier::carry(Process& process, int fd, Entry& entry) {
    const std::lock_guard guard(lock_);
    parcels_.push_back({fd, &entry, entry.shared});
    if (bell_ < 0) bell_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    const std::uint64_t one = 1;
    if (running_ && real::write(bell_, &one, sizeof one) > 0) return;
    if (running_) return;  // the bell is ringing already
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // the program's signals are not for this thread
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    running_ = pthread_create(&thread, &attributes, run, &process) == 0;
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Courier::after_fork_in_child() {
    new (&lock_) std::mutex;  // whoever held it is not in this process
    running_ = false;
    parcels_.clear();
    if (bell_ >= 0) real::close(bell_);
    bell_ = -1;
}

void* Courier::run(void* process) {
    auto& owner = *static_cast<Process*>(process);
    while (owner.courier().round(owner)) {
    }
    return nullptr;
}

bool Courier::round(Process& process) {
    std::vector<Parcel> parcels;
    {
        const std::lock_guard guard(lock_);
        if (parcels_.empty()) {
            running_ = false;
            return false;
        }
        parcels.swap(parcels_);
    }
    std::vector<pollfd> polls{{bell_, POLLIN, 0}};
    std::vector<Parcel> left;
    for (const Parcel& parcel : parcels) {
        if (process.table().find_sealed(parcel.fd) != parcel.entry || parcel.entry->shared != parcel.shared) continue;
        if (early_done(process, parcel.fd, *parcel.entry)) continue;
        left.push_back(parcel);
        const bool open = parcel.shared->state.load() == State::open;
        polls.push_back({parcel.fd, open ? static_cast<short>(POLLOUT) : handshake_events(*parcel.entry), 0});
    }
    if (!left.empty()) {
        const timespec tick{0, kRound_ns};
        real::ppoll(polls.data(), polls.size(), &tick, nullptr);
        std::uint64_t rings = 0;
        if (real::read(bell_, &rings, sizeof rings) < 0) rings = 0;  // nobody rang
    }
    const std::lock_guard guard(lock_);
    parcels_.insert(parcels_.end(), left.begin(), left.end());
    return true;
}

}  // namespace cryptmpi::channel
