/* Messages as other encrypted MPIs got them wrong, and calls that are refused: each case checks itself.
 *
 *     messages CASE...    an even number of ranks, where messages go; those of a node next to each other
 */
#include <dirent.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

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

/* A message that its sender wants back comes, or it is told that it has it back. */
static void cancel_sent(void) {
    for (int length = 10; length <= 4000; length *= 20) {
        static char sent[4000], got[4000];
        int cancelled = 0, partners = 0, count = -1;
        MPI_Request request;
        MPI_Status status;
        MPI_Isend(sent, length, MPI_CHAR, partner, 99, MPI_COMM_WORLD, &request);
        MPI_Cancel(&request);
        MPI_Wait(&request, &status);
        MPI_Test_cancelled(&status, &cancelled);
        MPI_Sendrecv(&cancelled, 1, MPI_INT, partner, 98, &partners, 1, MPI_INT, partner, 98, MPI_COMM_WORLD, &status);
        if (!partners) MPI_Recv(got, length, MPI_CHAR, partner, 99, MPI_COMM_WORLD, &status);
        MPI_Sendrecv(sent, 7, MPI_CHAR, partner, 99, got, 7, MPI_CHAR, partner, 99, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_CHAR, &count);
        expect("after a cancelled send", count, 7);
    }
}

/* MPI takes the memory for buffered sends itself. */
static void automatic_buffer(void) {
#ifdef MPI_BUFFER_AUTOMATIC
    const int lengths[] = {0, 100, 700000};
    char* const sent = calloc(700000, 1);
    char* const got = calloc(700000, 1);
    for (int i = 0; i < 3; i++) {
        void* at = NULL;
        int size = -1, count = -1;
        MPI_Status status;
        MPI_Buffer_attach(MPI_BUFFER_AUTOMATIC, 0);
        memset(sent, 'a' + rank, lengths[i]);
        MPI_Bsend(sent, lengths[i], MPI_CHAR, partner, 97, MPI_COMM_WORLD);
        memset(sent, 0, lengths[i]);
        MPI_Recv(got, lengths[i], MPI_CHAR, partner, 97, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_CHAR, &count);
        expect("count of a buffered message", count, lengths[i]);
        if (lengths[i] != 0) expect("last of a buffered message", got[lengths[i] - 1], 'a' + partner);
        MPI_Buffer_flush();
        MPI_Buffer_detach(&at, &size);
        expect("automatic buffer", at == MPI_BUFFER_AUTOMATIC, 1);
    }
    free(sent);
    free(got);
#endif
}

/* A receive from MPI_PROC_NULL after others. */
static void from_nobody(void) {
    MPI_Status status;
    int value = rank, count = -1;
    for (int round = 0; round < 3; round++) {
        MPI_Sendrecv_replace(&value, 1, MPI_INT, partner, 7, partner, 7, MPI_COMM_WORLD, &status);
        expect("source", status.MPI_SOURCE, partner);
        for (int replaces = 0; replaces < 2; replaces++) {
            if (replaces) {
                MPI_Sendrecv_replace(&value, 1, MPI_INT, partner, 8, MPI_PROC_NULL, 8, MPI_COMM_WORLD, &status);
            } else {
                MPI_Sendrecv(&value, 1, MPI_INT, partner, 8, NULL, 0, MPI_INT, MPI_PROC_NULL, 8, MPI_COMM_WORLD,
                             &status);
            }
            MPI_Get_count(&status, MPI_INT, &count);
            expect("nobody's source", status.MPI_SOURCE, MPI_PROC_NULL);
            expect("nobody's tag", status.MPI_TAG, MPI_ANY_TAG);
            expect("nobody's count", count, 0);
            MPI_Recv(&value, 1, MPI_INT, partner, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }
}

/* A persistent request is named once for each start. */
static void named_once(void) {
    enum { KINDS = 3, ROUNDS = 3 };
    static char attached[1 << 16];
    MPI_Buffer_attach(attached, sizeof attached);
    MPI_Request requests[KINDS];
    int out = rank, in = -1, done = 0, flag = 0, index = 0, indices[KINDS];
    MPI_Bsend_init(&out, 1, MPI_INT, partner, 3, MPI_COMM_WORLD, &requests[0]);
    MPI_Send_init(&out, 1, MPI_INT, partner, 4, MPI_COMM_WORLD, &requests[1]);
    MPI_Recv_init(&in, 1, MPI_INT, partner, 5, MPI_COMM_WORLD, &requests[2]);
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Startall(KINDS, requests);
        for (int tag = 3; tag < 5; tag++) {
            int got = -1;
            MPI_Recv(&got, 1, MPI_INT, partner, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            expect("persistent", got, partner);
        }
        MPI_Send(&out, 1, MPI_INT, partner, 5, MPI_COMM_WORLD);
        int named = 0;
        while (named < KINDS) {
            if (round % 2 == 0) {
                MPI_Testsome(KINDS, requests, &done, indices, MPI_STATUSES_IGNORE);
            } else {
                MPI_Testany(KINDS, requests, &index, &flag, MPI_STATUS_IGNORE);
                done = flag ? (index == MPI_UNDEFINED ? MPI_UNDEFINED : 1) : 0;
            }
            if (done == MPI_UNDEFINED) break;
            named += done;
        }
        expect("named", named, KINDS);
        MPI_Testsome(KINDS, requests, &done, indices, MPI_STATUSES_IGNORE);
        expect("none left", done, MPI_UNDEFINED);
        MPI_Testany(KINDS, requests, &index, &flag, MPI_STATUS_IGNORE);
        expect("nothing left", flag != 0 && index == MPI_UNDEFINED, 1);
    }
    for (int i = 0; i < KINDS; i++) MPI_Request_free(&requests[i]);
    char* at;
    int size;
    MPI_Buffer_detach(&at, &size);
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
        int length;
        char text[MPI_MAX_ERROR_STRING];
        MPI_Error_string(code, text, &length);
        expect("a class of its own", class_of(code) > MPI_ERR_LASTCODE, 1);
        expect("its text", strstr(text, "a procedure is refused") != NULL, 1);
        printf("messages: refused\n");
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

/* A buffer for the buffered sends on a session's communicators. */
static void session_buffer(void) {
#if MPI_VERSION > 4 || (MPI_VERSION == 4 && MPI_SUBVERSION >= 1)
    static char memory[1000];
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Session session;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session);
    const int code = MPI_Session_attach_buffer(session, memory, sizeof memory);
    printf("messages: %s\n", code == MPI_SUCCESS ? "passed" : "refused");
    if (code == MPI_SUCCESS) {
        void* at;
        int size;
        MPI_Session_detach_buffer(session, &at, &size);
    } else {
        expect("a class of its own", class_of(code) > MPI_ERR_LASTCODE, 1);
    }
    MPI_Session_finalize(&session);
#endif
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

static int sends_first(void);
static void (*before_the_end)(void); /* when nobody waits for others any more */

static int send_to_partner(MPI_Comm comm, int key, void* value, void* more) {
    (void)comm, (void)key, (void)value, (void)more;
    MPI_Send(NULL, 0, MPI_CHAR, partner, 5, MPI_COMM_WORLD);
    return MPI_SUCCESS;
}

static void receive_from_partner(void) {
    MPI_Recv(NULL, 0, MPI_CHAR, partner, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Before anything there that waits for others. */
static void first_of_all(void) {
    int key;
    if (!sends_first()) {
        before_the_end = receive_from_partner;
        return;
    }
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, send_to_partner, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
}

/* Large messages: around the sizes of an announcement (21 bytes), of what may be announced (from 64 KiB on) and is
 * (from 256 KiB on). Each message has bytes of its own. */
static const int large_sizes[] = {0, 1, 20, 21, 22, 65535, 65536, 65537, 262144, 262145, 1000003, 5000000};
enum { SIZES = sizeof large_sizes / sizeof large_sizes[0], LARGEST = 5000000, MANY_LARGEST = 1000003 };
static unsigned char *out_bytes, *in_bytes;
static unsigned serial; /* the number of the message between partners that was begun last */

static unsigned next(unsigned x) {
    return x * 1664525U + 1013904223U;
}

static void fill(unsigned char* bytes, int size, int sender) {
    unsigned x = (serial * 64U + (unsigned)sender) * 2654435761U + 1U;
    for (int i = 0; i < size; i++) bytes[i] = (unsigned char)((x = next(x)) >> 24);
}

/* What this rank sends is in out_bytes, and nothing is in in_bytes. */
static void begin(int size) {
    if (out_bytes == NULL) {
        out_bytes = malloc(LARGEST);
        in_bytes = malloc(LARGEST);
    }
    serial++;
    fill(out_bytes, size, rank);
    memset(in_bytes, 0, (size_t)size);
}

static void expect_bytes(const char* what, const unsigned char* bytes, int size, int sender) {
    unsigned x = (serial * 64U + (unsigned)sender) * 2654435761U + 1U;
    for (int i = 0; i < size; i++) {
        if (bytes[i] != (unsigned char)((x = next(x)) >> 24)) {
            fprintf(stderr, "messages: rank %d: %s: byte %d of %d differs\n", rank, what, i, size);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
    }
}

static void expect_status(const char* what, const MPI_Status* status, int size, int tag) {
    int count = -1;
    MPI_Get_count(status, MPI_BYTE, &count);
    expect(what, count, size);
    expect(what, status->MPI_SOURCE, partner);
    expect(what, status->MPI_TAG, tag);
}

static void expect_message(const char* what, const MPI_Status* status, int size, int tag) {
    expect_bytes(what, in_bytes, size, partner);
    expect_status(what, status, size, tag);
}

/* The lower half of the ranks sends first, each to its partner in the upper one. */
static int sends_first(void) {
    return rank < ranks / 2;
}

typedef int Send(const void*, int, MPI_Datatype, int, int, MPI_Comm);

static void in_turn(const char* what, Send* send, int room, int source, int tag, int size) {
    MPI_Status status;
    begin(size);
    if (sends_first()) send(out_bytes, size, MPI_BYTE, partner, 6, MPI_COMM_WORLD);
    MPI_Recv(in_bytes, room, MPI_BYTE, source, tag, MPI_COMM_WORLD, &status);
    if (!sends_first()) send(out_bytes, size, MPI_BYTE, partner, 6, MPI_COMM_WORLD);
    expect_message(what, &status, size, 6);
}

static void large_sent_in_each_mode(int size) {
    in_turn("Send", MPI_Send, LARGEST, partner, 6, size);
    in_turn("Ssend", MPI_Ssend, size, partner, MPI_ANY_TAG, size);
    MPI_Request requests[2];
    MPI_Status statuses[2];
    begin(size);
    MPI_Irecv(in_bytes, size, MPI_BYTE, partner, 6, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out_bytes, size, MPI_BYTE, partner, 6, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, statuses);
    expect_message("Isend", &statuses[0], size, 6);

    begin(size);
    MPI_Irecv(in_bytes, size, MPI_BYTE, partner, 6, MPI_COMM_WORLD, &requests[0]);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Rsend(out_bytes, size, MPI_BYTE, partner, 6, MPI_COMM_WORLD);
    MPI_Wait(&requests[0], statuses);
    expect_message("Rsend", &statuses[0], size, 6);

    const int room = size + MPI_BSEND_OVERHEAD;
    void* buffer = malloc((size_t)room);
    int detached = 0;
    begin(size);
    MPI_Buffer_attach(buffer, room);
    MPI_Bsend(out_bytes, size, MPI_BYTE, partner, 6, MPI_COMM_WORLD);
    MPI_Recv(in_bytes, size, MPI_BYTE, partner, 6, MPI_COMM_WORLD, statuses);
    expect_message("Bsend", &statuses[0], size, 6);
    MPI_Buffer_detach(&buffer, &detached);
    expect("size of a detached buffer", detached, room);
    free(buffer);

    begin(size);
    MPI_Isend(out_bytes, size, MPI_BYTE, partner, 6, MPI_COMM_WORLD, &requests[0]);
    MPI_Request_free(&requests[0]);
    MPI_Recv(in_bytes, size, MPI_BYTE, partner, 6, MPI_COMM_WORLD, statuses);
    expect_message("Isend of a freed request", &statuses[0], size, 6);
    MPI_Barrier(MPI_COMM_WORLD); /* until then out_bytes may still be read */
}

static void large(void) {
    for (int i = 0; i < SIZES; i++) {
        const int size = large_sizes[i];
        large_sent_in_each_mode(size);
        MPI_Status status;
        begin(size);
        MPI_Sendrecv(out_bytes, size, MPI_BYTE, partner, 6, in_bytes, size, MPI_BYTE, partner, 6, MPI_COMM_WORLD,
                     &status);
        expect_message("Sendrecv", &status, size, 6);
        begin(size);
        memcpy(in_bytes, out_bytes, (size_t)size);
        MPI_Sendrecv_replace(in_bytes, size, MPI_BYTE, partner, 6, partner, 6, MPI_COMM_WORLD, &status);
        expect_message("Sendrecv_replace", &status, size, 6);
    }
}

/* Receivers that are in a barrier when the message comes: what MPI promises of a posted receive holds. */
static void large_while_elsewhere(void) {
    for (int i = 0; i < SIZES; i++) {
        const int size = large_sizes[i];
        MPI_Request request;
        MPI_Status status;
        begin(size);
        MPI_Irecv(in_bytes, size, MPI_BYTE, partner, 6, MPI_COMM_WORLD, &request);
        if (!sends_first()) MPI_Barrier(MPI_COMM_WORLD);
        MPI_Ssend(out_bytes, size, MPI_BYTE, partner, 6, MPI_COMM_WORLD);
        if (sends_first()) MPI_Barrier(MPI_COMM_WORLD);
        MPI_Wait(&request, &status);
        expect_message("Ssend to a rank in a barrier", &status, size, 6);
    }
}

/* A synchronous send ends when its message is received, not when it is probed. */
static void large_synchronous(void) {
    for (int i = 0; i < SIZES; i++) {
        const int size = large_sizes[i];
        MPI_Status status;
        if (size < 20) continue;
        begin(size);
        if (sends_first()) {
            MPI_Request request;
            MPI_Issend(out_bytes, size, MPI_BYTE, partner, 6, MPI_COMM_WORLD, &request);
            MPI_Recv(NULL, 0, MPI_BYTE, partner, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (const double end = MPI_Wtime() + 0.2; MPI_Wtime() < end;) {
                int done = 0;
                MPI_Test(&request, &done, MPI_STATUS_IGNORE);
                expect("Issend that was probed ended", done, 0);
            }
            MPI_Send(NULL, 0, MPI_BYTE, partner, 8, MPI_COMM_WORLD);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            continue;
        }
        for (int found = 0; !found;) MPI_Iprobe(partner, 6, MPI_COMM_WORLD, &found, &status);
        expect_status("Iprobe of an Issend", &status, size, 6);
        MPI_Send(NULL, 0, MPI_BYTE, partner, 7, MPI_COMM_WORLD);
        MPI_Recv(NULL, 0, MPI_BYTE, partner, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(in_bytes, size, MPI_BYTE, partner, 6, MPI_COMM_WORLD, &status);
        expect_message("Issend that was probed", &status, size, 6);
    }
}

static void wait_by_barrier(void) {
    MPI_Barrier(MPI_COMM_WORLD);
}

static void wait_by_constructor(void) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_free(&comm);
}

static void wait_by_split(void) {
    MPI_Comm comm;
    MPI_Comm_split(MPI_COMM_WORLD, 0, rank, &comm);
    MPI_Comm_free(&comm);
}

static void wait_by_broadcast(void) {
    int last = rank == ranks - 1;
    MPI_Bcast(&last, 1, MPI_INT, ranks - 1, MPI_COMM_WORLD);
}

static void wait_by_reduction(void) {
    int sum = 0;
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static void wait_by_gathering(void) {
    int all[64];
    MPI_Allgather(&rank, 1, MPI_INT, all, 1, MPI_INT, MPI_COMM_WORLD);
}

/* Three large messages are begun, more than MPI is given at once, and the sender waits for something else, to which its
 * partner comes only when it has them. */
static void large_before_waiting(void) {
    static void (*const waits[])(void) = {wait_by_barrier,   wait_by_constructor, wait_by_split,
                                          wait_by_broadcast, wait_by_reduction,   wait_by_gathering};
    for (size_t i = 0; i < sizeof waits / sizeof waits[0]; i++) {
        MPI_Request requests[3];
        begin(LARGEST);
        if (sends_first()) {
            for (int k = 0; k < 3; k++)
                MPI_Isend(out_bytes, LARGEST, MPI_BYTE, partner, 6, MPI_COMM_WORLD, &requests[k]);
            waits[i]();
            MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
            continue;
        }
        for (int k = 0; k < 3; k++) {
            MPI_Status status;
            memset(in_bytes, 0, LARGEST);
            MPI_Recv(in_bytes, LARGEST, MPI_BYTE, partner, 6, MPI_COMM_WORLD, &status);
            expect_message("begun before waiting", &status, LARGEST, 6);
        }
        waits[i]();
    }
}

enum { BEHIND = 5 };

static void receive_large(const char* what, int tag) {
    MPI_Status status;
    memset(in_bytes, 0, LARGEST);
    MPI_Recv(in_bytes, LARGEST, MPI_BYTE, partner, tag, MPI_COMM_WORLD, &status);
    expect_message(what, &status, LARGEST, tag);
}

/* What the partner waits for first was sent last: a message behind many large ones, or his barrier's. libfabric's tcp
 * provider holds 64 messages of a peer that nobody has asked for, and no more; plain, these are five. */
static void large_behind_others(void) {
    for (int barrier = 0; barrier < 2; barrier++) {
        MPI_Request requests[BEHIND];
        begin(LARGEST);
        if (sends_first()) {
            for (int k = 0; k < BEHIND; k++)
                MPI_Isend(out_bytes, LARGEST, MPI_BYTE, partner, 6, MPI_COMM_WORLD, &requests[k]);
            if (!barrier) MPI_Send(out_bytes, LARGEST, MPI_BYTE, partner, 7, MPI_COMM_WORLD);
        }
        if (barrier) {
            MPI_Barrier(MPI_COMM_WORLD);
        } else if (!sends_first()) {
            receive_large("behind others", 7);
        }
        if (sends_first()) {
            MPI_Waitall(BEHIND, requests, MPI_STATUSES_IGNORE);
        } else {
            for (int k = 0; k < BEHIND; k++) receive_large("before another", 6);
        }
    }
}

/* The first operation on a communicator that was made by a request: some of its members are done with it before others
 * begin, and go elsewhere. */
static void made_later(void) {
    MPI_Comm comm;
    MPI_Request request;
    int sum = 0;
    MPI_Comm_idup(MPI_COMM_WORLD, &comm, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Reduce(&rank, &sum, 1, MPI_INT, MPI_SUM, ranks - 1, comm);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == ranks - 1 && sum != ranks * (ranks - 1) / 2) fail("the sum of the ranks", sum, ranks * (ranks - 1) / 2);
    MPI_Comm_free(&comm);
}

/* Types without gaps that take two neighbours in the other order, each pair of neighbours once; large ones, too. */
static void swapped(void) {
    enum { SIZE = 70000, REPEAT = 2 };
    static const int firsts[] = {0, 1, 2, 3, 4, 5, 6, 254, 255, 256, 65534, 65535, 65536, SIZE - 2};
    unsigned char* bytes = malloc(SIZE * REPEAT);
    for (size_t i = 0; i < sizeof firsts / sizeof firsts[0]; i++) {
        const int first = firsts[i], size = first < 7 ? 8 : first < 300 ? 300 : SIZE;
        const int lengths[] = {first, 1, 1, size - first - 2}, places[] = {0, first + 1, first, first + 2};
        MPI_Datatype type;
        MPI_Type_indexed(4, lengths, places, MPI_BYTE, &type);
        MPI_Type_commit(&type);
        for (int sender = 0; sender < 2; sender++) { /* whose type it is */
            for (int k = 0; k < REPEAT * size; k++) bytes[k] = (unsigned char)(rank < ranks / 2 ? k % size % 251 : 0);
            if (rank < ranks / 2) {
                MPI_Send(bytes, sender ? REPEAT : REPEAT * size, sender ? type : MPI_BYTE, partner, 8, MPI_COMM_WORLD);
            } else {
                MPI_Recv(bytes, sender ? REPEAT * size : REPEAT, sender ? MPI_BYTE : type, partner, 8, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
                for (int k = 0; k < REPEAT * size; k++) {
                    const int in = k % size, from = in == first ? in + 1 : in == first + 1 ? in - 1 : in;
                    expect("byte of a type that swaps two", bytes[k], from % 251);
                }
            }
        }
        MPI_Type_free(&type);
    }
    free(bytes);
}

static long peak_memory(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return use.ru_maxrss >> 10; /* MiB */
}

/* A receiver who comes late does not cost the sender the memory of all that waits for him. */
static void late_receiver(void) {
    enum { MESSAGES = 64, SIZE = 4 << 20, MOST = 128 /* MiB, of 256 */ };
    MPI_Request requests[MESSAGES];
    char* bytes = malloc(SIZE);
    if (rank == 0) {
        memset(bytes, 7, SIZE);
        MPI_Barrier(MPI_COMM_WORLD);
        const long before = peak_memory();
        for (int i = 0; i < MESSAGES; i++) MPI_Isend(bytes, SIZE, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &requests[i]);
        MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE);
        const long added = peak_memory() - before;
        if (added > MOST) fail("MiB of a sender whose receiver comes late", (int)added, MOST);
    } else if (rank == 1) {
        MPI_Barrier(MPI_COMM_WORLD);
        usleep(400000);
        for (int i = 0; i < MESSAGES; i++) {
            memset(bytes, 0, SIZE);
            MPI_Recv(bytes, SIZE, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (int k = 0; k < SIZE; k++) expect("byte", bytes[k], 7);
        }
    }
    free(bytes);
}

/* To every rank, of this node or another. */
static void large_to_all(void) {
    for (int i = 0; i < SIZES; i++) {
        for (int shift = 0; shift < ranks; shift++) {
            const int size = large_sizes[i], to = (rank + shift) % ranks, from = (rank + ranks - shift) % ranks;
            begin(size);
            MPI_Sendrecv(out_bytes, size, MPI_BYTE, to, 6, in_bytes, size, MPI_BYTE, from, 6, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE);
            expect_bytes("Sendrecv with another rank", in_bytes, size, from);
        }
    }
}

/* Probed while an earlier message of another tag waits, which is received first. */
static void large_probed(void) {
    for (int i = 0; i < SIZES; i++) {
        const int size = large_sizes[i];
        int first = -1, done = 0;
        MPI_Request requests[2], receive;
        MPI_Status status;
        begin(size);
        MPI_Isend(&rank, 1, MPI_INT, partner, 8, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out_bytes, size, MPI_BYTE, partner, 9, MPI_COMM_WORLD, &requests[1]);
        for (int k = 0; k < 3; k++) {
            MPI_Probe(partner, 9, MPI_COMM_WORLD, &status);
            expect_status("Probe", &status, size, 9);
        }
        MPI_Recv(&first, 1, MPI_INT, partner, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        expect_status("the message before a probed one", &status, sizeof first, 8);
        expect("the message before a probed one", first, partner);
        if (i % 2) {
            MPI_Recv(in_bytes, size, MPI_BYTE, partner, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        } else {
            MPI_Irecv(in_bytes, size, MPI_BYTE, partner, MPI_ANY_TAG, MPI_COMM_WORLD, &receive);
            while (!done) MPI_Test(&receive, &done, &status);
        }
        expect_message("a probed message", &status, size, 9);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    }
}

static void large_matched(void) {
    for (int i = 0; i < SIZES; i++) {
        const int size = large_sizes[i];
        MPI_Request send, receive;
        MPI_Message message;
        MPI_Status status;
        begin(size);
        MPI_Isend(out_bytes, size, MPI_BYTE, partner, 10, MPI_COMM_WORLD, &send);
        MPI_Mprobe(partner, 10, MPI_COMM_WORLD, &message, &status);
        expect_status("Mprobe", &status, size, 10);
        if (i % 2) {
            MPI_Mrecv(in_bytes, size, MPI_BYTE, &message, &status);
        } else {
            MPI_Imrecv(in_bytes, size, MPI_BYTE, &message, &receive);
            MPI_Wait(&receive, &status);
        }
        expect_message("Mrecv", &status, size, 10);
        MPI_Wait(&send, MPI_STATUS_IGNORE);
    }
}

static void large_persistent(void) {
    for (int i = 0; i < SIZES; i++) {
        const int size = large_sizes[i];
        MPI_Request requests[2];
        MPI_Status statuses[2];
        begin(0);
        MPI_Recv_init(in_bytes, size, MPI_BYTE, partner, 11, MPI_COMM_WORLD, &requests[0]);
        MPI_Send_init(out_bytes, size, MPI_BYTE, partner, 11, MPI_COMM_WORLD, &requests[1]);
        for (int k = 0; k < 3; k++) {
            begin(size);
            if (k == 1) {
                int index, ended = 0;
                MPI_Start(&requests[1]);
                MPI_Probe(partner, 11, MPI_COMM_WORLD, &statuses[0]);
                expect_status("Probe of a persistent send", &statuses[0], size, 11);
                MPI_Start(&requests[0]);
                for (int left = 2; left != 0; left--) {
                    MPI_Status status;
                    MPI_Waitany(2, requests, &index, &status);
                    ended += 1 + index;
                    if (index == 0) statuses[0] = status;
                }
                expect("both of Waitany", ended, 3);
            } else {
                MPI_Startall(2, requests);
                MPI_Waitall(2, requests, statuses);
            }
            expect_message("a persistent message", &statuses[0], size, 11);
        }
        MPI_Request_free(&requests[0]);
        MPI_Request_free(&requests[1]);
    }
}

/* A receive is started whose message waits before one that was probed: MPI_Start waits for no sender, who is elsewhere
 * and makes no progress. */
static void started_after_probe(void) {
    enum { BEFORE = 65530, LARGE = 1000003 };
    begin(BEFORE);
    if (sends_first()) {
        char* behind = calloc(LARGE, 1);
        MPI_Request requests[2];
        MPI_Isend(out_bytes, BEFORE, MPI_BYTE, partner, 12, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(behind, LARGE, MPI_BYTE, partner, 13, MPI_COMM_WORLD, &requests[1]);
        MPI_Send(NULL, 0, MPI_BYTE, partner, 14, MPI_COMM_WORLD);
        usleep(2000000);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        free(behind);
        return;
    }
    char* behind = calloc(LARGE, 1);
    MPI_Request request;
    MPI_Status status;
    MPI_Recv_init(in_bytes, BEFORE, MPI_BYTE, partner, 12, MPI_COMM_WORLD, &request);
    MPI_Probe(partner, 13, MPI_COMM_WORLD, &status);
    MPI_Recv(NULL, 0, MPI_BYTE, partner, 14, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    const double begun = MPI_Wtime();
    MPI_Start(&request);
    expect("MPI_Start that waits for its sender", MPI_Wtime() - begun > 1, 0);
    MPI_Wait(&request, &status);
    expect_message("the message before a probed one", &status, BEFORE, 12);
    MPI_Recv(behind, LARGE, MPI_BYTE, partner, 13, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Request_free(&request);
    free(behind);
}

/* Sent in the order opposite to that of the receives, completed as they come. */
static void large_many(void) {
    enum { MANY = 10 };
    unsigned char* all = malloc((size_t)MANY * MANY_LARGEST);
    for (int i = 0; i < SIZES && large_sizes[i] <= MANY_LARGEST; i++) {
        const int size = large_sizes[i];
        MPI_Request requests[2 * MANY];
        begin(size);
        for (int k = 0; k < MANY; k++) {
            memset(all + (size_t)k * size, 0, (size_t)size);
            MPI_Irecv(all + (size_t)k * size, size, MPI_BYTE, partner, 20 + k, MPI_COMM_WORLD, &requests[k]);
        }
        for (int k = MANY - 1; k >= 0; k--) {
            MPI_Isend(out_bytes, size, MPI_BYTE, partner, 20 + k, MPI_COMM_WORLD, &requests[MANY + k]);
        }
        for (int left = 2 * MANY; left != 0;) {
            int done, which[2 * MANY];
            MPI_Waitsome(2 * MANY, requests, &done, which, MPI_STATUSES_IGNORE);
            left -= done;
        }
        for (int k = 0; k < MANY; k++) expect_bytes("one of many", all + (size_t)k * size, size, partner);
    }
    free(all);
}

/* More at once than are sent in short segments. */
static void large_in_flight(void) {
    enum { MANY = 80, SIZE = 300000 };
    static MPI_Request requests[2 * MANY];
    unsigned char* all = calloc(MANY, SIZE);
    begin(SIZE);
    for (int k = 0; k < MANY; k++) {
        MPI_Isend(out_bytes, SIZE, MPI_BYTE, partner, 40, MPI_COMM_WORLD, &requests[MANY + k]);
    }
    for (int k = 0; k < MANY; k++) {
        MPI_Irecv(all + (size_t)k * SIZE, SIZE, MPI_BYTE, partner, 40, MPI_COMM_WORLD, &requests[k]);
    }
    MPI_Waitall(2 * MANY, requests, MPI_STATUSES_IGNORE);
    for (int k = 0; k < MANY; k++) expect_bytes("one in flight", all + (size_t)k * SIZE, SIZE, partner);
    free(all);
}

/* Five bytes of seven: what lies between them is left alone. */
static void large_vectors(void) {
    unsigned char* expected = malloc(LARGEST);
    for (int i = 0; i < SIZES; i++) {
        const int blocks = large_sizes[i] / 7, size = blocks * 7;
        MPI_Datatype gaps;
        MPI_Type_vector(blocks, 5, 7, MPI_BYTE, &gaps);
        MPI_Type_commit(&gaps);
        begin(size);
        fill(expected, size, partner);
        for (int k = 0; k < size; k++) {
            if (k % 7 >= 5) expected[k] = 0;
        }
        MPI_Sendrecv(out_bytes, 1, gaps, partner, 6, in_bytes, 1, gaps, partner, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        expect("a vector", memcmp(in_bytes, expected, (size_t)size), 0);
        MPI_Type_free(&gaps);
    }
    free(expected);
}

/* One byte too long for its buffer; what follows still comes. */
static void truncate_one(int size) {
    MPI_Request request;
    MPI_Status status;
    begin(size);
    in_bytes[size - 1] = 0xff;
    MPI_Isend(out_bytes, size, MPI_BYTE, partner, 6, MPI_COMM_WORLD, &request);
    const int code = MPI_Recv(in_bytes, size - 1, MPI_BYTE, partner, 6, MPI_COMM_WORLD, &status);
    expect("class of a large truncated message's error", class_of(code), MPI_ERR_TRUNCATE);
    expect("after the buffer of a large message", in_bytes[size - 1], 0xff);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    begin(size);
    MPI_Isend(out_bytes, size, MPI_BYTE, partner, 6, MPI_COMM_WORLD, &request);
    MPI_Recv(in_bytes, size, MPI_BYTE, partner, 6, MPI_COMM_WORLD, &status);
    expect_message("after a large truncated message", &status, size, 6);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

enum { LARGEST_WHOLE = 262144, BELOW_RENDEZVOUS = 60000 };

static void large_truncated(void) {
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 1; i < SIZES; i++) {
        if (large_sizes[i] < BELOW_RENDEZVOUS || large_sizes[i] > LARGEST_WHOLE) truncate_one(large_sizes[i]);
    }
}

/* Those that may be announced and are not. */
static void whole_truncated(void) {
    static const int sizes[] = {65535, 65536, 65537, LARGEST_WHOLE - 1, LARGEST_WHOLE};
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) truncate_one(sizes[i]);
}

/* Values that collective operations are checked with: what rank r has at place i, and these of the ranks from `first`
 * to `last` together, added up or, where the order counts, one after the other. */
static long long value_of(int r, int i, int ordered) {
    return ordered ? (r + i) % 9 + 1 : (long long)(r + 1) * (i + 3);
}

static long long value_over(int first, int last, int i, int ordered) {
    long long all = 0;
    for (int r = first; r <= last; r++) all = (ordered ? all * 10 : all) + value_of(r, i, ordered);
    return all;
}

enum { GAP = -77, MOST_PLACES = 3 * 45001, MOST_RANKS = 16 };

/* Elements of one value; or of two with a gap between them. */
static int place_of(int i, int gaps) {
    return gaps ? i / 2 * 3 + i % 2 * 2 : i;
}

static void add_with_gaps(void* left, void* right, int* length, MPI_Datatype* type) {
    (void)type;
    for (int i = 0; i < 2 * *length; i++) ((long long*)right)[place_of(i, 1)] += ((long long*)left)[place_of(i, 1)];
}

static void append_with_gaps(void* left, void* right, int* length, MPI_Datatype* type) {
    int one = 1;
    for (int i = 0; i < 2 * *length; i++) {
        append((long long*)left + place_of(i, 1), (long long*)right + place_of(i, 1), &one, type);
    }
}

struct reduced {
    const char* what;
    int gaps, ordered;
    MPI_Datatype type;
    MPI_Op op;
};

static long long values_out[MOST_PLACES], values_in[MOST_PLACES];

static void put(const struct reduced* how, long long* values, int from, int count) {
    for (int i = 0; i < MOST_PLACES; i++) values[i] = GAP;
    for (int i = 0; i < count; i++) values[place_of(i, how->gaps)] = value_of(rank, from + i, how->ordered);
}

/* `count` values, of the ranks from `first` to `last`; after them, and in gaps, nothing was written. */
static void expect_values(const struct reduced* how, const char* what, int from, int count, int first, int last) {
    int seen = 0;
    for (int i = 0; i < count; i++) {
        const int place = place_of(i, how->gaps);
        const long long expected = value_over(first, last, from + i, how->ordered);
        for (; seen < place; seen++) expect(what, (int)values_in[seen], GAP);
        if (values_in[seen++] == expected) continue;
        fprintf(stderr, "messages: rank %d: %s, %s of %d values: %lld at %d, expected %lld\n", rank, what, how->what,
                count, values_in[place], i, expected);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (; seen < MOST_PLACES && seen < place_of(count, how->gaps) + 8; seen++) {
        expect(what, (int)values_in[seen], GAP);
    }
}

/* In place, what is after a result may be written to. */
static void put_gap_after(const struct reduced* how, int count) {
    for (int i = count == 0 ? 0 : place_of(count - 1, how->gaps) + 1; i < MOST_PLACES; i++) values_in[i] = GAP;
}

static MPI_Comm reduced_on;

/* The same twice: from another buffer, and in place. */
static void reduce_all_ways(const struct reduced* how, int count) {
    const int values = how->gaps ? 2 * count : count, each = how->gaps ? 2 : 1;
    int counts[MOST_RANKS], before[MOST_RANKS + 1] = {0};
    for (int r = 0; r < ranks; r++) {
        counts[r] = (count + r) / ranks; /* some are larger, or more than none */
        before[r + 1] = before[r] + counts[r];
    }
    for (int in_place = 0; in_place < 2; in_place++) {
        long long* const room = in_place ? values_in : values_out;
        const void* const out = in_place ? MPI_IN_PLACE : values_out;
        const int roots[] = {0, 1, ranks - 1};
        for (int k = 0; k < 3; k++) {
            const int sends_it = in_place && rank != roots[k];
            put(how, values_in, 0, 0);
            put(how, sends_it ? values_out : room, 0, values);
            MPI_Reduce(sends_it ? values_out : out, values_in, count, how->type, how->op, roots[k], reduced_on);
            if (rank == roots[k]) expect_values(how, "Reduce", 0, values, 0, ranks - 1);
            if (rank != roots[k]) expect_values(how, "Reduce elsewhere", 0, 0, 0, 0);
        }
        put(how, values_in, 0, 0);
        put(how, room, 0, values);
        MPI_Allreduce(out, values_in, count, how->type, how->op, reduced_on);
        expect_values(how, "Allreduce", 0, values, 0, ranks - 1);

        put(how, values_in, 0, 0);
        put(how, room, 0, values);
        MPI_Scan(out, values_in, count, how->type, how->op, reduced_on);
        expect_values(how, "Scan", 0, values, 0, rank);

        put(how, values_in, 0, 0);
        put(how, room, 0, values);
        MPI_Exscan(out, values_in, count, how->type, how->op, reduced_on);
        if (rank > 0) expect_values(how, "Exscan", 0, values, 0, rank - 1);

        put(how, values_in, 0, 0);
        put(how, room, 0, values);
        MPI_Reduce_scatter(out, values_in, counts, how->type, how->op, reduced_on);
        const int own = counts[rank] * each;
        if (in_place) put_gap_after(how, own);
        expect_values(how, "Reduce_scatter", before[rank] * each, own, 0, ranks - 1);

        const int equal = count / ranks;
        put(how, values_in, 0, 0);
        put(how, room, 0, equal * ranks * each);
        MPI_Reduce_scatter_block(out, values_in, equal, how->type, how->op, reduced_on);
        if (in_place) put_gap_after(how, equal * each);
        expect_values(how, "Reduce_scatter_block", rank * equal * each, equal * each, 0, ranks - 1);
    }
}

/* Reductions of few and many bytes, whose halves are not equal, and of fewer elements than ranks. */
static void reductions(void) {
    static const int counts[] = {0, 1, 2, 5, 1001, 4097, 9001, 45001};
    struct reduced ways[] = {{"added up", 0, 0, MPI_LONG_LONG, MPI_SUM},
                             {"one after the other", 0, 1, MPI_LONG_LONG, MPI_OP_NULL},
                             {"added up, with gaps", 1, 0, MPI_DATATYPE_NULL, MPI_OP_NULL},
                             {"one after the other, with gaps", 1, 1, MPI_DATATYPE_NULL, MPI_OP_NULL}};
    MPI_Datatype two;
    MPI_Type_vector(2, 1, 2, MPI_LONG_LONG, &two);
    MPI_Type_commit(&two);
    ways[2].type = ways[3].type = two;
    MPI_Op_create(append, 0, &ways[1].op);
    MPI_Op_create(add_with_gaps, 1, &ways[2].op);
    MPI_Op_create(append_with_gaps, 0, &ways[3].op);
    /* The ranks of the nodes taking turns, too. */
    const int world_rank = rank;
    MPI_Comm all[] = {MPI_COMM_WORLD, MPI_COMM_NULL};
    MPI_Comm_split(MPI_COMM_WORLD, 0, rank % ((ranks + 1) / 2), &all[1]);
    for (int k = 0; k < 2; k++) {
        reduced_on = all[k];
        MPI_Comm_rank(reduced_on, &rank);
        for (int way = 0; way < 4; way++) {
            for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) reduce_all_ways(&ways[way], counts[i]);
        }
    }
    rank = world_rank;
    MPI_Comm_free(&all[1]);
    for (int way = 1; way < 4; way++) MPI_Op_free(&ways[way].op);
    MPI_Type_free(&two);
}

/* From each root; around the sizes at which a broadcast goes in pieces, and at which a node shares it otherwise. */
static void broadcasts(void) {
    static const int sizes[] = {0, 1, 32767, 32768, 32769, 122881, 122882, 262145, 262146, 3000001};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        for (int root = 0; root < ranks; root++) {
            begin(sizes[i]);
            unsigned char* const bytes = rank == root ? out_bytes : in_bytes;
            MPI_Bcast(bytes, sizes[i], MPI_BYTE, root, MPI_COMM_WORLD);
            expect_bytes("Bcast", bytes, sizes[i], root);
        }
    }
}

/* So much goes from one rank to another; whole pieces, if in pieces. */
enum { PIECE = 5, STEP = 7 };

static int bytes_between(int from, int to, int size, int varied, int gaps) {
    const int bytes = varied ? (from + to) % 3 * size / 2 : size;
    return gaps ? bytes / PIECE * PIECE : bytes;
}

/* Blocks one after the other; those in `gaps` as pieces of five bytes of seven. */
static void put_block(unsigned char* at, const unsigned char* packed, int size, int gaps) {
    for (int i = 0; i < size; i++) at[gaps ? i / PIECE * STEP + i % PIECE : i] = packed[i];
}

static int room_of(int size, int gaps) {
    return gaps ? size / PIECE * STEP : size;
}

static MPI_Datatype type_of(int size, int gaps) {
    MPI_Datatype type;
    if (gaps) {
        MPI_Type_vector(size / PIECE, PIECE, STEP, MPI_BYTE, &type);
    } else {
        MPI_Type_contiguous(size, MPI_BYTE, &type);
    }
    MPI_Type_commit(&type);
    return type;
}

enum { TO_ALL = -1 };

/* What `from` has for each rank `to`, or for all, from `at` on; returns what comes after it. */
static unsigned char* put_from(unsigned char* at, int from, int to, int size, int gaps) {
    unsigned char* packed = malloc((size_t)size + 1);
    fill(packed, size, to == TO_ALL ? from : from * MOST_RANKS + to);
    put_block(at, packed, size, gaps);
    free(packed);
    return at + room_of(size, gaps);
}

/* All forms of Alltoall: `varied` blocks of several sizes, none among them, of datatypes of their own. */
static void alltoall(MPI_Comm comm, int size, int varied, int gaps, int in_place) {
    int me, members, out_counts[MOST_RANKS], out_places[MOST_RANKS], in_counts[MOST_RANKS], in_places[MOST_RANKS];
    MPI_Datatype out_types[MOST_RANKS], in_types[MOST_RANKS];
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &members);
    begin(0);
    unsigned char* const expected = calloc(1, LARGEST);
    unsigned char *out = out_bytes, *in = expected;
    memset(out_bytes, 0, LARGEST);
    memset(in_bytes, 0, LARGEST);
    for (int i = 0; i < members; i++) {
        const int out_size = bytes_between(me, i, size, varied, gaps);
        const int in_size = bytes_between(i, me, size, varied, gaps);
        out_counts[i] = gaps ? out_size != 0 : out_size;
        in_counts[i] = gaps ? in_size != 0 : in_size;
        out_places[i] = (int)(out - out_bytes);
        in_places[i] = (int)(in - expected);
        out_types[i] = type_of(gaps ? out_size : 1, gaps);
        in_types[i] = type_of(gaps ? in_size : 1, gaps);
        out = put_from(out, me, i, out_size, gaps);
        in = put_from(in, i, me, in_size, gaps);
    }
    if (in_place) memcpy(in_bytes, out_bytes, LARGEST);
    const void* const from = in_place ? MPI_IN_PLACE : out_bytes;
    if (gaps) {
        MPI_Alltoallw(from, out_counts, out_places, out_types, in_bytes, in_counts, in_places, in_types, comm);
    } else if (varied) {
        MPI_Alltoallv(from, out_counts, out_places, MPI_BYTE, in_bytes, in_counts, in_places, MPI_BYTE, comm);
    } else {
        MPI_Alltoall(from, size, MPI_BYTE, in_bytes, size, MPI_BYTE, comm);
    }
    if (memcmp(in_bytes, expected, LARGEST) != 0) fail("wrong bytes of an Alltoall with blocks of", size, size);
    for (int i = 0; i < members; i++) {
        MPI_Type_free(&out_types[i]);
        MPI_Type_free(&in_types[i]);
    }
    free(expected);
}

/* Blocks of several sizes, if `varied`; into elements with gaps. */
static void allgather(MPI_Comm comm, int size, int varied, int gaps, int in_place) {
    int me, members, counts[MOST_RANKS], places[MOST_RANKS];
    MPI_Comm_rank(comm, &me);
    MPI_Comm_size(comm, &members);
    begin(0);
    unsigned char *const expected = calloc(1, LARGEST), *in = expected;
    MPI_Datatype type = type_of(gaps ? PIECE : 1, 0), element;
    /* Elements of five bytes of seven, or of one. */
    MPI_Type_create_resized(type, 0, gaps ? STEP : 1, &element);
    MPI_Type_commit(&element);
    memset(in_bytes, 0, LARGEST);
    const int each = gaps ? PIECE : 1;
    for (int i = 0; i < members; i++) {
        const int bytes = bytes_between(i, 0, size, varied, gaps);
        counts[i] = bytes / each;
        places[i] = (int)(in - expected) / (gaps ? STEP : 1);
        in = put_from(in, i, TO_ALL, bytes, gaps);
    }
    fill(out_bytes, counts[me] * each, me);
    if (in_place) put_from(in_bytes + places[me] * (gaps ? STEP : 1), me, TO_ALL, counts[me] * each, gaps);
    const void* const from = in_place ? MPI_IN_PLACE : out_bytes;
    if (varied) {
        MPI_Allgatherv(from, counts[me] * each, MPI_BYTE, in_bytes, counts, places, element, comm);
    } else {
        MPI_Allgather(from, counts[me] * each, MPI_BYTE, in_bytes, counts[me], element, comm);
    }
    if (memcmp(in_bytes, expected, LARGEST) != 0) fail("wrong bytes of an Allgather with blocks of", size, size);
    MPI_Type_free(&type);
    MPI_Type_free(&element);
    free(expected);
}

/* On all ranks; on all with those of the nodes taking turns, on all but one, on two of different nodes. */
static void on_some_communicators(void (*operation)(MPI_Comm, int, int, int, int)) {
    static const int sizes[] = {0, 10, 1000, 1024, 1030, 16384, 40000, 300000};
    MPI_Comm all[4];
    MPI_Comm_dup(MPI_COMM_WORLD, &all[0]);
    MPI_Comm_split(MPI_COMM_WORLD, 0, rank % ((ranks + 1) / 2), &all[1]);
    MPI_Comm_split(MPI_COMM_WORLD, rank == ranks - 1, 0, &all[2]);
    MPI_Comm_split(MPI_COMM_WORLD, rank % ((ranks + 1) / 2), 0, &all[3]);
    for (int k = 0; k < 4; k++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            for (int way = 0; way < 8; way++) operation(all[k], sizes[i], way & 1, way >> 1 & 1, way >> 2);
        }
        MPI_Comm_free(&all[k]);
    }
}

static void alltoalls(void) {
    on_some_communicators(alltoall);
}

static void allgathers(void) {
    on_some_communicators(allgather);
}

static void use_communicator(MPI_Comm comm) {
    int own, size, first = -1, sum = 0;
    MPI_Comm_rank(comm, &own);
    MPI_Comm_size(comm, &size);
    if (own == 0) first = 17;
    MPI_Bcast(&first, 1, MPI_INT, 0, comm);
    expect("Bcast on one of many communicators", first, 17);
    MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, comm);
    expect("Allreduce on one of many communicators", sum, size * (size - 1) / 2);
}

/* Of all ranks, of all in the opposite order, of all but one, of some. */
static MPI_Comm one_of_many(int i) {
    MPI_Comm made;
    if (i % 4 == 0) MPI_Comm_dup(MPI_COMM_WORLD, &made);
    if (i % 4 == 1) MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &made);
    if (i % 4 == 2) MPI_Comm_split(MPI_COMM_WORLD, rank == i / 4 % ranks, rank, &made);
    if (i % 4 == 3) MPI_Comm_split(MPI_COMM_WORLD, (rank + i / 4) / 2 % 2, rank, &made);
    return made;
}

/* Many live at once, and even more one after the other: an MPI has few (MPICH some 2,000). */
static void many_communicators(void) {
    enum { LIVE = 600, SHORT_LIVED = 2500 };
    static MPI_Comm all[LIVE];
    for (int i = 0; i < LIVE; i++) {
        all[i] = one_of_many(i);
        use_communicator(all[i]);
    }
    for (int i = LIVE - 1; i >= 0; i--) {
        use_communicator(all[i]);
        MPI_Comm_free(&all[i]);
    }
    for (int i = 0; i < SHORT_LIVED; i++) {
        all[0] = one_of_many(i);
        use_communicator(all[0]);
        MPI_Comm_free(&all[0]);
    }
}

/* As many as there are; and, in place of one of them, one with another order of ranks, for which the layer has nothing.
 */
static void all_communicators(void) {
    enum { MOST = 4000 };
    static MPI_Comm all[MOST];
    int made = 0;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    while (made < MOST && MPI_Comm_dup(MPI_COMM_WORLD, &all[made]) == MPI_SUCCESS) use_communicator(all[made++]);
    if (rank == 0) printf("messages: %d communicators\n", made);
    expect("an MPI that has none left", made > 0 && made < MOST, 1);
    MPI_Comm_free(&all[--made]);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -rank, &all[made++]);
    for (int i = made - 1; i >= 0; i--) {
        use_communicator(all[i]);
        MPI_Comm_free(&all[i]);
    }
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

/* With the other thread of this rank. */
static void* answer(void* argument) {
    (void)argument;
    int got = 0;
    MPI_Recv(&got, 1, MPI_INT, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    got++;
    MPI_Send(&got, 1, MPI_INT, 0, 2, MPI_COMM_SELF);
    return NULL;
}

/* Nothing of MPI_COMM_SELF leaves the rank: MPI itself waits there, while the other thread goes on. */
static void threads_sendrecv(void) {
    int level;
    MPI_Query_thread(&level);
    if (level != MPI_THREAD_MULTIPLE) return;
    for (int i = 0; i < ROUNDS; i++) {
        pthread_t other;
        int out = i, in = -1;
        pthread_create(&other, NULL, answer, NULL);
        MPI_Sendrecv(&out, 1, MPI_INT, 0, 1, &in, 1, MPI_INT, 0, 2, MPI_COMM_SELF, MPI_STATUS_IGNORE);
        pthread_join(other, NULL);
        expect("answer of a thread", in, i + 1);
    }
    if (rank == 0) printf("messages: threads ran\n");
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

enum { MIXERS = 3, MIXED_ROUNDS = 8 };

static void mark(unsigned char* bytes, int size, int from) {
    for (int i = 0; i < size; i++) bytes[i] = (unsigned char)(i * 7 + i / 251 + from);
}

/* Messages of all sizes, each of these twice: by one call, and by requests whose completion is asked for. */
static void* mix(void* argument) {
    static const int sizes[] = {1, 65537, 262145, 21, 300000, 1000, 700001};
    enum { MANY = sizeof sizes / sizeof sizes[0], ROOM = 700001 };
    const int tag = (int)(size_t)argument;
    unsigned char *out = malloc(ROOM), *in = malloc(ROOM), *expected = malloc(ROOM);
    for (int i = 0; i < MANY * MIXED_ROUNDS; i++) {
        const int size = sizes[i % MANY], seed = 16 * i + tag;
        MPI_Request requests[2];
        mark(out, size, seed + rank);
        mark(expected, size, seed + partner);
        memset(in, 0, (size_t)size);
        MPI_Sendrecv(out, size, MPI_BYTE, partner, tag, in, size, MPI_BYTE, partner, tag, MPI_COMM_WORLD,
                     MPI_STATUS_IGNORE);
        expect("Sendrecv of a thread", memcmp(in, expected, (size_t)size), 0);
        memset(in, 0, (size_t)size);
        MPI_Irecv(in, size, MPI_BYTE, partner, tag, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(out, size, MPI_BYTE, partner, tag, MPI_COMM_WORLD, &requests[1]);
        for (int done = 0; !done;) MPI_Testall(2, requests, &done, MPI_STATUSES_IGNORE);
        expect("Irecv of a thread", memcmp(in, expected, (size_t)size), 0);
    }
    free(out);
    free(in);
    free(expected);
    return NULL;
}

/* Blocks of `BLOCK` bytes, or with gaps, in which five bytes of seven go. */
enum { BLOCK = 140000 };

static void expect_block(const char* what, const unsigned char* block, int gaps, int from) {
    static unsigned char expected[BLOCK];
    mark(expected, BLOCK, from);
    for (int k = 0; k < BLOCK; k++) {
        expect(what, block[k], gaps && k % 7 >= 5 ? 0 : expected[k]);
    }
}

static void exchange_blocks(MPI_Datatype type, int gaps) {
    unsigned char *out = calloc((size_t)ranks, BLOCK), *in = calloc((size_t)ranks, BLOCK);
    for (int i = 0; i < ranks; i++) mark(out + i * BLOCK, BLOCK, 16 * rank + i);
    MPI_Alltoall(out, 1, type, in, 1, type, MPI_COMM_WORLD);
    for (int i = 0; i < ranks; i++) expect_block("a block of Alltoall", in + i * BLOCK, gaps, 16 * i + rank);
    memset(in, 0, (size_t)ranks * BLOCK);
    MPI_Allgather(out, 1, type, in, 1, type, MPI_COMM_WORLD);
    for (int i = 0; i < ranks; i++) expect_block("a block of Allgather", in + i * BLOCK, gaps, 16 * i);
    memset(in, 0, (size_t)ranks * BLOCK);
    MPI_Gather(out, 1, type, in, 1, type, 1, MPI_COMM_WORLD);
    for (int i = 0; rank == 1 && i < ranks; i++) expect_block("a block of Gather", in + i * BLOCK, gaps, 16 * i);
    memset(in, 0, (size_t)ranks * BLOCK);
    MPI_Scatter(out, 1, type, in, 1, type, 1, MPI_COMM_WORLD);
    expect_block("a block of Scatter", in, gaps, 16 + rank);
    memset(in, 0, (size_t)ranks * BLOCK);
    free(out);
    free(in);
}

static void large_blocks(void) {
    MPI_Datatype whole, vector, gaps;
    MPI_Type_contiguous(BLOCK, MPI_BYTE, &whole);
    MPI_Type_commit(&whole);
    MPI_Type_vector(BLOCK / 7, 5, 7, MPI_BYTE, &vector);
    MPI_Type_create_resized(vector, 0, BLOCK, &gaps);
    MPI_Type_commit(&gaps);
    exchange_blocks(whole, 0);
    exchange_blocks(gaps, 1);
    MPI_Type_free(&whole);
    MPI_Type_free(&vector);
    MPI_Type_free(&gaps);
}

/* Which of our threads there are, after a large message. */
static void workers(void) {
    char path[300], name[32];
    int found = 0;
    begin(LARGEST);
    MPI_Sendrecv(out_bytes, LARGEST, MPI_BYTE, partner, 0, in_bytes, LARGEST, MPI_BYTE, partner, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    expect_bytes("a message", in_bytes, LARGEST, partner);
    DIR* folder = opendir("/proc/self/task");
    for (struct dirent* entry; (entry = readdir(folder)) != NULL;) {
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
        FILE* file = fopen(path, "r");
        if (file == NULL) continue;
        if (fgets(name, sizeof name, file) != NULL && strcmp(name, "cryptmpi-work\n") == 0) found++;
        fclose(file);
    }
    closedir(folder);
    printf("messages: a rank with %d workers\n", found);
}

/* Large and small messages of several threads at once. */
static void threads_mixed(void) {
    int level;
    MPI_Query_thread(&level);
    if (level != MPI_THREAD_MULTIPLE) return;
    pthread_t all[MIXERS];
    for (size_t i = 0; i < MIXERS; i++) pthread_create(&all[i], NULL, mix, (void*)i);
    for (int i = 0; i < MIXERS; i++) pthread_join(all[i], NULL);
    if (rank == 0) printf("messages: threads ran\n");
}

enum { RENEWERS = 3, RENEWALS = 25 };

static void* renew(void* argument) {
    for (int i = 0; i < RENEWALS; i++) {
        MPI_Comm comm;
        int sum = 0;
        MPI_Comm_dup(*(MPI_Comm*)argument, &comm);
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, comm);
        expect("sum on a thread's communicator", sum, ranks * (ranks - 1) / 2);
        MPI_Comm_free(&comm);
    }
    return NULL;
}

/* Communicators that several threads make and free: MPI gives the handle of one that is freed to another thread's. */
static void threads_renew(void) {
    int level;
    MPI_Query_thread(&level);
    if (level != MPI_THREAD_MULTIPLE) return;
    pthread_t all[RENEWERS];
    MPI_Comm comms[RENEWERS];
    for (int i = 0; i < RENEWERS; i++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    for (int i = 0; i < RENEWERS; i++) pthread_create(&all[i], NULL, renew, &comms[i]);
    for (int i = 0; i < RENEWERS; i++) pthread_join(all[i], NULL);
    for (int i = 0; i < RENEWERS; i++) MPI_Comm_free(&comms[i]);
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
        {"cancel_sent", cancel_sent},
        {"automatic_buffer", automatic_buffer},
        {"from_nobody", from_nobody},
        {"named_once", named_once},
        {"ordered_reduction", ordered_reduction},
        {"reductions", reductions},
        {"broadcasts", broadcasts},
        {"alltoalls", alltoalls},
        {"allgathers", allgathers},
        {"many_communicators", many_communicators},
        {"all_communicators", all_communicators},
        {"large", large},
        {"large_while_elsewhere", large_while_elsewhere},
        {"large_synchronous", large_synchronous},
        {"large_before_waiting", large_before_waiting},
        {"large_behind_others", large_behind_others},
        {"large_to_all", large_to_all},
        {"large_probed", large_probed},
        {"large_matched", large_matched},
        {"large_persistent", large_persistent},
        {"started_after_probe", started_after_probe},
        {"large_many", large_many},
        {"large_in_flight", large_in_flight},
        {"large_vectors", large_vectors},
        {"large_blocks", large_blocks},
        {"large_truncated", large_truncated},
        {"whole_truncated", whole_truncated},
        {"refused", refused},
        {"session_buffer", session_buffer},
        {"workers", workers},
        {"threads", threads},
        {"threads_mixed", threads_mixed},
        {"threads_sendrecv", threads_sendrecv},
        {"threads_renew", threads_renew},
        {"threads_workers", workers},
        {"threads_idup", made_later},
        {"at_the_end", at_the_end},
        {"first_of_all", first_of_all},
        {"late_receiver", late_receiver},
        {"swapped", swapped},
    };
    /* One thread and many take different paths. */
    if (argc == 2 && strncmp(argv[1], "threads", 7) == 0) {
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
    free(out_bytes);
    free(in_bytes);
    if (ran != (argc > 1 ? argc - 1 : ran)) fail("cases of these names", ran, argc - 1);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("messages: %d cases right\n", ran);
    if (before_the_end != NULL) before_the_end();
    MPI_Finalize();
    return 0;
}
