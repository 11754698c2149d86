/* One-sided operations of rank 0 on rank 1's memory under one lock: the median over rounds of the time until an
 * operation is flushed. Rank 1 waits in a barrier. */
#include "measure.h"

static int ascending(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

static double operate(const struct test* test, char* bytes, MPI_Win window) {
    static const long one = 1;
    const double began = now_us();
    if (strcmp(test->label, "put") == 0) {
        MPI_Put(bytes, test->size, MPI_BYTE, 1, 0, test->size, MPI_BYTE, window);
    } else if (strcmp(test->label, "get") == 0) {
        MPI_Get(bytes, test->size, MPI_BYTE, 1, 0, test->size, MPI_BYTE, window);
    } else {
        MPI_Fetch_and_op(&one, bytes, MPI_LONG, 1, 0, MPI_SUM, window);
    }
    MPI_Win_flush(1, window);
    return now_us() - began;
}

/* Rank 0's part. */
static void measure(const struct test* test, char* bytes, MPI_Win window, int most) {
    double* times = malloc(sizeof(double) * most);
    const int some = most / 50 + 1;
    MPI_Win_lock(MPI_LOCK_SHARED, 1, 0, window);
    const double warming = now_us();
    for (int i = 0; i < some; i++) operate(test, bytes, window);
    const double each = (now_us() - warming) / some;
    int rounds = each > 0 && 200000 / each < most ? (int)(200000 / each) : most;
    if (rounds < 5) rounds = 5;
    for (int i = 0; i < rounds; i++) times[i] = operate(test, bytes, window);
    MPI_Win_unlock(1, window);
    qsort(times, rounds, sizeof(double), ascending);
    times[0] = times[rounds / 2];
    MPI_Barrier(MPI_COMM_WORLD);
    print_result(test, times[0], 0);
    free(times);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int argument = 2; argument < argc; argument++) {
        const struct test test = parse_test(argv[argument]);
        char *bytes = some_bytes(test.size), *memory;
        MPI_Win window;
        MPI_Win_allocate(test.size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &window);
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank, 0, window);
        if (rank == 0 || strcmp(test.label, "get") == 0) fill(rank == 0 ? bytes : memory, test.size, 1);
        MPI_Win_unlock(rank, window);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) {
            measure(&test, bytes, window, fewer(atoi(argv[1]), test.size, 5));
            if (strcmp(test.label, "get") == 0) expect("get", bytes, test.size, 1);
        } else {
            MPI_Barrier(MPI_COMM_WORLD);
            print_result(&test, 0, 0);
            MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, window);
            if (strcmp(test.label, "put") == 0) expect("put", memory, test.size, 1);
            MPI_Win_unlock(rank, window);
        }
        MPI_Win_free(&window);
        free(bytes);
    }
    finish();
    return 0;
}
