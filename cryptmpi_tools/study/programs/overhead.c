/* Host overhead after Sandia's post-work-wait method (SMB, MPI_overhead; ES-MPICH2 2012, table 2): rank 0 posts a
 * non-blocking message, works, and waits.
 *
 *     base_t      time of the loop while the work still hides behind the message: less than BASE times what it was
 *     iter_t      time of the loop with so much work that it takes more than ENOUGH times base_t
 *     work_t      time of that work without any message
 *     overhead_t  iter_t - work_t: how long the message kept the processor
 *
 * LABEL is "send" or "receive": which of them is rank 0's. Four results for each SIZE, LABEL-base_t and so on. */
#include "../../bench/measure.h"

static const double BASE = 1.02, ENOUGH = 1.5; /* as in SMB */

static volatile double worked;

static void work(long amount) {
    for (long i = 0; i < amount; i++) worked += 1.0;
}

static int ascending(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

/* Median us of post, work, wait over the rounds (SMB takes the mean; a round in which another process had the core must
 * not end the search for enough work), and the mean processor time. Rank 1 has its side posted before rank 0 begins,
 * and tells it so. */
static double loop(int rank, int sending, char* bytes, int size, long amount, int rounds, double* cpu) {
    double times[rounds], used = 0;
    for (int i = 0; i < rounds; i++) {
        MPI_Request request;
        char ready = 0;
        if (rank == 1) {
            if (sending) {
                MPI_Irecv(bytes, size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request);
                MPI_Send(&ready, 1, MPI_BYTE, 0, 0, MPI_COMM_WORLD);
            } else {
                MPI_Recv(&ready, 1, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                MPI_Isend(bytes, size, MPI_BYTE, 0, 1, MPI_COMM_WORLD, &request);
            }
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            continue;
        }
        if (sending) MPI_Recv(&ready, 1, MPI_BYTE, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        const double began_cpu = cpu_us(), began = now_us();
        if (sending) {
            MPI_Isend(bytes, size, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request);
        } else {
            MPI_Irecv(bytes, size, MPI_BYTE, 1, 1, MPI_COMM_WORLD, &request);
            MPI_Send(&ready, 1, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        }
        work(amount);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        times[i] = now_us() - began;
        used += cpu_us() - began_cpu;
    }
    *cpu = used / rounds;
    if (rank == 1) return 0;
    qsort(times, rounds, sizeof(double), ascending);
    return times[rounds / 2];
}

static double work_alone(long amount, int rounds, double* cpu) {
    const double began_cpu = cpu_us(), began = now_us();
    for (int i = 0; i < rounds; i++) work(amount);
    *cpu = (cpu_us() - began_cpu) / rounds;
    return (now_us() - began) / rounds;
}

static void report(const struct test* test, const char* what, double us, double cpu) {
    struct test named = *test;
    snprintf(named.label, sizeof(named.label), "%.20s-%s", test->label, what);
    print_result(&named, us, cpu);
}

static void measure(const struct test* test, int rank, int most) {
    const int sending = strcmp(test->label, "send") == 0, some = most / 50 + 1;
    if (!sending && strcmp(test->label, "receive") != 0) MPI_Abort(MPI_COMM_WORLD, 2);
    char* bytes = some_bytes(test->size);
    double cpu = 0, base_cpu = 0, work_cpu = 0;
    if (rank == !sending) fill(bytes, test->size, 1);
    const double warming = now_us();
    loop(rank, sending, bytes, test->size, 1, some, &cpu);
    const int rounds =
        within_time(most, 3, some, (now_us() - warming) * 16); /* the loop is run at least some 16 times */
    double base = loop(rank, sending, bytes, test->size, 1, rounds, &base_cpu), iteration = base;
    /* From what a message takes to 1.5 times that is where the steps have to be small. */
    long amount = 64;
    for (int go_on = 1; go_on;) {
        iteration = loop(rank, sending, bytes, test->size, amount, rounds, &cpu);
        /* Once more, for the same reason. */
        const double again = loop(rank, sending, bytes, test->size, amount, rounds, &cpu);
        if (again < iteration) iteration = again;
        if (iteration < BASE * base) base = (base + iteration) / 2;
        go_on = rank == 0 && iteration <= ENOUGH * base && amount < 1L << 32;
        MPI_Bcast(&go_on, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (go_on) amount = iteration < BASE * base ? 2 * amount : amount + amount / 4;
        MPI_Bcast(&amount, 1, MPI_LONG, 0, MPI_COMM_WORLD);
    }
    expect("overhead", bytes, test->size, 1);
    const double alone = rank == 0 ? work_alone(amount, rounds, &work_cpu) : 0;
    /* Only rank 0's counts: rank 1's side of the loop has no work. */
    report(test, "base_t", rank == 0 ? base : 0, base_cpu);
    report(test, "iter_t", rank == 0 ? iteration : 0, rank == 0 ? cpu : 0);
    report(test, "work_t", alone, work_cpu);
    report(test, "overhead_t", rank == 0 && iteration > alone ? iteration - alone : 0, 0);
    free(bytes);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    if (ranks != 2) MPI_Abort(MPI_COMM_WORLD, 2);
    for (int argument = 2; argument < argc; argument++) {
        const struct test test = parse_test(argv[argument]);
        measure(&test, rank, fewer(atoi(argv[1]), test.size, 5));
    }
    finish();
    return 0;
}
