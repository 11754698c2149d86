/* Two ranks on two nodes send each other canaries by several kinds of MPI call and check every byte. Rank 0 then prints
 * what both processes handed to the kernel for the other node meanwhile (watch.c):
 *
 *     cryptmpi-canary: payload=BYTES bytes=BYTES canaries=NUMBER */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "watch.h"

enum { LARGEST = 1 << 20 };

static unsigned char canary[CANARY_SIZE];
static unsigned char outgoing[LARGEST], incoming[LARGEST];
static int rank;
static unsigned long long payload;

static void stop(const char* why) {
    fprintf(stderr, "cryptmpi-canary: rank %d: %s\n", rank, why);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* What rank 0 draws travels as its complement, so that the canary itself is in no message before it is watched for. */
static void agree_on_the_canary(void) {
    if (rank == 0) {
        FILE* source = fopen("/dev/urandom", "rb");
        if (source == NULL || fread(canary, sizeof canary, 1, source) != 1) stop("cannot read /dev/urandom");
        fclose(source);
        for (int i = 0; i < CANARY_SIZE; i++) canary[i] = (unsigned char)~canary[i];
    }
    MPI_Bcast(canary, CANARY_SIZE, MPI_BYTE, 0, MPI_COMM_WORLD);
    for (int i = 0; i < CANARY_SIZE; i++) canary[i] = (unsigned char)~canary[i];
}

static void check(int size) {
    if (memcmp(incoming, outgoing, (size_t)size) != 0) stop("a byte differs from what was sent");
    memset(incoming, 0, (size_t)size);
    payload += 2ull * (unsigned long long)size;
}

static void exchange(int size) {
    const int other = 1 - rank;
    MPI_Request request;
    MPI_Sendrecv(outgoing, size, MPI_BYTE, other, 1, incoming, size, MPI_BYTE, other, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    check(size);
    MPI_Irecv(incoming, size, MPI_BYTE, other, 2, MPI_COMM_WORLD, &request);
    MPI_Ssend(outgoing, size, MPI_BYTE, other, 2, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check(size);
    MPI_Alltoall(outgoing, size / 2, MPI_BYTE, incoming, size / 2, MPI_BYTE, MPI_COMM_WORLD);
    check(size / 2);
}

int main(int argc, char** argv) {
    int ranks;
    const char* unwatched = watch_start();
    if (unwatched != NULL) {
        fprintf(stderr, "cryptmpi-canary: %s\n", unwatched);
        return 1;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2) stop("this program is for two ranks");
    agree_on_the_canary();
    for (int at = 0; at < LARGEST; at += CANARY_SIZE) memcpy(outgoing + at, canary, CANARY_SIZE);
    watch_for(canary);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int size = 4 * CANARY_SIZE; size <= LARGEST; size *= 8) exchange(size);
    MPI_Barrier(MPI_COMM_WORLD);
    const struct watched mine = watched_so_far();
    unsigned long long own[2] = {mine.bytes, mine.canaries}, both[2];
    MPI_Reduce(own, both, 2, MPI_UNSIGNED_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("cryptmpi-canary: payload=%llu bytes=%llu canaries=%llu\n", payload, both[0], both[1]);
    MPI_Finalize();
    return 0;
}
