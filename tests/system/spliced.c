/* Two communicators of the same two ranks of three, and a broadcast on each, from rank 0. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIZE = 64 };

static void broadcast(const char* name, MPI_Comm comm, int rank) {
    char bytes[SIZE], expected[SIZE];
    memset(expected, name[0], SIZE);
    memset(bytes, 0, SIZE);
    if (rank == 0) memcpy(bytes, expected, SIZE);
    const int code = MPI_Bcast(bytes, SIZE, MPI_BYTE, 0, comm);
    const char* const left = memcmp(bytes, expected, SIZE) == 0 ? "as sent" : bytes[0] == 0 ? "nothing" : "other bytes";
    printf("spliced: rank %d: %s: %s, %s\n", rank, name, code == MPI_SUCCESS ? "success" : "error", left);
    fflush(stdout);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm both[2];
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < 2; i++) MPI_Comm_split(MPI_COMM_WORLD, rank < 2 ? 0 : MPI_UNDEFINED, 0, &both[i]);
    setenv("SPLICING_BEGINS", "1", 1); /* What travelled until now, its members needed to make them. */
    for (int i = 0; i < 2 && rank < 2; i++) {
        MPI_Comm_set_errhandler(both[i], MPI_ERRORS_RETURN);
        broadcast(i == 0 ? "first" : "second", both[i], rank);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("spliced: came to the end\n");
    MPI_Finalize();
    return 0;
}
