/* Ping-pong between the first two ranks: for each size a line "bytes microseconds", the median over rounds of the
 * one-way time.
 *
 *     pingpong ROUNDS SIZE...  */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int ascending(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

static double round_trip(int rank, char* bytes, int size) {
    const double began = MPI_Wtime();
    if (rank == 0) {
        MPI_Send(bytes, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(bytes, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(bytes, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(bytes, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    }
    return MPI_Wtime() - began;
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const int rounds = argc > 1 ? atoi(argv[1]) : 100;
    double* times = malloc(sizeof(double) * rounds);
    for (int argument = 2; argument < argc && rank < 2; argument++) {
        const int size = atoi(argv[argument]);
        /* Fewer of the large ones; the first tenth warms up. */
        const int wanted = size >= 1 << 20 ? rounds / 10 : size >= 1 << 16 ? rounds / 4 : rounds;
        const int count = wanted > 5 ? wanted : 5;
        char* bytes = malloc(size);
        memset(bytes, 1, size);
        for (int i = 0; i < count / 10 + 1; i++) round_trip(rank, bytes, size);
        for (int i = 0; i < count && i < rounds; i++) times[i] = round_trip(rank, bytes, size);
        const int measured = count < rounds ? count : rounds;
        qsort(times, measured, sizeof(double), ascending);
        if (rank == 0) printf("%d %.3f\n", size, times[measured / 2] / 2 * 1e6);
        free(bytes);
    }
    free(times);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
