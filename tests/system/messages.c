/* Messages as other encrypted MPIs got them wrong, and calls that are refused: each case checks itself.
 *
 *     messages CASE...    an even number of ranks; those of a node next to each other
 */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, ranks, partner;

static void fail(const char* what, int got, int expected) {
    fprintf(stderr, "messages: rank %d: %s: %d, expected %d\n", rank, what, got, expected);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void expect(const char* what, int got, int expected) {
    if (got != expected) fail(what, got, expected);
}

static int class_of(int code) {
    int error_class = 0;
    MPI_Error_class(code, &error_class);
    return error_class;
}

/* More receives than anybody's table, completed in the order opposite to their posting. */
static void many_requests(void) {
    enum { MANY = 500 };
    static int in[MANY], out[MANY];
    static MPI_Request receives[MANY], sends[MANY];
    for (int i = 0; i < MANY; i++) MPI_Irecv(&in[i], 1, MPI_INT, partner, i % 7, MPI_COMM_WORLD, &receives[i]);
    for (int i = 0; i < MANY; i++) {
        out[i] = 1000 * rank + i;
        MPI_Isend(&out[i], 1, MPI_INT, partner, i % 7, MPI_COMM_WORLD, &sends[i]);
    }
    for (int i = MANY - 1; i >= 0; i--) MPI_Wait(&receives[i], MPI_STATUS_IGNORE);
    MPI_Waitall(MANY, sends, MPI_STATUSES_IGNORE);
    for (int i = 0; i < MANY; i++) expect("message", in[i], 1000 * partner + i);
}

/* Tags received in another order than sent. */
static void tags_out_of_order(void) {
    for (int round = 0; round < 20; round++) {
        int out[4] = {0, 1, 2, 3}, in;
        MPI_Request sends[4];
        for (int i = 0; i < 4; i++) MPI_Isend(&out[i], 1, MPI_INT, partner, i, MPI_COMM_WORLD, &sends[i]);
        for (int i = 3; i >= 0; i--) {
            MPI_Recv(&in, 1, MPI_INT, partner, i, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            expect("tag", in, i);
        }
        MPI_Waitall(4, sends, MPI_STATUSES_IGNORE);
    }
}

/* From everybody, on this node and elsewhere, in whatever order they come; each sender's own order holds. */
static void wildcards(void) {
    enum { EACH = 50 };
    int* next = calloc((size_t)ranks, sizeof(int));
    if (rank == 0) {
        for (int i = 0; i < EACH * (ranks - 1); i++) {
            int in = -1, count = 0;
            MPI_Status status;
            if (i % 3 == 0) {
                MPI_Probe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
                MPI_Get_count(&status, MPI_INT, &count);
                expect("probed count", count, 1);
            }
            MPI_Recv(&in, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            MPI_Get_count(&status, MPI_INT, &count);
            expect("count", count, 1);
            expect("tag", status.MPI_TAG, 10 + status.MPI_SOURCE);
            expect("order", in, next[status.MPI_SOURCE]++);
        }
    } else {
        for (int i = 0; i < EACH; i++) MPI_Send(&i, 1, MPI_INT, 0, 10 + rank, MPI_COMM_WORLD);
    }
    free(next);
}

/* A buffer larger than the message, and one that is too small. */
static void other_sizes(void) {
    int out[8] = {1, 2, 3, 4, 5, 6, 7, 8}, in[16], count;
    MPI_Status status;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    memset(in, 0xff, sizeof in);
    MPI_Sendrecv(out, 3, MPI_INT, partner, 1, in, 16, MPI_INT, partner, 1, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_INT, &count);
    expect("count of a short message", count, 3);
    expect("after it", in[3], -1);
    MPI_Get_count(&status, MPI_DOUBLE, &count);
    expect("count that does not fit", count, MPI_UNDEFINED);
    MPI_Sendrecv(NULL, 0, MPI_INT, partner, 1, in, 16, MPI_INT, partner, 1, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_INT, &count);
    expect("count of an empty message", count, 0);

    MPI_Request request;
    memset(in, 0xff, sizeof in);
    MPI_Isend(out, 8, MPI_INT, partner, 2, MPI_COMM_WORLD, &request);
    int code = MPI_Recv(in, 2, MPI_INT, partner, 2, MPI_COMM_WORLD, &status);
    expect("class of a truncated message's error", class_of(code), MPI_ERR_TRUNCATE);
    expect("after the buffer", in[2], -1);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    /* What follows on the same tag still comes, and in order. */
    for (int i = 0; i < 3; i++) {
        MPI_Sendrecv(&i, 1, MPI_INT, partner, 2, in, 1, MPI_INT, partner, 2, MPI_COMM_WORLD, &status);
        expect("after a truncated message", in[0], i);
    }
}

static void vectors(void) {
    int out[100], in[100];
    MPI_Datatype column;
    MPI_Type_vector(10, 1, 10, MPI_INT, &column);
    MPI_Type_commit(&column);
    for (int i = 0; i < 100; i++) {
        out[i] = i;
        in[i] = -1;
    }
    MPI_Request request;
    MPI_Irecv(in, 1, column, partner, 3, MPI_COMM_WORLD, &request);
    MPI_Send(out, 1, column, partner, 3, MPI_COMM_WORLD);
    MPI_Type_free(&column); /* while the receive may still be on its way */
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < 100; i++) expect("element", in[i], i % 10 == 0 ? i : -1);
}

/* Ranks of a communicator are not those of the world. */
static void split(void) {
    MPI_Comm reversed;
    MPI_Comm_split(MPI_COMM_WORLD, 0, ranks - rank, &reversed);
    int own, got = -1;
    MPI_Comm_rank(reversed, &own);
    expect("rank", own, ranks - 1 - rank);
    MPI_Sendrecv(&rank, 1, MPI_INT, (own + 1) % ranks, 4, &got, 1, MPI_INT, (own + ranks - 1) % ranks, 4, reversed,
                 MPI_STATUS_IGNORE);
    expect("neighbour", got, (rank + 1) % ranks);
    int sum = 0;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, reversed);
    expect("sum", sum, ranks * (ranks - 1) / 2);
    MPI_Comm_free(&reversed);
}

static void cancel(void) {
    int never = -1, cancelled = 0;
    MPI_Request request;
    MPI_Status status;
    MPI_Irecv(&never, 1, MPI_INT, partner, 99, MPI_COMM_WORLD, &request);
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &cancelled);
    expect("cancelled", cancelled, 1);
    MPI_Barrier(MPI_COMM_WORLD); /* or the next message would be its */
    int in;
    MPI_Sendrecv(&rank, 1, MPI_INT, partner, 99, &in, 1, MPI_INT, partner, 99, MPI_COMM_WORLD, &status);
    expect("after a cancelled receive", in, partner);
}

/* Neither commutative: 10a + b on the digits of a rank's place. */
static void append(void* left, void* right, int* length, MPI_Datatype* type) {
    (void)type;
    for (int i = 0; i < *length; i++) {
        long long l = ((long long*)left)[i], r = ((long long*)right)[i], shift = 1;
        while (shift <= r) shift *= 10;
        ((long long*)right)[i] = l * shift + r;
    }
}

static void ordered_reduction(void) {
    MPI_Op op;
    MPI_Op_create(append, 0, &op);
    long long own = rank + 1, expected = 0, prefix = 0, got = 0;
    for (int i = 0; i < ranks; i++) {
        expected = expected * 10 + i + 1;
        if (i == rank) prefix = expected;
    }
    MPI_Allreduce(&own, &got, 1, MPI_LONG_LONG, op, MPI_COMM_WORLD);
    expect("Allreduce in order", got == expected, 1);
    for (int root = 0; root < ranks; root++) {
        got = 0;
        MPI_Reduce(&own, &got, 1, MPI_LONG_LONG, op, root, MPI_COMM_WORLD);
        if (rank == root) expect("Reduce in order", got == expected, 1);
    }
    MPI_Scan(&own, &got, 1, MPI_LONG_LONG, op, MPI_COMM_WORLD);
    expect("Scan in order", got == prefix, 1);
    MPI_Op_free(&op);
}

/* Under the MPI layer: an error of MPI's, and the job goes on. */
static void refused(void) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int value = rank;
    MPI_Request request = MPI_REQUEST_NULL;
    int code = MPI_Ibcast(&value, 1, MPI_INT, 0, MPI_COMM_WORLD, &request);
    if (code == MPI_SUCCESS) {
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        expect("Ibcast", value, 0);
        printf("messages: passed\n");
    } else {
        expect("class", class_of(code), MPI_ERR_UNSUPPORTED_OPERATION);
        printf("messages: refused\n");
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static int send_at_the_end(MPI_Comm comm, int key, void* value, void* more) {
    (void)comm, (void)key, (void)value, (void)more;
    char out[] = "sent while MPI_Finalize deletes attributes", in[sizeof out] = "";
    MPI_Sendrecv(out, sizeof out, MPI_CHAR, partner, 5, in, sizeof in, MPI_CHAR, partner, 5, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    expect("message at the end", strcmp(in, out), 0);
    return MPI_SUCCESS;
}

/* The attributes of MPI_COMM_SELF are deleted first of all in MPI_Finalize, by functions that may use MPI. */
static void at_the_end(void) {
    int key;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, send_at_the_end, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
}

enum { THREADS = 4, ROUNDS = 300 };

static void* exchange(void* argument) {
    const int tag = (int)(size_t)argument;
    for (int i = 0; i < ROUNDS; i++) {
        int out = 1000 * tag + i, in = -1;
        MPI_Sendrecv(&out, 1, MPI_INT, partner, tag, &in, 1, MPI_INT, partner, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        expect("message of a thread", in, out);
    }
    return NULL;
}

static void* add_up(void* argument) {
    MPI_Comm* comm = argument;
    for (int i = 0; i < ROUNDS; i++) {
        int own = rank + i, sum = 0;
        MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, *comm);
        expect("sum of a thread", sum, ranks * (ranks - 1) / 2 + ranks * i);
    }
    return NULL;
}

/* Messages and collective operations at once. */
static void threads(void) {
    int level;
    MPI_Query_thread(&level);
    if (level != MPI_THREAD_MULTIPLE) return;
    pthread_t all[THREADS + 2];
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm world = MPI_COMM_WORLD;
    for (size_t i = 0; i < THREADS; i++) pthread_create(&all[i], NULL, exchange, (void*)i);
    pthread_create(&all[THREADS], NULL, add_up, &comm);
    pthread_create(&all[THREADS + 1], NULL, add_up, &world);
    for (int i = 0; i < THREADS + 2; i++) pthread_join(all[i], NULL);
    MPI_Comm_free(&comm);
    if (rank == 0) printf("messages: threads ran\n");
}

int main(int argc, char** argv) {
    static const struct {
        const char* name;
        void (*run)(void);
    } cases[] = {
        {"many_requests", many_requests},
        {"tags_out_of_order", tags_out_of_order},
        {"wildcards", wildcards},
        {"other_sizes", other_sizes},
        {"vectors", vectors},
        {"split", split},
        {"cancel", cancel},
        {"ordered_reduction", ordered_reduction},
        {"refused", refused},
        {"threads", threads},
        {"at_the_end", at_the_end},
    };
    /* One thread and many take different paths. */
    if (argc == 2 && strcmp(argv[1], "threads") == 0) {
        int level;
        MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    } else {
        MPI_Init(&argc, &argv);
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    partner = (rank + ranks / 2) % ranks;
    int ran = 0;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int wanted = argc == 1;
        for (int k = 1; k < argc; k++) wanted |= strcmp(argv[k], cases[i].name) == 0;
        if (!wanted) continue;
        MPI_Barrier(MPI_COMM_WORLD); /* wildcards must not meet another case's messages */
        cases[i].run();
        ran++;
    }
    if (ran != (argc > 1 ? argc - 1 : ran)) fail("cases of these names", ran, argc - 1);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("messages: %d cases right\n", ran);
    MPI_Finalize();
    return 0;
}
