/* Between CryptMPI and MPI: tells of calls that pack or unpack all of a large message. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { LARGEST_WHOLE = 262144, ONE_MORE = 1 };

typedef int pack_function(const void*, int, MPI_Datatype, void*, int, int*, MPI_Comm);
typedef int unpack_function(const void*, int, int*, void*, int, MPI_Datatype, MPI_Comm);

static pack_function* real_pack;
static unpack_function* real_unpack;

static void tell(int size) {
    /* The program's own calls have a byte of room more than they need. */
    if (size > LARGEST_WHOLE && size % 4 != ONE_MORE) fprintf(stderr, "packs: all of a message, %d bytes\n", size);
}

static int telling_pack(const void* in, int count, MPI_Datatype type, void* out, int size, int* position,
                        MPI_Comm comm) {
    tell(size);
    return real_pack(in, count, type, out, size, position, comm);
}

static int telling_unpack(const void* in, int size, int* position, void* out, int count, MPI_Datatype type,
                          MPI_Comm comm) {
    tell(size);
    return real_unpack(in, size, position, out, count, type, comm);
}

void* cryptmpi_below(const char* name, void* (*lookup)(const char*)) {
    if (strcmp(name, "PMPI_Pack") == 0) {
        real_pack = (pack_function*)lookup(name);
        return (void*)telling_pack;
    }
    if (strcmp(name, "PMPI_Unpack") == 0) {
        real_unpack = (unpack_function*)lookup(name);
        return (void*)telling_unpack;
    }
    return NULL;
}
