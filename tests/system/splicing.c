/* Between CryptMPI and MPI: of what rank 0 of spliced.c sends for two communicators of the same ranks, something of the
 * first takes the place of the second's, or is altered, as SPLICING says. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SEALED = 24, BLOCK = 64 + SEALED, SECRET = 32 + SEALED };

static int (*real_send)(const void*, int, MPI_Datatype, int, int, MPI_Comm);
static int (*real_isend)(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*);
static int (*real_bcast)(void*, int, MPI_Datatype, int, MPI_Comm);
static int (*real_ibcast)(void*, int, MPI_Datatype, int, MPI_Comm, MPI_Request*);

static int is(const char* attack) {
    const char* wanted = getenv("SPLICING");
    return wanted != NULL && strcmp(wanted, attack) == 0;
}

/* The first is kept, and takes the place of the second. */
static void move(unsigned char* at, size_t size, unsigned char* first, int* seen, const char* what) {
    if (++*seen == 1) memcpy(first, at, size);
    if (*seen == 2) memcpy(at, first, size);
    if (*seen == 2) fprintf(stderr, "splicing: %s moved\n", what);
}

static void meddle(const void* bytes, int size) {
    static unsigned char first_block[BLOCK], first_secret[SECRET];
    static int blocks, secrets;
    unsigned char* const at = (unsigned char*)bytes;
    const char* const rank = getenv("PMIX_RANK") != NULL ? getenv("PMIX_RANK") : getenv("PMI_RANK");
    if (getenv("SPLICING_BEGINS") == NULL || rank == NULL || strcmp(rank, "0") != 0) return;
    if (size == BLOCK && is("block of another")) move(at, BLOCK, first_block, &blocks, "a block");
    if (size != SECRET) return;
    if (is("secret of another")) move(at, SECRET, first_secret, &secrets, "a secret");
    if (is("secret altered") && ++secrets == 1) {
        at[20] ^= 1;
        fprintf(stderr, "splicing: a secret altered\n");
    }
}

static int meddling_send(const void* at, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm) {
    meddle(at, n);
    return real_send(at, n, type, to, tag, comm);
}

static int meddling_isend(const void* at, int n, MPI_Datatype type, int to, int tag, MPI_Comm comm,
                          MPI_Request* request) {
    meddle(at, n);
    return real_isend(at, n, type, to, tag, comm, request);
}

static int meddling_bcast(void* at, int n, MPI_Datatype type, int root, MPI_Comm comm) {
    meddle(at, n);
    return real_bcast(at, n, type, root, comm);
}

static int meddling_ibcast(void* at, int n, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request* request) {
    meddle(at, n);
    return real_ibcast(at, n, type, root, comm, request);
}

void* cryptmpi_below(const char* name, void* (*lookup)(const char*)) {
#define REPLACE(call, type, variable, by)  \
    if (strcmp(name, "PMPI_" call) == 0) { \
        variable = (type)lookup(name);     \
        return (void*)by;                  \
    }
    REPLACE("Send", int (*)(const void*, int, MPI_Datatype, int, int, MPI_Comm), real_send, meddling_send)
    REPLACE("Isend", int (*)(const void*, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request*), real_isend,
            meddling_isend)
    REPLACE("Bcast", int (*)(void*, int, MPI_Datatype, int, MPI_Comm), real_bcast, meddling_bcast)
    REPLACE("Ibcast", int (*)(void*, int, MPI_Datatype, int, MPI_Comm, MPI_Request*), real_ibcast, meddling_ibcast)
    return NULL;
}
