// What seems to come from rank 1, which is on rank 0's node, while rank 2 is on another: rank 0 says what it received.
// Rank 2 sends first, and what an attacker makes of that comes before rank 1's own message. It may also seem to be rank
// 0's own, or of a rank that there is not.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { kTag = 23123, kGo = 7, kSize = 64 };

static void receive_first(int source) {
    char text[8 * kSize] = "";
    MPI_Status status;
    int count = 0;
    for (;;) {
        int code = MPI_Recv(text, sizeof text - 1, MPI_CHAR, source, kTag, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_CHAR, &count);
        if (code != MPI_SUCCESS || status.MPI_SOURCE != 2) {
            printf("received with code %d from rank %d %d bytes: %s\n", code, status.MPI_SOURCE, count,
                   code != MPI_SUCCESS                                ? "nothing"
                   : count == kSize && strcmp(text, "of rank 1") == 0 ? "of rank 1"
                                                                      : "of somebody else");
            break;
        }
    }
    fflush(stdout);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    char text[kSize] = "";
    if (rank == 0) {
        receive_first(argc > 1 && strcmp(argv[1], "any") == 0 ? MPI_ANY_SOURCE : 1);
        MPI_Abort(MPI_COMM_WORLD, 3);  // with messages of an attacker under way, nothing else can be relied on
    } else if (rank == 1) {
        MPI_Recv(text, kSize, MPI_CHAR, 2, kGo, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        sleep(3);
        strcpy(text, "of rank 1");
        MPI_Send(text, kSize, MPI_CHAR, 0, kTag, MPI_COMM_WORLD);
    } else if (rank == 2) {
        strcpy(text, "of rank 2");
        MPI_Send(text, kSize, MPI_CHAR, 0, kTag, MPI_COMM_WORLD);
        MPI_Send(text, kSize, MPI_CHAR, 1, kGo, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
