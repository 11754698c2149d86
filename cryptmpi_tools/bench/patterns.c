/* Communication of the kind that the NAS kernels have, without their arithmetic: what an observer of sizes tries to
 * tell apart.
 *
 *   patterns cg|ft|mg|lu|is N ITERATIONS SEED
 *
 * For two or more ranks, each with a partner; N is the problem's edge. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, partner;
static char *sent, *received;

static void exchange(size_t bytes) {
    MPI_Sendrecv(sent, (int)bytes, MPI_BYTE, partner, 1, received, (int)bytes, MPI_BYTE, partner, 1, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
}

static void sum(int count) {
    MPI_Allreduce(sent, received, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

/* Conjugate gradients: a vector with the partner, two scalar products. */
static void cg(size_t n) {
    exchange(n * n / 2 * 8);
    sum(1);
    sum(1);
}

/* A Fourier transform's transposition. */
static void ft(size_t n) {
    MPI_Alltoall(sent, (int)(n * n * 4), MPI_BYTE, received, (int)(n * n * 4), MPI_BYTE, MPI_COMM_WORLD);
    sum(2);
}

/* Faces of ever coarser grids, down and up again. */
static void mg(size_t n) {
    for (size_t edge = n; edge >= 4; edge /= 2) exchange(edge * edge * 8);
    for (size_t edge = 4; edge <= n; edge *= 2) exchange(edge * edge * 8);
    sum(1);
}

/* Lines of a sweep, many and small. */
static void lu(size_t n) {
    for (size_t line = 0; line < n / 4; ++line) exchange(5 * n * 8);
}

/* A sort: the buckets' sizes, then keys, of which not all ranks get as many. */
static void is(size_t n) {
    sum(128);
    const size_t keys = n * n * 4;
    exchange(keys - (size_t)rand() % (keys / 16));
}

int main(int count, char** arguments) {
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (count != 5 || size % 2 != 0) MPI_Abort(MPI_COMM_WORLD, 2);
    partner = (rank + size / 2) % size;
    const size_t n = strtoul(arguments[2], NULL, 10);
    srand((unsigned)atoi(arguments[4])); /* the same on both sides, so that sizes agree */
    const size_t room = n * n * 16 * (size_t)size + 4096;
    sent = calloc(room, 1);
    received = calloc(room, 1);
    for (int i = 0; i < atoi(arguments[3]); ++i) {
        if (!strcmp(arguments[1], "cg")) cg(n);
        if (!strcmp(arguments[1], "ft")) ft(n);
        if (!strcmp(arguments[1], "mg")) mg(n);
        if (!strcmp(arguments[1], "lu")) lu(n);
        if (!strcmp(arguments[1], "is")) is(n);
    }
    MPI_Finalize();
    return 0;
}
