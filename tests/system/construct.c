/* Makes one communicator, as argv[1] says, of which all of MPI_COMM_WORLD are members in their order, where MPI may not
 * choose another one. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    const char* const how = argv[1];
    const int reorder = strstr(how, "reordered") != NULL;
    int rank, size, whole;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &whole);
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Group group;
    MPI_Comm_group(MPI_COMM_WORLD, &group);
    int periods = 0, before = (rank + whole - 1) % whole, after = (rank + 1) % whole;
    if (strcmp(how, "dup") == 0) MPI_Comm_dup(MPI_COMM_WORLD, &made);
    if (strcmp(how, "create") == 0) MPI_Comm_create(MPI_COMM_WORLD, group, &made);
    if (strcmp(how, "create_group") == 0) MPI_Comm_create_group(MPI_COMM_WORLD, group, 7, &made);
    if (strcmp(how, "split") == 0) MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &made);
    if (strcmp(how, "split_type") == 0) {
        MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &made);
    }
    if (strncmp(how, "cart_create", 11) == 0) {
        MPI_Cart_create(MPI_COMM_WORLD, 1, &whole, &periods, reorder, &made);
    }
    if (strcmp(how, "cart_create") == 0) {
        MPI_Comm slice;
        int remain = 1;
        MPI_Cart_sub(made, &remain, &slice);
        MPI_Comm_size(slice, &size);
        if (size != whole) printf("construct: FOOLED by a slice: %d of %d\n", size, whole);
        MPI_Comm_free(&slice);
    }
    if (strncmp(how, "dist_graph", 10) == 0) {
        MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &before, MPI_UNWEIGHTED, 1, &after, MPI_UNWEIGHTED,
                                       MPI_INFO_NULL, reorder, &made);
    }
    if (made != MPI_COMM_NULL) {
        MPI_Comm_size(made, &size);
        if (size != whole && strcmp(how, "split_type") != 0) printf("construct: FOOLED: %d of %d\n", size, whole);
        int number;
        MPI_Comm_rank(made, &number);
        if (number != rank && !reorder && strcmp(how, "split_type") != 0) printf("construct: FOOLED: moved\n");
        MPI_Comm_free(&made);
    }
    MPI_Group_free(&group);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("construct: came to the end\n");
    MPI_Finalize();
    return 0;
}
