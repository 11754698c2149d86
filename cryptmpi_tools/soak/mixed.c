/* Traffic of many kinds between all ranks for so many seconds, every byte of which is looked at.
 *
 *     mixed SECONDS SEED FOLDER
 *
 * Each rank writes its process number into FOLDER/rank-N when it has begun, and says at the end how much memory it had
 * after the first third of the time and how much it has then. Errors end the job, as MPI's own handler does. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 300000, BLOCK = 600, TAGS = 16 };

static int rank, ranks;
static unsigned char out[MOST], in[MOST];
static long rounds;

static uint32_t drawn(uint32_t* state) {
    *state ^= *state << 13;
    *state ^= *state >> 17;
    return *state ^= *state << 5;
}

static unsigned char sent(int from, long round, int place) {
    return (unsigned char)(place * 7 + place / 251 + from * 101 + (int)(round * 13) + 1);
}

static void fill(unsigned char* bytes, int from, long round, int size) {
    for (int i = 0; i < size; i++) bytes[i] = sent(from, round, i);
}

static void look(const char* what, const unsigned char* bytes, int from, long round, int size) {
    for (int i = 0; i < size; i++) {
        if (bytes[i] == sent(from, round, i)) continue;
        printf("mixed: WRONG BYTES: %s: rank %d, round %ld, from %d, byte %d\n", what, rank, round, from, i);
        fflush(stdout);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

/* Everybody sends to who is `step` further on: few bytes often, many now and then. */
static void pairs(long round, uint32_t* state) {
    const int step = 1 + (int)(drawn(state) % (uint32_t)(ranks - 1));
    const int size = drawn(state) % 8 == 0 ? (int)(drawn(state) % MOST) : (int)(drawn(state) % 4000);
    const int to = (rank + step) % ranks, from = (rank + ranks - step) % ranks, tag = (int)(round % TAGS);
    MPI_Request requests[2];
    fill(out, rank, round, size);
    memset(in, 0, (size_t)size);
    MPI_Irecv(in, size, MPI_BYTE, drawn(state) % 4 == 0 ? MPI_ANY_SOURCE : from, tag, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out, size, MPI_BYTE, to, tag, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    look("a message", in, from, round, size);
}

static void collectives(long round, uint32_t* state) {
    const int root = (int)(drawn(state) % (uint32_t)ranks), size = 1 + (int)(drawn(state) % BLOCK);
    fill(in, root, round, rank == root ? 20 * size : 0);
    MPI_Bcast(in, 20 * size, MPI_BYTE, root, MPI_COMM_WORLD);
    look("a broadcast", in, root, round, 20 * size);
    for (int to = 0; to < ranks; to++) fill(out + to * size, rank, round + to, size);
    MPI_Alltoall(out, size, MPI_BYTE, in, size, MPI_BYTE, MPI_COMM_WORLD);
    for (int from = 0; from < ranks; from++) look("of all to all", in + from * size, from, round + rank, size);
    MPI_Gather(out, size, MPI_BYTE, in, size, MPI_BYTE, root, MPI_COMM_WORLD);
    for (int from = 0; rank == root && from < ranks; from++) look("gathered", in + from * size, from, round, size);
    long long sum = 0, one = (round + 1) * (rank + 1);
    MPI_Allreduce(&one, &sum, 1, MPI_LONG_LONG, MPI_SUM, MPI_COMM_WORLD);
    if (sum != (round + 1) * (long long)ranks * (ranks + 1) / 2) {
        printf("mixed: WRONG BYTES: a sum: rank %d, round %ld\n", rank, round);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

static void renewed(void) {
    MPI_Comm made;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &made);
    int mine = 1, all = 0;
    MPI_Allreduce(&mine, &all, 1, MPI_INT, MPI_SUM, made);
    MPI_Comm_free(&made);
}

static long resident_kib(void) {
    FILE* file = fopen("/proc/self/status", "r");
    char line[256];
    long kib = -1;
    while (file && fgets(line, sizeof line, file)) sscanf(line, "VmRSS: %ld", &kib);
    if (file) fclose(file);
    return kib;
}

int main(int argc, char** argv) {
    if (argc != 4) return 2;
    const double seconds = atof(argv[1]);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    char name[4096];
    snprintf(name, sizeof name, "%s/rank-%d", argv[3], rank);
    FILE* file = fopen(name, "w");
    if (file == NULL) return 2;
    fprintf(file, "%d\n", (int)getpid());
    fclose(file);

    uint32_t state = (uint32_t)atoi(argv[2]) * 2654435761U + 1;
    const double began = MPI_Wtime();
    long early = 0;
    double passed = 0;
    while (passed < seconds) {
        pairs(rounds, &state);
        if (rounds % 4 == 0) collectives(rounds, &state);
        if (rounds % 64 == 0) renewed();
        rounds++;
        /* Rank 0 says when it is over: the others' clocks may differ. */
        passed = MPI_Wtime() - began;
        if (rounds % 8 == 0)
            MPI_Bcast(&passed, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        else if (passed >= seconds)
            passed = 0;
        if (early == 0 && passed > seconds / 3) early = resident_kib();
    }
    const long late = resident_kib();
    printf("mixed: rank %d: %ld rounds, memory %ld KiB early, %ld KiB late\n", rank, rounds, early, late);
    fflush(stdout);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) printf("mixed: all as sent\n");
    MPI_Finalize();
    return 0;
}
