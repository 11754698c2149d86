/* Two ranks that move more than 2 GiB in one call: the cases that the arguments name. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 129 << 20 }; /* elements of 8 bytes: two blocks are more than int counts */

static int me;
static uint64_t* kept[2]; /* of a case */
static int keeping;

static uint64_t* elements(size_t count) {
    uint64_t* const made = kept[keeping++] = malloc(count * sizeof(uint64_t));
    if (made == NULL) {
        printf("gigabytes: no memory\n");
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
    memset(made, 0xee, count * sizeof(uint64_t));
    return made;
}

static uint64_t value(size_t i, int seed) {
    return i * 0x9e3779b97f4a7c15u + (uint64_t)seed;
}

static uint64_t* filled(size_t count, int seed) {
    uint64_t* made = elements(count);
    for (size_t i = 0; i < count; i++) made[i] = value(i, seed);
    return made;
}

static void expect(const uint64_t* at, size_t count, int seed, uint64_t times) {
    for (size_t i = 0; i < count; i++) {
        if (at[i] == times * value(i, seed)) continue;
        printf("gigabytes: rank %d has %016llx for element %zu of seed %d\n", me, (unsigned long long)at[i], i, seed);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
}

static void message(void) {
    uint64_t* at = me == 0 ? filled(2 * BLOCK, 1) : elements(2 * BLOCK);
    if (me == 0) {
        MPI_Send(at, 2 * BLOCK, MPI_UINT64_T, 1, 0, MPI_COMM_WORLD);
    } else {
        MPI_Status status;
        int count = 0;
        MPI_Recv(at, 2 * BLOCK, MPI_UINT64_T, 0, 0, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_UINT64_T, &count);
        if (count != 2 * BLOCK) MPI_Abort(MPI_COMM_WORLD, 2);
    }
    expect(at, 2 * BLOCK, 1, 1);
}

/* Every second element. */
static void message_with_gaps(void) {
    MPI_Datatype spaced;
    MPI_Type_create_resized(MPI_UINT64_T, 0, 16, &spaced);
    MPI_Type_commit(&spaced);
    const size_t count = 300000000;
    uint64_t* at = elements(2 * count);
    if (me == 0) {
        for (size_t i = 0; i < count; i++) at[2 * i] = value(i, 1);
        MPI_Send(at, (int)count, spaced, 1, 0, MPI_COMM_WORLD);
    } else {
        MPI_Recv(at, (int)count, spaced, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (size_t i = 0; i < count; i++) {
            if (at[2 * i] == value(i, 1) && at[2 * i + 1] == 0xeeeeeeeeeeeeeeeeu) continue;
            printf("gigabytes: element %zu\n", i);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
    }
    MPI_Type_free(&spaced);
}

static void bcast(void) {
    uint64_t* at = me == 0 ? filled(2 * BLOCK, 1) : elements(2 * BLOCK);
    MPI_Bcast(at, 2 * BLOCK, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    expect(at, 2 * BLOCK, 1, 1);
}

static void gather(void) {
    uint64_t *from = filled(BLOCK, me), *to = me == 1 ? elements(2 * BLOCK) : NULL;
    MPI_Gather(from, BLOCK, MPI_UINT64_T, to, BLOCK, MPI_UINT64_T, 1, MPI_COMM_WORLD);
    for (int i = 0; me == 1 && i < 2; i++) expect(to + (size_t)i * BLOCK, BLOCK, i, 1);
}

/* One block alone is too large to be counted by int, the other is small. */
static void gatherv(void) {
    const int counts[] = {2 * BLOCK, 1000}, places[] = {1000, 0};
    uint64_t *from = filled((size_t)counts[me], me), *to = me == 1 ? elements(2 * BLOCK + 1000) : NULL;
    MPI_Gatherv(from, counts[me], MPI_UINT64_T, to, counts, places, MPI_UINT64_T, 1, MPI_COMM_WORLD);
    for (int i = 0; me == 1 && i < 2; i++) expect(to + places[i], (size_t)counts[i], i, 1);
}

static void gather_in_place(void) {
    uint64_t* at = me == 1 ? elements(2 * BLOCK) : filled(BLOCK, 0);
    for (size_t i = 0; me == 1 && i < BLOCK; i++) at[BLOCK + i] = value(i, 1);
    MPI_Gather(me == 1 ? MPI_IN_PLACE : at, BLOCK, MPI_UINT64_T, at, BLOCK, MPI_UINT64_T, 1, MPI_COMM_WORLD);
    for (int i = 0; me == 1 && i < 2; i++) expect(at + (size_t)i * BLOCK, BLOCK, i, 1);
}

static void scatter(void) {
    uint64_t *from = me == 0 ? filled(2 * BLOCK, 0) : NULL, *to = elements(BLOCK);
    for (size_t i = 0; me == 0 && i < BLOCK; i++) from[BLOCK + i] = value(i, 1);
    MPI_Scatter(from, BLOCK, MPI_UINT64_T, to, BLOCK, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    expect(to, BLOCK, me, 1);
}

static void scatterv(void) {
    const int counts[] = {1000, 2 * BLOCK}, places[] = {0, 1000};
    uint64_t *from = me == 0 ? filled(2 * BLOCK + 1000, 5) : NULL, *to = elements((size_t)counts[me]);
    for (size_t i = 0; me == 0 && i < 2 * BLOCK; i++) from[1000 + i] = value(i, 1);
    MPI_Scatterv(from, counts, places, MPI_UINT64_T, to, counts[me], MPI_UINT64_T, 0, MPI_COMM_WORLD);
    expect(to, (size_t)counts[me], me == 0 ? 5 : 1, 1);
}

static void allgather(void) {
    uint64_t *from = filled(BLOCK, me), *to = elements(2 * BLOCK);
    MPI_Allgather(from, BLOCK, MPI_UINT64_T, to, BLOCK, MPI_UINT64_T, MPI_COMM_WORLD);
    for (int i = 0; i < 2; i++) expect(to + (size_t)i * BLOCK, BLOCK, i, 1);
}

static void alltoall(void) {
    uint64_t *from = filled(2 * BLOCK, me), *to = elements(2 * BLOCK);
    for (size_t i = 0; i < BLOCK; i++) from[BLOCK + i] = value(i, me + 10);
    MPI_Alltoall(from, BLOCK, MPI_UINT64_T, to, BLOCK, MPI_UINT64_T, MPI_COMM_WORLD);
    for (int i = 0; i < 2; i++) expect(to + (size_t)i * BLOCK, BLOCK, i + 10 * me, 1);
}

static void allreduce(void) {
    uint64_t *from = filled(2 * BLOCK, 3), *to = elements(2 * BLOCK);
    MPI_Allreduce(from, to, 2 * BLOCK, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    expect(to, 2 * BLOCK, 3, 2);
}

static void reduce(void) {
    uint64_t *from = filled(2 * BLOCK, 3), *to = me == 1 ? elements(2 * BLOCK) : NULL;
    MPI_Reduce(from, to, 2 * BLOCK, MPI_UINT64_T, MPI_SUM, 1, MPI_COMM_WORLD);
    if (me == 1) expect(to, 2 * BLOCK, 3, 2);
}

static void reduce_scatter(void) {
    uint64_t *from = filled(2 * BLOCK, 3), *to = elements(BLOCK);
    for (size_t i = 0; i < BLOCK; i++) from[BLOCK + i] = value(i, 4);
    MPI_Reduce_scatter_block(from, to, BLOCK, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    expect(to, BLOCK, 3 + me, 2);
}

int main(int argc, char** argv) {
    static const struct {
        const char* name;
        void (*run)(void);
    } cases[] = {{"message", message},
                 {"message_with_gaps", message_with_gaps},
                 {"bcast", bcast},
                 {"gather", gather},
                 {"gatherv", gatherv},
                 {"gather_in_place", gather_in_place},
                 {"scatter", scatter},
                 {"scatterv", scatterv},
                 {"allgather", allgather},
                 {"alltoall", alltoall},
                 {"allreduce", allreduce},
                 {"reduce", reduce},
                 {"reduce_scatter", reduce_scatter}};
    enum { CASES = sizeof(cases) / sizeof(cases[0]) };
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    for (int argument = 1; argument < argc; argument++) {
        size_t at = 0;
        while (at < CASES && strcmp(argv[argument], cases[at].name) != 0) at++;
        if (at == CASES) MPI_Abort(MPI_COMM_WORLD, 4);
        cases[at].run();
        while (keeping > 0) free(kept[--keeping]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (me == 0) printf("gigabytes: right\n");
    MPI_Finalize();
    return 0;
}
