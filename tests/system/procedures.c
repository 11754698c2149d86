/* Every sealed procedure, called by its own name: each moves 32 bytes of its own, repeated, from node to node.
 *
 *     procedures FILE NAME...    two ranks; FILE has a line "NAME 64-HEX-DIGITS" for each sealed procedure, and the
 *                                procedures NAME are left out
 *
 * sealed.h is generated from the table (test_procedures.py): type_NAME for each sealed procedure, and the list SEALED.
 * What the list has and this file has no exercise for is named, and the test fails.
 *
 * A rank sends what `out` has and checks what came into `in`; unless it says otherwise, rank 0 sends and rank 1
 * receives. Each exercise runs with a small message and with a large one.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION < 5
typedef void* MPI_Session; /* which is newer */
#endif
#include "sealed.h"

enum { RANKS = 2, CANARY = 32, SMALL = 4 * CANARY, LARGE = 3000 * CANARY };

static int rank, size;        /* size: of the message */
static const char* procedure; /* the one that is exercised */
static void* address;         /* where the program finds it */
static unsigned char canary[CANARY];
static unsigned char out[RANKS * LARGE], in[RANKS * LARGE];
static char buffer[LARGE + 4096]; /* for buffered sends */

static void fail(const char* what) {
    fprintf(stderr, "procedures: rank %d: %s of %d bytes: %s\n", rank, procedure, size, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void expect(int right, const char* otherwise) {
    if (!right) fail(otherwise);
}

static void fill(unsigned char* at, int bytes) {
    for (int i = 0; i < bytes; i += CANARY) memcpy(at + i, canary, CANARY);
}

static void expect_canaries(const unsigned char* at, int bytes) {
    for (int i = 0; i < bytes; i += CANARY) expect(memcmp(at + i, canary, CANARY) == 0, "other data than was sent");
}

static void expect_size(MPI_Status* status, int bytes) {
    int count;
    MPI_Get_count(status, MPI_BYTE, &count);
    expect(count == bytes, "another count than was sent");
}

/* The exercise of a procedure that has no form with large counts. */
#define EXERCISE(name) void exercise_##name(void)

/* One body for a procedure and for its form with large counts: CALL calls the one or the other. */
#define EXERCISE_BOTH(name)                          \
    static void both_##name(type_##name##_c* large); \
    void exercise_##name(void) {                     \
        both_##name(NULL);                           \
    }                                                \
    void exercise_##name##_c(void) {                 \
        both_##name((type_##name##_c*)address);      \
    }                                                \
    static void both_##name(type_##name##_c* large)
#define CALL(name, ...) (large != NULL ? large(__VA_ARGS__) : name(__VA_ARGS__))

/* A procedure that not every mpi.h declares. */
#define NEWER(name) ((type_##name*)address)

/* Sends */

static void post(MPI_Request* receive) {
    if (rank == 1) MPI_Irecv(in, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD, receive);
    MPI_Barrier(MPI_COMM_WORLD); /* a ready send needs its receive */
}

static void finish(MPI_Request* receive) {
    if (rank == 0) return;
    MPI_Status status;
    MPI_Wait(receive, &status);
    expect_size(&status, size);
    expect_canaries(in, size);
}

static void attach(void) {
    MPI_Buffer_attach(buffer, sizeof buffer);
}

static void detach(void) {
    void* at;
    int bytes;
    MPI_Buffer_detach(&at, &bytes);
    expect(at == buffer && bytes == (int)sizeof buffer, "another buffer than was attached");
}

#define BLOCKING(name)                                                        \
    EXERCISE_BOTH(name) {                                                     \
        MPI_Request receive;                                                  \
        attach();                                                             \
        post(&receive);                                                       \
        if (rank == 0) CALL(name, out, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD); \
        finish(&receive);                                                     \
        detach();                                                             \
    }
BLOCKING(MPI_Send)
BLOCKING(MPI_Ssend)
BLOCKING(MPI_Rsend)
BLOCKING(MPI_Bsend)

#define NONBLOCKING(name)                                                 \
    EXERCISE_BOTH(name) {                                                 \
        MPI_Request receive, send;                                        \
        attach();                                                         \
        post(&receive);                                                   \
        if (rank == 0) {                                                  \
            CALL(name, out, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &send); \
            MPI_Wait(&send, MPI_STATUS_IGNORE);                           \
        }                                                                 \
        finish(&receive);                                                 \
        detach();                                                         \
    }
NONBLOCKING(MPI_Isend)
NONBLOCKING(MPI_Issend)
NONBLOCKING(MPI_Irsend)
NONBLOCKING(MPI_Ibsend)

/* Open MPI 4.1.4 sends something else from the second start of a large buffered send on, plain, too. */
static int rounds_of_persistent(void) {
#if defined(OMPI_MAJOR_VERSION) && OMPI_MAJOR_VERSION < 5
    if (size == LARGE && strcmp(procedure, "MPI_Bsend_init") == 0) return 1;
#endif
    return 2;
}

#define PERSISTENT(name)                                                             \
    EXERCISE_BOTH(name) {                                                            \
        MPI_Request receive, send;                                                   \
        attach();                                                                    \
        if (rank == 0) CALL(name, out, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &send); \
        for (int round = rounds_of_persistent(); round > 0; round--) {               \
            memset(in, 0, sizeof in);                                                \
            post(&receive);                                                          \
            if (rank == 0) {                                                         \
                MPI_Start(&send);                                                    \
                MPI_Wait(&send, MPI_STATUS_IGNORE);                                  \
            }                                                                        \
            finish(&receive);                                                        \
        }                                                                            \
        if (rank == 0) MPI_Request_free(&send);                                      \
        detach();                                                                    \
    }
PERSISTENT(MPI_Send_init)
PERSISTENT(MPI_Ssend_init)
PERSISTENT(MPI_Rsend_init)
PERSISTENT(MPI_Bsend_init)

/* Receives */

static void send(void) {
    if (rank == 0) MPI_Send(out, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
}

EXERCISE_BOTH(MPI_Recv) {
    send();
    if (rank == 0) return;
    MPI_Status status;
    CALL(MPI_Recv, in, sizeof in, MPI_BYTE, 0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
    expect_size(&status, size);
    expect_canaries(in, size);
}

EXERCISE_BOTH(MPI_Irecv) {
    MPI_Request receive;
    if (rank == 1) CALL(MPI_Irecv, in, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &receive);
    send();
    finish(&receive);
}

EXERCISE_BOTH(MPI_Recv_init) {
    MPI_Request receive;
    if (rank == 1) CALL(MPI_Recv_init, in, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &receive);
    for (int round = 0; round < 2; round++) {
        memset(in, 0, sizeof in);
        if (rank == 1) MPI_Start(&receive);
        send();
        finish(&receive);
    }
    if (rank == 1) MPI_Request_free(&receive);
}

EXERCISE_BOTH(MPI_Sendrecv) {
    MPI_Status status;
    CALL(MPI_Sendrecv, out, size, MPI_BYTE, 1 - rank, 0, in, size, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, &status);
    expect_size(&status, size);
    expect_canaries(in, size);
}

/* Rank 0's canaries become rank 1's zeros, and the other way round. */
EXERCISE_BOTH(MPI_Sendrecv_replace) {
    MPI_Status status;
    if (rank == 0) memcpy(in, out, (size_t)size);
    CALL(MPI_Sendrecv_replace, in, size, MPI_BYTE, 1 - rank, 0, 1 - rank, 0, MPI_COMM_WORLD, &status);
    expect_size(&status, size);
    if (rank == 0) expect(in[0] == 0 && memcmp(in, in + 1, (size_t)size - 1) == 0, "other data than was sent");
    if (rank == 1) expect_canaries(in, size);
}

/* Probes */

static void receive_probed(MPI_Status* status) {
    expect_size(status, size);
    MPI_Recv(in, size, MPI_BYTE, status->MPI_SOURCE, status->MPI_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    expect_canaries(in, size);
}

static void receive_matched(MPI_Message* message, MPI_Status* status) {
    expect_size(status, size);
    MPI_Mrecv(in, size, MPI_BYTE, message, MPI_STATUS_IGNORE);
    expect_canaries(in, size);
}

EXERCISE(MPI_Probe) {
    send();
    if (rank == 0) return;
    MPI_Status status;
    MPI_Probe(0, 0, MPI_COMM_WORLD, &status);
    receive_probed(&status);
}

EXERCISE(MPI_Iprobe) {
    send();
    if (rank == 0) return;
    MPI_Status status;
    for (int there = 0; !there;) MPI_Iprobe(0, 0, MPI_COMM_WORLD, &there, &status);
    receive_probed(&status);
}

EXERCISE(MPI_Mprobe) {
    send();
    if (rank == 0) return;
    MPI_Message message;
    MPI_Status status;
    MPI_Mprobe(0, 0, MPI_COMM_WORLD, &message, &status);
    receive_matched(&message, &status);
}

EXERCISE(MPI_Improbe) {
    send();
    if (rank == 0) return;
    MPI_Message message;
    MPI_Status status;
    for (int there = 0; !there;) MPI_Improbe(0, 0, MPI_COMM_WORLD, &there, &message, &status);
    receive_matched(&message, &status);
}

EXERCISE_BOTH(MPI_Mrecv) {
    send();
    if (rank == 0) return;
    MPI_Message message;
    MPI_Status status;
    MPI_Mprobe(0, 0, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
    CALL(MPI_Mrecv, in, size, MPI_BYTE, &message, &status);
    expect_size(&status, size);
    expect_canaries(in, size);
}

EXERCISE_BOTH(MPI_Imrecv) {
    send();
    if (rank == 0) return;
    MPI_Message message;
    MPI_Request receive;
    MPI_Mprobe(0, 0, MPI_COMM_WORLD, &message, MPI_STATUS_IGNORE);
    CALL(MPI_Imrecv, in, size, MPI_BYTE, &message, &receive);
    finish(&receive);
}

/* Completion: the message's two halves are two requests on both sides. */

static MPI_Request halves[2];
static MPI_Status statuses[2];

static void begin_halves(void) {
    for (int i = 0; i < 2; i++) {
        const int at = i * size / 2;
        if (rank == 0) MPI_Isend(out + at, size / 2, MPI_BYTE, 1, i, MPI_COMM_WORLD, &halves[i]);
        if (rank == 1) MPI_Irecv(in + at, size / 2, MPI_BYTE, 0, i, MPI_COMM_WORLD, &halves[i]);
    }
}

static void expect_halves(void) {
    if (rank == 0) return;
    for (int i = 0; i < 2; i++) expect_size(&statuses[i], size / 2);
    expect_canaries(in, size);
}

EXERCISE(MPI_Wait) {
    begin_halves();
    for (int i = 0; i < 2; i++) MPI_Wait(&halves[i], &statuses[i]);
    expect_halves();
}

EXERCISE(MPI_Waitall) {
    begin_halves();
    MPI_Waitall(2, halves, statuses);
    expect_halves();
}

EXERCISE(MPI_Waitany) {
    begin_halves();
    for (int i = 0, which; i < 2; i++) MPI_Waitany(2, halves, &which, &statuses[i]);
    expect_halves();
}

EXERCISE(MPI_Waitsome) {
    int which[2];
    begin_halves();
    for (int all = 0, some; all < 2; all += some) MPI_Waitsome(2, halves, &some, which, statuses + all);
    expect_halves();
}

EXERCISE(MPI_Test) {
    begin_halves();
    for (int i = 0; i < 2; i++) {
        for (int done = 0; !done;) MPI_Test(&halves[i], &done, &statuses[i]);
    }
    expect_halves();
}

EXERCISE(MPI_Testall) {
    begin_halves();
    for (int done = 0; !done;) MPI_Testall(2, halves, &done, statuses);
    expect_halves();
}

EXERCISE(MPI_Testany) {
    begin_halves();
    for (int i = 0, which, done; i < 2; i += done) MPI_Testany(2, halves, &which, &done, &statuses[i]);
    expect_halves();
}

EXERCISE(MPI_Testsome) {
    int which[2];
    begin_halves();
    for (int all = 0, some; all < 2; all += some) MPI_Testsome(2, halves, &some, which, statuses + all);
    expect_halves();
}

/* These tell that it is done, and leave the request as it is. */

EXERCISE(MPI_Request_get_status) {
    begin_halves();
    for (int i = 0; i < 2; i++) {
        for (int done = 0; !done;) MPI_Request_get_status(halves[i], &done, &statuses[i]);
    }
    expect_halves();
    MPI_Waitall(2, halves, MPI_STATUSES_IGNORE);
}

/* Between an inactive request and none, which are not to be told of. */
static MPI_Request asked[4];

static void ask_of_halves(void) {
    MPI_Recv_init(in, 1, MPI_BYTE, rank, 7, MPI_COMM_WORLD, &asked[0]);
    begin_halves();
    memcpy(&asked[1], halves, sizeof halves);
    asked[3] = MPI_REQUEST_NULL;
}

static void expect_asked(void) {
    expect_halves();
    MPI_Request_free(&asked[0]);
}

EXERCISE(MPI_Request_get_status_all) {
    MPI_Status told[4];
    ask_of_halves();
    for (int done = 0; !done;) NEWER(MPI_Request_get_status_all)(4, asked, &done, told);
    memcpy(statuses, &told[1], sizeof statuses);
    MPI_Waitall(2, halves, MPI_STATUSES_IGNORE);
    expect_asked();
}

EXERCISE(MPI_Request_get_status_any) {
    ask_of_halves();
    for (int i = 0; i < 2; i++) {
        int which = -1;
        for (int done = 0; !done;) NEWER(MPI_Request_get_status_any)(4, asked, &which, &done, &statuses[i]);
        expect(which == 1 || which == 2, "another request than those that were active");
        MPI_Wait(&asked[which], MPI_STATUS_IGNORE);
    }
    expect_asked();
}

/* MPICH 5.0.2 tells of some of those that are done, and of the others when these are gone. */
EXERCISE(MPI_Request_get_status_some) {
    int which[4];
    MPI_Status told[4];
    ask_of_halves();
    for (int all = 0, some; all < 2; all += some) {
        NEWER(MPI_Request_get_status_some)(4, asked, &some, which, told);
        for (int i = 0; i < some; i++) {
            expect(which[i] == 1 || which[i] == 2, "another request than those that were active");
            statuses[all + i] = told[i];
            MPI_Wait(&asked[which[i]], MPI_STATUS_IGNORE);
        }
    }
    expect_asked();
}

EXERCISE(MPI_Request_free) {
    MPI_Request receive, send;
    post(&receive);
    if (rank == 0) {
        MPI_Isend(out, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &send);
        MPI_Request_free(&send);
    }
    finish(&receive);
}

/* What was cancelled takes no message away. */
EXERCISE(MPI_Cancel) {
    MPI_Request receive;
    if (rank == 1) {
        int cancelled;
        MPI_Status status;
        MPI_Irecv(in, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &receive);
        MPI_Cancel(&receive);
        MPI_Wait(&receive, &status);
        MPI_Test_cancelled(&status, &cancelled);
        expect(cancelled, "the receive is not cancelled");
    }
    post(&receive);
    send();
    finish(&receive);
}

EXERCISE(MPI_Start) {
    MPI_Request request;
    if (rank == 0) MPI_Send_init(out, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &request);
    if (rank == 1) MPI_Recv_init(in, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &request);
    for (int round = 0; round < 2; round++) {
        memset(in, 0, sizeof in);
        MPI_Start(&request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (rank == 1) expect_canaries(in, size);
    }
    MPI_Request_free(&request);
}

EXERCISE(MPI_Startall) {
    MPI_Request requests[2];
    MPI_Send_init(out, size, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Recv_init(in, size, MPI_BYTE, 1 - rank, 0, MPI_COMM_WORLD, &requests[1]);
    for (int round = 0; round < 2; round++) {
        memset(in, 0, sizeof in);
        MPI_Startall(2, requests);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        expect_canaries(in, size);
    }
    for (int i = 0; i < 2; i++) MPI_Request_free(&requests[i]);
}

/* Buffers */

static void send_buffered(void) {
    if (rank == 0) MPI_Bsend(out, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
}

EXERCISE_BOTH(MPI_Buffer_attach) {
    MPI_Request receive;
    CALL(MPI_Buffer_attach, buffer, sizeof buffer);
    post(&receive);
    send_buffered();
    finish(&receive);
    detach();
}

EXERCISE(MPI_Buffer_detach) {
    MPI_Request receive;
    attach();
    post(&receive);
    send_buffered();
    detach();
    finish(&receive);
}

EXERCISE(MPI_Buffer_detach_c) {
    MPI_Request receive;
    void* at;
    MPI_Count bytes;
    attach();
    post(&receive);
    send_buffered();
    NEWER(MPI_Buffer_detach_c)(&at, &bytes);
    expect(at == buffer && bytes == (MPI_Count)sizeof buffer, "another buffer than was attached");
    finish(&receive);
}

EXERCISE(MPI_Buffer_flush) {
    MPI_Request receive;
    attach();
    post(&receive);
    send_buffered();
    NEWER(MPI_Buffer_flush)();
    finish(&receive);
    detach();
}

/* Communicators: a message on the one that was made. */

static void use(MPI_Comm comm) {
    if (rank == 0) MPI_Send(out, size, MPI_BYTE, 1, 0, comm);
    if (rank == 1) {
        MPI_Recv(in, size, MPI_BYTE, 0, 0, comm, MPI_STATUS_IGNORE);
        expect_canaries(in, size);
    }
}

static void use_and_free(MPI_Comm comm) {
    use(comm);
    MPI_Comm_free(&comm);
}

EXERCISE(MPI_Comm_dup) {
    MPI_Comm made;
    MPI_Comm_dup(MPI_COMM_WORLD, &made);
    use_and_free(made);
}

EXERCISE(MPI_Comm_dup_with_info) {
    MPI_Comm made;
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, MPI_INFO_NULL, &made);
    use_and_free(made);
}

EXERCISE(MPI_Comm_idup) {
    MPI_Comm made;
    MPI_Request request;
    MPI_Comm_idup(MPI_COMM_WORLD, &made, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    use_and_free(made);
}

EXERCISE(MPI_Comm_idup_with_info) {
    MPI_Comm made;
    MPI_Request request;
    NEWER(MPI_Comm_idup_with_info)(MPI_COMM_WORLD, MPI_INFO_NULL, &made, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    use_and_free(made);
}

EXERCISE(MPI_Comm_create) {
    MPI_Comm made;
    MPI_Group group;
    MPI_Comm_group(MPI_COMM_WORLD, &group);
    MPI_Comm_create(MPI_COMM_WORLD, group, &made);
    MPI_Group_free(&group);
    use_and_free(made);
}

EXERCISE(MPI_Comm_create_group) {
    MPI_Comm made;
    MPI_Group group;
    MPI_Comm_group(MPI_COMM_WORLD, &group);
    MPI_Comm_create_group(MPI_COMM_WORLD, group, 5, &made);
    MPI_Group_free(&group);
    use_and_free(made);
}

EXERCISE(MPI_Comm_create_from_group) {
    MPI_Comm made;
    MPI_Group group;
    MPI_Comm_group(MPI_COMM_WORLD, &group);
    NEWER(MPI_Comm_create_from_group)(group, "of the world", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &made);
    MPI_Group_free(&group);
    use_and_free(made);
}

EXERCISE(MPI_Comm_split) {
    MPI_Comm made;
    MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &made);
    use_and_free(made);
}

/* One of each node: what it carries stays there. */
EXERCISE(MPI_Comm_split_type) {
    MPI_Comm made;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &made);
    MPI_Sendrecv(out, size, MPI_BYTE, 0, 0, in, size, MPI_BYTE, 0, 0, made, MPI_STATUS_IGNORE);
    expect_canaries(in, size);
    MPI_Comm_free(&made);
}

EXERCISE(MPI_Cart_create) {
    const int sizes[1] = {RANKS}, periods[1] = {1};
    MPI_Comm made;
    MPI_Cart_create(MPI_COMM_WORLD, 1, sizes, periods, 0, &made);
    use_and_free(made);
}

EXERCISE(MPI_Cart_sub) {
    const int sizes[2] = {RANKS, 1}, periods[2] = {0, 0}, remain[2] = {1, 0};
    MPI_Comm grid, made;
    MPI_Cart_create(MPI_COMM_WORLD, 2, sizes, periods, 0, &grid);
    MPI_Cart_sub(grid, remain, &made);
    use_and_free(made);
    MPI_Comm_free(&grid);
}

EXERCISE(MPI_Graph_create) {
    const int index[RANKS] = {1, 2}, edges[RANKS] = {1, 0};
    MPI_Comm made;
    MPI_Graph_create(MPI_COMM_WORLD, RANKS, index, edges, 0, &made);
    use_and_free(made);
}

EXERCISE(MPI_Dist_graph_create) {
    const int degree = 1, partner = 1 - rank;
    MPI_Comm made;
    MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &rank, &degree, &partner, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &made);
    use_and_free(made);
}

EXERCISE(MPI_Dist_graph_create_adjacent) {
    const int partner = 1 - rank;
    MPI_Comm made;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &partner, MPI_UNWEIGHTED, 1, &partner, MPI_UNWEIGHTED,
                                   MPI_INFO_NULL, 0, &made);
    use_and_free(made);
}

/* What was begun on a communicator ends after the program has freed it, and the next one is no heir of its. */
EXERCISE(MPI_Comm_free) {
    MPI_Comm made, next;
    MPI_Request request;
    MPI_Comm_dup(MPI_COMM_WORLD, &made);
    if (rank == 0) MPI_Isend(out, size, MPI_BYTE, 1, 0, made, &request);
    if (rank == 1) MPI_Irecv(in, size, MPI_BYTE, 0, 0, made, &request);
    MPI_Comm_free(&made);
    expect(made == MPI_COMM_NULL, "a handle is left");
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    if (rank == 1) expect_canaries(in, size);
    MPI_Comm_dup(MPI_COMM_WORLD, &next);
    use_and_free(next);
}

/* Another type with the handle of one that was freed is no copy of it. */
EXERCISE(MPI_Type_free) {
    enum { HALF = CANARY / 2 };
    const int lengths[2] = {HALF, HALF}, places[2] = {HALF, 0}, count = size / CANARY;
    MPI_Datatype whole, swapped;
    MPI_Type_contiguous(CANARY, MPI_BYTE, &whole);
    MPI_Type_commit(&whole);
    if (rank == 0) MPI_Send(out, count, whole, 1, 0, MPI_COMM_WORLD);
    if (rank == 1) MPI_Recv(in, count, whole, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 1) expect_canaries(in, count * CANARY);
    MPI_Type_free(&whole);
    MPI_Type_indexed(2, lengths, places, MPI_BYTE, &swapped);
    MPI_Type_commit(&swapped);
    if (rank == 0) MPI_Send(out, count * CANARY, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
    if (rank == 1) MPI_Recv(in, count, swapped, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Type_free(&swapped);
    for (int i = 0; rank == 1 && i < count; i++) {
        const unsigned char* at = in + (size_t)i * CANARY;
        expect(memcmp(at, canary + HALF, HALF) == 0 && memcmp(at + HALF, canary, HALF) == 0, "halves in another order");
    }
}

EXERCISE(MPI_Comm_disconnect) {
    MPI_Comm made, next;
    MPI_Comm_dup(MPI_COMM_WORLD, &made);
    use(made);
    MPI_Comm_disconnect(&made);
    expect(made == MPI_COMM_NULL, "a handle is left");
    MPI_Comm_dup(MPI_COMM_WORLD, &next);
    use_and_free(next);
}

/* Collective operations that move data: each rank gives and gets blocks of canaries. */

/* A count for each rank, and the place of its block: int, or MPI_Count and MPI_Aint. */
static void* counts(int large) {
    static int ints[RANKS];
    static MPI_Count larges[RANKS];
    for (int i = 0; i < RANKS; i++) larges[i] = ints[i] = size;
    return large ? (void*)larges : (void*)ints;
}

static void* places(int large) {
    static int ints[RANKS];
    static MPI_Aint larges[RANKS];
    for (int i = 0; i < RANKS; i++) larges[i] = ints[i] = i * size;
    return large ? (void*)larges : (void*)ints;
}
#define COUNTS counts(large != NULL)
#define PLACES places(large != NULL)

static const MPI_Datatype* types(void) {
    static MPI_Datatype bytes[RANKS];
    for (int i = 0; i < RANKS; i++) bytes[i] = MPI_BYTE;
    return bytes;
}

EXERCISE_BOTH(MPI_Bcast) {
    CALL(MPI_Bcast, rank == 0 ? out : in, size, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank == 1) expect_canaries(in, size);
}

EXERCISE_BOTH(MPI_Gather) {
    CALL(MPI_Gather, out, size, MPI_BYTE, in, size, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank == 0) expect_canaries(in, RANKS * size);
}

EXERCISE_BOTH(MPI_Gatherv) {
    CALL(MPI_Gatherv, out, size, MPI_BYTE, in, COUNTS, PLACES, MPI_BYTE, 0, MPI_COMM_WORLD);
    if (rank == 0) expect_canaries(in, RANKS * size);
}

EXERCISE_BOTH(MPI_Scatter) {
    CALL(MPI_Scatter, out, size, MPI_BYTE, in, size, MPI_BYTE, 0, MPI_COMM_WORLD);
    expect_canaries(in, size);
}

EXERCISE_BOTH(MPI_Scatterv) {
    CALL(MPI_Scatterv, out, COUNTS, PLACES, MPI_BYTE, in, size, MPI_BYTE, 0, MPI_COMM_WORLD);
    expect_canaries(in, size);
}

EXERCISE_BOTH(MPI_Allgather) {
    CALL(MPI_Allgather, out, size, MPI_BYTE, in, size, MPI_BYTE, MPI_COMM_WORLD);
    expect_canaries(in, RANKS * size);
}

EXERCISE_BOTH(MPI_Allgatherv) {
    CALL(MPI_Allgatherv, out, size, MPI_BYTE, in, COUNTS, PLACES, MPI_BYTE, MPI_COMM_WORLD);
    expect_canaries(in, RANKS * size);
}

EXERCISE_BOTH(MPI_Alltoall) {
    CALL(MPI_Alltoall, out, size, MPI_BYTE, in, size, MPI_BYTE, MPI_COMM_WORLD);
    expect_canaries(in, RANKS * size);
}

EXERCISE_BOTH(MPI_Alltoallv) {
    CALL(MPI_Alltoallv, out, COUNTS, PLACES, MPI_BYTE, in, COUNTS, PLACES, MPI_BYTE, MPI_COMM_WORLD);
    expect_canaries(in, RANKS * size);
}

EXERCISE_BOTH(MPI_Alltoallw) {
    CALL(MPI_Alltoallw, out, COUNTS, PLACES, types(), in, COUNTS, PLACES, types(), MPI_COMM_WORLD);
    expect_canaries(in, RANKS * size);
}

/* Reductions: one rank gives the canaries, the other zeros, so that what travels and what comes out are the canaries.
 */

static const void* from(int giver) {
    if (rank != giver) memset(out, 0, sizeof out);
    return out;
}

EXERCISE_BOTH(MPI_Reduce) {
    CALL(MPI_Reduce, from(1), in, size, MPI_BYTE, MPI_BOR, 0, MPI_COMM_WORLD);
    if (rank == 0) expect_canaries(in, size);
}

EXERCISE_BOTH(MPI_Allreduce) {
    CALL(MPI_Allreduce, from(1), in, size, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD);
    expect_canaries(in, size);
}

EXERCISE_BOTH(MPI_Scan) {
    CALL(MPI_Scan, from(0), in, size, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD);
    expect_canaries(in, size);
}

EXERCISE_BOTH(MPI_Exscan) {
    CALL(MPI_Exscan, from(0), in, size, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD);
    if (rank == 1) expect_canaries(in, size);
}

EXERCISE_BOTH(MPI_Reduce_scatter) {
    CALL(MPI_Reduce_scatter, from(1), in, COUNTS, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD);
    expect_canaries(in, size);
}

EXERCISE_BOTH(MPI_Reduce_scatter_block) {
    CALL(MPI_Reduce_scatter_block, from(1), in, size, MPI_BYTE, MPI_BOR, MPI_COMM_WORLD);
    expect_canaries(in, size);
}

/* Begin and end: rank 0 began by MPI_Init, rank 1 by MPI_Init_thread. */

EXERCISE(MPI_Init) {
    use(MPI_COMM_WORLD);
}

EXERCISE(MPI_Init_thread) {
    if (rank == 1) MPI_Send(out, size, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Recv(in, size, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        expect_canaries(in, size);
    }
}

/* A session in which MPI_COMM_WORLD is used, or after which. */
static void use_with_session(MPI_Comm comm, MPI_Comm comm_after) {
    MPI_Session session;
    ((type_MPI_Session_init*)dlsym(RTLD_DEFAULT, "MPI_Session_init"))(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    if (comm != MPI_COMM_NULL) use(comm);
    ((type_MPI_Session_finalize*)dlsym(RTLD_DEFAULT, "MPI_Session_finalize"))(&session);
    if (comm_after != MPI_COMM_NULL) use(comm_after);
}

EXERCISE(MPI_Session_init) {
    use_with_session(MPI_COMM_WORLD, MPI_COMM_NULL);
}

EXERCISE(MPI_Session_finalize) {
    use_with_session(MPI_COMM_NULL, MPI_COMM_WORLD);
}

static int use_while_finalizing(MPI_Comm comm, int key, void* value, void* more) {
    (void)comm, (void)key, (void)more;
    memcpy(canary, value, CANARY);
    fill(out, size);
    memset(in, 0, sizeof in);
    use(MPI_COMM_WORLD);
    return MPI_SUCCESS;
}

/* MPI_COMM_SELF's attributes are deleted first of all in MPI_Finalize, by functions that may use MPI. */
EXERCISE(MPI_Finalize) {
    static unsigned char kept[CANARY];
    static int key = MPI_KEYVAL_INVALID;
    if (key != MPI_KEYVAL_INVALID) return;
    memcpy(kept, canary, CANARY);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, use_while_finalizing, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, kept);
}

#define DECLARED(name) __attribute__((weak)) void exercise_##name(void);
SEALED(DECLARED)

#define LISTED(name) {#name, exercise_##name},
static const struct {
    const char* name;
    void (*run)(void);
} exercises[] = {SEALED(LISTED)};

static void read_canary(const char* file) {
    char name[64], digits[2 * CANARY + 1];
    FILE* stream = fopen(file, "r");
    expect(stream != NULL, "there is no file of canaries");
    int found = 0;
    while (!found && fscanf(stream, "%63s %64s", name, digits) == 2) found = strcmp(name, procedure) == 0;
    fclose(stream);
    expect(found, "there is no canary of its own");
    for (int i = 0; i < CANARY; i++) sscanf(digits + 2 * i, "%2hhx", &canary[i]);
}

static void run(void (*exercise)(void)) {
    static const int sizes[] = {SMALL, LARGE};
    for (int i = 0; i < 2; i++) {
        size = sizes[i];
        fill(out, sizeof out);
        memset(in, 0, sizeof in);
        MPI_Barrier(MPI_COMM_WORLD);
        exercise();
    }
    MPI_Barrier(MPI_COMM_WORLD); /* what a freed request still sends is in `out` */
}

int main(int argc, char** argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    procedure = "all";
    const char* told = getenv("PMIX_RANK");
    if (told == NULL) told = getenv("OMPI_COMM_WORLD_RANK");
    if (told == NULL) told = getenv("PMI_RANK");
    int ranks, level;
    if (told == NULL || strcmp(told, "0") == 0) {
        MPI_Init(&argc, &argv);
    } else {
        MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    }
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    expect(argc > 1 && ranks == RANKS, "usage: procedures FILE NAME..., with two ranks");
    for (size_t i = 0; i < sizeof exercises / sizeof exercises[0]; i++) {
        procedure = exercises[i].name;
        address = dlsym(RTLD_DEFAULT, procedure);
        const char* what = exercises[i].run == NULL ? "no exercise of"
                           : address == NULL        ? "not in this MPI:"
                                                    : "exercised";
        for (int k = 2; k < argc; k++) {
            if (strcmp(argv[k], procedure) == 0) what = "left out";
        }
        if (strcmp(what, "exercised") == 0) {
            read_canary(argv[1]);
            run(exercises[i].run);
        }
        if (rank == 0) printf("procedures: %s %s\n", what, procedure);
    }
    if (rank == 0) printf("procedures: all as sent\n");
    MPI_Finalize();
    return 0;
}
