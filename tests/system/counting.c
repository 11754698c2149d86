/* A tool as others make them: stands between a program and MPI by the profiling interface, and counts calls. With
 * -DNEXT it asks for the next MPI_Send instead of calling PMPI_Send. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>

static int begun, sent, received;

#ifdef NEXT
#define BELOW(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#else
#define BELOW(name) P##name
#endif

int MPI_Init(int* argc, char*** argv) {
    begun++;
    return BELOW(MPI_Init)(argc, argv);
}

int MPI_Send(const void* at, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    sent++;
    return BELOW(MPI_Send)(at, count, type, to, tag, comm);
}

int MPI_Recv(void* at, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm, MPI_Status* status) {
    received++;
    return BELOW(MPI_Recv)(at, count, type, from, tag, comm, status);
}

int MPI_Finalize(void) {
    printf("counting: %d begun %d sent %d received\n", begun, sent, received);
    fflush(stdout);
    return BELOW(MPI_Finalize)();
}
