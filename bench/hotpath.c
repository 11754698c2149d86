/* Small messages between two ranks, each kind of call by itself, to count what one of them costs.
 *
 *     hotpath KIND ROUNDS BYTES     KIND: blocking, nonblocking, window */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW = 64 };

static char* bytes;
static int rank, size;

static char* place(int i) {
    return bytes + (size_t)i * (size_t)size;
}

/* One message each way, one after the other. */
static void blocking(void) {
    const int partner = 1 - rank;
    if (rank == 0) MPI_Send(bytes, size, MPI_BYTE, partner, 0, MPI_COMM_WORLD);
    MPI_Recv(bytes, size, MPI_BYTE, partner, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1) MPI_Send(bytes, size, MPI_BYTE, partner, 0, MPI_COMM_WORLD);
}

/* One message each way at the same time. */
static void nonblocking(void) {
    MPI_Request requests[2];
    MPI_Irecv(place(0), size, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(place(1), size, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, &requests[1]);
    MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
}

/* Many each way at the same time, completed together. */
static void window(void) {
    MPI_Request requests[2 * WINDOW];
    for (int i = 0; i < WINDOW; i++) MPI_Irecv(place(i), size, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, &requests[i]);
    for (int i = 0; i < WINDOW; i++) {
        MPI_Isend(place(WINDOW + i), size, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, &requests[WINDOW + i]);
    }
    MPI_Waitall(2 * WINDOW, requests, MPI_STATUSES_IGNORE);
}

/* What is counted: callgrind collects inside of this function. */
__attribute__((noinline)) void counted_rounds(void (*round)(void), int rounds) {
    for (int i = 0; i < rounds; i++) round();
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 4) {
        fprintf(stderr, "hotpath: KIND ROUNDS BYTES (make bench-instructions starts it)\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    size = atoi(argv[3]);
    bytes = calloc(2 * WINDOW, (size_t)size);
    void (*const round)(void) = strcmp(argv[1], "blocking") == 0      ? blocking
                                : strcmp(argv[1], "nonblocking") == 0 ? nonblocking
                                                                      : window;
    for (int i = 0; i < 3; i++) round(); /* the first ones make keys */
    counted_rounds(round, atoi(argv[2]));
    MPI_Barrier(MPI_COMM_WORLD);
    free(bytes);
    MPI_Finalize();
    return 0;
}
