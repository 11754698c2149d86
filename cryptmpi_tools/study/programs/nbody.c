/* N bodies whose blocks travel round a ring of all ranks, so that each meets all: one result for each SIZE, the bytes
 * of a rank's block. Prints "shares LABEL SIZE COMPUTING_US COMMUNICATING_US" beside it, means over the ranks. The
 * forces are checked against a sum over all bodies without any message. */
#include <math.h>

#include "../../bench/measure.h"

struct body {
    double x, y, z, mass;
};

struct force {
    double x, y, z;
};

struct shares {
    double computing, communicating;
};

/* The same for all ranks. */
static struct body body_number(int number) {
    const double n = number + 1;
    return (struct body){sin(n * 12.9898), sin(n * 78.233), sin(n * 37.719), 0.5 + 0.5 * fabs(sin(n * 4.581))};
}

static void add(struct force* to, const struct body* on, const struct body* from) {
    const double x = from->x - on->x, y = from->y - on->y, z = from->z - on->z;
    const double square = x * x + y * y + z * z + 1e-6; /* softened, and 0 for the body itself */
    const double pull = from->mass / (square * sqrt(square));
    to->x += pull * x;
    to->y += pull * y;
    to->z += pull * z;
}

/* A step: the own block meets each block that comes by. */
static struct shares step(const struct body* own, struct body* here, struct body* next, struct force* forces, int count,
                          int rank, int ranks) {
    struct shares spent = {0, 0};
    memcpy(here, own, sizeof(*own) * count);
    memset(forces, 0, sizeof(*forces) * count);
    for (int hop = 0; hop < ranks; hop++) {
        const double began = now_us();
        for (int i = 0; i < count; i++)
            for (int j = 0; j < count; j++) add(&forces[i], &own[i], &here[j]);
        const double computed = now_us();
        spent.computing += computed - began;
        if (hop + 1 == ranks) break;
        MPI_Sendrecv(here, count * (int)sizeof(*own), MPI_BYTE, (rank + 1) % ranks, hop, next,
                     count * (int)sizeof(*own), MPI_BYTE, (rank + ranks - 1) % ranks, hop, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        struct body* moved = here;
        here = next;
        next = moved;
        spent.communicating += now_us() - computed;
    }
    return spent;
}

static void check(const struct force* forces, int count, int rank, int ranks) {
    for (int i = 0; i < count; i += count / 8 + 1) {
        const struct body on = body_number(rank * count + i);
        struct force right = {0, 0, 0};
        for (int j = 0; j < count * ranks; j++) {
            const struct body from = body_number(j);
            add(&right, &on, &from);
        }
        const double off = fabs(right.x - forces[i].x) + fabs(right.y - forces[i].y) + fabs(right.z - forces[i].z);
        if (off <= 1e-9 * (1 + fabs(right.x) + fabs(right.y) + fabs(right.z)) * count * ranks) continue;
        fprintf(stderr, "n-body: the force on body %d of rank %d is wrong\n", i, rank);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

static void measure(const struct test* test, int most, int rank, int ranks) {
    const int count = test->size / (int)sizeof(struct body);
    if (count < 1) MPI_Abort(MPI_COMM_WORLD, 2);
    struct body *own = malloc(sizeof(*own) * count), *here = malloc(sizeof(*own) * count),
                *next = malloc(sizeof(*own) * count);
    struct force* forces = malloc(sizeof(*forces) * count);
    for (int i = 0; i < count; i++) own[i] = body_number(rank * count + i);
    const double warming = now_us();
    step(own, here, next, forces, count, rank, ranks);
    const int rounds = within_time(most, 3, 1, now_us() - warming);
    struct shares all = {0, 0};
    MPI_Barrier(MPI_COMM_WORLD);
    const double cpu = cpu_us(), began = now_us();
    for (int i = 0; i < rounds; i++) {
        const struct shares spent = step(own, here, next, forces, count, rank, ranks);
        all.computing += spent.computing / rounds;
        all.communicating += spent.communicating / rounds;
    }
    const double took = now_us() - began, used = cpu_us() - cpu;
    check(forces, count, rank, ranks);
    print_result(test, took / rounds, used / rounds);
    struct shares sums;
    MPI_Reduce(&all, &sums, 2, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0)
        printf("shares %s %d %.3f %.3f\n", test->label, test->size, sums.computing / ranks, sums.communicating / ranks);
    free(own);
    free(here);
    free(next);
    free(forces);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int argument = 2; argument < argc; argument++) {
        const struct test test = parse_test(argv[argument]);
        measure(&test, fewer(atoi(argv[1]), test.size, 3), rank, ranks);
    }
    finish();
    return 0;
}
