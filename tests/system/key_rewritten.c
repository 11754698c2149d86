/* Between CryptMPI and MPI: the first message of rank 0 that is as long as a wrapped key leaves with one bit changed,
 * as whoever is on the network could change it where no socket is sealed. */
#include <mpi.h>
#include <string.h>

enum { WRAPPED = 384, PLACE = 100 };

typedef int isend_function(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*);

static isend_function* real_isend;

static int rewriting_isend(const void* from, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                           MPI_Request* request) {
    static unsigned char rewritten[WRAPPED];
    static int done;
    int rank;
    PMPI_Comm_rank(comm, &rank);
    if (rank != 0 || n != WRAPPED || done) return real_isend(from, n, type, to, tag, comm, request);
    done = 1;
    memcpy(rewritten, from, WRAPPED);
    rewritten[PLACE] ^= 1;
    return real_isend(rewritten, n, type, to, tag, comm, request);
}

void* cryptmpi_below(const char* name, void* (*lookup)(const char*)) {
    if (strcmp(name, "PMPI_Isend") != 0) return NULL;
    real_isend = (isend_function*)lookup(name);
    return (void*)rewriting_isend;
}
