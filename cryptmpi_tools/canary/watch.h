/* Watches what this process hands to the kernel for other nodes (watch.c). */
#pragma once

enum { CANARY_SIZE = 32 };

/* What was sent to other nodes since watch_for, and how many canaries were in it. */
struct watched {
    unsigned long long bytes;
    unsigned long long canaries;
};

/* From now on every call that may send data stops at the kernel's door until it was looked at: those of this thread, of
 * the threads that it starts, and of whatever library they are in. Before MPI_Init. Returns NULL, or why it cannot be
 * done. */
const char* watch_start(void);

void watch_for(const unsigned char canary[CANARY_SIZE]);
struct watched watched_so_far(void);
