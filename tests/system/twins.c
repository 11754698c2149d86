/* Communicators that are made alike: by most constructors twice, and again of what one made. Rank 0 sends rank 1 the
 * same bytes by the same tag as the first message on each. */
#include <mpi.h>
#include <stdio.h>

enum { TAG = 77, SIZE = 64, MOST = 64 };

static MPI_Comm made[MOST];
static int count, rank;

static MPI_Group group;
static int ranks, periodic = 1, keep = 1;

static void keep_it(MPI_Comm comm) {
    made[count++] = comm;
}

static void make_twice(MPI_Comm parent) {
    MPI_Comm one;
    MPI_Request request;
    for (int i = 0; i < 2; i++) {
        MPI_Comm_dup(parent, &one);
        keep_it(one);
        MPI_Comm_dup_with_info(parent, MPI_INFO_NULL, &one);
        keep_it(one);
        MPI_Comm_idup(parent, &one, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        keep_it(one);
        MPI_Comm_create(parent, group, &one);
        keep_it(one);
        for (int tag = 0; tag < 2; tag++) {
            MPI_Comm_create_group(parent, group, tag, &one);
            keep_it(one);
        }
        MPI_Comm_split(parent, 0, rank, &one);
        keep_it(one);
        MPI_Cart_create(parent, 1, &ranks, &periodic, 0, &one);
        keep_it(one);
        MPI_Cart_sub(made[count - 1], &keep, &one);
        keep_it(one);
        MPI_Comm_create_from_group(group, "one", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &one);
        keep_it(one);
        MPI_Comm_create_from_group(group, "0", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &one);
        keep_it(one);
    }
}

int main(int argc, char** argv) {
    unsigned char bytes[SIZE] = {0};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_group(MPI_COMM_WORLD, &group);
    keep_it(MPI_COMM_WORLD);
    make_twice(MPI_COMM_WORLD);
    make_twice(made[1]);
    for (int i = 0; i < count; i++) {
        if (rank == 0) MPI_Send(bytes, SIZE, MPI_BYTE, 1, TAG, made[i]);
        if (rank == 1) MPI_Recv(bytes, SIZE, MPI_BYTE, 0, TAG, made[i], MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("twins: %d communicators\n", count);
    for (int i = 1; i < count; i++) MPI_Comm_free(&made[i]);
    MPI_Group_free(&group);
    MPI_Finalize();
    return 0;
}
