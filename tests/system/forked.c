/* Rank 0 sends a message, and forks: the child sends another one of the same lane, as its parent does then. argv[1]
 * says how it forks; MPI after that is undefined, but must not seal two messages alike. */
#define _GNU_SOURCE
#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 1000, TAG = 5, REFUSED = 17 };

static unsigned char bytes[SIZE];

static int child(void* nothing) {
    memset(bytes, 'c', SIZE);
    alarm(10);
    const int sent = MPI_Send(bytes, SIZE, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
    return sent == MPI_SUCCESS && nothing == NULL ? 0 : REFUSED;
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 0) {
        memset(bytes, 'p', SIZE);
        MPI_Send(bytes, SIZE, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
        const char* how = argc > 1 ? argv[1] : "fork";
        static char stack[1 << 20];
        const pid_t pid = strcmp(how, "clone") == 0      ? (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL)
                          : strcmp(how, "function") == 0 ? clone(child, stack + sizeof stack, SIGCHLD, NULL)
                          : strcmp(how, "_Fork") == 0    ? _Fork()
                                                         : fork();
        if (pid == 0) _exit(child(NULL));
        int status;
        waitpid(pid, &status, 0);
        const int refused = WIFEXITED(status) && WEXITSTATUS(status) == REFUSED;
        printf("forked: the child %s\n", refused ? "was refused" : "SENT");
        MPI_Send(bytes, SIZE, MPI_BYTE, 1, TAG, MPI_COMM_WORLD);
    } else {
        for (int i = 0; i < 2; i++) {
            const int code = MPI_Recv(bytes, SIZE, MPI_BYTE, 0, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            printf("forked: message %d: %s\n", i,
                   code == MPI_SUCCESS && bytes[SIZE - 1] == 'p' ? "the parent's" : "WRONG");
        }
    }
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
