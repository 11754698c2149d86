/* Two ranks on each of two nodes. The first 32 bytes that are broadcast are those of argv[1], in hexadecimal digits; in
 * "split" they go over a communicator of all that the program splits off, of which nothing may be wrong. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { CANARY = 32, TIMES = 8, ALL = 0x5a17c010, KEY = 0x00c0ffee };

static unsigned char sent[CANARY], bytes[TIMES * CANARY];

static void broadcast(MPI_Comm comm) {
    int rank;
    MPI_Comm_rank(comm, &rank);
    for (int i = 0; i < TIMES; i++) memcpy(bytes + i * CANARY, sent, rank == 0 ? CANARY : 0);
    MPI_Bcast(bytes, sizeof bytes, MPI_BYTE, 0, comm);
    if (memcmp(bytes + sizeof bytes - CANARY, sent, CANARY) != 0) printf("members: other bytes than were sent\n");
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank, size;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < CANARY; i++) sscanf(argv[1] + 2 * i, "%2hhx", &sent[i]);
    if (argc > 2 && strcmp(argv[2], "split") == 0) {
        int members;
        MPI_Comm all;
        MPI_Comm_split(MPI_COMM_WORLD, ALL, KEY + rank, &all);
        MPI_Comm_size(all, &members);
        if (members != size) {
            printf("members: FOOLED: %d of %d\n", members, size);
            fflush(stdout);
            MPI_Abort(MPI_COMM_WORLD, 3);
        }
        broadcast(all);
        MPI_Comm_free(&all);
    } else {
        broadcast(MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("members: all as sent\n");
    MPI_Finalize();
    return 0;
}
