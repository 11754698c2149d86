/* Collective operations between two nodes of two ranks each, while somebody changes what rank 0 sends to the other node
 * in every other one of them. Each rank says what it sees of it, and goes on. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { LARGEST = 1000000, PIECE = 5, STEP = 7, ROOM = LARGEST / PIECE * STEP, RANKS = 4 };

static int rank;
static unsigned char bytes[ROOM], out[ROOM];

static unsigned char sent(int place, int from) {
    return (unsigned char)(place * 7 + from + 1);
}

/* The address of byte `place` of the data. */
static unsigned char* at(int place, int gaps) {
    return &bytes[gaps ? place / PIECE * STEP + place % PIECE : place];
}

static void say(int attacked, const char* what, int size, int code, const char* left) {
    int error_class = 0;
    MPI_Error_class(code, &error_class);
    const char* told = code == MPI_SUCCESS ? "success" : error_class > MPI_ERR_LASTCODE ? "told" : "MPI's error";
    printf("attacked: %s%s %d: rank %d: %s, %s\n", attacked ? "attacked " : "", what, size, rank, told, left);
    fflush(stdout);
}

/* Each of the blocks must be as its sender sent it, or zeros. */
static const char* left_of(int size, int blocks, int first, int gaps) {
    int whole = 0;
    for (int block = 0; block < blocks; block++) {
        int as_sent = 1, nothing = 1;
        for (int i = 0; i < size; i++) {
            as_sent &= *at(block * size + i, gaps) == sent(i, first + block);
            nothing &= *at(block * size + i, gaps) == 0;
        }
        if (!as_sent && !nothing) return "BYTES LEFT";
        whole += as_sent;
    }
    for (int i = 0; gaps && i < size / PIECE; i++) {
        if (bytes[i * STEP + PIECE] != 0xe0 + rank) return "GAPS WRITTEN";
    }
    return whole == blocks ? "as sent" : "nothing left";
}

static void broadcast(int attacked, int size, int root, int gaps) {
    char what[100];
    snprintf(what, sizeof what, "Bcast%s from %d of", gaps ? " with gaps" : "", root);
    MPI_Datatype type = MPI_BYTE;
    if (gaps) {
        MPI_Type_vector(size / PIECE, PIECE, STEP, MPI_BYTE, &type);
        MPI_Type_commit(&type);
    }
    for (int i = 0; rank == root && i < size; i++) *at(i, gaps) = sent(i, root);
    const int code = MPI_Bcast(bytes, gaps ? 1 : size, type, root, MPI_COMM_WORLD);
    say(attacked, what, size, code, left_of(size, 1, root, gaps));
    if (gaps) MPI_Type_free(&type);
}

static void alltoall(int attacked, int size) {
    for (int i = 0; i < RANKS * size; i++) out[i] = sent(i % size, rank);
    const int code = MPI_Alltoall(out, size, MPI_BYTE, bytes, size, MPI_BYTE, MPI_COMM_WORLD);
    say(attacked, "Alltoall of", size, code, left_of(size, RANKS, 0, 0));
}

static void allgather(int attacked, int size) {
    for (int i = 0; i < size; i++) out[i] = sent(i, rank);
    const int code = MPI_Allgather(out, size, MPI_BYTE, bytes, size, MPI_BYTE, MPI_COMM_WORLD);
    say(attacked, "Allgather of", size, code, left_of(size, RANKS, 0, 0));
}

/* The maximum of what all have. It is rank 3's, and nobody has anything that looks like it. */
static void reduce(int attacked, int size) {
    for (int i = 0; i < size; i++) out[i] = (unsigned char)(i % 100 + rank);
    const int code = MPI_Allreduce(out, bytes, size, MPI_UNSIGNED_CHAR, MPI_MAX, MPI_COMM_WORLD);
    int right = 1, untouched = 1;
    for (int i = 0; i < size; i++) {
        right &= bytes[i] == i % 100 + RANKS - 1;
        untouched &= bytes[i] == 0xe0 + rank;
    }
    say(attacked, "Allreduce of", size, code, right ? "as sent" : untouched ? "nothing left" : "BYTES LEFT");
}

/* What the others have must not look like the result. */
static int prepare(int attacked) {
    memset(bytes, 0xe0 + rank, sizeof bytes);
    return attacked;
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    /* The ranks of a node get a broadcast with what is said about it; after that; and after it came in pieces. */
    for (int size = 1000; size <= LARGEST; size = size == 1000 ? 100000 : size * 10) {
        for (int root = 0; root < 2; root++) {
            for (int attacked = 1; attacked >= 0; attacked--) broadcast(prepare(attacked), size, root, 0);
            for (int attacked = 1; attacked >= 0; attacked--) broadcast(prepare(attacked), size, root, 1);
        }
    }
    /* In one operation of MPI, and in ways of ours. */
    for (int size = 1000; size <= 100000; size *= 100) {
        for (int attacked = 1; attacked >= 0; attacked--) alltoall(prepare(attacked), size);
        for (int attacked = 1; attacked >= 0; attacked--) allgather(prepare(attacked), size);
        for (int attacked = 1; attacked >= 0; attacked--) reduce(prepare(attacked), 4 * size);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("attacked: went on to the end\n");
    MPI_Finalize();
    return 0;
}
