/* Rank 1 receives what rank 0 sends while somebody changes it, and says what it sees of it. At least three ranks, rank
 * 0 on another node than the others.
 *
 *     attacked [spread]    the bytes of large messages lie in blocks with gaps between them
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    SIZE = 1000,
    LARGE = 600000,
    LONG = 4000000,
    VICTIM_TAG = 77,
    OTHER_TAG = 78,
    LARGE_TAG = 79,
    MESSAGES = 5,
    LARGE_MESSAGES = 3,
    BLOCK = 60000,
    PIECE = 100,
    STRIDE = 107
};

static int rank;
static unsigned char bytes[LONG], came[LONG];

static void fill(int number, int size) {
    for (int i = 0; i < size; i++) bytes[i] = (unsigned char)(i * 7 + number + 1);
}

/* The same bytes with gaps between them. */
static unsigned char spread[LONG / PIECE * STRIDE];

static void spread_out(int size) {
    for (int i = 0; i < size / PIECE; i++) memcpy(spread + i * STRIDE, bytes + i * PIECE, PIECE);
}

static void gather_up(int size) {
    for (int i = 0; i < size / PIECE * STRIDE; i++) {
        if (i % STRIDE < PIECE) {
            bytes[i / STRIDE * PIECE + i % STRIDE] = spread[i];
        } else if (spread[i] != 0xee) {
            printf("attacked: FOOLED in a gap\n");
            MPI_Abort(MPI_COMM_WORLD, 3);
        }
    }
}

/* What came must be message `number`; or an error, and nothing of what came. */
static void look(int code, int number, int size) {
    int length = 0, error_class = 0;
    char text[MPI_MAX_ERROR_STRING];
    memcpy(came, bytes, (size_t)size);
    if (code == MPI_SUCCESS) {
        fill(number, size);
        if (memcmp(came, bytes, (size_t)size) == 0) return;
        printf("attacked: FOOLED at %d\n", number);
    } else {
        int left = 0;
        for (int i = 0; i < size; i++) left |= came[i] != 0 && came[i] != 0xee;
        MPI_Error_class(code, &error_class);
        MPI_Error_string(code, text, &length);
        printf("attacked: detected at %d, %s, %s: %s\n", number, left ? "BYTES LEFT" : "nothing left",
               error_class > MPI_ERR_LASTCODE ? "own class" : "MPI's class", text);
    }
    fflush(stdout);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static MPI_Datatype type_of(int spreads, int size) {
    MPI_Datatype type;
    MPI_Type_vector(size / PIECE, PIECE, spreads ? STRIDE : PIECE, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    return type;
}

/* What rank 0 sends, and nothing elsewhere. */
static void prepare(int number, int size) {
    memset(bytes, 0xee, (size_t)size);
    memset(spread, 0xee, sizeof spread);
    if (rank == 0) fill(number, size);
    if (rank == 0) spread_out(size);
}

static void start_large(int spreads, int size, MPI_Request* request) {
    MPI_Datatype type = type_of(spreads, size);
    MPI_Isend(spreads ? spread : bytes, 1, type, 1, LARGE_TAG, MPI_COMM_WORLD, request);
    MPI_Type_free(&type);
}

static void send_large(int spreads, int size) {
    MPI_Datatype type = type_of(spreads, size);
    MPI_Send(spreads ? spread : bytes, 1, type, 1, LARGE_TAG, MPI_COMM_WORLD);
    MPI_Type_free(&type);
}

static void receive_large(int spreads, int number, int size) {
    MPI_Datatype type = type_of(spreads, size);
    const int code = MPI_Recv(spreads ? spread : bytes, 1, type, 0, LARGE_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Type_free(&type);
    if (spreads) gather_up(size);
    look(code, number, size);
}

int main(int argc, char** argv) {
    MPI_Comm duplicate;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_dup(MPI_COMM_WORLD, &duplicate);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);

    /* What a hostile layer may use in place of the second message with the victims' tag. */
    fill(100, SIZE);
    for (int i = 0; i < 2; i++) {
        if (rank == 1) MPI_Send(bytes, SIZE, MPI_BYTE, 0, VICTIM_TAG, MPI_COMM_WORLD);
        if (rank == 0) {
            MPI_Recv(bytes, SIZE, MPI_BYTE, 1, VICTIM_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Send(bytes, SIZE, MPI_BYTE, 1, OTHER_TAG, MPI_COMM_WORLD);
            MPI_Send(bytes, SIZE, MPI_BYTE, 2, VICTIM_TAG, MPI_COMM_WORLD);
            MPI_Send(bytes, SIZE, MPI_BYTE, 1, VICTIM_TAG, duplicate);
        } else if (rank == 1) {
            MPI_Recv(bytes, SIZE, MPI_BYTE, 0, OTHER_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            MPI_Recv(bytes, SIZE, MPI_BYTE, 0, VICTIM_TAG, duplicate, MPI_STATUS_IGNORE);
        } else if (rank == 2) {
            MPI_Recv(bytes, SIZE, MPI_BYTE, 0, VICTIM_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        }
    }

    for (int number = 0; number < 3; number++) {
        memset(bytes, 0xee, SIZE);
        if (rank == 0) fill(number, SIZE);
        look(MPI_Bcast(bytes, SIZE, MPI_BYTE, 0, MPI_COMM_WORLD), number, SIZE);
    }
    for (int number = 0; number < MESSAGES; number++) {
        memset(bytes, 0xee, SIZE);
        if (rank == 0) {
            fill(number, SIZE);
            MPI_Send(bytes, SIZE, MPI_BYTE, 1, VICTIM_TAG, MPI_COMM_WORLD);
        } else if (rank == 1) {
            look(MPI_Recv(bytes, SIZE, MPI_BYTE, 0, VICTIM_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE), number, SIZE);
        }
    }
    const int spreads = argc > 1;
    for (int number = 0; number < LARGE_MESSAGES; number++) {
        prepare(number, LARGE);
        if (rank == 0) send_large(spreads, LARGE);
        if (rank == 1) receive_large(spreads, number, LARGE);
    }
    for (int number = 0; number < 2; number++) {
        MPI_Request request;
        prepare(number, LONG);
        if (rank == 0) start_large(spreads, LONG, &request);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (rank == 1) receive_large(spreads, number, LONG);
    }
    for (int number = 0; number < 3; number++) {
        static unsigned char out[BLOCK];
        fill(number, BLOCK);
        memcpy(out, bytes, BLOCK);
        memset(bytes, 0xee, LARGE);
        const int code = MPI_Gather(out, BLOCK, MPI_BYTE, bytes, BLOCK, MPI_BYTE, 1, MPI_COMM_WORLD);
        if (rank == 1) look(code, number, BLOCK);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 1) printf("attacked: all as sent\n");
    MPI_Finalize();
    return 0;
}
