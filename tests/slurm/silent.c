/* Begins and ends MPI, and sends nothing. */
#include <mpi.h>

int main(int count, char** words) {
    MPI_Init(&count, &words);
    MPI_Finalize();
    return 0;
}
