/* Rank 0 sends six messages with one tag, rank 1 receives and compares them. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGES = 6, SIZE = 5000, TAG = 4 };

int main(int argc, char** argv) {
    static char bytes[MESSAGES][SIZE];
    MPI_Request requests[MESSAGES];
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < MESSAGES; ++i) {
        if (rank == 0) {
            memset(bytes[i], 'a' + i, SIZE);
            MPI_Isend(bytes[i], SIZE, MPI_CHAR, 1, TAG, MPI_COMM_WORLD, &requests[i]);
        } else {
            MPI_Recv(bytes[i], SIZE, MPI_CHAR, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (int at = 0; at < SIZE; ++at) {
                if (bytes[i][at] != 'a' + i) {
                    printf("talk: message %d is wrong\n", i);
                    MPI_Abort(MPI_COMM_WORLD, 1);
                }
            }
        }
    }
    if (rank == 0) MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) printf("talk: all as sent\n");
    MPI_Finalize();
    return 0;
}
