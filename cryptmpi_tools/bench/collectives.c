/* Collective operations of all ranks, one after another: the mean time of one. SIZE is the message of Bcast and of the
 * reductions, and the block that goes from one rank to another of all others. What they leave is checked afterwards. */
#include "measure.h"

struct buffers {
    char *from, *to; /* of as many blocks as there are ranks */
    int size, rank, ranks;
    int *counts, *offsets; /* of the blocks, for the operations that are told of each one's */
};

static MPI_Datatype element(const struct buffers* use) {
    return use->size % (int)sizeof(double) == 0 ? MPI_DOUBLE : MPI_UNSIGNED_CHAR;
}

static int elements(const struct buffers* use) {
    return element(use) == MPI_DOUBLE ? use->size / (int)sizeof(double) : use->size;
}

/* Each rank is the root in turn, or a root runs ahead of the others. */
static int root_of(const struct buffers* use, int round) {
    return round % use->ranks;
}

static void bcast(const struct buffers* use, int round) {
    MPI_Bcast(use->to, use->size, MPI_BYTE, root_of(use, round), MPI_COMM_WORLD);
}

static void allgather(const struct buffers* use, int round) {
    (void)round;
    MPI_Allgather(use->from, use->size, MPI_BYTE, use->to, use->size, MPI_BYTE, MPI_COMM_WORLD);
}

static void allgatherv(const struct buffers* use, int round) {
    (void)round;
    MPI_Allgatherv(use->from, use->size, MPI_BYTE, use->to, use->counts, use->offsets, MPI_BYTE, MPI_COMM_WORLD);
}

static void alltoall(const struct buffers* use, int round) {
    (void)round;
    MPI_Alltoall(use->from, use->size, MPI_BYTE, use->to, use->size, MPI_BYTE, MPI_COMM_WORLD);
}

static void alltoallv(const struct buffers* use, int round) {
    (void)round;
    MPI_Alltoallv(use->from, use->counts, use->offsets, MPI_BYTE, use->to, use->counts, use->offsets, MPI_BYTE,
                  MPI_COMM_WORLD);
}

static void gather(const struct buffers* use, int round) {
    MPI_Gather(use->from, use->size, MPI_BYTE, use->to, use->size, MPI_BYTE, root_of(use, round), MPI_COMM_WORLD);
}

static void gatherv(const struct buffers* use, int round) {
    MPI_Gatherv(use->from, use->size, MPI_BYTE, use->to, use->counts, use->offsets, MPI_BYTE, root_of(use, round),
                MPI_COMM_WORLD);
}

static void scatter(const struct buffers* use, int round) {
    MPI_Scatter(use->from, use->size, MPI_BYTE, use->to, use->size, MPI_BYTE, root_of(use, round), MPI_COMM_WORLD);
}

static void scatterv(const struct buffers* use, int round) {
    MPI_Scatterv(use->from, use->counts, use->offsets, MPI_BYTE, use->to, use->size, MPI_BYTE, root_of(use, round),
                 MPI_COMM_WORLD);
}

static void allreduce(const struct buffers* use, int round) {
    (void)round;
    MPI_Allreduce(use->from, use->to, elements(use), element(use), MPI_SUM, MPI_COMM_WORLD);
}

static void reduce(const struct buffers* use, int round) {
    MPI_Reduce(use->from, use->to, elements(use), element(use), MPI_SUM, root_of(use, round), MPI_COMM_WORLD);
}

static void reduce_scatter(const struct buffers* use, int round) {
    (void)round;
    int each[use->ranks];
    for (int i = 0; i < use->ranks; i++) each[i] = elements(use) / use->ranks + (i < elements(use) % use->ranks);
    MPI_Reduce_scatter(use->from, use->to, each, element(use), MPI_SUM, MPI_COMM_WORLD);
}

/* What the last round leaves behind. Blocks for others are filled with the seed sender * ranks + receiver, one that
 * goes to all with its sender's number, numbers to be summed with the sender's number plus one. */
enum kind { TO_ALL, TO_EACH, FROM_ROOT, GATHERED, SCATTERED, SUM_OF_ALL, SUM_AT_ROOT, SUM_IN_PARTS };

static const struct operation {
    const char* name;
    void (*run)(const struct buffers*, int);
    enum kind kind;
} operations[] = {{"bcast", bcast, FROM_ROOT},        {"allgather", allgather, TO_ALL},
                  {"allgatherv", allgatherv, TO_ALL}, {"alltoall", alltoall, TO_EACH},
                  {"alltoallv", alltoallv, TO_EACH},  {"gather", gather, GATHERED},
                  {"gatherv", gatherv, GATHERED},     {"scatter", scatter, SCATTERED},
                  {"scatterv", scatterv, SCATTERED},  {"allreduce", allreduce, SUM_OF_ALL},
                  {"reduce", reduce, SUM_AT_ROOT},    {"reduce_scatter", reduce_scatter, SUM_IN_PARTS}};

static void fill_numbers(const struct buffers* use, char* to, int value) {
    if (element(use) == MPI_UNSIGNED_CHAR) {
        memset(to, value, use->size);
        return;
    }
    for (int i = 0; i < elements(use); i++) ((double*)to)[i] = value;
}

static void prepare(const struct operation* operation, const struct buffers* use) {
    const size_t size = use->size;
    memset(use->to, 0, size * use->ranks);
    for (int i = 0; i < use->ranks; i++) {
        char* block = use->from + size * i;
        switch (operation->kind) {
            case TO_EACH:
            case SCATTERED:
                fill(block, size, use->rank * use->ranks + i);
                break;
            case SUM_OF_ALL:
            case SUM_AT_ROOT:
            case SUM_IN_PARTS:
                fill_numbers(use, block, use->rank + 1);
                break;
            default:
                fill(block, size, use->rank);
        }
    }
    /* Bcast sends what it receives to. */
    if (operation->kind == FROM_ROOT && use->rank == 0) fill(use->to, size, 0);
}

static void expect_sums(const char* what, const struct buffers* use, int count) {
    const int sum = use->ranks * (use->ranks + 1) / 2;
    for (int i = 0; i < count; i++) {
        const int right =
            element(use) == MPI_DOUBLE ? ((double*)use->to)[i] == sum : (unsigned char)use->to[i] == (sum & 0xff);
        if (right) continue;
        fprintf(stderr, "%s of %d bytes: sum %d is wrong\n", what, use->size, i);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

static void check(const struct operation* operation, const struct buffers* use, int rounds) {
    const size_t size = use->size;
    const int root = root_of(use, rounds - 1);
    switch (operation->kind) {
        case FROM_ROOT:
            expect(operation->name, use->to, size, 0);
            break;
        case SCATTERED:
            expect(operation->name, use->to, size, root * use->ranks + use->rank);
            break;
        case TO_ALL:
        case TO_EACH:
        case GATHERED:
            for (int i = 0; i < use->ranks && (operation->kind != GATHERED || use->rank == root); i++)
                expect(operation->name, use->to + size * i, size,
                       operation->kind == TO_EACH ? i * use->ranks + use->rank : i);
            break;
        case SUM_OF_ALL:
            expect_sums(operation->name, use, elements(use));
            break;
        case SUM_AT_ROOT:
            if (use->rank == root) expect_sums(operation->name, use, elements(use));
            break;
        case SUM_IN_PARTS:
            expect_sums(operation->name, use, elements(use) / use->ranks + (use->rank < elements(use) % use->ranks));
    }
}

static const struct operation* called(const char* name) {
    for (size_t i = 0; i < sizeof(operations) / sizeof(*operations); i++)
        if (strcmp(operations[i].name, name) == 0) return &operations[i];
    fprintf(stderr, "no operation called %s\n", name);
    MPI_Abort(MPI_COMM_WORLD, 2);
    return NULL;
}

static void measure(const struct test* test, const struct operation* operation, const struct buffers* use, int wanted) {
    const int most = fewer(wanted, test->size, 5), some = most / 50 + 1;
    prepare(operation, use);
    const double warming = now_us();
    for (int i = 0; i < some; i++) operation->run(use, i);
    const int rounds = within_time(most, 5, some, now_us() - warming);
    MPI_Barrier(MPI_COMM_WORLD);
    const double cpu = cpu_us(), began = now_us();
    for (int i = 0; i < rounds; i++) operation->run(use, i);
    const double took = now_us() - began, spent = cpu_us() - cpu;
    MPI_Barrier(MPI_COMM_WORLD); /* nobody checks what came while others are timed */
    check(operation, use, rounds);
    print_result(test, took / rounds, spent / rounds);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int argument = 2; argument < argc; argument++) {
        const struct test test = parse_test(argv[argument]);
        const size_t all = (size_t)test.size * ranks;
        int counts[ranks], offsets[ranks];
        for (int i = 0; i < ranks; i++) {
            counts[i] = test.size;
            offsets[i] = i * test.size;
        }
        const struct buffers use = {some_bytes(all), some_bytes(all), test.size, rank, ranks, counts, offsets};
        measure(&test, called(test.label), &use, atoi(argv[1]));
        free(use.from);
        free(use.to);
    }
    finish();
    return 0;
}
