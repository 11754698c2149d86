/* Rank 0 sends two messages of one tag, for which rank 1 has two receives, as argv[1] says, and waits for the later one
 * first. Errors are returned. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { TAG = 91, READY = 92, OTHER = 93, SIZE = 1000, LARGE = 500000 };

static unsigned char bytes[3][LARGE];
static int size = SIZE;

static int is(const char* said, const char* word) {
    return strstr(said, word) != NULL;
}

static void* wait_for(void* request) {
    static int code;
    code = MPI_Wait(request, MPI_STATUS_IGNORE);
    return &code;
}

static void receive(const char* how) {
    const int source = is(how, "any source") || is(how, "any of both") ? MPI_ANY_SOURCE : 0;
    const int tag = is(how, "any tag") || is(how, "any of both") ? MPI_ANY_TAG : TAG;
    MPI_Request requests[2], cancelled;
    MPI_Message messages[2];
    int codes[2] = {MPI_SUCCESS, MPI_SUCCESS};
    if (is(how, "cancelled")) MPI_Irecv(bytes[2], size, MPI_BYTE, source, tag, MPI_COMM_WORLD, &cancelled);
    for (int i = 0; i < 2 && !is(how, "probe"); i++) {
        if (is(how, "persistent")) {
            MPI_Recv_init(bytes[i], size, MPI_BYTE, source, tag, MPI_COMM_WORLD, &requests[i]);
        } else {
            MPI_Irecv(bytes[i], size, MPI_BYTE, source, tag, MPI_COMM_WORLD, &requests[i]);
        }
    }
    /* The order is that of their start. */
    for (int i = 0; i < 2 && is(how, "persistent"); i++) MPI_Start(&requests[i]);
    if (is(how, "cancelled")) {
        MPI_Cancel(&cancelled);
        MPI_Wait(&cancelled, MPI_STATUS_IGNORE);
    }
    MPI_Send(NULL, 0, MPI_BYTE, 0, READY, MPI_COMM_WORLD);
    for (int i = 0; i < 2 && is(how, "probe"); i++) {
        int found = 0;
        while (is(how, "improbe") && !found)
            MPI_Improbe(source, tag, MPI_COMM_WORLD, &found, &messages[i], MPI_STATUS_IGNORE);
        if (!found) MPI_Mprobe(source, tag, MPI_COMM_WORLD, &messages[i], MPI_STATUS_IGNORE);
    }
    for (int i = 1; i >= 0; i--) {
        if (is(how, "probe")) {
            codes[i] = MPI_Mrecv(bytes[i], size, MPI_BYTE, &messages[i], MPI_STATUS_IGNORE);
        } else if (is(how, "thread")) {
            pthread_t thread;
            void* code;
            pthread_create(&thread, NULL, wait_for, &requests[i]);
            pthread_join(thread, &code);
            codes[i] = *(int*)code;
        } else {
            codes[i] = MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
        }
    }
    int wrong = 0, told = 0;
    for (int i = 0; i < 2; i++) {
        told |= codes[i] != MPI_SUCCESS;
        wrong |= codes[i] == MPI_SUCCESS && (bytes[i][0] != i + 1 || bytes[i][size - 1] != i + 1);
    }
    printf("order: %s\n", told ? (wrong ? "told late" : "told") : wrong ? "FOOLED" : "as sent");
}

int main(int argc, char** argv) {
    const char* const how = argc > 1 ? argv[1] : "";
    int rank, level;
    MPI_Init_thread(&argc, &argv, is(how, "thread") ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (is(how, "large")) size = LARGE;
    if (rank == 1) receive(how);
    if (rank == 0) {
        MPI_Recv(NULL, 0, MPI_BYTE, 1, READY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < 2; i++) {
            memset(bytes[i], i + 1, (size_t)size);
            MPI_Send(bytes[i], size, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("order: came to the end\n");
    MPI_Finalize();
    return 0;
}
