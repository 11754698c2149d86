/* Rank 0 gives a long send up by MPI_Request_free and comes to MPI_Finalize before rank 1 has received it, a second
   later. With an argument rank 1 never does. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SIZE = 300000, TAG = 4 };

int main(int argc, char** argv) {
    static char sent[SIZE], got[SIZE];
    int rank, wrong = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD); /* each has heard of the other then: only so do long messages go in pieces */
    for (int i = 0; i < SIZE; ++i) sent[i] = (char)(i * 7 + i / 1000);
    if (rank == 0) {
        MPI_Request request;
        MPI_Isend(sent, SIZE, MPI_CHAR, 1, TAG, MPI_COMM_WORLD, &request);
        MPI_Request_free(&request);
    } else if (argc == 1) {
        sleep(1);
        MPI_Recv(got, SIZE, MPI_CHAR, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        wrong = memcmp(got, sent, SIZE) != 0;
        printf(wrong ? "freed: it is wrong\n" : "freed: all as sent\n");
    }
    MPI_Finalize();
    return wrong;
}
