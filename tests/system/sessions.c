/* Sessions beside MPI_Init, of two ranks.
 *
 *     sessions before|after HEX-DIGITS   a session that is begun before or after MPI_Init, and ended after MPI_Finalize
 *     sessions never HEX-DIGITS          it is not ended
 *     sessions threads before|after HEX-DIGITS
 *                                        it has MPI_THREAD_MULTIPLE, whatever MPI_Init gives, and threads use it
 *
 * What is passed has the canary in it: small messages and large ones, also by a function that deletes an attribute of
 * MPI_COMM_SELF, and by all threads at once. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CANARY = 32, MOST = 400000, THREADS = 4, ROUNDS = 2000, FIRST_SIZE = 40, STEP = 37, SIZES = 4000 };

static unsigned char canary[CANARY], out[MOST];
static int rank;
static MPI_Session session;
static MPI_Comm comms[THREADS];

static void expect(int right, const char* what) {
    if (right) return;
    fprintf(stderr, "sessions: rank %d: %s\n", rank, what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* From rank 0 to rank 1. */
static void pass(int size, MPI_Comm comm) {
    if (rank == 0) {
        MPI_Send(out, size, MPI_BYTE, 1, 1, comm);
        return;
    }
    unsigned char* in = calloc(size, 1);
    MPI_Recv(in, size, MPI_BYTE, 0, 1, comm, MPI_STATUS_IGNORE);
    expect(memcmp(in, out, size) == 0, "other data than was sent");
    free(in);
}

static int at_deletion(MPI_Comm comm, int key, void* value, void* state) {
    (void)comm;
    (void)key;
    (void)value;
    (void)state;
    pass(CANARY, MPI_COMM_WORLD);
    printf("sessions: one that deletes has passed its own\n");
    return MPI_SUCCESS;
}

static void watch_self(void) {
    int key;
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, at_deletion, &key, NULL);
    MPI_Comm_set_attr(MPI_COMM_SELF, key, NULL);
    MPI_Comm_free_keyval(&key);
}

static void begin(const char* level) {
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "thread_level", level);
    expect(MPI_Session_init(info, MPI_ERRORS_ARE_FATAL, &session) == MPI_SUCCESS, "there is no session");
    MPI_Info_free(&info);
}

/* Both ways at once, many messages of many sizes. */
static void* exchange(void* of) {
    const MPI_Comm comm = *(MPI_Comm*)of;
    unsigned char in[SIZES + FIRST_SIZE];
    for (int i = 0; i < ROUNDS; i++) {
        const int size = FIRST_SIZE + i * STEP % SIZES;
        MPI_Request requests[2];
        MPI_Irecv(in, sizeof in, MPI_BYTE, 1 - rank, 3, comm, &requests[0]);
        MPI_Isend(out, size, MPI_BYTE, 1 - rank, 3, comm, &requests[1]);
        MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        expect(memcmp(in, out, size) == 0, "other data than was sent to a thread");
        int sum = rank;
        if (i % 20 == 0) MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, comm);
        expect(i % 20 != 0 || sum == 1, "another sum");
    }
    return NULL;
}

/* This thread has MPI_COMM_WORLD meanwhile. */
static void use_threads(void) {
    MPI_Group group;
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) {
        const char tag[] = {(char)('a' + i), 0};
        MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comms[i]);
    }
    MPI_Group_free(&group);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, exchange, &comms[i]);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++) MPI_Comm_free(&comms[i]);
}

int main(int argc, char** argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    const char* const level = strcmp(argv[1], "threads") == 0 ? "MPI_THREAD_MULTIPLE" : "MPI_THREAD_SINGLE";
    const char* const when = strcmp(argv[1], "threads") == 0 ? argv[2] : argv[1];
    for (int i = 0; i < CANARY; i++) sscanf(argv[argc - 1] + 2 * i, "%2hhx", &canary[i]);
    for (int i = 0; i < MOST; i += CANARY) memcpy(out + i, canary, CANARY);
    if (strcmp(when, "before") == 0) begin(level);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (strcmp(when, "before") != 0) begin(level);
    if (strcmp(argv[1], "threads") == 0) use_threads();
    watch_self();
    pass(CANARY, MPI_COMM_WORLD);
    pass(MOST, MPI_COMM_WORLD);
    MPI_Finalize();
    if (strcmp(when, "never") != 0) MPI_Session_finalize(&session);
    printf("sessions: passed\n");
    return 0;
}
