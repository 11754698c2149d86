#include "channel/shared.hpp"

#include <cerrno>

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
    // A process that died inside a call left the stream at a record's boundary or broken; a broken one does not open.
    if (pthread_mutex_lock(&mutex_) == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
}

bool SharedMutex::try_lock() {
    const int status = pthread_mutex_trylock(&mutex_);
    if (status == EOWNERDEAD) pthread_mutex_consistent(&mutex_);
    return status == 0 || status == EOWNERDEAD;
}

}  // namespace cryptmpi::channel
