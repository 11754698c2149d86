/* Collective operations between two nodes of two ranks each, while somebody changes what rank 0 sends to the other node
 * in every other one of them. Each rank says what it sees of it, and goes on. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { LARGEST = 1000000, PIECE = 5, STEP = 7, ROOM = LARGEST / PIECE * STEP };

static int rank;
static unsigned char bytes[ROOM];

static unsigned char sent(int place, int root) {
    return (unsigned char)(place * 7 + root + 1);
}

/* The address of byte `place` of the data. */
static unsigned char* at(int place, int gaps) {
    return &bytes[gaps ? place / PIECE * STEP + place % PIECE : place];
}

static void say(const char* what, int size, int root, int code, int gaps) {
    int as_sent = 1, nothing = 1, error_class = 0, touched = 0;
    for (int i = 0; i < size; i++) {
        as_sent &= *at(i, gaps) == sent(i, root);
        nothing &= *at(i, gaps) == 0;
    }
    for (int i = 0; gaps && i < size / PIECE; i++) touched |= bytes[i * STEP + PIECE] != 0xe0 + rank;
    MPI_Error_class(code, &error_class);
    printf("attacked: %s %d%s from %d: rank %d: %s, %s%s\n", what, size, gaps ? " with gaps" : "", root, rank,
           code == MPI_SUCCESS              ? "success"
           : error_class > MPI_ERR_LASTCODE ? "told"
                                            : "MPI's error",
           as_sent ? "as sent"
           : nothing ? "nothing left"
                     : "BYTES LEFT",
           touched ? ", GAPS WRITTEN" : "");
    fflush(stdout);
}

static void broadcast(int size, int root, int gaps) {
    MPI_Datatype type = MPI_BYTE;
    if (gaps) {
        MPI_Type_vector(size / PIECE, PIECE, STEP, MPI_BYTE, &type);
        MPI_Type_commit(&type);
    }
    for (int attacked = 1; attacked >= 0; attacked--) {
        /* What the others have must not look like the result. */
        memset(bytes, 0xe0 + rank, sizeof bytes);
        for (int i = 0; rank == root && i < size; i++) *at(i, gaps) = sent(i, root);
        const int code = MPI_Bcast(bytes, gaps ? 1 : size, type, root, MPI_COMM_WORLD);
        say(attacked ? "attacked Bcast" : "Bcast", size, root, code, gaps);
    }
    if (gaps) MPI_Type_free(&type);
}

int main(int argc, char** argv) {
    /* Those of a node get it with what is said about it, after it, and, the last one, after it came in pieces. */
    static const int sizes[] = {1000, 100000, LARGEST};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < 3; i++) {
        for (int root = 0; root < 2; root++) {
            for (int gaps = 0; gaps < 2; gaps++) broadcast(sizes[i], root, gaps);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("attacked: went on to the end\n");
    MPI_Finalize();
    return 0;
}
