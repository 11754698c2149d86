/* Preloaded: ranks that ask as we do find eight hardware threads, however many there are. */
#define _GNU_SOURCE
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { OUR_SIZE = 2048 / 8, THREADS = 8 };

int sched_getaffinity(pid_t pid, size_t size, cpu_set_t* set) {
    const long filled = syscall(SYS_sched_getaffinity, pid, size, set);
    if (filled < 0) return -1;
    for (size_t at = (size_t)filled; at < size; at++) ((char*)set)[at] = 0;
    if (size == OUR_SIZE) {
        for (int i = 0; i < THREADS; i++) CPU_SET_S(i, size, set);
    }
    return 0;
}
