/* One rank makes an error while the other waits for it, under the error handler that a program has unless it asks for
 * another: the whole job has to end.
 *
 *     ends call|self|window|file    rank 0 calls a procedure that is refused, on such a thing
 *     ends buffer                   rank 0 attached no buffer for what it sends
 *     ends message|segment|block    rank 1 receives what somebody altered: a message, one in segments, a broadcast
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 1000, LARGE = 600000, MESSAGES = 3, ALTERED_TAG = 77, LARGE_TAG = 79 };

static int rank;
static unsigned char bytes[LARGE];

/* Both do nothing else any more. */
static void wait_for_the_other(void) {
    int never;
    MPI_Recv(&never, 1, MPI_INT, 1 - rank, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void call(void) {
    MPI_Request request;
    if (rank == 0) MPI_Ibcast(bytes, SIZE, MPI_BYTE, 0, MPI_COMM_WORLD, &request);
}

static void self(void) {
    MPI_Comm made;
    if (rank == 0) MPI_Intercomm_create(MPI_COMM_SELF, 0, MPI_COMM_WORLD, 1, 1, &made);
}

static void window(void) {
    MPI_Win win;
    MPI_Win_create(bytes, SIZE, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_fence(0, win);
    if (rank == 0) MPI_Put(bytes, 1, MPI_BYTE, 1, 0, 1, MPI_BYTE, win);
}

static void file(void) {
    MPI_File file;
    if (rank != 0) return;
    MPI_File_open(MPI_COMM_SELF, getenv("ENDS_FILE"), MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_File_set_errhandler(file, MPI_ERRORS_ARE_FATAL);
    MPI_File_write_all(file, bytes, SIZE, MPI_BYTE, MPI_STATUS_IGNORE);
}

static void buffer(void) {
    if (rank == 0) MPI_Bsend(bytes, SIZE, MPI_BYTE, 1, 2, MPI_COMM_WORLD);
}

static void messages(int size, int tag) {
    for (int i = 0; i < MESSAGES; i++) {
        if (rank == 0) MPI_Send(bytes, size, MPI_BYTE, 1, tag, MPI_COMM_WORLD);
        if (rank == 1) MPI_Recv(bytes, size, MPI_BYTE, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void message(void) {
    messages(SIZE, ALTERED_TAG);
}

static void segment(void) {
    messages(LARGE, LARGE_TAG);
}

static void block(void) {
    for (int i = 0; i < MESSAGES; i++) MPI_Bcast(bytes, SIZE, MPI_BYTE, 0, MPI_COMM_WORLD);
}

static const struct {
    const char* name;
    void (*make)(void);
} all[] = {{"call", call},     {"self", self},       {"window", window},   {"file", file},
           {"buffer", buffer}, {"message", message}, {"segment", segment}, {"block", block}};

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++) {
        if (argc > 1 && strcmp(argv[1], all[i].name) == 0) all[i].make();
    }
    printf("ends: rank %d goes on\n", rank);
    fflush(stdout);
    wait_for_the_other();
    return 0;
}
