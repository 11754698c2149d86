/* All ways to synchronise one-sided operations, and all kinds of windows and operations, between all ranks at once.
 * Each rank checks what it has then. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 5000, ROUNDS = 50 };

static int rank, ranks;

static void expect(const char* what, long got, long wanted) {
    if (got == wanted) return;
    printf("windows: %s: rank %d has %ld instead of %ld\n", what, rank, got, wanted);
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static MPI_Win window_of(int count, long** memory) {
    MPI_Win window;
    MPI_Win_allocate((MPI_Aint)count * (MPI_Aint)sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, memory,
                     &window);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
    memset(*memory, 0, (size_t)count * sizeof(long));
    MPI_Win_unlock(rank, window);
    MPI_Barrier(MPI_COMM_WORLD);
    return window;
}

/* Every rank adds to one number of each rank, itself among them. */
static void counters(void) {
    long* memory;
    MPI_Win window = window_of(4, &memory);
    const long one = 1;
    MPI_Win_lock_all(0, window);
    for (int round = 0; round < ROUNDS; ++round) {
        for (int to = 0; to < ranks; ++to) {
            long before = -1;
            MPI_Fetch_and_op(&one, &before, MPI_LONG, to, 0, MPI_SUM, window);
            MPI_Accumulate(&one, 1, MPI_LONG, to, 1, 1, MPI_LONG, MPI_SUM, window);
            MPI_Win_flush(to, window);
            if (before < 0 || before >= (long)ROUNDS * ranks) expect("a count before", before, 0);
        }
    }
    MPI_Win_flush_all(window);
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    expect("fetched and added", memory[0], (long)ROUNDS * ranks);
    expect("accumulated", memory[1], (long)ROUNDS * ranks);
    MPI_Win_unlock(rank, window);
    MPI_Win_free(&window);
}

/* A lock made of compare-and-swap at rank 0, and one of MPI's, guard a number that is read and then written. */
static void mutual_exclusion(void) {
    long* memory;
    MPI_Win window = window_of(4, &memory);
    const long none = 0, mine = rank + 1;
    for (int round = 0; round < ROUNDS / 5; ++round) {
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, window);
        for (long held = -1; held != 0;) {
            MPI_Compare_and_swap(&mine, &none, &held, MPI_LONG, 0, 0, window);
            MPI_Win_flush(0, window);
        }
        long value = 0;
        MPI_Get(&value, 1, MPI_LONG, 0, 1, 1, MPI_LONG, window);
        MPI_Win_flush(0, window);
        ++value;
        MPI_Put(&value, 1, MPI_LONG, 0, 1, 1, MPI_LONG, window);
        MPI_Win_flush(0, window);
        long before = 0;
        MPI_Fetch_and_op(&none, &before, MPI_LONG, 0, 0, MPI_REPLACE, window);
        MPI_Win_unlock(0, window);
        expect("who held the lock", before, mine);

        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        MPI_Get(&value, 1, MPI_LONG, 0, 2, 1, MPI_LONG, window);
        MPI_Win_flush(0, window);
        ++value;
        MPI_Put(&value, 1, MPI_LONG, 0, 2, 1, MPI_LONG, window);
        MPI_Win_unlock(0, window);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    expect("counted under a lock of its own", memory[1], rank == 0 ? (long)(ROUNDS / 5) * ranks : 0);
    expect("counted under a lock of MPI's", memory[2], rank == 0 ? (long)(ROUNDS / 5) * ranks : 0);
    MPI_Win_unlock(rank, window);
    MPI_Win_free(&window);
}

/* Post, start, complete, wait in a ring; every second number of a vector. */
static void ring(void) {
    long* memory;
    MPI_Win window = window_of(2 * COUNT, &memory);
    const int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    MPI_Group world, to, from;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &right, &to);
    MPI_Group_incl(world, 1, &left, &from);
    MPI_Datatype every_second;
    MPI_Type_vector(COUNT, 1, 2, MPI_LONG, &every_second);
    MPI_Type_commit(&every_second);
    long* const out = malloc(COUNT * sizeof(long));
    for (int round = 1; round <= 5; ++round) {
        for (int i = 0; i < COUNT; ++i) out[i] = 1000L * rank + i + round;
        MPI_Win_post(from, 0, window);
        MPI_Win_start(to, 0, window);
        MPI_Put(out, COUNT, MPI_LONG, right, 0, 1, every_second, window);
        MPI_Win_complete(window);
        MPI_Win_wait(window);
        for (int i = 0; i < COUNT; ++i) {
            expect("put in a ring", memory[2 * i], 1000L * left + i + round);
            expect("what lies between", memory[2 * i + 1], 0);
        }
    }
    MPI_Type_free(&every_second);
    MPI_Group_free(&to);
    MPI_Group_free(&from);
    MPI_Group_free(&world);
    MPI_Win_free(&window);
    free(out);
}

/* Operations with requests, and get-accumulate, on a window of the program's own memory. */
static void requests(void) {
    long* const memory = calloc(COUNT, sizeof(long));
    long* const out = malloc(COUNT * sizeof(long));
    long* const got = calloc(COUNT, sizeof(long));
    MPI_Win window;
    MPI_Win_create(memory, COUNT * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    const int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    for (int i = 0; i < COUNT; ++i) out[i] = 7L * rank + i;
    MPI_Win_lock_all(0, window);
    MPI_Request request;
    MPI_Rput(out, COUNT, MPI_LONG, right, 0, COUNT, MPI_LONG, window, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Win_flush_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_sync(window);
    for (int i = 0; i < COUNT; ++i) expect("put with a request", memory[i], 7L * left + i);
    MPI_Rget(got, COUNT, MPI_LONG, right, 0, COUNT, MPI_LONG, window, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < COUNT; ++i) expect("got with a request", got[i], 7L * rank + i);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Get_accumulate(out, 100, MPI_LONG, got, 100, MPI_LONG, right, 0, 100, MPI_LONG, MPI_SUM, window);
    MPI_Win_flush(right, window);
    for (int i = 0; i < 100; ++i) expect("got before it was added to", got[i], 7L * rank + i);
    MPI_Raccumulate(out, 100, MPI_LONG, right, 100, 100, MPI_LONG, MPI_MAX, window, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    for (int i = 0; i < 100; ++i) expect("added to", memory[i], 2 * (7L * left + i));
    MPI_Win_unlock(rank, window);
    MPI_Win_free(&window);
    free(memory);
    free(out);
    free(got);
}

/* A window to which memory is attached later. */
static void dynamic(void) {
    long* const memory = calloc(COUNT, sizeof(long));
    MPI_Win window;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_attach(window, memory, COUNT * sizeof(long));
    MPI_Aint own, *all = malloc((size_t)ranks * sizeof(MPI_Aint));
    MPI_Get_address(memory, &own);
    MPI_Allgather(&own, 1, MPI_AINT, all, 1, MPI_AINT, MPI_COMM_WORLD);
    const int right = (rank + 1) % ranks, left = (rank + ranks - 1) % ranks;
    long* const out = malloc(COUNT * sizeof(long));
    for (int i = 0; i < COUNT; ++i) out[i] = 11L * rank + i;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, 0, window);
    MPI_Put(out, COUNT, MPI_LONG, right, all[right], COUNT, MPI_LONG, window);
    MPI_Win_unlock(right, window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
    for (int i = 0; i < COUNT; ++i) expect("put into attached memory", memory[i], 11L * left + i);
    MPI_Win_unlock(rank, window);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_detach(window, memory);
    MPI_Win_free(&window);
    free(memory);
    free(all);
    free(out);
}

int main(int argc, char** argv) {
    const struct {
        const char* name;
        void (*run)(void);
    } cases[] = {{"counters", counters},
                 {"exclusion", mutual_exclusion},
                 {"ring", ring},
                 {"requests", requests},
                 {"dynamic", dynamic}};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 1; i < argc; ++i) {
        for (size_t k = 0; k < sizeof cases / sizeof *cases; ++k) {
            if (strcmp(cases[k].name, argv[i]) != 0) continue;
            cases[k].run();
            if (rank == 0) printf("%s ok\n", argv[i]);
        }
    }
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
