/* All ranks exchange messages with all others, now and then, until a file is there: a job to look at while it runs.
   Each says "live: begun" when it has heard from all.

   usage: live FILE */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SIZE 10000
#define PAUSE_US 2000

static char out[SIZE], in[SIZE];

int main(int argc, char** argv) {
    int rank, size, begun = 0, on = 1;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 2) {
        fprintf(stderr, "usage: live FILE\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    while (on) {
        memset(out, rank, SIZE);
        for (int far = 1; far < size; ++far) {
            const int to = (rank + far) % size, from = (rank + size - far) % size;
            MPI_Sendrecv(out, SIZE, MPI_CHAR, to, 1, in, SIZE, MPI_CHAR, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            if (in[SIZE - 1] != from) MPI_Abort(MPI_COMM_WORLD, 3);
        }
        if (begun++ == 0) {
            printf("live: begun\n");
            fflush(stdout);
        }
        on = access(argv[1], F_OK) != 0;
        MPI_Bcast(&on, 1, MPI_INT, 0, MPI_COMM_WORLD);
        usleep(PAUSE_US);
    }
    MPI_Finalize();
    if (rank == 0) printf("live: done\n");
    return 0;
}
