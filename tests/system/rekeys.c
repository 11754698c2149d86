/* Each operation often enough that every key of its flows is used up several times over (CRYPTMPI_INTERNAL_KEY_LIMITS,
 * or rekey_s), with messages of several tags and sizes on their way around it, which are received afterwards. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TIMES = 12, FLYING = 10, LARGE = 300000, ROOM = 400000 };

static int rank, ranks, peer, failures;
static const char* operation;
static unsigned char out[8][ROOM], in[8][ROOM];
static unsigned char flying_out[FLYING][LARGE], flying_in[FLYING][LARGE];

static void expect(int holds) {
    if (holds) return;
    printf("rekeys: %s is wrong on rank %d\n", operation, rank);
    failures++;
}

static unsigned char value(int from, int place, int time) {
    return (unsigned char)(from * 31 + place * 7 + time);
}
static void fill(unsigned char* at, int size, int from, int time) {
    for (int i = 0; i < size; i++) at[i] = value(from, i, time);
}
static int is(const unsigned char* at, int size, int from, int time) {
    for (int i = 0; i < size; i++) {
        if (at[i] != value(from, i, time)) return 0;
    }
    return 1;
}

static int size_of(int message) {
    return message == 3 ? LARGE : message == 7 ? 0 : 40 * message + 1;
}

static void blocking(int time) {
    const int size = size_of(time % FLYING);
    fill(out[0], size, rank, time);
    MPI_Sendrecv(out[0], size, MPI_BYTE, peer, 50, in[0], size, MPI_BYTE, peer, 50, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    expect(is(in[0], size, peer, time));
}
static void modes(int time) {
    MPI_Request receives[3];
    for (int i = 0; i < 3; i++) MPI_Irecv(in[i], 100, MPI_BYTE, peer, 60 + i, MPI_COMM_WORLD, &receives[i]);
    MPI_Barrier(MPI_COMM_WORLD);
    fill(out[0], 100, rank, time);
    MPI_Ssend(out[0], 100, MPI_BYTE, peer, 60, MPI_COMM_WORLD);
    MPI_Bsend(out[0], 100, MPI_BYTE, peer, 61, MPI_COMM_WORLD);
    MPI_Rsend(out[0], 100, MPI_BYTE, peer, 62, MPI_COMM_WORLD);
    MPI_Waitall(3, receives, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 3; i++) expect(is(in[i], 100, peer, time));
}
static void persistent(int time) {
    static MPI_Request both[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    if (time == 0) {
        MPI_Send_init(out[0], 500, MPI_BYTE, peer, 70, MPI_COMM_WORLD, &both[0]);
        MPI_Recv_init(in[0], 500, MPI_BYTE, peer, 70, MPI_COMM_WORLD, &both[1]);
    }
    fill(out[0], 500, rank, time);
    MPI_Startall(2, both);
    MPI_Waitall(2, both, MPI_STATUSES_IGNORE);
    expect(is(in[0], 500, peer, time));
    if (time == TIMES - 1) MPI_Request_free(&both[0]), MPI_Request_free(&both[1]);
}
static void probed(int time) {
    MPI_Request request;
    MPI_Message message;
    MPI_Status status;
    int size;
    fill(out[0], 10 + time, rank, time);
    MPI_Isend(out[0], 10 + time, MPI_BYTE, peer, 80, MPI_COMM_WORLD, &request);
    MPI_Mprobe(MPI_ANY_SOURCE, 80, MPI_COMM_WORLD, &message, &status);
    MPI_Get_count(&status, MPI_BYTE, &size);
    expect(size == 10 + time);
    MPI_Mrecv(in[0], size, MPI_BYTE, &message, MPI_STATUS_IGNORE);
    expect(is(in[0], size, peer, time));
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}
static void vectors(int time) {
    MPI_Datatype every_other;
    MPI_Type_vector(5000, 8, 16, MPI_BYTE, &every_other);
    MPI_Type_commit(&every_other);
    fill(out[0], 80000, rank, time);
    memset(in[0], 0, 80000);
    MPI_Sendrecv(out[0], 1, every_other, peer, 51, in[0], 1, every_other, peer, 51, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < 80000; i++) {
        if (in[0][i] != (i % 16 < 8 ? value(peer, i, time) : 0)) return expect(0);
    }
    MPI_Type_free(&every_other);
}

static void bcast(int time) {
    const int root = time % ranks, size = time % 3 == 0 ? LARGE : 1000;
    if (rank == root) fill(in[0], size, root, time);
    MPI_Bcast(in[0], size, MPI_BYTE, root, MPI_COMM_WORLD);
    expect(is(in[0], size, root, time));
}
static void ibcast(int time) {
    MPI_Request requests[2];
    for (int i = 0; i < 2; i++) {
        if (rank == i % ranks) fill(in[i], 700, rank, time);
        MPI_Ibcast(in[i], 700, MPI_BYTE, i % ranks, MPI_COMM_WORLD, &requests[i]);
    }
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < 2; i++) expect(is(in[i], 700, i % ranks, time));
}
static void gather_scatter(int time) {
    const int root = time % ranks, size = 900;
    fill(out[0], size, rank, time);
    MPI_Gather(out[0], size, MPI_BYTE, in[0], size, MPI_BYTE, root, MPI_COMM_WORLD);
    for (int r = 0; rank == root && r < ranks; r++) expect(is(in[0] + r * size, size, r, time));
    for (int r = 0; rank == root && r < ranks; r++) fill(out[1] + r * size, size, r + 1, time);
    MPI_Scatter(out[1], size, MPI_BYTE, in[1], size, MPI_BYTE, root, MPI_COMM_WORLD);
    expect(is(in[1], size, rank + 1, time));
}
static void allgather(int time) {
    const int size = time % 2 ? 90000 : 300;
    fill(out[0], size, rank, time);
    MPI_Allgather(out[0], size, MPI_BYTE, in[0], size, MPI_BYTE, MPI_COMM_WORLD);
    for (int r = 0; r < ranks; r++) expect(is(in[0] + r * size, size, r, time));
}
static void alltoall(int time) {
    const int size = time % 2 ? 20000 : 100;
    for (int r = 0; r < ranks; r++) fill(out[0] + r * size, size, rank * ranks + r, time);
    MPI_Alltoall(out[0], size, MPI_BYTE, in[0], size, MPI_BYTE, MPI_COMM_WORLD);
    for (int r = 0; r < ranks; r++) expect(is(in[0] + r * size, size, r * ranks + rank, time));
}
static void reductions(int time) {
    enum { MANY = 50000 };
    static int mine[MANY], sum[MANY];
    const int count = time % 2 ? MANY : 10;
    for (int i = 0; i < count; i++) mine[i] = (rank + 1) * (i % 100 + time);
    const int all = ranks * (ranks + 1) / 2;
    int good = 1;
    MPI_Allreduce(mine, sum, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++) good &= sum[i] == all * (i % 100 + time);
    MPI_Reduce(mine, sum, count, MPI_INT, MPI_SUM, time % ranks, MPI_COMM_WORLD);
    for (int i = 0; rank == time % ranks && i < count; i++) good &= sum[i] == all * (i % 100 + time);
    MPI_Reduce_scatter_block(mine, sum, count / ranks, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count / ranks; i++) good &= sum[i] == all * ((rank * (count / ranks) + i) % 100 + time);
    MPI_Scan(mine, sum, count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < count; i++) good &= sum[i] == (rank + 1) * (rank + 2) / 2 * (i % 100 + time);
    expect(good);
}
static void made(int time) {
    MPI_Comm half, copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Comm_split(copy, rank % 2, rank, &half);
    int sum = 0, mine = rank + time, of_half = 0;
    for (int r = rank % 2; r < ranks; r += 2) of_half += r + time;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, half);
    expect(sum == of_half);
    MPI_Comm_free(&half);
    MPI_Comm_free(&copy);
}

static const struct {
    const char* name;
    void (*run)(int time);
} kOperations[] = {
    {"Sendrecv", blocking},   {"send modes", modes},  {"persistent", persistent}, {"Mprobe", probed},
    {"vectors", vectors},     {"Bcast", bcast},       {"Ibcast", ibcast},         {"Gather, Scatter", gather_scatter},
    {"Allgather", allgather}, {"Alltoall", alltoall}, {"reductions", reductions}, {"made communicators", made}};

int main(int argc, char** argv) {
    const int only_messages = argc > 1 && strcmp(argv[1], "messages") == 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    peer = (rank + ranks / 2) % ranks; /* on the other node, where each has half of the ranks */
    static char buffered[100000];
    MPI_Buffer_attach(buffered, sizeof buffered);
    for (unsigned at = 0; at < sizeof kOperations / sizeof kOperations[0]; at++) {
        MPI_Request sends[FLYING], receives[FLYING];
        if (only_messages && kOperations[at].run == ibcast) continue;
        operation = kOperations[at].name;
        for (int i = 0; i < FLYING; i++) { /* three tags in turn: lanes of one flow */
            fill(flying_out[i], size_of(i), rank, i);
            MPI_Isend(flying_out[i], size_of(i), MPI_BYTE, peer, i % 3, MPI_COMM_WORLD, &sends[i]);
        }
        for (int i = 0; i < FLYING; i += 2)
            MPI_Irecv(flying_in[i], LARGE, MPI_BYTE, i % 4 ? peer : MPI_ANY_SOURCE, i % 3, MPI_COMM_WORLD,
                      &receives[i]);
        for (int time = 0; time < TIMES; time++) kOperations[at].run(time);
        for (int i = 1; i < FLYING; i += 2)
            MPI_Irecv(flying_in[i], LARGE, MPI_BYTE, peer, i % 3, MPI_COMM_WORLD, &receives[i]);
        MPI_Waitall(FLYING, receives, MPI_STATUSES_IGNORE);
        MPI_Waitall(FLYING, sends, MPI_STATUSES_IGNORE);
        /* Of each tag the receives got the messages in the order of their posting: the even ones first. */
        for (int tag = 0; tag < 3; tag++) {
            int message = tag;
            for (int odd = 0; odd < 2; odd++) {
                for (int i = odd; i < FLYING; i += 2) {
                    if (i % 3 != tag) continue;
                    expect(is(flying_in[i], size_of(message), peer, message));
                    message += 3;
                }
            }
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) printf("rekeys: %s done\n", operation);
    }
    int size;
    void* detached;
    MPI_Buffer_detach(&detached, &size);
    int all = 0;
    MPI_Reduce(&failures, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("rekeys: %s\n", all == 0 ? "all is right" : "WRONG");
    MPI_Finalize();
    return 0;
}
