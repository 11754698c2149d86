// A thread of ours inside somebody's program.
#pragma once

#include <pthread.h>
#include <signal.h>

namespace cryptmpi {

/// Nobody joins it, and it takes no signal: those are the program's. False: it could not be started.
inline bool start_own_thread(void* (*run)(void*), void* argument) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_t thread;
    const bool started = pthread_create(&thread, &attributes, run, argument) == 0;
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
}

}  // namespace cryptmpi
