/* Each rank talks to all others, forks a worker, as multiprocessing's pools do, ends it by the signal in argv[1], and
 * goes on: what the worker held of the rank's connections is nobody's any more. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 1000, MOST = 64 };

static char out[MOST * SIZE], in[MOST * SIZE];

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    const int number = argc > 1 ? atoi(argv[1]) : SIGKILL;
    MPI_Alltoall(out, SIZE, MPI_CHAR, in, SIZE, MPI_CHAR, MPI_COMM_WORLD);
    const pid_t worker = fork();
    if (worker == 0) {
        signal(number, SIG_DFL);
        for (;;) pause();
    }
    kill(worker, number);
    int status = 0;
    waitpid(worker, &status, 0);
    MPI_Alltoall(out, SIZE, MPI_CHAR, in, SIZE, MPI_CHAR, MPI_COMM_WORLD);
    if (WIFSIGNALED(status) && WTERMSIG(status) == number) printf("the worker is gone\n");
    MPI_Finalize();
    return 0;
}
