/* Two ranks exchange arrays; rank 0 prints the sum that both agree on. */
#include <mpi.h>
#include <stdio.h>

enum { COUNT = 100000, ROUNDS = 20 };

int main(int count, char** arguments) {
    static long long mine[COUNT], its[COUNT];
    int rank;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int round = 0; round < ROUNDS; ++round) {
        for (int at = 0; at < COUNT; ++at) {
            mine[at] = at;
            its[at] = -1;
        }
        MPI_Sendrecv(mine, COUNT, MPI_LONG_LONG, 1 - rank, round, its, COUNT, MPI_LONG_LONG, 1 - rank, round,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        long long sum = 0;
        for (int at = 0; at < COUNT; ++at) {
            sum += its[at];
        }
        if (sum != (long long)COUNT * (COUNT - 1) / 2) {
            fprintf(stderr, "wrong sum in round %d\n", round);
            MPI_Abort(MPI_COMM_WORLD, 3);
        }
    }
    if (rank == 0) {
        printf("sum %lld\n", (long long)COUNT * (COUNT - 1) / 2);
    }
    MPI_Finalize();
    return 0;
}
