/* Sends a canary by many kinds of MPI call and checks every byte that arrives.
 *
 *     canary FILE             FILE holds the canary: 32 bytes
 *     canary FILE messages    only calls that the MPI layer seals
 *
 * Each rank talks with the rank half the job away, so with the ranks of a node next to each other all of it crosses
 * between nodes. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CANARY = 32, MEDIUM = 128 * CANARY, LARGE = 4 << 20 };

static unsigned char canary[CANARY];
static int rank, ranks, partner, kinds;
static long long checked;
static unsigned char *outgoing, *incoming;

static void fill(unsigned char* bytes, int length) {
    for (int at = 0; at < length; at += CANARY) memcpy(bytes + at, canary, CANARY);
}

static void fail(const char* kind, const char* what) {
    fprintf(stderr, "canary: rank %d: %s: %s\n", rank, kind, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* The received bytes must be canaries throughout; they are wiped for the next kind. */
static void check(const char* kind, unsigned char* bytes, int length) {
    for (int at = 0; at < length; at += CANARY)
        if (memcmp(bytes + at, canary, CANARY) != 0) fail(kind, "a byte differs");
    memset(bytes, 0, length);
    checked += length;
}

typedef int send_call(const void*, int, MPI_Datatype, int, int, MPI_Comm);
typedef int start_call(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*);

static void blocking(const char* kind, send_call* send, int length) {
    MPI_Request request;
    MPI_Irecv(incoming, length, MPI_BYTE, partner, 1, MPI_COMM_WORLD, &request);
    MPI_Barrier(MPI_COMM_WORLD); /* a ready send needs the receive to be posted */
    send(outgoing, length, MPI_BYTE, partner, 1, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check(kind, incoming, length);
}

static void nonblocking(const char* kind, start_call* start, int length, int persistent) {
    MPI_Request requests[2];
    MPI_Irecv(incoming, length, MPI_BYTE, partner, 2, MPI_COMM_WORLD, &requests[0]);
    MPI_Barrier(MPI_COMM_WORLD);
    start(outgoing, length, MPI_BYTE, partner, 2, MPI_COMM_WORLD, &requests[1]);
    if (persistent) MPI_Start(&requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    if (persistent) MPI_Request_free(&requests[1]);
    check(kind, incoming, length);
}

static void point_to_point(void) {
    static const int lengths[] = {CANARY, MEDIUM, LARGE};
    int space = LARGE + MPI_BSEND_OVERHEAD;
    void* buffer = malloc(space);
    MPI_Buffer_attach(buffer, space);
    for (int i = 0; i < 3; i++) {
        int length = lengths[i];
        blocking("Send", MPI_Send, length);
        blocking("Ssend", MPI_Ssend, length);
        blocking("Bsend", MPI_Bsend, length);
        blocking("Rsend", MPI_Rsend, length);
        nonblocking("Isend", MPI_Isend, length, 0);
        nonblocking("Issend", MPI_Issend, length, 0);
        nonblocking("Ibsend", MPI_Ibsend, length, 0);
        nonblocking("Irsend", MPI_Irsend, length, 0);
        nonblocking("Send_init", MPI_Send_init, length, 1);
        nonblocking("Ssend_init", MPI_Ssend_init, length, 1);

        MPI_Sendrecv(outgoing, length, MPI_BYTE, partner, 3, incoming, length, MPI_BYTE, partner, 3, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        check("Sendrecv", incoming, length);
        fill(incoming, length);
        MPI_Sendrecv_replace(incoming, length, MPI_BYTE, partner, 4, partner, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        check("Sendrecv_replace", incoming, length);

        MPI_Request request;
        MPI_Message message;
        MPI_Status status;
        int arrived;
        MPI_Isend(outgoing, length, MPI_BYTE, partner, 5, MPI_COMM_WORLD, &request);
        MPI_Mprobe(MPI_ANY_SOURCE, 5, MPI_COMM_WORLD, &message, &status);
        MPI_Get_count(&status, MPI_BYTE, &arrived);
        if (arrived != length || status.MPI_SOURCE != partner) fail("Mprobe", "other length or source");
        MPI_Mrecv(incoming, length, MPI_BYTE, &message, MPI_STATUS_IGNORE);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        check("Mrecv", incoming, length);
    }
    kinds += 13;
    MPI_Buffer_detach(&buffer, &space);
    free(buffer);

    /* A canary in every second block: the type leaves gaps. */
    MPI_Datatype gaps;
    MPI_Type_vector(64, CANARY, 2 * CANARY, MPI_BYTE, &gaps);
    MPI_Type_commit(&gaps);
    MPI_Sendrecv(outgoing, 1, gaps, partner, 6, incoming, 1, gaps, partner, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int block = 0; block < 64; block++) check("derived type", incoming + block * 2 * CANARY, CANARY);
    MPI_Type_free(&gaps);
    kinds++;
}

static void collectives(int length) {
    const MPI_Comm world = MPI_COMM_WORLD;
    int all = length * ranks;
    int* counts = malloc(sizeof(int) * ranks);
    int* places = malloc(sizeof(int) * ranks);
    MPI_Datatype* bytes = malloc(sizeof(MPI_Datatype) * ranks);
    for (int i = 0; i < ranks; i++) {
        counts[i] = length;
        places[i] = i * length;
        bytes[i] = MPI_BYTE;
    }
    for (int root = 0; root < ranks; root++) {
        if (rank == root) fill(incoming, length);
        MPI_Bcast(incoming, length, MPI_BYTE, root, world);
        check("Bcast", incoming, length);
        MPI_Gather(outgoing, length, MPI_BYTE, incoming, length, MPI_BYTE, root, world);
        if (rank == root) check("Gather", incoming, all);
        MPI_Gatherv(outgoing, length, MPI_BYTE, incoming, counts, places, MPI_BYTE, root, world);
        if (rank == root) check("Gatherv", incoming, all);
        MPI_Scatter(outgoing, length, MPI_BYTE, incoming, length, MPI_BYTE, root, world);
        check("Scatter", incoming, length);
        MPI_Scatterv(outgoing, counts, places, MPI_BYTE, incoming, length, MPI_BYTE, root, world);
        check("Scatterv", incoming, length);
        MPI_Reduce(outgoing, incoming, length, MPI_BYTE, MPI_BOR, root, world);
        if (rank == root) check("Reduce", incoming, length);
    }
    MPI_Allgather(outgoing, length, MPI_BYTE, incoming, length, MPI_BYTE, world);
    check("Allgather", incoming, all);
    MPI_Allgatherv(outgoing, length, MPI_BYTE, incoming, counts, places, MPI_BYTE, world);
    check("Allgatherv", incoming, all);
    MPI_Alltoall(outgoing, length, MPI_BYTE, incoming, length, MPI_BYTE, world);
    check("Alltoall", incoming, all);
    MPI_Alltoallv(outgoing, counts, places, MPI_BYTE, incoming, counts, places, MPI_BYTE, world);
    check("Alltoallv", incoming, all);
    MPI_Alltoallw(outgoing, counts, places, bytes, incoming, counts, places, bytes, world);
    check("Alltoallw", incoming, all);
    MPI_Allreduce(outgoing, incoming, length, MPI_BYTE, MPI_BOR, world);
    check("Allreduce", incoming, length);
    MPI_Reduce_scatter_block(outgoing, incoming, length, MPI_BYTE, MPI_BOR, world);
    check("Reduce_scatter_block", incoming, length);
    MPI_Reduce_scatter(outgoing, incoming, counts, MPI_BYTE, MPI_BOR, world);
    check("Reduce_scatter", incoming, length);
    MPI_Scan(outgoing, incoming, length, MPI_BYTE, MPI_BOR, world);
    check("Scan", incoming, length);
    MPI_Exscan(outgoing, incoming, length, MPI_BYTE, MPI_BOR, world);
    if (rank > 0) check("Exscan", incoming, length);
    free(counts);
    free(places);
    free(bytes);
}

static void more_collectives(int length) {
    const MPI_Comm world = MPI_COMM_WORLD;
    int all = length * ranks;
    MPI_Request request;
    if (rank == 0) fill(incoming, length);
    MPI_Ibcast(incoming, length, MPI_BYTE, 0, world, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check("Ibcast", incoming, length);
    MPI_Iallgather(outgoing, length, MPI_BYTE, incoming, length, MPI_BYTE, world, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check("Iallgather", incoming, all);
    MPI_Ialltoall(outgoing, length, MPI_BYTE, incoming, length, MPI_BYTE, world, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check("Ialltoall", incoming, all);
    MPI_Iallreduce(outgoing, incoming, length, MPI_BYTE, MPI_BOR, world, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    check("Iallreduce", incoming, length);

    MPI_Comm ring;
    int periodic = 1;
    MPI_Cart_create(world, 1, &ranks, &periodic, 0, &ring);
    MPI_Neighbor_allgather(outgoing, length, MPI_BYTE, incoming, length, MPI_BYTE, ring);
    check("Neighbor_allgather", incoming, 2 * length);
    MPI_Neighbor_alltoall(outgoing, length, MPI_BYTE, incoming, length, MPI_BYTE, ring);
    check("Neighbor_alltoall", incoming, 2 * length);
    MPI_Comm_free(&ring);
}

static void one_sided(int length) {
    unsigned char* base;
    MPI_Win window;
    MPI_Win_allocate(length, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
    memset(base, 0, length);

    MPI_Win_fence(0, window);
    MPI_Put(outgoing, length, MPI_BYTE, partner, 0, length, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    check("Put", base, length);

    MPI_Win_fence(0, window);
    MPI_Accumulate(outgoing, length, MPI_BYTE, partner, 0, length, MPI_BYTE, MPI_BOR, window);
    MPI_Win_fence(0, window);
    MPI_Get(incoming, length, MPI_BYTE, partner, 0, length, MPI_BYTE, window);
    MPI_Win_fence(0, window);
    check("Get", incoming, length);

    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, partner, 0, window);
    MPI_Get_accumulate(outgoing, length, MPI_BYTE, incoming, length, MPI_BYTE, partner, 0, length, MPI_BYTE,
                       MPI_REPLACE, window);
    MPI_Win_unlock(partner, window);
    MPI_Barrier(MPI_COMM_WORLD);
    check("Get_accumulate", incoming, length);
    check("Accumulate", base, length);
    MPI_Win_free(&window);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks % 2 != 0) fail("start", "the number of ranks must be even");
    partner = (rank + ranks / 2) % ranks;

    FILE* file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    if (file == NULL || fread(canary, 1, CANARY, file) != CANARY) fail("start", "cannot read the canary's file");
    fclose(file);

    outgoing = malloc((size_t)LARGE * ranks);
    incoming = calloc((size_t)LARGE, ranks);
    for (int part = 0; part < ranks; part++) fill(outgoing + (size_t)part * LARGE, LARGE);

    point_to_point();
    collectives(MEDIUM);
    collectives(32 * MEDIUM);
    kinds += 16;
    if (argc < 3 || strcmp(argv[2], "messages") != 0) {
        more_collectives(MEDIUM);
        more_collectives(32 * MEDIUM);
        kinds += 6;
        one_sided(MEDIUM);
        one_sided(LARGE);
        kinds += 4;
    }

    long long sum = 0;
    MPI_Reduce(&checked, &sum, 1, MPI_LONG_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("canary: %d kinds of call, %lld bytes checked, all as sent\n", kinds, sum);
    free(outgoing);
    free(incoming);
    MPI_Finalize();
    return 0;
}
