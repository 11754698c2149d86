/* Collective operations on communicators that have some ranks of the job only, and on communicators of these: what one
 * rank sends for all of them is under a secret that only they have. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { LARGE = 300000 };

static int failures;

static void expect(int holds, const char* what) {
    if (holds) return;
    fprintf(stderr, "subsets: %s is wrong\n", what);
    failures++;
}

static int value(int rank, int at) {
    return rank * 1000003 + at;
}

static void broadcast(MPI_Comm comm, int rank, int ranks, int count, int* data) {
    for (int root = 0; root < ranks; root++) {
        for (int i = 0; i < count; i++) data[i] = rank == root ? value(root, i) : -1;
        MPI_Bcast(data, count, MPI_INT, root, comm);
        int same = 1;
        for (int i = 0; i < count; i++) same = same && data[i] == value(root, i);
        expect(same, "Bcast");
    }
}

static void gather_all(MPI_Comm comm, int rank, int ranks, int count, int* data) {
    int* all = malloc(sizeof(int) * (size_t)(ranks * count));
    for (int i = 0; i < count; i++) data[i] = value(rank, i);
    MPI_Allgather(data, count, MPI_INT, all, count, MPI_INT, comm);
    int same = 1;
    for (int i = 0; i < ranks * count; i++) same = same && all[i] == value(i / count, i % count);
    expect(same, "Allgather");
    free(all);
}

static void reduce_all(MPI_Comm comm, int rank, int ranks, int count, int* data) {
    int* sum = malloc(sizeof(int) * (size_t)count);
    for (int i = 0; i < count; i++) data[i] = rank + i % 100;
    MPI_Allreduce(data, sum, count, MPI_INT, MPI_SUM, comm);
    int same = 1;
    for (int i = 0; i < count; i++) same = same && sum[i] == ranks * (ranks - 1) / 2 + ranks * (i % 100);
    expect(same, "Allreduce");
    free(sum);
}

static void use(MPI_Comm comm) {
    static int data[LARGE];
    int rank, ranks;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &ranks);
    for (int count = 1; count <= LARGE; count *= 60) {
        gather_all(comm, rank, ranks, count / 10 + 1, data);
        broadcast(comm, rank, ranks, count, data);
        reduce_all(comm, rank, ranks, count, data);
    }
    reduce_all(comm, rank, ranks, LARGE, data);
}

int main(int argc, char** argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm without_last, within, turned, copy;
    MPI_Comm_split(MPI_COMM_WORLD, rank == ranks - 1 ? MPI_UNDEFINED : 0, -rank, &without_last);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &turned); /* all ranks */
    use(turned);
    if (without_last != MPI_COMM_NULL) {
        use(without_last);
        MPI_Comm_dup(without_last, &copy);
        MPI_Comm_split(copy, rank == 0, 0, &within);
        use(copy);
        use(within);
        MPI_Comm_free(&within);
        MPI_Comm_free(&copy);
        MPI_Comm_free(&without_last);
    }
    use(MPI_COMM_WORLD);
    MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0 && failures == 0) printf("subsets: all is right\n");
    MPI_Finalize();
    return failures != 0;
}
