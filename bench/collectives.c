/* Collective operations of all ranks, one after another: the mean time of one. SIZE is the message of Bcast and
 * Allreduce, and the block of Allgather and Alltoall. */
#include "measure.h"

struct buffers {
    char *from, *to; /* of as many blocks as there are ranks */
    int size, ranks;
};

static void bcast(const struct buffers* use, int round) {
    /* Each rank in turn, or a root runs ahead of the others. */
    MPI_Bcast(use->to, use->size, MPI_BYTE, round % use->ranks, MPI_COMM_WORLD);
}

static void allgather(const struct buffers* use, int round) {
    (void)round;
    MPI_Allgather(use->from, use->size, MPI_BYTE, use->to, use->size, MPI_BYTE, MPI_COMM_WORLD);
}

static void alltoall(const struct buffers* use, int round) {
    (void)round;
    MPI_Alltoall(use->from, use->size, MPI_BYTE, use->to, use->size, MPI_BYTE, MPI_COMM_WORLD);
}

static void allreduce(const struct buffers* use, int round) {
    (void)round;
    MPI_Allreduce(use->from, use->to, use->size / (int)sizeof(double), MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

static const struct {
    const char* name;
    void (*run)(const struct buffers*, int);
} operations[] = {{"bcast", bcast}, {"allgather", allgather}, {"alltoall", alltoall}, {"allreduce", allreduce}};

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int ranks;
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int argument = 2; argument < argc; argument++) {
        const struct test test = parse_test(argv[argument]);
        size_t which = 0;
        while (which < sizeof(operations) / sizeof(*operations) && strcmp(operations[which].name, test.label) != 0)
            which++;
        if (which == sizeof(operations) / sizeof(*operations)) MPI_Abort(MPI_COMM_WORLD, 2);
        const size_t all = (size_t)test.size * ranks;
        const struct buffers use = {some_bytes(all), some_bytes(all), test.size, ranks};
        const int most = fewer(atoi(argv[1]), test.size, 5), some = most / 50 + 1;
        const double warming = now_us();
        for (int i = 0; i < some; i++) operations[which].run(&use, i);
        const int rounds = within_time(most, 5, some, now_us() - warming);
        MPI_Barrier(MPI_COMM_WORLD);
        const double cpu = cpu_us(), began = now_us();
        for (int i = 0; i < rounds; i++) operations[which].run(&use, i);
        const double took = now_us() - began, spent = cpu_us() - cpu;
        print_result(&test, took / rounds, spent / rounds);
        free(use.from);
        free(use.to);
    }
    finish();
    return 0;
}
