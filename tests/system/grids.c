/* Grids and graphs with fewer places than there are ranks, and slices that keep no dimension. Each rank says which it
 * has got, and what it was told there. */
#include <mpi.h>
#include <stdio.h>

static int rank;

static void use(const char* what, int reorder, MPI_Comm* made) {
    int size = 0, sum = 0, mine = rank + 1;
    if (*made != MPI_COMM_NULL) {
        MPI_Comm_size(*made, &size);
        MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, *made);
        MPI_Comm_free(made);
    }
    printf("grids: rank %d, %s, reorder %d: %d ranks, %d\n", rank, what, reorder, size, sum);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int whole;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &whole);
    const int fewer = whole - 1, periods = 1, keep = 0, degrees[] = {0, 0, 0};
    MPI_Comm made, slice;
    for (int reorder = 0; reorder < 2; reorder++) {
        MPI_Cart_create(MPI_COMM_WORLD, 1, &fewer, &periods, reorder, &made);
        use("a grid", reorder, &made);
        MPI_Graph_create(MPI_COMM_WORLD, fewer, degrees, degrees, reorder, &made);
        use("a graph", reorder, &made);
    }
    MPI_Cart_create(MPI_COMM_WORLD, 1, &whole, &periods, 0, &made);
    MPI_Cart_sub(made, &keep, &slice);
    use("a slice", 0, &slice);
    use("its grid", 0, &made);
    MPI_Finalize();
    return 0;
}
