/* Sends the bytes of a file from rank 0 to rank 1, again and again.
 *
 *     whisper FILE    a rank alone only begins and ends
 *
 * As a plugin (opened.c) it is the same function in a library.
 */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

enum { SIZE = 32, MESSAGES = 50 };

int whisper(int argc, char** argv) {
    char words[SIZE] = "", heard[SIZE];
    int rank, ranks, good = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    FILE* file = fopen(argv[argc - 1], "rb");
    if (file == NULL || fread(words, SIZE, 1, file) != 1) MPI_Abort(MPI_COMM_WORLD, 1);
    fclose(file);
    for (int i = 0; i < MESSAGES && ranks > 1; i++) {
        if (rank == 0) MPI_Send(words, SIZE, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
        if (rank == 1) {
            MPI_Recv(heard, SIZE, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            good += memcmp(heard, words, SIZE) == 0;
        }
    }
    if (rank == 1 && good == MESSAGES) printf("whisper: all as sent\n");
    MPI_Finalize();
    return 0;
}

#ifndef PLUGIN
int main(int argc, char** argv) {
    return whisper(argc, argv);
}
#endif
