/* Communicators of groups alone (MPI_Comm_create_from_group): of MPI_COMM_WORLD, and of a session.
 *
 *     groups sessions      a session without MPI_Init: what MPI_Comm_create_from_group returns, three times
 *     groups failing       constructors that MPI refuses, on one rank or on all, with an error handler of the program's
 *     groups HEX-DIGITS    a canary through many such communicators, of the world's processes
 *     groups HEX-DIGITS after    and through one of a session when MPI_COMM_WORLD is gone */
#include <mpi.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CANARY = 32, MOST = 400000 };

static unsigned char canary[CANARY], out[MOST], in[MOST];
static int rank;

static void expect(int right, const char* what) {
    if (right) return;
    fprintf(stderr, "groups: rank %d: %s\n", rank, what);
    exit(1);
}

static MPI_Group of_session(MPI_Session session) {
    MPI_Group group;
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    return group;
}

/* Around the ring of its ranks, small and large, and to all. */
static void use(MPI_Comm comm) {
    int size, here;
    MPI_Comm_size(comm, &size);
    MPI_Comm_rank(comm, &here);
    const int sizes[] = {CANARY, MOST};
    for (int i = 0; i < 2; i++) {
        memset(in, 0, sizes[i]);
        MPI_Sendrecv(out, sizes[i], MPI_BYTE, (here + 1) % size, 1, in, sizes[i], MPI_BYTE, (here + size - 1) % size, 1,
                     comm, MPI_STATUS_IGNORE);
        expect(memcmp(in, out, sizes[i]) == 0, "other data than was sent");
    }
    memset(in, 0, CANARY);
    MPI_Bcast(here == 0 ? out : in, CANARY, MPI_BYTE, 0, comm);
    expect(here == 0 || memcmp(in, out, CANARY) == 0, "other data than was broadcast");
}

static MPI_Comm made_of(MPI_Group group, const char* tag) {
    MPI_Comm made = MPI_COMM_NULL;
    const int code = MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &made);
    expect(code == MPI_SUCCESS && made != MPI_COMM_NULL, "no communicator was made");
    return made;
}

/* Two at once, of which one's messages must not be taken for the other's, and one after them by the same name. */
static void exercise(MPI_Group group) {
    MPI_Comm one = made_of(group, "one"), two = made_of(group, "two");
    use(two);
    use(one);
    MPI_Comm_free(&one);
    one = made_of(group, "one");
    MPI_Comm derived;
    MPI_Comm_dup(one, &derived);
    use(one);
    use(derived);
    MPI_Comm_free(&derived);
    MPI_Comm_free(&one);
    MPI_Comm_free(&two);
}

/* For two ranks. */
static void after_world(void) {
    MPI_Session session;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Group processes = of_session(session);
    MPI_Comm made = made_of(processes, "after");
    MPI_Finalize();
    if (rank == 0) MPI_Send(out, CANARY, MPI_BYTE, 1, 1, made);
    if (rank == 1) MPI_Recv(in, CANARY, MPI_BYTE, 0, 1, made, MPI_STATUS_IGNORE);
    MPI_Comm_free(&made);
    MPI_Group_free(&processes);
    MPI_Session_finalize(&session);
    printf("groups: passed\n");
}

static void without_world(void) {
    MPI_Session session;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session);
    MPI_Group group = of_session(session);
    bool refused = true;
    for (int i = 0; i < 3; i++) {
        MPI_Comm made;
        const int code = MPI_Comm_create_from_group(group, "alone", MPI_INFO_NULL, MPI_ERRORS_RETURN, &made);
        refused &= code == MPI_ERR_OTHER && made == MPI_COMM_NULL;
        if (code == MPI_SUCCESS) MPI_Comm_free(&made);
    }
    printf("groups: %s\n", refused ? "refused" : "passed");
    MPI_Group_free(&group);
    MPI_Session_finalize(&session);
}

static int told;
static void tell(MPI_Comm* comm, int* code, ...) {
    (void)comm;
    (void)code;
    told++;
}

static int copies_nothing(MPI_Comm comm, int key, void* state, void* value, void* copy, int* flag) {
    (void)comm;
    (void)key;
    (void)state;
    (void)value;
    (void)copy;
    *flag = 0;
    return MPI_ERR_OTHER;
}

/* Of each, MPI itself tells this rank, without asking the others. */
static void refused_here(MPI_Comm comm) {
    const int sizes[] = {100, 100}, nothing[8] = {0};
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Cart_sub(comm, nothing, &made);
    for (int reorder = 0; reorder < 2; reorder++) {
        MPI_Cart_create(comm, 2, sizes, nothing, reorder, &made);
        MPI_Graph_create(comm, 1000, nothing, nothing, reorder, &made);
        MPI_Dist_graph_create_adjacent(comm, -1, nothing, nothing, 0, nothing, nothing, MPI_INFO_NULL, reorder, &made);
    }
    MPI_Comm_split_type(comm, 4711, 0, MPI_INFO_NULL, &made);
    expect(made == MPI_COMM_NULL, "a communicator was made");
}

static void refused_everywhere(MPI_Comm comm) {
    const int sizes[] = {1000}, nothing[1] = {0};
    MPI_Comm made = MPI_COMM_NULL;
    MPI_Cart_create(comm, 1, sizes, nothing, 0, &made);
    MPI_Cart_create(comm, 1, sizes, nothing, 1, &made);
    int key;
    MPI_Comm_create_keyval(copies_nothing, MPI_COMM_NULL_DELETE_FN, &key, NULL);
    MPI_Comm_set_attr(comm, key, NULL);
    MPI_Comm_dup(comm, &made);
    expect(made == MPI_COMM_NULL, "a communicator was made");
    MPI_Comm_delete_attr(comm, key);
    MPI_Comm_free_keyval(&key);
}

static void failing(void) {
    MPI_Comm comm, made;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(tell, &handler);
    MPI_Comm_set_errhandler(comm, handler);
    if (rank == 1) refused_here(comm);
    refused_everywhere(comm);
    printf("groups: rank %d was told of %d errors\n", rank, told);
    MPI_Comm_dup(comm, &made);
    use(made);
    MPI_Comm_free(&made);
    MPI_Comm_split(comm, 0, -rank, &made);
    use(made);
    MPI_Comm_free(&made);
    MPI_Errhandler_free(&handler);
    MPI_Comm_free(&comm);
    printf("groups: passed\n");
}

int main(int argc, char** argv) {
    setvbuf(stdout, NULL, _IOLBF, 0);
    expect(argc >= 2, "usage: groups sessions|failing|HEX-DIGITS [after]");
    if (strcmp(argv[1], "sessions") == 0) {
        without_world();
        return 0;
    }
    const bool fails = strcmp(argv[1], "failing") == 0;
    for (int i = 0; i < CANARY && !fails; i++) sscanf(argv[1] + 2 * i, "%2hhx", &canary[i]);
    for (int i = 0; i < MOST; i += CANARY) memcpy(out + i, canary, CANARY);
    int ranks, last;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (fails) {
        failing();
        MPI_Finalize();
        return 0;
    }
    if (argc > 2) {
        after_world();
        return 0;
    }
    MPI_Group world, most;
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    exercise(world);
    last = ranks - 1;
    MPI_Group_excl(world, 1, &last, &most);
    if (rank != last) exercise(most);
    MPI_Session session;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Group processes = of_session(session);
    exercise(processes);
    MPI_Group_free(&processes);
    MPI_Session_finalize(&session);
    MPI_Group_free(&most);
    MPI_Group_free(&world);
    if (rank == 0) printf("groups: all as sent\n");
    MPI_Finalize();
    return 0;
}
