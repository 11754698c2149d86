/* IMB's single and parallel transfers, and its Window, for all ranks: the mean time of one (ES-MPICH2 2012, table 3).
 *
 *     pingping   both ranks send before they receive
 *     sendrecv   each rank sends to the next one and receives from the one before
 *     exchange   each rank exchanges with both of its neighbours in the chain
 *     window     MPI_Win_create of SIZE bytes, a fence, and MPI_Win_free
 *
 * (Of IMB, bench/pingpong.c is PingPong, and bench/collectives.c has the collective operations.) */
#include "../../bench/measure.h"

struct place {
    int rank, before, after;
    char *out, *in; /* two messages each */
    int size;
};

static void pingping(const struct place* here) {
    MPI_Request request;
    MPI_Isend(here->out, here->size, MPI_BYTE, here->after, 0, MPI_COMM_WORLD, &request);
    MPI_Recv(here->in, here->size, MPI_BYTE, here->before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

static void sendrecv(const struct place* here) {
    MPI_Sendrecv(here->out, here->size, MPI_BYTE, here->after, 0, here->in, here->size, MPI_BYTE, here->before, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void exchange(const struct place* here) {
    MPI_Request requests[2];
    MPI_Isend(here->out, here->size, MPI_BYTE, here->after, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(here->out, here->size, MPI_BYTE, here->before, 1, MPI_COMM_WORLD, &requests[1]);
    MPI_Recv(here->in, here->size, MPI_BYTE, here->before, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Recv(here->in + here->size, here->size, MPI_BYTE, here->after, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
}

static void window(const struct place* here) {
    MPI_Win made;
    MPI_Win_create(here->in, here->size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &made);
    MPI_Win_fence(0, made);
    MPI_Win_free(&made);
}

static const struct transfer {
    const char* name;
    void (*run)(const struct place*);
    int received; /* messages that a rank has at the end */
} transfers[] = {
    {"pingping", pingping, 1}, {"sendrecv", sendrecv, 1}, {"exchange", exchange, 2}, {"window", window, 0}};

static const struct transfer* called(const char* name) {
    for (size_t i = 0; i < sizeof(transfers) / sizeof(*transfers); i++)
        if (strcmp(transfers[i].name, name) == 0) return &transfers[i];
    fprintf(stderr, "no transfer called %s\n", name);
    MPI_Abort(MPI_COMM_WORLD, 2);
    return NULL;
}

static void measure(const struct test* test, const struct transfer* transfer, const struct place* here, int wanted) {
    const int most = fewer(wanted, test->size, 5), some = most / 50 + 1;
    fill(here->out, test->size, here->rank);
    const double warming = now_us();
    for (int i = 0; i < some; i++) transfer->run(here);
    const int rounds = within_time(most, 5, some, now_us() - warming);
    memset(here->in, 0, 2 * (size_t)test->size);
    MPI_Barrier(MPI_COMM_WORLD);
    const double cpu = cpu_us(), began = now_us();
    for (int i = 0; i < rounds; i++) transfer->run(here);
    const double took = now_us() - began, spent = cpu_us() - cpu;
    if (transfer->received > 0) expect(transfer->name, here->in, test->size, here->before);
    if (transfer->received > 1) expect(transfer->name, here->in + test->size, test->size, here->after);
    print_result(test, took / rounds, spent / rounds);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int argument = 2; argument < argc; argument++) {
        const struct test test = parse_test(argv[argument]);
        const struct place here = {rank,
                                   (rank + ranks - 1) % ranks,
                                   (rank + 1) % ranks,
                                   some_bytes(test.size),
                                   some_bytes(2 * (size_t)test.size),
                                   test.size};
        measure(&test, called(test.label), &here, atoi(argv[1]));
        free(here.out);
        free(here.in);
    }
    finish();
    return 0;
}
