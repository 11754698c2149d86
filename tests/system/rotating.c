/* Two ranks that meet only when the file of the second argument is there; the first rank makes that of the first when
 * it waits. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char** argv) {
    int rank, told = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) fclose(fopen(argv[1], "w"));
    while (access(argv[2], F_OK) != 0) usleep(50000);
    if (rank == 0) {
        told = 17;
        MPI_Send(&told, 1, MPI_INT, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(&told, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("rank 0 heard %d\n", told);
    } else if (rank == 1) {
        MPI_Recv(&told, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        ++told;
        MPI_Send(&told, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
