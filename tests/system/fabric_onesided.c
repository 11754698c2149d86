/* Rank 0 puts into rank 1's memory, gets from it and adds to it, many at once and of many sizes; each checks what it
 * has then. The argument is a file with a canary of 32 bytes, of which the memory is full. With one more argument
 * nothing is added: Open MPI's osc ucx adds characters wrongly. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PARTS = 10, MOST = 1 << 20, ROUNDS = 3 };

static unsigned char canary[32];
static int adds = 1;

/* Each byte depends on who wrote it, on its part and its place; most of them are the canary's. */
static unsigned char byte_of(int who, int part, int at) {
    if (at % 512 < 16) return (unsigned char)(who * 101 + part * 7 + at * 13 + (at >> 9));
    return canary[at % (int)sizeof canary];
}

static void fill(unsigned char* memory, int who, int size) {
    for (int part = 0; part < PARTS; ++part) {
        for (int at = 0; at < size; ++at) memory[part * MOST + at] = byte_of(who, part, at);
    }
}

static void check(const char* what, const unsigned char* memory, int who, int size, int factor) {
    for (int part = 0; part < PARTS; ++part) {
        for (int at = 0; at < size; ++at) {
            if (memory[part * MOST + at] == (unsigned char)(factor * byte_of(who, part, at))) continue;
            printf("onesided: %s: part %d of %d bytes is wrong at %d\n", what, part, size, at);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
}

static void between_fences(MPI_Win window, unsigned char* own, unsigned char* shown, int rank, int size) {
    MPI_Win_fence(0, window);
    for (int part = 0; rank == 0 && part < PARTS; ++part) {
        MPI_Put(own + part * MOST, size, MPI_BYTE, 1, (MPI_Aint)part * MOST, size, MPI_BYTE, window);
    }
    MPI_Win_fence(0, window);
    if (rank == 1) check("put", shown, 0, size, 1);
    MPI_Win_fence(0, window);
    for (int part = 0; adds && rank == 0 && part < PARTS; ++part) {
        MPI_Accumulate(own + part * MOST, size, MPI_UNSIGNED_CHAR, 1, (MPI_Aint)part * MOST, size, MPI_UNSIGNED_CHAR,
                       MPI_SUM, window);
    }
    MPI_Win_fence(0, window);
    if (rank == 1) {
        check("accumulated", shown, 0, size, 1 + adds);
        fill(shown, 1, size);
    }
    MPI_Win_fence(0, window);
    for (int part = 0; rank == 0 && part < PARTS; ++part) {
        MPI_Get(own + part * MOST, size, MPI_BYTE, 1, (MPI_Aint)part * MOST, size, MPI_BYTE, window);
    }
    MPI_Win_fence(0, window);
    if (rank == 0) check("got", own, 1, size, 1);
}

/* Rank 1 is in a call of MPI that has nothing to do with the window. Rank 0 puts, and gets it back. */
static void under_a_lock(MPI_Win window, unsigned char* own, int rank, int size) {
    if (rank == 0) {
        fill(own, 0, size);
        MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, window);
        for (int part = 0; part < PARTS; ++part) {
            MPI_Put(own + part * MOST, size, MPI_BYTE, 1, (MPI_Aint)part * MOST, size, MPI_BYTE, window);
        }
        MPI_Win_flush(1, window);
        memset(own, 0, (size_t)PARTS * MOST);
        for (int part = 0; part < PARTS; ++part) {
            MPI_Get(own + part * MOST, size, MPI_BYTE, 1, (MPI_Aint)part * MOST, size, MPI_BYTE, window);
        }
        MPI_Win_unlock(1, window);
        check("put and got under a lock", own, 0, size, 1);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

int main(int argc, char** argv) {
    int rank;
    unsigned char* shown;
    MPI_Win window;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    FILE* file = argc > 1 ? fopen(argv[1], "rb") : NULL;
    if (file == NULL || fread(canary, sizeof canary, 1, file) != 1) MPI_Abort(MPI_COMM_WORLD, 2);
    fclose(file);
    adds = argc == 2;
    unsigned char* own = malloc((size_t)PARTS * MOST);
    MPI_Win_allocate((MPI_Aint)PARTS * MOST, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &shown, &window);
    for (int round = 0; round < ROUNDS; ++round) {
        for (int size = 1; size <= MOST; size *= 32) {
            fill(own, rank, size);
            between_fences(window, own, shown, rank, size);
            under_a_lock(window, own, rank, size);
        }
    }
    MPI_Win_free(&window);
    free(own);
    if (rank == 0) printf("onesided: all as put, got and accumulated\n");
    MPI_Finalize();
    return 0;
}
