/* Rank 1 receives what rank 0 sends while somebody changes it, and says what it sees of it. At least three ranks, rank
 * 0 on another node than the others. */
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
    BLOCK = 60000
};

static int rank;
static unsigned char bytes[LONG], came[LONG];

static void fill(int number, int size) {
    for (int i = 0; i < size; i++) bytes[i] = (unsigned char)(i * 7 + number + 1);
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
    for (int number = 0; number < LARGE_MESSAGES; number++) {
        memset(bytes, 0xee, LARGE);
        if (rank == 0) {
            fill(number, LARGE);
            MPI_Send(bytes, LARGE, MPI_BYTE, 1, LARGE_TAG, MPI_COMM_WORLD);
        } else if (rank == 1) {
            look(MPI_Recv(bytes, LARGE, MPI_BYTE, 0, LARGE_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE), number, LARGE);
        }
    }
    for (int number = 0; number < 2; number++) {
        MPI_Request request;
        memset(bytes, 0xee, LONG);
        if (rank == 0) {
            fill(number, LONG);
            MPI_Isend(bytes, LONG, MPI_BYTE, 1, LARGE_TAG, MPI_COMM_WORLD, &request);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (rank == 1)
            look(MPI_Recv(bytes, LONG, MPI_BYTE, 0, LARGE_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE), number, LONG);
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
