/* Messages in flight, 64 at a time, from each rank of the first node to one of the other: the time of a message is that
 * of a window, its acknowledgement included, over 64. All pairs send at once. */
#include "measure.h"

enum { IN_FLIGHT = 64, SOME_BYTES = 512 << 20 };

static char everyones[64][MPI_MAX_PROCESSOR_NAME];

/* The ranks of rank 0's node send; where all are on one node, the first half. */
static int sends(int rank, int ranks) {
    int here = 0;
    for (int i = 0; i < ranks; i++) here += strcmp(everyones[i], everyones[0]) == 0;
    return here < ranks ? strcmp(everyones[rank], everyones[0]) == 0 : rank < ranks / 2;
}

/* The n-th sender's is the n-th receiver. */
static int partner_of(int me, int ranks) {
    int before = 0, other = 0;
    for (int i = 0; i < me; i++) before += sends(i, ranks) == sends(me, ranks);
    for (; other < ranks; other++)
        if (sends(other, ranks) != sends(me, ranks) && before-- == 0) break;
    return other;
}

static void exchange(int sender, int partner, char* bytes, int size) {
    MPI_Request requests[IN_FLIGHT];
    char acknowledgement = 0;
    for (int i = 0; i < IN_FLIGHT; i++) {
        if (sender) {
            MPI_Isend(bytes, size, MPI_BYTE, partner, 0, MPI_COMM_WORLD, &requests[i]);
        } else {
            MPI_Irecv(bytes + (size_t)i * size, size, MPI_BYTE, partner, 0, MPI_COMM_WORLD, &requests[i]);
        }
    }
    MPI_Waitall(IN_FLIGHT, requests, MPI_STATUSES_IGNORE);
    if (sender) {
        MPI_Recv(&acknowledgement, 1, MPI_BYTE, partner, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Send(&acknowledgement, 1, MPI_BYTE, partner, 1, MPI_COMM_WORLD);
    }
}

static int windows_of(int rounds, int size) {
    const long most = SOME_BYTES / ((long)size * IN_FLIGHT);
    const long wanted = most < rounds ? most : rounds;
    return wanted > 2 ? (int)wanted : 2;
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks, length;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks % 2 != 0 || ranks > 64) MPI_Abort(MPI_COMM_WORLD, 2);
    char name[MPI_MAX_PROCESSOR_NAME] = "";
    MPI_Get_processor_name(name, &length);
    MPI_Allgather(name, sizeof(name), MPI_BYTE, everyones, sizeof(name), MPI_BYTE, MPI_COMM_WORLD);
    const int sender = sends(rank, ranks), partner = partner_of(rank, ranks);
    for (int argument = 2; argument < argc; argument++) {
        const struct test test = parse_test(argv[argument]);
        char* bytes = some_bytes((size_t)test.size * (sender ? 1 : IN_FLIGHT));
        if (sender) fill(bytes, test.size, 1);
        MPI_Barrier(MPI_COMM_WORLD); /* nobody still makes memory */
        const int most = windows_of(atoi(argv[1]), test.size), some = most / 50 + 1;
        const double warming = now_us();
        for (int i = 0; i < some; i++) exchange(sender, partner, bytes, test.size);
        const int windows = within_time(most, 2, some, now_us() - warming);
        MPI_Barrier(MPI_COMM_WORLD);
        const double cpu = cpu_us(), began = now_us();
        for (int i = 0; i < windows; i++) exchange(sender, partner, bytes, test.size);
        const double took = now_us() - began, spent = cpu_us() - cpu;
        MPI_Barrier(MPI_COMM_WORLD); /* nobody checks what came while others are timed */
        for (int i = 0; i < (sender ? 1 : IN_FLIGHT); i++)
            expect("window", bytes + (size_t)i * test.size, test.size, 1);
        const double messages = (double)windows * IN_FLIGHT;
        print_result(&test, sender ? took / messages : 0, spent / messages / (ranks / 2.0));
        free(bytes);
    }
    finish();
    return 0;
}
