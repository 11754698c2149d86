/* What the fabric layer seals, each case checked by itself, with a canary in all that travels between two ranks:
 *
 *     fabric CASE...     2 ranks, one on each node
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char canary[] = "fabric canary 7c1e";
static int rank, peer;

static void expect(const char* what, long got, long expected) {
    if (got == expected) return;
    fprintf(stderr, "fabric: rank %d: %s: %ld, expected %ld\n", rank, what, got, expected);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static char* filled(size_t size, int seed) {
    char* const at = malloc(size + 1);
    for (size_t i = 0; i < size; i++) at[i] = canary[(i + (size_t)seed) % (sizeof canary - 1)];
    return at;
}

static void expect_filled(const char* what, const char* at, size_t size, int seed) {
    for (size_t i = 0; i < size; i++) expect(what, at[i], canary[(i + (size_t)seed) % (sizeof canary - 1)]);
}

static const size_t sizes[] = {0, 1, 17, 1000, 8192, 70000, 1 << 20, 5000000};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void talk(void) {
    for (int i = 0; i < SIZES; i++) {
        char* const out = filled(sizes[i], rank);
        char* const in = calloc(1, sizes[i] + 1);
        MPI_Status status;
        int count = 0;
        MPI_Sendrecv(out, (int)sizes[i], MPI_CHAR, peer, 3, in, (int)sizes[i], MPI_CHAR, peer, 3, MPI_COMM_WORLD,
                     &status);
        MPI_Get_count(&status, MPI_CHAR, &count);
        expect("count", count, (long)sizes[i]);
        expect("source", status.MPI_SOURCE, peer);
        expect_filled("received", in, sizes[i], peer);
        if (rank == 0) MPI_Ssend(out, (int)sizes[i], MPI_CHAR, peer, 4, MPI_COMM_WORLD);
        if (rank == 1) MPI_Recv(in, (int)sizes[i], MPI_CHAR, peer, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        free(out);
        free(in);
    }
}

static void unexpected(void) {
    char* const big = filled(300000, 1);
    if (rank == 0) {
        for (int i = 0; i < 20; i++) MPI_Send(big, i * 13, MPI_CHAR, peer, i % 3, MPI_COMM_WORLD);
        MPI_Request request;
        MPI_Isend(big, 300000, MPI_CHAR, peer, 9, MPI_COMM_WORLD, &request);
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        MPI_Barrier(MPI_COMM_WORLD);
        char* const in = calloc(1, 300000);
        for (int i = 0; i < 20; i++) {
            MPI_Status status;
            int count = 0;
            MPI_Probe(peer, i % 3, MPI_COMM_WORLD, &status);
            MPI_Get_count(&status, MPI_CHAR, &count);
            expect("probed", count, i * 13);
            MPI_Message message;
            if (i % 2 == 0) {
                MPI_Mprobe(peer, status.MPI_TAG, MPI_COMM_WORLD, &message, &status);
                MPI_Mrecv(in, count, MPI_CHAR, &message, &status);
            } else {
                MPI_Recv(in, count, MPI_CHAR, peer, i % 3, MPI_COMM_WORLD, &status);
            }
            expect("tag", status.MPI_TAG, i % 3);
            expect_filled("unexpected", in, (size_t)count, 1);
        }
        MPI_Recv(in, 300000, MPI_CHAR, peer, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        expect_filled("large", in, 300000, 1);
        free(in);
    }
    free(big);
}

static void many(void) {
    enum { MANY = 400 };
    static int in[MANY], out[MANY];
    static MPI_Request requests[2 * MANY];
    for (int i = 0; i < MANY; i++)
        MPI_Irecv(&in[i], 1, MPI_INT, i % 5 ? peer : MPI_ANY_SOURCE, 7, MPI_COMM_WORLD, &requests[i]);
    for (int i = 0; i < MANY; i++) {
        out[i] = 1000 * rank + i;
        MPI_Isend(&out[i], 1, MPI_INT, peer, 7, MPI_COMM_WORLD, &requests[MANY + i]);
    }
    MPI_Waitall(2 * MANY, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < MANY; i++) expect("in order", in[i], 1000 * peer + i);
}

static void mixed(void) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int value = 0;
    MPI_Request request;
    int flag = 0;
    MPI_Status status;
    MPI_Irecv(&value, 1, MPI_INT, peer, 77, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &flag);
    expect("cancelled", flag, 1);
    int longer[4] = {1, 2, 3, 4};
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Isend(longer, 4, MPI_INT, peer, 78, MPI_COMM_WORLD, &request);
    const int code = MPI_Recv(longer + 3, 1, MPI_INT, peer, 78, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    int error_class = 0;
    MPI_Error_class(code, &error_class);
    expect("truncated", error_class, MPI_ERR_TRUNCATE);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&rank, 1, MPI_INT, peer, 78, &value, 1, MPI_INT, peer, 78, MPI_COMM_WORLD, &status);
    expect("after a truncated one", value, peer);
}

static void datatypes(void) {
    enum { ROWS = 3000 };
    static int matrix[ROWS][4], received[ROWS][4];
    MPI_Datatype column;
    MPI_Type_vector(ROWS, 1, 4, MPI_INT, &column);
    MPI_Type_commit(&column);
    for (int i = 0; i < ROWS; i++) matrix[i][0] = rank * ROWS + i;
    MPI_Sendrecv(matrix, 1, column, peer, 5, received, 1, column, peer, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < ROWS; i++) expect("column", received[i][0], peer * ROWS + i);
    MPI_Type_free(&column);
}

static void one_sided(void) {
    enum { COUNT = 20000 };
    int* memory = NULL;
    MPI_Win window;
    MPI_Win_allocate(COUNT * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
    int* const out = malloc(COUNT * sizeof(int));
    for (int i = 0; i < COUNT; i++) out[i] = 5 * i + rank;
    MPI_Win_fence(0, window);
    MPI_Put(out, COUNT, MPI_INT, peer, 0, COUNT, MPI_INT, window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < COUNT; i++) expect("put", memory[i], 5 * i + peer);
    MPI_Win_fence(0, window);
    MPI_Accumulate(out, 100, MPI_INT, peer, 0, 100, MPI_INT, MPI_SUM, window);
    MPI_Win_fence(0, window);
    for (int i = 0; i < 100; i++) expect("accumulated", memory[i], 2 * (5 * i + peer));
    int* const got = malloc(COUNT * sizeof(int));
    MPI_Get(got, COUNT, MPI_INT, peer, 0, COUNT, MPI_INT, window);
    MPI_Win_fence(0, window);
    expect("got", got[COUNT - 1], 5 * (COUNT - 1) + rank);
    const int one = 1;
    int before = 0;
    MPI_Win_lock_all(0, window);
    MPI_Fetch_and_op(&one, &before, MPI_INT, peer, 200, MPI_SUM, window);
    MPI_Win_flush(peer, window);
    MPI_Win_unlock_all(window);
    expect("fetched", before, 5 * 200 + rank);
    MPI_Win_free(&window);
    free(out);
    free(got);
}

static void collectives(void) {
    enum { COUNT = 50000 };
    int* const in = malloc(COUNT * sizeof(int));
    int* const out = malloc(COUNT * sizeof(int));
    for (int i = 0; i < COUNT; i++) in[i] = i + rank;
    MPI_Request request;
    MPI_Iallreduce(in, out, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < COUNT; i++) expect("sum", out[i], 2 * i + 1);
    MPI_Bcast(out, COUNT, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Comm other;
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    MPI_Alltoall(in, 1000, MPI_INT, out, 1000, MPI_INT, other);
    expect("all to all", out[1000 * peer], 1000 * rank + peer);
    MPI_Comm_free(&other);
    free(in);
    free(out);
}

int main(int argc, char** argv) {
    static const struct {
        const char* name;
        void (*run)(void);
    } cases[] = {{"talk", talk},
                 {"unexpected", unexpected},
                 {"many", many},
                 {"mixed", mixed},
                 {"datatypes", datatypes},
                 {"one_sided", one_sided},
                 {"collectives", collectives}};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    peer = 1 - rank;
    for (int i = 1; i < argc; i++) {
        for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
            if (strcmp(cases[k].name, argv[i]) == 0) cases[k].run();
        }
        if (rank == 0) printf("%s ok\n", argv[i]);
    }
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
