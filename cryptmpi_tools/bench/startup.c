/* What a job pays once: "init" is MPI_Init; "first-message" the first message and its answer between a rank of the
 * first half and one of the second, over what the next ones take. ROUNDS and SIZEs are not used. */
#include <unistd.h>

#include "measure.h"

enum { HALF_A_SECOND = 500000 };

static double exchange(int rank, int ranks) {
    char byte = 1;
    const int half = ranks / 2;
    const double began = now_us();
    if (rank < half) {
        MPI_Send(&byte, 1, MPI_BYTE, rank + half, 0, MPI_COMM_WORLD);
        MPI_Recv(&byte, 1, MPI_BYTE, rank + half, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return now_us() - began;
    }
    MPI_Recv(&byte, 1, MPI_BYTE, rank - half, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Send(&byte, 1, MPI_BYTE, rank - half, 0, MPI_COMM_WORLD);
    return 0;
}

int main(int argc, char** argv) {
    const double cpu = cpu_us(), began = now_us();
    MPI_Init(&argc, &argv);
    const double init = now_us() - began, init_cpu = cpu_us() - cpu;
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks % 2 != 0) MPI_Abort(MPI_COMM_WORLD, 2);
    if (rank < ranks / 2) usleep(HALF_A_SECOND); /* the others wait for the message by then */
    const double before = cpu_us();
    const double first = exchange(rank, ranks), first_cpu = rank < ranks / 2 ? cpu_us() - before : 0;
    const double second = exchange(rank, ranks);
    for (int argument = 2; argument < argc; argument++) {
        const struct test test = parse_test(argv[argument]);
        if (strcmp(test.label, "init") == 0) {
            print_result(&test, init, init_cpu);
        } else {
            print_result(&test, first > second ? first - second : 0, first_cpu);
        }
    }
    finish();
    return 0;
}
