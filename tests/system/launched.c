/* What a rank of a typed line sees: "launched 0 of 2 on node1 in /tmp MINE=x WORD". All ranks have talked to each
 * other. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int count, char** words) {
    int rank, ranks, sum;
    char host[256], folder[4096], line[8192];
    const char* mine = getenv("MINE");
    MPI_Init(&count, &words);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (gethostname(host, sizeof host) != 0 || getcwd(folder, sizeof folder) == NULL) MPI_Abort(MPI_COMM_WORLD, 1);
    if (sum != ranks * (ranks - 1) / 2) MPI_Abort(MPI_COMM_WORLD, 1);
    snprintf(line, sizeof line, "launched %d of %d on %s in %s MINE=%s %s\n", rank, ranks, host, folder,
             mine ? mine : "", count > 1 ? words[1] : "");
    fputs(line, stdout);
    MPI_Finalize();
    return 0;
}
