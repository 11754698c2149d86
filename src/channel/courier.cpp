#include "channel/courier.hpp"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

#include "channel/connection.hpp"
#include "channel/real.hpp"

namespace cryptmpi::channel {

namespace {
constexpr long kRound_ns = 200'000'000;  // how often deadlines are looked at
constexpr long kLeave_ns =
    5'000'000;                 // what waits for a writable socket is left to the program's own calls for so long
constexpr int kIdleMs = 1000;  // then the thread ends
}  // namespace

void Courier::carry(Process& process, int fd, Entry& entry) {
    const std::lock_guard guard(lock_);
    parcels_.push_back({fd, &entry, entry.shared});
    if (bell_ < 0) bell_ = process.table().own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
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

void Courier::after_fork_in_child(Table& table) {
    new (&lock_) std::mutex;  // whoever held it is not in this process
    running_ = false;
    parcels_.clear();
    if (bell_ >= 0) table.disown(bell_);
    bell_ = -1;
}

void* Courier::run(void* process) {
    auto& owner = *static_cast<Process*>(process);
    while (owner.courier().round(owner)) {
    }
    return nullptr;
}

bool Courier::round(Process& process) {
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
    std::vector<pollfd> polls{bell};
    std::vector<Parcel> left;
    long wait_ns = kRound_ns;
    for (const Parcel& parcel : parcels) {
        if (process.table().find_sealed(parcel.fd) != parcel.entry || parcel.entry->shared != parcel.shared) continue;
        if (carried(process, parcel.fd, *parcel.entry)) continue;
        left.push_back(parcel);
        const State state = parcel.shared->state.load();
        if (state == State::open) {
            wait_ns = kLeave_ns;
        } else {
            polls.push_back({parcel.fd, static_cast<short>(state == State::tcp_connecting ? POLLOUT : POLLIN), 0});
        }
    }
    if (!left.empty()) {
        const timespec wait{0, wait_ns};
        real::ppoll(polls.data(), polls.size(), &wait, nullptr);
        if ((polls.front().revents & POLLIN) != 0) hear_bell();
    }
    const std::lock_guard guard(lock_);
    parcels_.insert(parcels_.end(), left.begin(), left.end());
    return true;
}

bool Courier::hear_bell() const {
    std::uint64_t rings = 0;
    return real::read(bell_, &rings, sizeof rings) > 0 || errno == EAGAIN;
}

}  // namespace cryptmpi::channel
