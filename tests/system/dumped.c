/* Talks with the other ranks, then waits to be dumped.
 *
 *     dumped FILE    FILE holds 32 bytes, which the dump must show: they stand on the heap */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MARKER = 32, LARGE = 1 << 20 };

static void be_dumpable(void) {
    struct rlimit core;
    getrlimit(RLIMIT_CORE, &core);
    core.rlim_cur = core.rlim_max;
    setrlimit(RLIMIT_CORE, &core);
}

static void talk(int rank, int ranks) {
    unsigned char* out = calloc(2, LARGE);
    unsigned char* in = out + LARGE;
    for (int length = 1; length <= LARGE; length *= 16) {
        MPI_Sendrecv(out, length, MPI_BYTE, (rank + 1) % ranks, 1, in, length, MPI_BYTE, (rank + ranks - 1) % ranks, 1,
                     MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Bcast(out, 1000, MPI_BYTE, 0, MPI_COMM_WORLD);
    MPI_Alltoall(out, 100, MPI_BYTE, in, 100, MPI_BYTE, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    free(out);
}

int main(int argc, char** argv) {
    unsigned char* marker = malloc(MARKER);
    FILE* file = fopen(argv[argc - 1], "rb");
    if (file == NULL || fread(marker, 1, MARKER, file) != MARKER) return 2;
    fclose(file);
    be_dumpable();
    const char* name = getenv("OMPI_COMM_WORLD_RANK");
    fprintf(stderr, "dumped: rank %s starts as process %d\n", name != NULL ? name : "?", (int)getpid());
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    talk(rank, ranks);
    signal(SIGABRT, SIG_DFL); /* of an MPI that prints where it was */
    fprintf(stderr, "dumped: rank %d is process %d\n", rank, (int)getpid());
    for (;;) pause();
}
