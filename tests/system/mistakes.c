/* Mistakes of a program, and what it is told of them. Each rank says for each the class of its error, by the number
 * that MPI has for it.
 *
 *     mistakes null         arguments that are missing
 *     mistakes operation    reductions of a type that the operation is not for
 *     mistakes alias        what is sent and what comes are in one place
 *     mistakes own          a rank's own block is larger than the room for it
 *     mistakes types        datatypes that are none, or not committed, or without memory
 *     mistakes places       MPI_IN_PLACE where it must not be
 *     mistakes part         a message that is a part of an element
 *     mistakes nobody       what is of no communicator, where MPI_COMM_WORLD's error handler alone returns
 *     mistakes kept         communicators that cannot be freed, by one rank
 *     mistakes inactive     persistent requests that are cancelled before they are started
 *     mistakes several      one of several requests fails: what the communicator's error handler is told
 *     mistakes sendrecv     an MPI_Sendrecv whose send is wrong, while there is a message for it
 *     mistakes handled      wrong arguments, and an error handler that returns
 *     mistakes cut          messages that are much longer than their receives, and such a handler
 *     mistakes sizes CASE   ranks that disagree in the size of a block
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 1000 };

static int rank, ranks, root_says, others_say;
static int out[MOST], in[MOST];
static MPI_Comm comm;

static int class_of(int code) {
    int error_class = MPI_SUCCESS;
    MPI_Error_class(code, &error_class);
    return error_class;
}

static void tell(const char* what, int code) {
    printf("mistakes: rank %d: %s: %d\n", rank, what, class_of(code));
    fflush(stdout);
}

/* Each mistake is made on a communicator of its own, since what it leaves there is nobody's business. */
static void renew(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
}

#define TELL(call) tell(#call, call)
#define TELL_ANEW(call) \
    renew();            \
    tell(#call, call)

static void null(void) {
    MPI_Request request = MPI_REQUEST_NULL, *no_request = NULL;
    MPI_Comm made, *no_comm = NULL;
    int flag, index, *no_int = NULL;
    void* none = NULL;
    const int other = 1 - rank;
    TELL(MPI_Send(none, 1, MPI_INT, other, 1, comm));
    TELL(MPI_Ssend(none, 1, MPI_INT, other, 1, comm));
    TELL(MPI_Isend(none, 1, MPI_INT, other, 1, comm, &request));
    TELL(MPI_Bsend(none, 1, MPI_INT, other, 1, comm));
    TELL(MPI_Send_init(none, 1, MPI_INT, other, 1, comm, &request));
    TELL(MPI_Recv(none, 1, MPI_INT, other, 1, comm, MPI_STATUS_IGNORE));
    TELL(MPI_Irecv(none, 1, MPI_INT, other, 1, comm, &request));
    TELL(MPI_Recv_init(none, 1, MPI_INT, other, 1, comm, &request));
    TELL(MPI_Send(out, -1, MPI_INT, other, 1, comm));
    TELL(MPI_Send(out, 1, MPI_DATATYPE_NULL, other, 1, comm));
    TELL(MPI_Isend(out, 1, MPI_INT, other, 1, comm, no_request));
    TELL(MPI_Wait(no_request, MPI_STATUS_IGNORE));
    TELL(MPI_Test(no_request, &flag, MPI_STATUS_IGNORE));
    TELL(MPI_Waitall(2, no_request, MPI_STATUSES_IGNORE));
    TELL(MPI_Testall(2, no_request, &flag, MPI_STATUSES_IGNORE));
    TELL(MPI_Waitany(2, no_request, &index, MPI_STATUS_IGNORE));
    TELL(MPI_Request_free(no_request));
    TELL(MPI_Cancel(no_request));
    TELL(MPI_Start(no_request));
    TELL(MPI_Startall(1, no_request));
#ifndef OPEN_MPI /* which crashes */
    TELL(MPI_Comm_free(no_comm));
    TELL(MPI_Comm_dup(comm, no_comm));
    TELL(MPI_Comm_idup(comm, no_comm, &request));
    TELL(MPI_Comm_split(comm, 0, 0, no_comm));
#endif
#if MPI_VERSION >= 4
    TELL(MPI_Comm_create_from_group(MPI_GROUP_NULL, "tag", MPI_INFO_NULL, MPI_ERRORS_RETURN, &made));
#endif
    (void)made;
#ifndef OPEN_MPI /* which hangs */
    TELL_ANEW(MPI_Bcast(none, 1, MPI_INT, 0, comm));
#endif
    TELL_ANEW(MPI_Bcast(out, -1, MPI_INT, 0, comm));
    TELL_ANEW(MPI_Allreduce(out, in, 1, MPI_INT, MPI_OP_NULL, comm));
#ifdef OPEN_MPI /* others crash */
    TELL_ANEW(MPI_Alltoallv(out, no_int, no_int, MPI_INT, in, no_int, no_int, MPI_INT, comm));
    TELL_ANEW(MPI_Allgatherv(out, 1, MPI_INT, in, no_int, no_int, MPI_INT, comm));
    TELL_ANEW(MPI_Reduce_scatter(out, in, no_int, MPI_INT, MPI_SUM, comm));
#endif
    (void)no_int;
}

static void operation(void) {
    TELL_ANEW(MPI_Allreduce(out, in, 2, MPI_DOUBLE, MPI_BAND, comm));
    TELL_ANEW(MPI_Allreduce(out, in, 2, MPI_INT, MPI_MAXLOC, comm));
    TELL_ANEW(MPI_Reduce(out, in, 2, MPI_FLOAT, MPI_LXOR, 0, comm));
    TELL_ANEW(MPI_Scan(out, in, 2, MPI_CHAR, MPI_MINLOC, comm));
    TELL_ANEW(MPI_Exscan(out, in, 2, MPI_DOUBLE, MPI_BXOR, comm));
    TELL_ANEW(MPI_Reduce_scatter_block(out, in, 2, MPI_DOUBLE, MPI_BOR, comm));
    MPI_Datatype two;
    MPI_Type_contiguous(2, MPI_INT, &two);
    MPI_Type_commit(&two);
    TELL_ANEW(MPI_Allreduce(out, in, 2, two, MPI_SUM, comm));
}

/* At the root only, if there is one. */
static void alias(void) {
    int* const mine = out + 2 * rank;
    TELL_ANEW(MPI_Allreduce(out, out, 2, MPI_INT, MPI_SUM, comm));
    TELL_ANEW(MPI_Reduce(out, rank == 0 ? out : NULL, 2, MPI_INT, MPI_SUM, 0, comm));
    TELL_ANEW(MPI_Scan(out, out, 2, MPI_INT, MPI_SUM, comm));
    TELL_ANEW(MPI_Exscan(out, out, 2, MPI_INT, MPI_SUM, comm));
    TELL_ANEW(MPI_Reduce_scatter_block(out, out, 2, MPI_INT, MPI_SUM, comm));
    TELL_ANEW(MPI_Allgather(mine, 2, MPI_INT, out, 2, MPI_INT, comm));
    TELL_ANEW(MPI_Alltoall(out, 2, MPI_INT, out, 2, MPI_INT, comm));
    TELL_ANEW(MPI_Gather(mine, 2, MPI_INT, out, 2, MPI_INT, 0, comm));
    if (rank == 0) TELL(MPI_Scatter(out, 2, MPI_INT, mine, 2, MPI_INT, 0, comm));
}

static void own(void) {
    const int others = rank == 0 ? 4 : 2;
    int counts[MOST], places[MOST], to[MOST];
    for (int i = 0; i < ranks; i++) {
        counts[i] = 2;
        to[i] = i == rank ? 4 : 2;
        places[i] = 8 * i;
    }
    TELL_ANEW(MPI_Gather(out, others, MPI_INT, in, 2, MPI_INT, 0, comm));
    TELL_ANEW(MPI_Alltoallv(out, to, places, MPI_INT, in, counts, places, MPI_INT, comm));
}

static void types(void) {
    MPI_Datatype gaps, uncommitted, of_ranks[MOST];
    MPI_Request request;
    int counts[MOST], at[MOST];
    const int other = 1 - rank;
    MPI_Type_vector(2, 1, 2, MPI_INT, &gaps);
    MPI_Type_commit(&gaps);
    MPI_Type_vector(2, 1, 2, MPI_INT, &uncommitted);
    for (int i = 0; i < ranks; i++) {
        counts[i] = i == rank ? 0 : 1;
        of_ranks[i] = i == rank ? MPI_DATATYPE_NULL : MPI_INT;
        at[i] = 0;
    }
    TELL_ANEW(MPI_Alltoallw(out, counts, at, of_ranks, in, counts, at, of_ranks, comm));
    renew();
    TELL(MPI_Send(out, 0, MPI_DATATYPE_NULL, other, 1, comm));
#ifndef OPEN_MPI /* which wants a type */
    TELL(MPI_Recv(in, 0, MPI_DATATYPE_NULL, other, 1, comm, MPI_STATUS_IGNORE));
#endif
    TELL(MPI_Send(NULL, 1, gaps, other, 1, comm));
    TELL(MPI_Recv(NULL, 1, gaps, other, 1, comm, MPI_STATUS_IGNORE));
    TELL(MPI_Send(out, 1, uncommitted, other, 1, comm));
    TELL(MPI_Isend(out, 1, uncommitted, other, 1, comm, &request));
    TELL(MPI_Recv(in, 1, uncommitted, other, 1, comm, MPI_STATUS_IGNORE));
    TELL_ANEW(MPI_Bcast(out, 1, uncommitted, 0, comm));
    TELL_ANEW(MPI_Allgather(out, 0, MPI_DATATYPE_NULL, in, 0, MPI_DATATYPE_NULL, comm));
#ifdef OPEN_MPI /* others crash */
    TELL_ANEW(MPI_Allreduce(out, in, 1, MPI_DATATYPE_NULL, MPI_SUM, comm));
#endif
    TELL(MPI_Startall(-1, &request));
}

static void places(void) {
    TELL_ANEW(MPI_Allgather(out, 1, MPI_INT, MPI_IN_PLACE, 1, MPI_INT, comm));
    TELL_ANEW(MPI_Allreduce(out, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, comm));
    TELL_ANEW(MPI_Scan(out, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, comm));
    TELL_ANEW(MPI_Reduce_scatter_block(out, MPI_IN_PLACE, 1, MPI_INT, MPI_SUM, comm));
    renew();
    if (rank == 0) TELL(MPI_Gather(out, 1, MPI_INT, MPI_IN_PLACE, 1, MPI_INT, 0, comm));
    if (rank == 0) TELL(MPI_Scatter(MPI_IN_PLACE, 1, MPI_INT, in, 1, MPI_INT, 0, comm));
#ifdef OPEN_MPI /* others crash */
    TELL_ANEW(MPI_Bcast(MPI_IN_PLACE, 1, MPI_INT, 0, comm));
    renew();
    if (rank != 0) TELL(MPI_Gather(MPI_IN_PLACE, 1, MPI_INT, in, 1, MPI_INT, 0, comm));
    if (rank != 0) TELL(MPI_Scatter(out, 1, MPI_INT, MPI_IN_PLACE, 1, MPI_INT, 0, comm));
    if (rank != 0) TELL(MPI_Reduce(MPI_IN_PLACE, in, 1, MPI_INT, MPI_SUM, 0, comm));
#endif
}

static void part(void) {
    MPI_Datatype four, gaps;
    MPI_Type_contiguous(4, MPI_INT, &four);
    MPI_Type_vector(4, 1, 2, MPI_INT, &gaps);
    MPI_Type_commit(&four);
    MPI_Type_commit(&gaps);
    const MPI_Datatype types[] = {MPI_INT, four, gaps};
    const int sizes[] = {0, 3, 4, 6, 16, 19, 32};
#ifdef OPEN_MPI
    const int kinds = 3;
#else /* which has an error of its own for a part of an element between gaps */
    const int kinds = 2;
#endif
    for (int t = 0; t < kinds; t++) {
        for (int i = 0; i < 7; i++) {
            int count = -1, elements = -1;
            MPI_Status status;
            if (rank == 0) MPI_Send(out, sizes[i], MPI_CHAR, 1, 1, comm);
            if (rank != 1) continue;
            memset(in, 0x77, sizeof in);
            const int code = MPI_Recv(in, t == 0 ? 12 : 3, types[t], 0, 1, comm, &status);
            MPI_Get_count(&status, types[t], &count);
            MPI_Get_elements(&status, types[t], &elements);
            printf("mistakes: rank 1: %d bytes of type %d: %d, %d elements of it, %d of its own, the first %x %x\n",
                   sizes[i], t, class_of(code), count, elements, in[0], in[1]);
        }
    }
}

static void add_up(void) {
    int one = 1, sum = 0;
    const int code = MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    tell(sum == ranks ? "added up" : "not added up", code);
}

static int fail_once(MPI_Comm of, int key, void* value, void* state) {
    (void)of, (void)key, (void)state;
    int* const calls = value;
    return (*calls)++ == 0 ? MPI_ERR_OTHER : MPI_SUCCESS;
}

static void nobody(void) {
    MPI_Datatype none = MPI_DATATYPE_NULL;
    MPI_Group group;
    int calls = 0, key;
    for (int reduced = 0; reduced < 2; reduced++) {
#ifndef OPEN_MPI /* whose handles are addresses */
        renew();
        const MPI_Comm freed = comm;
        MPI_Comm_free(&comm);
        TELL(MPI_Send(out, 1, MPI_INT, 1 - rank, 1, freed));
#endif
        TELL(MPI_Type_free(&none));
        TELL(MPI_Comm_group(MPI_COMM_NULL, &group));
        TELL(MPI_Send(out, 1, MPI_INT, 1 - rank, 1, MPI_COMM_NULL));
        add_up();
    }
    renew();
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, fail_once, &key, NULL);
    MPI_Comm_set_attr(comm, key, &calls);
    const int failed = MPI_Comm_free(&comm) != MPI_SUCCESS;
    printf("mistakes: rank %d: not freed: %d\n", rank, failed);
    add_up();
}

static void kept(void) {
    MPI_Comm world = MPI_COMM_WORLD, self = MPI_COMM_SELF;
    add_up();
    if (rank == 1) TELL(MPI_Comm_free(&world));
#ifdef OPEN_MPI /* others take it apart */
    if (rank == 1) TELL(MPI_Comm_disconnect(&world));
#endif
    if (rank == 1) TELL(MPI_Comm_free(&self));
    add_up();
}

static void inactive(void) {
    MPI_Request request;
    MPI_Send_init(out, 1, MPI_INT, 1 - rank, 1, comm, &request);
    TELL(MPI_Cancel(&request));
    MPI_Request_free(&request);
    MPI_Recv_init(in, 1, MPI_INT, 1 - rank, 1, comm, &request);
    TELL(MPI_Cancel(&request));
    MPI_Request_free(&request);
}

static void hear(MPI_Comm* of, int* code, ...) {
    (void)of;
    tell("heard", *code);
}

static void several(void) {
    MPI_Request requests[2];
    MPI_Errhandler handler;
    MPI_Status statuses[2];
    int done, flag = 0, indices[2];
    MPI_Comm_create_errhandler(hear, &handler);
    MPI_Comm_set_errhandler(comm, handler);
    for (int way = 0; way < 4; way++) {
        int code = MPI_SUCCESS;
        MPI_Irecv(in, 1, MPI_INT, 1 - rank, 1, comm, &requests[0]);
        requests[1] = MPI_REQUEST_NULL;
        MPI_Send(out, 2, MPI_INT, 1 - rank, 1, comm);
        /* Open MPI's Waitall without statuses forgets a failure that had come before the call. */
        if (way == 0) code = MPI_Waitall(2, requests, statuses);
        for (flag = 0; way == 1 && !flag && code == MPI_SUCCESS;) {
            code = MPI_Testall(2, requests, &flag, MPI_STATUSES_IGNORE);
        }
        if (way == 2) code = MPI_Waitsome(2, requests, &done, indices, MPI_STATUSES_IGNORE);
        for (done = 0; way == 3 && done == 0 && code == MPI_SUCCESS;) {
            code = MPI_Testsome(2, requests, &done, indices, MPI_STATUSES_IGNORE);
        }
        tell("several", code);
    }
}

static void sendrecv(void) {
    const int other = 1 - rank;
    MPI_Request request;
    MPI_Status* const none = MPI_STATUS_IGNORE;
    MPI_Isend(out, 1, MPI_INT, other, 1, comm, &request);
    MPI_Probe(other, 1, comm, none);
    TELL(MPI_Sendrecv(out, 1, MPI_INT, ranks, 1, in, 1, MPI_INT, other, 1, comm, none));
    TELL(MPI_Sendrecv(out, 1, MPI_INT, other, -5, in, 1, MPI_INT, other, 1, comm, none));
    TELL(MPI_Sendrecv(out, -1, MPI_INT, other, 1, in, 1, MPI_INT, other, 1, comm, none));
    in[0] = 0;
    TELL(MPI_Recv(in, 1, MPI_INT, other, 1, comm, none));
    printf("mistakes: rank %d: received: %d\n", rank, in[0] == out[0]);
    MPI_Wait(&request, none);
}

static void set_handler(void) {
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(hear, &handler);
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Errhandler_free(&handler);
}

/* MPICH 5 calls a success what the handler has heard of: the codes of the calls are not told. */
static void handled(void) {
    const int other = 1 - rank;
    const MPI_Count large = 1 << 20;
    char* const data = calloc(1, large);
    int flag = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Status* const none = MPI_STATUS_IGNORE;
    set_handler();
    MPI_Recv(in, 1, MPI_INT, other, -5, comm, none);
    MPI_Irecv(in, 1, MPI_INT, other, -5, comm, &request);
    MPI_Isend(data, large, MPI_CHAR, ranks, 1, comm, &request);
    MPI_Sendrecv(out, 1, MPI_INT, other, -5, in, 1, MPI_INT, other, -5, comm, none);
    MPI_Iprobe(ranks, 1, comm, &flag, none);
    MPI_Probe(ranks, 1, comm, none);
    printf("mistakes: rank %d: a request: %d\n", rank, request != MPI_REQUEST_NULL);
    add_up();
    free(data);
}

static void cut(void) {
    const int other = 1 - rank;
    MPI_Request requests[2];
    MPI_Status* const none = MPI_STATUS_IGNORE;
    set_handler();
    for (int i = 0; i < 2; i++) MPI_Isend(out, MOST, MPI_INT, other, 1, comm, &requests[i]);
    MPI_Recv(in, 1, MPI_INT, other, 1, comm, none);
    MPI_Request receive;
    MPI_Irecv(in, 1, MPI_INT, other, 1, comm, &receive);
    MPI_Wait(&receive, none);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    add_up();
}

static void sizes(const char* what) {
    const int mine = rank == 0 ? root_says : others_say;
    int outs[MOST], ins[MOST], places[MOST];
    for (int i = 0; i < ranks; i++) {
        outs[i] = root_says;
        ins[i] = others_say;
        places[i] = i * (MOST / ranks);
    }
    renew();
    if (strcmp(what, "Bcast") == 0) TELL(MPI_Bcast(in, mine, MPI_INT, 0, comm));
    if (strcmp(what, "Gather") == 0) TELL(MPI_Gather(out, others_say, MPI_INT, in, root_says, MPI_INT, 0, comm));
    if (strcmp(what, "Scatter") == 0) TELL(MPI_Scatter(out, root_says, MPI_INT, in, others_say, MPI_INT, 0, comm));
    if (strcmp(what, "Allgather") == 0) TELL(MPI_Allgather(out, mine, MPI_INT, in, mine, MPI_INT, comm));
    if (strcmp(what, "Alltoall") == 0) TELL(MPI_Alltoall(out, mine, MPI_INT, in, mine, MPI_INT, comm));
    if (strcmp(what, "Alltoallv") == 0) TELL(MPI_Alltoallv(out, outs, places, MPI_INT, in, ins, places, MPI_INT, comm));
    if (strcmp(what, "Reduce") == 0) TELL(MPI_Reduce(out, in, mine, MPI_INT, MPI_SUM, 0, comm));
    if (strcmp(what, "Allreduce") == 0) TELL(MPI_Allreduce(out, in, mine, MPI_INT, MPI_SUM, comm));
    if (strcmp(what, "Scan") == 0) TELL(MPI_Scan(out, in, mine, MPI_INT, MPI_SUM, comm));
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < MOST; i++) out[i] = 0x01010101 * (i + 1);
    const char* const what = argc > 1 ? argv[1] : "";
    if (strcmp(what, "nobody") != 0) MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    renew();
    if (strcmp(what, "null") == 0) null();
    if (strcmp(what, "operation") == 0) operation();
    if (strcmp(what, "alias") == 0) alias();
    if (strcmp(what, "own") == 0) own();
    if (strcmp(what, "types") == 0) types();
    if (strcmp(what, "places") == 0) places();
    if (strcmp(what, "part") == 0) part();
    if (strcmp(what, "nobody") == 0) nobody();
    if (strcmp(what, "kept") == 0) kept();
    if (strcmp(what, "inactive") == 0) inactive();
    if (strcmp(what, "several") == 0) several();
    if (strcmp(what, "sendrecv") == 0) sendrecv();
    if (strcmp(what, "handled") == 0) handled();
    if (strcmp(what, "cut") == 0) cut();
    if (argc > 4) {
        root_says = atoi(argv[3]);
        others_say = atoi(argv[4]);
        sizes(argv[2]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    printf("mistakes: rank %d: made\n", rank);
    MPI_Finalize();
    return 0;
}
