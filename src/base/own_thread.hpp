// A thread of ours inside somebody's program.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <cstddef>

namespace cryptmpi {

/// It takes no signal: those are the program's. `state`: PTHREAD_CREATE_DETACHED or _JOINABLE. False: it could not be
/// started.
inline bool create_own_thread(pthread_t& thread, int state, void* (*run)(void*), void* argument) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, state);
    const bool started = pthread_create(&thread, &attributes, run, argument) == 0;
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return started;
}

/// Nobody joins it. False: it could not be started.
inline bool start_own_thread(void* (*run)(void*), void* argument) {
    pthread_t thread;
    return create_own_thread(thread, PTHREAD_CREATE_DETACHED, run, argument);
}

/// Is less than `bytes` left of the stack of the calling thread? Also true where it is nobody knows which, as that of a
/// library's own threads.
inline bool is_stack_short(std::size_t bytes) {
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return true;
    void* lowest = nullptr;
    std::size_t size = 0;
    pthread_attr_getstack(&attributes, &lowest, &size);
    pthread_attr_destroy(&attributes);
    const char* const here = static_cast<char*>(__builtin_frame_address(0));
    const auto left = static_cast<std::size_t>(here - static_cast<char*>(lowest));
    return left > size || left < bytes;
}

/// Calls `work`, which needs so many bytes of stack: on a thread with a stack of the usual size, for which this one
/// waits, where it has less, and a thread can be started.
inline void call_with_stack(std::size_t bytes, void* (*work)(void*), void* argument) {
    int cancel_state = 0;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state);
    pthread_t thread;
    if (is_stack_short(bytes) && create_own_thread(thread, PTHREAD_CREATE_JOINABLE, work, argument)) {
        pthread_join(thread, nullptr);
    } else {
        work(argument);
    }
    pthread_setcancelstate(cancel_state, nullptr);
}

}  // namespace cryptmpi
