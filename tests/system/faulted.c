/* Two ranks that exchange messages of all kinds, every byte of which is of a canary, while calls below them fail. A
 * rank that is told of an error looks whether memory of a call that has failed is written later, sends some more, of
 * memory that has to be packed, and ends the job.
 *
 *     faulted 64-HEX-DIGITS
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CANARY = 32, SMALL = 3200, LARGE = 640000, BLOCK = 64000, MORE = 40 };

static int rank, other;
static const char* step;
static unsigned char out[2 * LARGE], in[2 * LARGE], again[2 * LARGE];
static char attached[LARGE + 4096];
static int pending; /* there is a request besides that of the call that failed: MPI may write */

/* After a call has failed, or a wait for its request, its memory is the program's again, whatever comes for it still.
 */
static void expect_own_memory_to_stay(void) {
    enum { OURS = 0x5b, LOOKS = 300, BETWEEN_LOOKS_us = 1000 };
    memset(in, OURS, sizeof in);
    memset(again, OURS, sizeof again);
    for (int i = 0; i < LOOKS; i++) {
        int found;
        MPI_Iprobe(other, 98, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE);
        usleep(BETWEEN_LOOKS_us);
    }
    for (size_t i = 0; i < sizeof in; i++) {
        if (in[i] == OURS && again[i] == OURS) continue;
        printf("faulted: rank %d: WRONG: %s has failed, and its memory was written later, at %zu\n", rank, step, i);
        break;
    }
    fflush(stdout);
}

/* Packed, each is a buffer of ours for a moment, with the canary in it: none of these may be one that MPI still has. */
static void go_on_and_end(int code) {
    int length;
    char text[MPI_MAX_ERROR_STRING];
    MPI_Error_string(code, text, &length);
    printf("faulted: rank %d: %s: %s\n", rank, step, text);
    fflush(stdout);
    if (!pending) expect_own_memory_to_stay();
    const int sizes[] = {CANARY, SMALL, 60000, 130000, 200000};
    for (int i = 0; i < MORE; i++) {
        MPI_Datatype type;
        MPI_Request request;
        MPI_Type_vector(sizes[i % 5] / CANARY, CANARY, 2 * CANARY, MPI_BYTE, &type);
        MPI_Type_commit(&type);
        MPI_Isend(out, 1, type, other, 99, MPI_COMM_WORLD, &request);
        MPI_Type_free(&type);
    }
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static void check(int code) {
    if (code != MPI_SUCCESS) go_on_and_end(code);
}

static void messages(int size, int tag) {
    MPI_Request requests[2], persistent;
    MPI_Status statuses[2];
    MPI_Message message;
    step = "Send";
    if (rank == 0) check(MPI_Send(out, size, MPI_BYTE, 1, tag, MPI_COMM_WORLD));
    if (rank == 1) check(MPI_Recv(in, size, MPI_BYTE, 0, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    step = "Ssend";
    if (rank == 1) check(MPI_Ssend(out, size, MPI_BYTE, 0, tag, MPI_COMM_WORLD));
    if (rank == 0) check(MPI_Recv(in, size, MPI_BYTE, 1, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    step = "Isend";
    pending = 1;
    check(MPI_Irecv(in, size, MPI_BYTE, other, tag, MPI_COMM_WORLD, &requests[0]));
    check(MPI_Isend(out, size, MPI_BYTE, other, tag, MPI_COMM_WORLD, &requests[1]));
    check(MPI_Waitall(2, requests, statuses));
    step = "Wait";
    check(MPI_Irecv(in, size, MPI_BYTE, other, tag, MPI_COMM_WORLD, &requests[0]));
    check(MPI_Issend(out, size, MPI_BYTE, other, tag, MPI_COMM_WORLD, &requests[1]));
    check(MPI_Wait(&requests[1], MPI_STATUS_IGNORE));
    pending = 0;
    check(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    step = "Waitany";
    pending = 1;
    check(MPI_Irecv(in, size, MPI_BYTE, other, tag, MPI_COMM_WORLD, &requests[0]));
    check(MPI_Isend(out, size, MPI_BYTE, other, tag, MPI_COMM_WORLD, &requests[1]));
    for (int i = 0, which; i < 2; i++) check(MPI_Waitany(2, requests, &which, MPI_STATUS_IGNORE));
    step = "Sendrecv";
    pending = 0;
    check(MPI_Sendrecv(out, size, MPI_BYTE, other, tag, in, size, MPI_BYTE, other, tag, MPI_COMM_WORLD, statuses));
    step = "Sendrecv_replace";
    memcpy(again, out, (size_t)size);
    check(MPI_Sendrecv_replace(again, size, MPI_BYTE, other, tag, other, tag, MPI_COMM_WORLD, statuses));
    step = "Bsend";
    MPI_Buffer_attach(attached, sizeof attached);
    pending = 1;
    check(MPI_Irecv(in, size, MPI_BYTE, other, tag, MPI_COMM_WORLD, &requests[0]));
    check(MPI_Bsend(out, size, MPI_BYTE, other, tag, MPI_COMM_WORLD));
    pending = 0;
    check(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    int attached_size;
    void* detached;
    MPI_Buffer_detach(&detached, &attached_size);
    step = "Send_init";
    check(MPI_Send_init(out, size, MPI_BYTE, other, tag, MPI_COMM_WORLD, &persistent));
    for (int i = 0; i < 2; i++) {
        pending = 1;
        check(MPI_Irecv(in, size, MPI_BYTE, other, tag, MPI_COMM_WORLD, &requests[0]));
        check(MPI_Start(&persistent));
        check(MPI_Wait(&persistent, MPI_STATUS_IGNORE));
        pending = 0;
        check(MPI_Wait(&requests[0], MPI_STATUS_IGNORE));
    }
    MPI_Request_free(&persistent);
    step = "Mprobe";
    pending = 1;
    check(MPI_Isend(out, size, MPI_BYTE, other, tag, MPI_COMM_WORLD, &requests[1]));
    check(MPI_Mprobe(other, tag, MPI_COMM_WORLD, &message, statuses));
    check(MPI_Imrecv(in, size, MPI_BYTE, &message, &requests[0]));
    check(MPI_Waitall(2, requests, statuses));
    pending = 0;
}

static void collectives(int size) {
    const int counts[] = {size, size}, places[] = {0, size};
    step = "Bcast";
    check(MPI_Bcast(rank == 0 ? out : in, size, MPI_BYTE, 0, MPI_COMM_WORLD));
    step = "Allreduce";
    check(MPI_Allreduce(out, in, size, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD));
    step = "Reduce";
    check(MPI_Reduce(out, in, size, MPI_BYTE, MPI_BOR, 1, MPI_COMM_WORLD));
    step = "Scan";
    check(MPI_Scan(out, in, size, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD));
    step = "Alltoallv";
    check(MPI_Alltoallv(out, counts, places, MPI_BYTE, in, counts, places, MPI_BYTE, MPI_COMM_WORLD));
    step = "Alltoall";
    check(MPI_Alltoall(out, size, MPI_BYTE, in, size, MPI_BYTE, MPI_COMM_WORLD));
    step = "Allgather";
    check(MPI_Allgather(out, size, MPI_BYTE, in, size, MPI_BYTE, MPI_COMM_WORLD));
    step = "Gather";
    check(MPI_Gather(out, size, MPI_BYTE, in, size, MPI_BYTE, 0, MPI_COMM_WORLD));
    step = "Scatter";
    check(MPI_Scatter(out, size, MPI_BYTE, in, size, MPI_BYTE, 0, MPI_COMM_WORLD));
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    other = 1 - rank;
    for (int i = 0; argc > 1 && i < CANARY; i++) sscanf(argv[1] + 2 * i, "%2hhx", &out[i]);
    for (size_t i = CANARY; i < sizeof out; i += CANARY) memcpy(out + i, out, CANARY);
    messages(SMALL, 1);
    messages(LARGE, 2);
    collectives(SMALL);
    collectives(LARGE);
    MPI_Barrier(MPI_COMM_WORLD);
    printf("faulted: rank %d: no error\n", rank);
    MPI_Finalize();
    return 0;
}
