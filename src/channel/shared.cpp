#include "channel/shared.hpp"

#include <unistd.h>

#include <cerrno>

#include "channel/clock.hpp"
#include "channel/real.hpp"

namespace cryptmpi::channel {

void SharedMutex::init() {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&mutex_, &attributes);
    pthread_mutexattr_destroy(&attributes);
}

void SharedMutex::lock() {
    // A process that died inside a call left the stream at a record's boundary, or broken, so that it does not open; or
    // in the middle of the handshake, which see early_was_lost and read_hello_bytes.
    if (pthread_mutex_lock(&mutex_) == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
}

bool SharedMutex::try_lock() {
    const int status = pthread_mutex_trylock(&mutex_);
    if (status == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
    return status == 0 || status == EOWNERDEAD;
}

bool wait_for_lock(SharedMutex& lock, const std::atomic<bool>& waits) {
    constexpr useconds_t kPause_us = 50;
    constexpr std::int64_t kLongestHold_ns = 1'000'000'000;
    const std::int64_t deadline_ns = now_ns() + kLongestHold_ns;
    do {
        if (waits.load(std::memory_order_relaxed) || now_ns() > deadline_ns) return false;
        real::usleep(kPause_us);
    } while (!lock.try_lock());
    return true;
}

bool SharedMutex::lock_until(std::int64_t until_ns) {
    constexpr useconds_t kPause_us = 200;
    while (!try_lock()) {
        if (now_ns() >= until_ns) return false;
        real::usleep(kPause_us);
    }
    return true;
}

}  // namespace cryptmpi::channel
