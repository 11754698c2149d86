/* Between CryptMPI and MPI: fails at a call of MPI, and watches the memory that MPI has.
 *
 *     FAULT_RANK=R FAULT_CALL=Isend FAULT_AT=N    rank R's N-th call of MPI_Isend, from 1, fails without being made
 *     FAULT_CANARY=64-HEX-DIGITS                  bytes that never may be sent
 *
 * The memory of a send or a receive may not be sent from, nor received into, nor be changed (what is sent) before its
 * request is done. Each rank says in the end how often it made each call. What is wrong ends the job. */
#define _GNU_SOURCE
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 4096, CANARY = 32 };

/* Of a function `name` of MPI: its type and its own address, how often it was called, and what is in its place. */
#define CALLS(X)                                                                                               \
    X(Send, (const void* at, int n, MPI_Datatype t, int to, int tag, MPI_Comm c), (at, n, t, to, tag, c))      \
    X(Ssend, (const void* at, int n, MPI_Datatype t, int to, int tag, MPI_Comm c), (at, n, t, to, tag, c))     \
    X(Recv, (void* at, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Status* s),                   \
      (at, n, t, from, tag, c, s))                                                                             \
    X(Isend, (const void* at, int n, MPI_Datatype t, int to, int tag, MPI_Comm c, MPI_Request* r),             \
      (at, n, t, to, tag, c, r))                                                                               \
    X(Issend, (const void* at, int n, MPI_Datatype t, int to, int tag, MPI_Comm c, MPI_Request* r),            \
      (at, n, t, to, tag, c, r))                                                                               \
    X(Irecv, (void* at, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Request* r),                 \
      (at, n, t, from, tag, c, r))                                                                             \
    X(Imrecv, (void* at, int n, MPI_Datatype t, MPI_Message* m, MPI_Request* r), (at, n, t, m, r))             \
    X(Mrecv, (void* at, int n, MPI_Datatype t, MPI_Message* m, MPI_Status* s), (at, n, t, m, s))               \
    X(Send_init, (const void* at, int n, MPI_Datatype t, int to, int tag, MPI_Comm c, MPI_Request* r),         \
      (at, n, t, to, tag, c, r))                                                                               \
    X(Start, (MPI_Request * r), (r))                                                                           \
    X(Bcast, (void* at, int n, MPI_Datatype t, int root, MPI_Comm c), (at, n, t, root, c))                     \
    X(Ibcast, (void* at, int n, MPI_Datatype t, int root, MPI_Comm c, MPI_Request* r), (at, n, t, root, c, r)) \
    X(Wait, (MPI_Request * r, MPI_Status * s), (r, s))                                                         \
    X(Test, (MPI_Request * r, int* done, MPI_Status* s), (r, done, s))                                         \
    X(Waitall, (int n, MPI_Request r[], MPI_Status s[]), (n, r, s))                                            \
    X(Testall, (int n, MPI_Request r[], int* done, MPI_Status s[]), (n, r, done, s))                           \
    X(Waitany, (int n, MPI_Request r[], int* at, MPI_Status* s), (n, r, at, s))                                \
    X(Testany, (int n, MPI_Request r[], int* at, int* done, MPI_Status* s), (n, r, at, done, s))               \
    X(Request_get_status, (MPI_Request r, int* done, MPI_Status* s), (r, done, s))

#define DECLARE(name, parameters, arguments) \
    static int(*real_##name) parameters;     \
    static int calls_of_##name;
CALLS(DECLARE)

static int rank(void) {
    int mine = -1, begun = 0;
    MPI_Initialized(&begun);
    if (begun) MPI_Comm_rank(MPI_COMM_WORLD, &mine);
    return mine;
}

static void wrong(const char* what) {
    fprintf(stderr, "faults: rank %d: WRONG: %s\n", rank(), what);
    _exit(9);
}

static int fails(const char* name, int number) {
    const char *of = getenv("FAULT_RANK"), *call = getenv("FAULT_CALL"), *at = getenv("FAULT_AT");
    if (!of || !call || !at || strcmp(call, name) != 0 || number != atoi(at) || rank() != atoi(of)) return 0;
    fprintf(stderr, "faults: rank %d: %s fails\n", rank(), name);
    return 1;
}

/* What MPI has. */
static struct used {
    const unsigned char* at;
    size_t size;
    MPI_Request request;
    int sent;
    unsigned long sum;
} used[MOST];
static int count;

static unsigned long sum_of(const unsigned char* at, size_t size) {
    unsigned long sum = 5381;
    for (size_t i = 0; i < size; i++) sum = sum * 33 + at[i];
    return sum;
}

static size_t bytes_of(int n, MPI_Datatype type) {
    int size = 0;
    MPI_Type_size(type, &size);
    return (size_t)n * (size_t)size;
}

static void look_for_canary(const unsigned char* at, size_t size) {
    const char* hex = getenv("FAULT_CANARY");
    unsigned char canary[CANARY];
    if (!hex) return;
    for (int i = 0; i < CANARY; i++) sscanf(hex + 2 * i, "%2hhx", &canary[i]);
    if (memmem(at, size, canary, CANARY) != NULL) wrong("a canary is sent in clear");
}

/* Memory that a call is about to use. */
static void look_at(const void* memory, int n, MPI_Datatype type, int sent) {
    const unsigned char* at = memory;
    const size_t size = bytes_of(n, type);
    for (int i = 0; i < count; i++) {
        const int apart = at + size <= used[i].at || used[i].at + used[i].size <= at;
        if (size != 0 && !apart) wrong("memory is used again that MPI has");
        if (used[i].sent && sum_of(used[i].at, used[i].size) != used[i].sum) wrong("what is being sent has changed");
    }
    if (sent) look_for_canary(at, size);
}

static void note(const void* at, int n, MPI_Datatype type, int sent, MPI_Request request) {
    const size_t size = bytes_of(n, type);
    if (size == 0 || count == MOST) return;
    used[count++] = (struct used){at, size, request, sent, sent ? sum_of(at, size) : 0};
}

static void forget(MPI_Request request) {
    for (int i = 0; i < count; i++) {
        if (used[i].request == request) used[i--] = used[--count];
    }
}

/* Requests before and after a call that ends some of them. */
static MPI_Request before[MOST];
static void keep(int n, const MPI_Request* requests) {
    for (int i = 0; i < n && i < MOST; i++) before[i] = requests[i];
}
static void compare(int n, const MPI_Request* requests) {
    for (int i = 0; i < n && i < MOST; i++) {
        if (before[i] != requests[i]) forget(before[i]);
    }
}

#define BEGIN(name) \
    if (fails(#name, ++calls_of_##name)) return MPI_ERR_INTERN
#define PARAMETERS(name) static int faulty_##name

#define SENDS(name)                                                                        \
    PARAMETERS(name)(const void* at, int n, MPI_Datatype t, int to, int tag, MPI_Comm c) { \
        BEGIN(name);                                                                       \
        look_at(at, n, t, 1);                                                              \
        return real_##name(at, n, t, to, tag, c);                                          \
    }
SENDS(Send)
SENDS(Ssend)

#define STARTS_SEND(name)                                                                                  \
    PARAMETERS(name)(const void* at, int n, MPI_Datatype t, int to, int tag, MPI_Comm c, MPI_Request* r) { \
        BEGIN(name);                                                                                       \
        look_at(at, n, t, 1);                                                                              \
        const int code = real_##name(at, n, t, to, tag, c, r);                                             \
        if (code == MPI_SUCCESS) note(at, n, t, 1, *r);                                                    \
        return code;                                                                                       \
    }
STARTS_SEND(Isend)
STARTS_SEND(Issend)

PARAMETERS(Recv)(void* at, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Status* s) {
    BEGIN(Recv);
    look_at(at, n, t, 0);
    return real_Recv(at, n, t, from, tag, c, s);
}

PARAMETERS(Irecv)(void* at, int n, MPI_Datatype t, int from, int tag, MPI_Comm c, MPI_Request* r) {
    BEGIN(Irecv);
    look_at(at, n, t, 0);
    const int code = real_Irecv(at, n, t, from, tag, c, r);
    if (code == MPI_SUCCESS) note(at, n, t, 0, *r);
    return code;
}

PARAMETERS(Imrecv)(void* at, int n, MPI_Datatype t, MPI_Message* m, MPI_Request* r) {
    BEGIN(Imrecv);
    look_at(at, n, t, 0);
    const int code = real_Imrecv(at, n, t, m, r);
    if (code == MPI_SUCCESS) note(at, n, t, 0, *r);
    return code;
}

PARAMETERS(Mrecv)(void* at, int n, MPI_Datatype t, MPI_Message* m, MPI_Status* s) {
    BEGIN(Mrecv);
    look_at(at, n, t, 0);
    return real_Mrecv(at, n, t, m, s);
}

/* A persistent send's memory is watched from its start on. */
static struct {
    const void* at;
    int n;
    MPI_Datatype type;
    MPI_Request request;
} persistent[MOST];
static int persistents;

PARAMETERS(Send_init)(const void* at, int n, MPI_Datatype t, int to, int tag, MPI_Comm c, MPI_Request* r) {
    BEGIN(Send_init);
    const int code = real_Send_init(at, n, t, to, tag, c, r);
    if (code != MPI_SUCCESS) return code;
    int i = 0;
    while (i < persistents && persistent[i].request != *r) i++; /* MPI uses the handles of freed ones again */
    if (i == MOST) return code;
    if (i == persistents) persistents++;
    persistent[i].at = at;
    persistent[i].n = n;
    persistent[i].type = t;
    persistent[i].request = *r;
    return code;
}

PARAMETERS(Start)(MPI_Request* r) {
    BEGIN(Start);
    const int code = real_Start(r);
    for (int i = 0; i < persistents && code == MPI_SUCCESS; i++) {
        if (persistent[i].request != *r) continue;
        look_at(persistent[i].at, persistent[i].n, persistent[i].type, 1);
        note(persistent[i].at, persistent[i].n, persistent[i].type, 1, *r);
    }
    return code;
}

PARAMETERS(Bcast)(void* at, int n, MPI_Datatype t, int root, MPI_Comm c) {
    BEGIN(Bcast);
    look_at(at, n, t, 0);
    return real_Bcast(at, n, t, root, c);
}

PARAMETERS(Ibcast)(void* at, int n, MPI_Datatype t, int root, MPI_Comm c, MPI_Request* r) {
    BEGIN(Ibcast);
    look_at(at, n, t, 0);
    const int code = real_Ibcast(at, n, t, root, c, r);
    if (code == MPI_SUCCESS) note(at, n, t, 0, *r);
    return code;
}

/* Of persistent ones, the request stays; of others it goes, also after an error. */
static int ended(int code, int done, MPI_Request was, MPI_Request is) {
    if ((code == MPI_SUCCESS && done) || was != is) forget(was);
    return code;
}

PARAMETERS(Wait)(MPI_Request* r, MPI_Status* s) {
    BEGIN(Wait);
    const MPI_Request was = *r;
    const int code = real_Wait(r, s);
    return ended(code, 1, was, *r);
}

PARAMETERS(Test)(MPI_Request* r, int* done, MPI_Status* s) {
    BEGIN(Test);
    const MPI_Request was = *r;
    const int code = real_Test(r, done, s);
    return ended(code, *done, was, *r);
}

PARAMETERS(Request_get_status)(MPI_Request r, int* done, MPI_Status* s) {
    BEGIN(Request_get_status);
    const int code = real_Request_get_status(r, done, s);
    return ended(code, *done, r, r);
}

PARAMETERS(Waitall)(int n, MPI_Request r[], MPI_Status s[]) {
    BEGIN(Waitall);
    keep(n, r);
    const int code = real_Waitall(n, r, s);
    for (int i = 0; i < n && i < MOST; i++) ended(code, 1, before[i], r[i]);
    return code;
}

PARAMETERS(Testall)(int n, MPI_Request r[], int* done, MPI_Status s[]) {
    BEGIN(Testall);
    keep(n, r);
    const int code = real_Testall(n, r, done, s);
    for (int i = 0; i < n && i < MOST; i++) ended(code, *done, before[i], r[i]);
    return code;
}

PARAMETERS(Waitany)(int n, MPI_Request r[], int* at, MPI_Status* s) {
    BEGIN(Waitany);
    keep(n, r);
    const int code = real_Waitany(n, r, at, s);
    compare(n, r);
    return code;
}

PARAMETERS(Testany)(int n, MPI_Request r[], int* at, int* done, MPI_Status* s) {
    BEGIN(Testany);
    keep(n, r);
    const int code = real_Testany(n, r, at, done, s);
    compare(n, r);
    return code;
}

#define TELL(name, parameters, arguments) \
    if (calls_of_##name != 0) fprintf(stderr, "faults: rank %d made %d of %s\n", mine, calls_of_##name, #name);

static int (*real_Finalize)(void);
static int faulty_Finalize(void) {
    const int mine = rank();
    CALLS(TELL)
    return real_Finalize();
}

void* cryptmpi_below(const char* name, void* (*lookup)(const char*)) {
#define REPLACE(call, parameters, arguments)           \
    if (strcmp(name, "PMPI_" #call) == 0) {            \
        real_##call = (int(*) parameters)lookup(name); \
        return (void*)faulty_##call;                   \
    }
    CALLS(REPLACE)
    if (strcmp(name, "PMPI_Finalize") == 0) {
        real_Finalize = (int (*)(void))lookup(name);
        return (void*)faulty_Finalize;
    }
    return NULL;
}
