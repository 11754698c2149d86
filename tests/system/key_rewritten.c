/* Below the MPI layer of rank 0: the first large message that it sends, which holds a wrapped key, arrives with one bit
 * changed. An attacker on a network whose packets nobody seals can do this. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

enum { WRAPPED = 384 };

int MPI_Isend(const void* from, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm, MPI_Request* request) {
    static unsigned char changed[WRAPPED];
    static int done;
    int rank;
    PMPI_Comm_rank(comm, &rank);
    if (rank != 0 || n != WRAPPED || done) return PMPI_Isend(from, n, type, to, tag, comm, request);
    done = 1;
    memcpy(changed, from, WRAPPED);
    changed[100] ^= 1;
    return PMPI_Isend(changed, n, type, to, tag, comm, request);
}
