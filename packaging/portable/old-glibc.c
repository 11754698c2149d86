// What libstdc++ and its headers take from a newer glibc than 2.28, for the portable build: linked into every file,
// seen by no other.
#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

#define HIDDEN __attribute__((visibility("hidden")))

// Since 2.32. Never single-threaded: libstdc++ then counts references by atomic operations, which is always right.
HIDDEN char __libc_single_threaded = 0;

// Since 2.36, of std::random_device.
HIDDEN uint32_t arc4random(void) {
    uint32_t drawn = 0;
    ssize_t got = -1;
    do got = getrandom(&drawn, sizeof drawn, 0);  // so few bytes come whole
    while (got < 0 && errno == EINTR);
    if (got != (ssize_t)sizeof drawn) abort();
    return drawn;
}

// Since 2.30. What libstdc++ does itself where there is none: the time that is left, by the clock that there is. Its
// callers look at their own clock when this returns. A wait is cut into pieces, so that a realtime clock that is set
// back does not lengthen it.
HIDDEN int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                  const struct timespec* until) {
    const int64_t kSecond = 1000000000;
    struct timespec now;
    struct timespec real;
    if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &real) != 0) return EINVAL;
    const int64_t seconds = until->tv_sec - now.tv_sec;
    if (seconds < -1) return ETIMEDOUT;
    int64_t left = kSecond;  // at most: what is longer wakes early, which a condition variable may
    if (seconds <= 1) left = seconds * kSecond + until->tv_nsec - now.tv_nsec;
    if (left <= 0) return ETIMEDOUT;
    const int piece = left >= kSecond;
    if (piece) left = kSecond;
    const int64_t end = real.tv_nsec + left;
    const struct timespec at = {real.tv_sec + end / kSecond, end % kSecond};
    const int status = pthread_cond_timedwait(condition, mutex, &at);
    return status == ETIMEDOUT && piece ? 0 : status;
}
