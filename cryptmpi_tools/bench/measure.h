/* What the measuring programs share. Each is called
 *
 *     PROGRAM ROUNDS LABEL:SIZE...
 *
 * and rank 0 prints a line for each case: wall-clock time of one operation, and processor time of all ranks for it
 * (with the threads of libraries), both in microseconds:
 *
 *     result LABEL SIZE MICROSECONDS CPU_MICROSECONDS
 *
 * and at the end one with the largest resident set of a rank: "memory BYTES".  */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

struct test {
    char label[32];
    int size; /* bytes */
};

static inline struct test parse_test(const char* text) {
    struct test parsed = {"", 0};
    if (sscanf(text, "%31[^:]:%d", parsed.label, &parsed.size) != 2) {
        fprintf(stderr, "not LABEL:SIZE: %s\n", text);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return parsed;
}

/* Fewer of the large ones, but at least `least`. */
static inline int fewer(int rounds, int size, int least) {
    const int wanted = size >= 1 << 20 ? rounds / 20 : size >= 1 << 16 ? rounds / 4 : rounds;
    return wanted > least ? wanted : least;
}

/* As many rounds as rank 0 expects to take no more than a fifth of a second, after some that took it `us`: a start is
 * to be short on a slow network and a busy machine, too. All ranks call it. */
static inline int within_time(int rounds, int least, int some, double us) {
    enum { MOST_US = 200000 };
    const double wanted = us > 0 ? MOST_US / (us / some) : rounds;
    int agreed = wanted < rounds ? (int)wanted : rounds;
    if (agreed < least) agreed = least;
    MPI_Bcast(&agreed, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return agreed;
}

static inline char* some_bytes(size_t size) {
    char* bytes = malloc(size > 0 ? size : 1);
    if (bytes == NULL) {
        fprintf(stderr, "no memory for %zu bytes\n", size);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    memset(bytes, 1, size);
    return bytes;
}

/* Bytes that no two places and no two seeds have in common for long: a message that lands elsewhere is seen. */
static inline void fill(char* bytes, size_t size, unsigned seed) {
    for (size_t i = 0; i < size; i++) bytes[i] = (char)((i * 31 + (i >> 8) * 17 + seed * 101 + 7) & 0xff);
}

/* Ends the job where the bytes are not those of `fill`. */
static inline void expect(const char* what, const char* bytes, size_t size, unsigned seed) {
    for (size_t i = 0; i < size; i++) {
        if (bytes[i] == (char)((i * 31 + (i >> 8) * 17 + seed * 101 + 7) & 0xff)) continue;
        fprintf(stderr, "%s of %zu bytes: byte %zu is wrong\n", what, size, i);
        MPI_Abort(MPI_COMM_WORLD, 3);
    }
}

/* MPI_Wtime needs MPI_Init. */
static inline double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e6 + now.tv_nsec / 1e3;
}

/* Processor time of this rank so far. */
static inline double cpu_us(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return (use.ru_utime.tv_sec + use.ru_stime.tv_sec) * 1e6 + use.ru_utime.tv_usec + use.ru_stime.tv_usec;
}

/* All ranks call it: `us` of one operation, of which the slowest rank's counts, and this rank's own `cpu` for it. */
static inline void print_result(const struct test* test, double us, double cpu) {
    int rank;
    double slowest, all;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Reduce(&us, &slowest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    MPI_Reduce(&cpu, &all, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("result %s %d %.3f %.3f\n", test->label, test->size, slowest, all);
}

static inline void finish(void) {
    int rank;
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    double mine = use.ru_maxrss * 1024.0, most;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Reduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        printf("memory %.0f\n", most);
        fflush(stdout);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
}
