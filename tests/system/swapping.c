/* Between CryptMPI and MPI: with SWAPPING set, rank 0's second message with tag 91 goes before the first one. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

enum { TAG = 91, MOST = 1 << 20 };

static int (*real_send)(const void*, int, MPI_Datatype, int, int, MPI_Comm);
static int (*real_isend)(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*);

/* The first is kept, and sent after the second. */
static int swapped(const void* at, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    static unsigned char first[MOST];
    static int seen, size;
    if (++seen == 1) {
        size = count;
        memcpy(first, at, (size_t)count);
        return MPI_SUCCESS;
    }
    const int code = real_send(at, count, type, to, tag, comm);
    return seen != 2 || code != MPI_SUCCESS ? code : real_send(first, size, type, to, tag, comm);
}

static int hostile_send(const void* at, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    return tag == TAG ? swapped(at, count, type, to, tag, comm) : real_send(at, count, type, to, tag, comm);
}

static int hostile_isend(const void* at, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                         MPI_Request* request) {
    if (tag != TAG) return real_isend(at, count, type, to, tag, comm, request);
    const int code = swapped(at, count, type, to, tag, comm);
    return code != MPI_SUCCESS ? code : real_isend(NULL, 0, MPI_BYTE, MPI_PROC_NULL, tag, comm, request);
}

void* cryptmpi_below(const char* name, void* (*lookup)(const char*)) {
    if (getenv("SWAPPING") == NULL) return NULL;
    if (!real_send) {
        real_send = (int (*)(const void*, int, MPI_Datatype, int, int, MPI_Comm))lookup("PMPI_Send");
        real_isend = (int (*)(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*))lookup("PMPI_Isend");
    }
    if (strcmp(name, "PMPI_Send") == 0) return (void*)hostile_send;
    if (strcmp(name, "PMPI_Isend") == 0) return (void*)hostile_isend;
    return NULL;
}
