/* An MPI library of a few procedures that says what reaches it. */
#include <stdio.h>

int PMPI_Send(const void* at, int count, long type, int to, int tag, long comm, int on_stack, double eighth) {
    printf("native Send %s %d %ld %d %d %ld %d %.1f\n", (const char*)at, count, type, to, tag, comm, on_stack, eighth);
    return 0;
}
int MPI_Send(const void*, int, long, int, int, long, int, double) __attribute__((weak, alias("PMPI_Send")));

/* Calls itself by symbol, as MPICH's file access does. */
int PMPI_Bcast(void) {
    return PMPI_Send("inner", 0, 0, 0, 0, 0, 0, 0);
}
int MPI_Bcast(void) __attribute__((weak, alias("PMPI_Bcast")));

int PMPI_Barrier(void) {
    puts("native Barrier");
    return 0;
}
int MPI_Barrier(void) __attribute__((weak, alias("PMPI_Barrier")));

/* Calls its caller back. */
int PMPI_Comm_free(int (*deleted)(void)) {
    const int result = deleted();
    return result == 0 ? 0 : result;
}
int MPI_Comm_free(int (*)(void)) __attribute__((weak, alias("PMPI_Comm_free")));

double PMPI_Wtime(void) {
    return 4.5;
}
double MPI_Wtime(void) __attribute__((weak, alias("PMPI_Wtime")));

int MPI_Get_version(void) {
    return 5; /* without a profiling name */
}

/* What a newer MPI may add. */
int PMPI_Newcast(void) {
    puts("native Newcast");
    return 0;
}
int MPI_Newcast(void) __attribute__((weak, alias("PMPI_Newcast")));

#ifdef FAKE_FORTRAN
void mpi_send_(void) {}
#endif
#ifdef FAKE_OPENMPI
int ompi_mpi_comm_world;
#endif
