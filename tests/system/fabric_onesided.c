/* Rank 0 puts into rank 1's memory and gets from it, many at once and of many sizes; each checks what it has then. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { PARTS = 10, MOST = 1 << 20, ROUNDS = 3 };

static unsigned char byte_of(int who, int part, int at) {
    return (unsigned char)(who * 101 + part * 7 + at * 13 + (at >> 9));
}

static void fill(unsigned char* memory, int who, int size) {
    for (int part = 0; part < PARTS; ++part) {
        for (int at = 0; at < size; ++at) memory[part * MOST + at] = byte_of(who, part, at);
    }
}

static void check(const unsigned char* memory, int who, int size) {
    for (int part = 0; part < PARTS; ++part) {
        for (int at = 0; at < size; ++at) {
            if (memory[part * MOST + at] == byte_of(who, part, at)) continue;
            printf("onesided: part %d is wrong at %d\n", part, at);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
}

int main(int argc, char** argv) {
    int rank;
    unsigned char* shown;
    MPI_Win window;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    unsigned char* own = malloc((size_t)PARTS * MOST);
    MPI_Win_allocate((MPI_Aint)PARTS * MOST, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &shown, &window);
    for (int round = 0; round < ROUNDS; ++round) {
        for (int size = 1; size <= MOST; size *= 32) {
            fill(own, rank, size);
            MPI_Win_fence(0, window);
            for (int part = 0; rank == 0 && part < PARTS; ++part) {
                MPI_Put(own + part * MOST, size, MPI_BYTE, 1, (MPI_Aint)part * MOST, size, MPI_BYTE, window);
            }
            MPI_Win_fence(0, window);
            if (rank == 1) {
                check(shown, 0, size);
                fill(shown, 1, size);
            }
            MPI_Win_fence(0, window);
            for (int part = 0; rank == 0 && part < PARTS; ++part) {
                MPI_Get(own + part * MOST, size, MPI_BYTE, 1, (MPI_Aint)part * MOST, size, MPI_BYTE, window);
            }
            MPI_Win_fence(0, window);
            if (rank == 0) check(own, 1, size);
        }
    }
    MPI_Win_free(&window);
    free(own);
    if (rank == 0) printf("onesided: all as put and got\n");
    MPI_Finalize();
    return 0;
}
