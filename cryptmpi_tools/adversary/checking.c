/* Two ranks on two nodes do one operation of MPI over and over, and know every byte that must come of it.
 *
 *     checking OPERATION ROUNDS BEGUN [MICROSECONDS between rounds]
 *
 * Each rank makes the file BEGUN-rank-N when MPI_Init is behind it, so that an attacker knows where the wire-up ends.
 * Sizes differ by a byte from round to round: who knows the sizes knows the round. A round of which MPI tells an error
 * must have left nothing that was not sent: of its buffer each byte is as it was, zero, or right (of a stream, what
 * came before the attack is authentic). */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    EAGER = 3000,
    LARGE = 1200000,
    ROOM = 2 * (LARGE + 1000),
    UNTOUCHED = 0xee,
    OUTSTANDING = 8,
    TAG = 100,
    CHILD = 5
};

static int rank, rounds, failed;
static const char* begun;
static unsigned char out[ROOM], in[ROOM];

static unsigned char sent(int from, int round, int place) {
    return (unsigned char)(place * 7 + place / 251 + from * 101 + round * 13 + 1);
}

static void fill(unsigned char* bytes, int from, int round, int size) {
    for (int i = 0; i < size; i++) bytes[i] = sent(from, round, i);
}

static void clear(int size) {
    memset(in, UNTOUCHED, (size_t)size);
}

/* `bytes` must be what `from` sent; or, after an error, nothing that came. */
static void look(int code, int round, int from, const unsigned char* bytes, int size) {
    int right = 1, left = 0;
    for (int i = 0; i < size; i++) {
        right &= bytes[i] == sent(from, round, i);
        left |= bytes[i] != 0 && bytes[i] != UNTOUCHED && bytes[i] != sent(from, round, i);
    }
    if (code == MPI_SUCCESS && right) return;
    failed = 1;
    char text[MPI_MAX_ERROR_STRING] = "";
    int length;
    if (code != MPI_SUCCESS) MPI_Error_string(code, text, &length);
    printf("checking: rank %d: round %d: %s: %s\n", rank, round,
           code == MPI_SUCCESS ? "WRONG BYTES"
           : left              ? "BYTES LEFT"
                               : "told, nothing left",
           text);
    fflush(stdout);
}

static void told_of(int code, int round) {
    if (code != MPI_SUCCESS) look(code, round, 0, NULL, 0);
}

static void message(int round, int size, int tag) {
    const int from = round % 2;
    if (rank == from) {
        fill(out, from, round, size);
        told_of(MPI_Send(out, size, MPI_BYTE, 1 - from, tag, MPI_COMM_WORLD), round);
    } else {
        clear(size);
        look(MPI_Recv(in, size, MPI_BYTE, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE), round, from, in, size);
    }
}

static void eager(int round) {
    message(round, EAGER + round, TAG + round);
}

static void large(int round) {
    message(round, LARGE + round, TAG);
}

/* Several receives wait when the messages come; all of one tag. */
static void outstanding(int round) {
    MPI_Request requests[OUTSTANDING];
    const int from = round % 2, size = EAGER + round;
    clear(OUTSTANDING * size);
    for (int i = 0; i < OUTSTANDING; i++) {
        unsigned char* const to = (rank == from ? out : in) + i * size;
        if (rank == from) {
            fill(to, from, round + i, size);
            told_of(MPI_Isend(to, size, MPI_BYTE, 1 - from, TAG, MPI_COMM_WORLD, &requests[i]), round);
        } else {
            told_of(MPI_Irecv(to, size, MPI_BYTE, from, TAG, MPI_COMM_WORLD, &requests[i]), round);
        }
    }
    for (int i = 0; i < OUTSTANDING; i++) {
        const int code = MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
        if (rank != from) look(code, round + i, from, in + i * size, size);
    }
}

static void broadcast(int round) {
    const int root = round % 2, size = EAGER + round;
    clear(size);
    if (rank == root) fill(in, root, round, size);
    look(MPI_Bcast(in, size, MPI_BYTE, root, MPI_COMM_WORLD), round, root, in, size);
}

static void all_to_all(int round) {
    const int size = EAGER + round;
    fill(out, rank, round, size);
    memcpy(out + size, out, (size_t)size);
    clear(2 * size);
    const int code = MPI_Alltoall(out, size, MPI_BYTE, in, size, MPI_BYTE, MPI_COMM_WORLD);
    for (int from = 0; from < 2; from++) look(code, round, from, in + from * size, size);
}

/* The exclusive or of what both have, and of one's own again, is the other's. */
static void all_reduce(int round) {
    const int size = EAGER + round;
    fill(out, rank, round, size);
    clear(size);
    const int code = MPI_Allreduce(out, in, size, MPI_BYTE, MPI_BXOR, MPI_COMM_WORLD);
    for (int i = 0; code == MPI_SUCCESS && i < size; i++) in[i] ^= out[i];
    look(code, round, 1 - rank, in, size);
}

static void put(int round) {
    static MPI_Win window;
    const int size = EAGER + round;
    if (window == 0 || round == 0) {
        MPI_Win_create(in, ROOM, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
        MPI_Win_set_errhandler(window, MPI_ERRORS_RETURN);
    }
    clear(size);
    fill(out, rank, round, size);
    told_of(MPI_Win_fence(0, window), round);
    told_of(MPI_Put(out, size, MPI_BYTE, 1 - rank, 0, size, MPI_BYTE, window), round);
    look(MPI_Win_fence(0, window), round, 1 - rank, in, size);
    MPI_Barrier(MPI_COMM_WORLD);
    if (round == rounds - 1) MPI_Win_free(&window);
}

/* Both write their part of one file in a collective call, for which MPI moves data between ranks, and read the other's.
 */
static void file(int round) {
    MPI_File handle;
    MPI_Datatype comb;
    char name[1000];
    const int size = EAGER + round;
    snprintf(name, sizeof name, "%s-file-%d", begun, round);
    MPI_Type_vector(size, 1, 2, MPI_BYTE, &comb);
    MPI_Type_commit(&comb);
    fill(out, rank, round, size);
    int code = MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &handle);
    told_of(code, round);
    if (code != MPI_SUCCESS) return;
    MPI_File_set_view(handle, rank, MPI_BYTE, comb, "native", MPI_INFO_NULL);
    told_of(MPI_File_write_all(handle, out, size, MPI_BYTE, MPI_STATUS_IGNORE), round);
    MPI_File_sync(handle);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_set_view(handle, 1 - rank, MPI_BYTE, comb, "native", MPI_INFO_NULL);
    clear(size);
    look(MPI_File_read_all(handle, in, size, MPI_BYTE, MPI_STATUS_IGNORE), round, 1 - rank, in, size);
    MPI_File_close(&handle);
    MPI_Type_free(&comb);
}

static void spawn(int round) {
    static char self[1000];
    MPI_Comm child;
    if (self[0] == 0 && readlink("/proc/self/exe", self, sizeof self - 1) < 0) MPI_Abort(MPI_COMM_WORLD, 9);
    char* arguments[] = {"child", NULL};
    told_of(MPI_Comm_spawn(self, arguments, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &child, MPI_ERRCODES_IGNORE), round);
    clear(EAGER);
    look(MPI_Recv(in, EAGER, MPI_BYTE, 0, TAG + rank, child, MPI_STATUS_IGNORE), 0, CHILD, in, EAGER);
    MPI_Comm_disconnect(&child);
}

static int be_child(void) {
    MPI_Comm parent;
    MPI_Init(NULL, NULL);
    MPI_Comm_get_parent(&parent);
    fill(out, CHILD, 0, EAGER);
    for (int to = 0; to < 2; to++) MPI_Send(out, EAGER, MPI_BYTE, to, TAG + to, parent);
    MPI_Comm_disconnect(&parent);
    MPI_Finalize();
    return 0;
}

static void only_a_barrier(int round) {
    told_of(MPI_Barrier(MPI_COMM_WORLD), round);
}

static const struct {
    const char* name;
    void (*play)(int round);
} operations[] = {{"eager", eager},
                  {"large", large},
                  {"outstanding", outstanding},
                  {"bcast", broadcast},
                  {"alltoall", all_to_all},
                  {"allreduce", all_reduce},
                  {"put", put},
                  {"file", file},
                  {"spawn", spawn},
                  {"barrier", only_a_barrier}};

int main(int argc, char** argv) {
    char name[1000];
    if (argc > 1 && strcmp(argv[1], "child") == 0) return be_child();
    if (argc < 4) return 2;
    rounds = atoi(argv[2]);
    begun = argv[3];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    told_of(MPI_Barrier(MPI_COMM_WORLD), -1);
    snprintf(name, sizeof name, "%s-rank-%d", begun, rank);
    FILE* const mark = fopen(name, "w");
    if (mark != NULL) fclose(mark);
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        if (strcmp(argv[1], operations[i].name) != 0) continue;
        for (int round = 0; round < rounds; round++) {
            operations[i].play(round);
            if (argc > 4) usleep((useconds_t)atoi(argv[4]));
        }
    }
    told_of(MPI_Barrier(MPI_COMM_WORLD), rounds);
    printf("checking: rank %d: %s\n", rank, failed ? "went on to the end" : "all as sent");
    fflush(stdout);
    MPI_Finalize();
    return 0;
}
