/* Between CryptMPI and MPI: what LYING names gives its caller a communicator of other members, or in another order of
 * them, than it was asked for; to every rank, so that they agree about it, or to rank 0 alone. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

static int (*real_create)(MPI_Comm, MPI_Group, MPI_Comm*);
static int (*real_split)(MPI_Comm, int, int, MPI_Comm*);
static int (*real_rank)(MPI_Comm, int*);
static int (*real_size)(MPI_Comm, int*);

/* Of all, in the opposite order. */
static int reversed(MPI_Comm comm, MPI_Comm* made) {
    int rank;
    real_rank(comm, &rank);
    return real_split(comm, 0, -rank, made);
}

/* As many as there are, in an order that rank 0 sees alone: what travels is the same for all. */
static int of_half(MPI_Comm comm, MPI_Comm* made) {
    int rank, size;
    real_rank(comm, &rank);
    real_size(comm, &size);
    return real_split(comm, rank < size / 2, rank, made);
}

static int lying_dup(MPI_Comm comm, MPI_Comm* made) {
    return reversed(comm, made);
}
static int lying_create(MPI_Comm comm, MPI_Group group, MPI_Comm* made) {
    static int calls; /* the first ones are CryptMPI's own */
    (void)group;
    return calls++ < 2 ? real_create(comm, group, made) : of_half(comm, made);
}
static int lying_own(MPI_Comm comm, MPI_Group group, MPI_Comm* made) {
    (void)group;
    return reversed(comm, made);
}
static int lying_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm* made) {
    (void)group, (void)tag;
    return reversed(comm, made);
}
static int lying_split(MPI_Comm comm, int color, int key, MPI_Comm* made) {
    (void)color, (void)key;
    return of_half(comm, made);
}
static int lying_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm* made) {
    (void)type, (void)key, (void)info;
    int rank;
    real_rank(comm, &rank);
    MPI_Comm half, all;
    of_half(comm, &half);
    real_split(comm, 0, rank, &all);
    *made = rank == 0 ? half : all; /* the others believe that rank 0 is with them */
    return MPI_SUCCESS;
}
static int lying_cart_create(MPI_Comm comm, int n, const int* sizes, const int* periods, int reorder, MPI_Comm* made) {
    (void)n, (void)sizes, (void)periods, (void)reorder;
    return reversed(comm, made);
}
static int lying_dist_graph(MPI_Comm comm, int in, const int* sources, const int* in_weights, int out,
                            const int* destinations, const int* out_weights, MPI_Info info, int reorder,
                            MPI_Comm* made) {
    (void)in, (void)sources, (void)in_weights, (void)out, (void)destinations, (void)out_weights, (void)info;
    (void)reorder;
    return of_half(comm, made);
}

static int is(const char* name, const char* procedure, const char* lie) {
    const char* const said = getenv("LYING");
    return said != NULL && strcmp(said, lie) == 0 && strcmp(name, procedure) == 0;
}

void* cryptmpi_below(const char* name, void* (*lookup)(const char*)) {
    if (!real_split) {
        real_split = (int (*)(MPI_Comm, int, int, MPI_Comm*))lookup("PMPI_Comm_split");
        real_create = (int (*)(MPI_Comm, MPI_Group, MPI_Comm*))lookup("PMPI_Comm_create");
        real_rank = (int (*)(MPI_Comm, int*))lookup("PMPI_Comm_rank");
        real_size = (int (*)(MPI_Comm, int*))lookup("PMPI_Comm_size");
    }
    if (is(name, "PMPI_Comm_create", "own")) return (void*)lying_own;
    if (is(name, "PMPI_Comm_create", "create")) return (void*)lying_create;
    if (is(name, "PMPI_Comm_dup", "dup")) return (void*)lying_dup;
    if (is(name, "PMPI_Comm_create_group", "create_group")) return (void*)lying_create_group;
    if (is(name, "PMPI_Comm_split", "split")) return (void*)lying_split;
    if (is(name, "PMPI_Comm_split_type", "split_type")) return (void*)lying_split_type;
    if (is(name, "PMPI_Cart_create", "cart_create") || is(name, "PMPI_Cart_create", "cart_create reordered")) {
        return (void*)lying_cart_create;
    }
    if (is(name, "PMPI_Dist_graph_create_adjacent", "dist_graph") ||
        is(name, "PMPI_Dist_graph_create_adjacent", "dist_graph reordered")) {
        return (void*)lying_dist_graph;
    }
    return NULL;
}
