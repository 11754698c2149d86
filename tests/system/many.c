/* Every rank sends to every other, all of them at once: connections are made from both ends at the same time, and MPI
 * keeps one of the two. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 16, ROUNDS = 3 };

int main(int count, char** arguments) {
    int rank, size, right = 1, all;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int* out = malloc(sizeof(int) * COUNT * size);
    int* in = malloc(sizeof(int) * COUNT * size);
    for (int round = 0; round < ROUNDS; ++round) {
        for (int at = 0; at < COUNT * size; ++at) {
            out[at] = rank * 1000 + at / COUNT + round;
        }
        MPI_Alltoall(out, COUNT, MPI_INT, in, COUNT, MPI_INT, MPI_COMM_WORLD);
        for (int at = 0; at < COUNT * size; ++at) {
            right &= in[at] == at / COUNT * 1000 + rank + round;
        }
    }
    MPI_Allreduce(&right, &all, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("%d ranks: %s\n", size, all ? "right" : "wrong");
    }
    MPI_Finalize();
    return 0;
}
