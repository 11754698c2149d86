/* Ping-pong between two ranks: the median over rounds of the one-way time. */
#include "measure.h"

static int ascending(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

static double round_trip(int rank, char* bytes, int size) {
    const double began = now_us();
    if (rank == 0) {
        MPI_Send(bytes, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(bytes, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(bytes, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(bytes, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    }
    return now_us() - began;
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int argument = 2; argument < argc; argument++) {
        const struct test test = parse_test(argv[argument]);
        const int most = fewer(atoi(argv[1]), test.size, 5), some = most / 50 + 1;
        char* bytes = some_bytes(test.size);
        if (rank == 0) fill(bytes, test.size, 1);
        double* times = malloc(sizeof(double) * most);
        const double warming = now_us();
        for (int i = 0; i < some; i++) round_trip(rank, bytes, test.size);
        const int rounds = within_time(most, 5, some, now_us() - warming);
        const double cpu = cpu_us();
        for (int i = 0; i < rounds; i++) times[i] = round_trip(rank, bytes, test.size);
        const double spent = cpu_us() - cpu;
        qsort(times, rounds, sizeof(double), ascending);
        expect("ping-pong", bytes, test.size, 1);
        /* Rank 1's clock stops while its answer is on its way. */
        print_result(&test, rank == 0 ? times[rounds / 2] / 2 : 0, spent / rounds / 2);
        free(times);
        free(bytes);
    }
    finish();
    return 0;
}
