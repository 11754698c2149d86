/* Halo exchange of a five-, seven- or nine-point stencil in two, three or four dimensions, with matrix products as the
 * computation between exchanges (CryptMPI 2020, section V). All ranks form a torus.
 *
 *     stencil ROUNDS DIMENSIONSd:SIZE:PRODUCTS...     SIZE bytes to each neighbour; PRODUCTS of matrices a round
 *     stencil calibrate ROUNDS DIMENSIONSd:SIZE:PERCENT...
 *
 * The first prints, beside the result of a round, "shares LABEL SIZE COMPUTING_US COMMUNICATING_US", means over the
 * ranks. The second finds the number of products that makes computing PERCENT of the time, by running, and prints
 * "calibrated LABEL SIZE PERCENT PRODUCTS REACHED_PERCENT". */
#include <math.h>

#include "../../bench/measure.h"

enum { MOST_DIMENSIONS = 4, ORDER = 16 };

struct torus {
    MPI_Comm comm;
    int dimensions, rank;
    int neighbours[2 * MOST_DIMENSIONS]; /* below and above in each dimension */
};

struct halo {
    char *out, *in; /* of a message for each neighbour */
    int size;
};

static double a[ORDER][ORDER], b[ORDER][ORDER], c[ORDER][ORDER];

static struct torus make_torus(int dimensions) {
    struct torus made = {MPI_COMM_NULL, dimensions, 0, {0}};
    int ranks, sizes[MOST_DIMENSIONS] = {0}, round[MOST_DIMENSIONS] = {1, 1, 1, 1};
    if (dimensions < 2 || dimensions > MOST_DIMENSIONS) MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Dims_create(ranks, dimensions, sizes);
    MPI_Cart_create(MPI_COMM_WORLD, dimensions, sizes, round, 0, &made.comm);
    MPI_Comm_rank(made.comm, &made.rank);
    for (int i = 0; i < dimensions; i++)
        MPI_Cart_shift(made.comm, i, 1, &made.neighbours[2 * i], &made.neighbours[2 * i + 1]);
    return made;
}

static void multiply(void) {
    for (int i = 0; i < ORDER; i++)
        for (int j = 0; j < ORDER; j++) {
            double sum = 0;
            for (int k = 0; k < ORDER; k++) sum += a[i][k] * b[k][j];
            c[i][j] = sum;
        }
    a[0][0] = c[1][1] * 1e-3; /* the next product needs this one */
}

/* What goes to the neighbour below arrives as what comes from the one above: hence the tags. */
static void exchange(const struct torus* torus, const struct halo* halo) {
    MPI_Request requests[4 * MOST_DIMENSIONS];
    const int count = 2 * torus->dimensions;
    for (int i = 0; i < count; i++)
        MPI_Irecv(halo->in + (size_t)i * halo->size, halo->size, MPI_BYTE, torus->neighbours[i], i ^ 1, torus->comm,
                  &requests[i]);
    for (int i = 0; i < count; i++)
        MPI_Isend(halo->out + (size_t)i * halo->size, halo->size, MPI_BYTE, torus->neighbours[i], i, torus->comm,
                  &requests[count + i]);
    MPI_Waitall(2 * count, requests, MPI_STATUSES_IGNORE);
}

struct times {
    double computing, communicating, cpu; /* us a round, this rank's */
};

static struct times run(const struct torus* torus, const struct halo* halo, int rounds, long products) {
    struct times spent = {0, 0, 0};
    MPI_Barrier(torus->comm);
    const double cpu = cpu_us();
    for (int round = 0; round < rounds; round++) {
        const double began = now_us();
        for (long i = 0; i < products; i++) multiply();
        const double computed = now_us();
        exchange(torus, halo);
        spent.computing += (computed - began) / rounds;
        spent.communicating += (now_us() - computed) / rounds;
    }
    spent.cpu = (cpu_us() - cpu) / rounds;
    return spent;
}

static double mean_over_ranks(const struct torus* torus, double value) {
    int ranks;
    double sum;
    MPI_Comm_size(torus->comm, &ranks);
    MPI_Allreduce(&value, &sum, 1, MPI_DOUBLE, MPI_SUM, torus->comm);
    return sum / ranks;
}

static double share_of(const struct torus* torus, const struct halo* halo, int rounds, long products) {
    const struct times spent = run(torus, halo, rounds, products);
    const double computing = mean_over_ranks(torus, spent.computing);
    return computing / (computing + mean_over_ranks(torus, spent.communicating));
}

/* Odds of computing are about proportional to the products, so a few steps come close. */
static void calibrate(const struct torus* torus, const struct halo* halo, const char* label, int rounds, int percent) {
    const double wanted = percent / 100.0;
    double products = 64, share = 0;
    for (int step = 0; step < 8; step++) {
        share = share_of(torus, halo, rounds, (long)products);
        if (fabs(share - wanted) < 0.02) break;
        const double odds = (wanted / (1 - wanted)) / (fmax(share, 0.001) / fmax(1 - share, 0.001));
        products = fmin(fmax(products * fmin(fmax(odds, 0.05), 20), 1), 5e7);
    }
    if (torus->rank == 0)
        printf("calibrated %s %d %d %ld %.1f\n", label, halo->size, percent, (long)products, 100 * share);
}

static void fill_halo(const struct torus* torus, const struct halo* halo) {
    for (int i = 0; i < 2 * torus->dimensions; i++)
        fill(halo->out + (size_t)i * halo->size, halo->size, torus->rank * 2 * MOST_DIMENSIONS + i);
}

static void check_halo(const struct torus* torus, const struct halo* halo) {
    for (int i = 0; i < 2 * torus->dimensions; i++)
        expect("halo", halo->in + (size_t)i * halo->size, halo->size,
               torus->neighbours[i] * 2 * MOST_DIMENSIONS + (i ^ 1));
}

static void measure(const struct torus* torus, const struct halo* halo, const struct test* test, int most,
                    long products) {
    const int some = most / 50 + 1;
    const double warming = now_us();
    run(torus, halo, some, products);
    const int rounds = within_time(most, 3, some, now_us() - warming);
    memset(halo->in, 0, (size_t)halo->size * 2 * torus->dimensions);
    const struct times spent = run(torus, halo, rounds, products);
    check_halo(torus, halo);
    const double computing = mean_over_ranks(torus, spent.computing);
    const double communicating = mean_over_ranks(torus, spent.communicating);
    print_result(test, spent.computing + spent.communicating, spent.cpu);
    if (torus->rank == 0) printf("shares %s %d %.3f %.3f\n", test->label, test->size, computing, communicating);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    const int calibrating = argc > 1 && strcmp(argv[1], "calibrate") == 0;
    for (int i = 0; i < ORDER; i++)
        for (int j = 0; j < ORDER; j++) a[i][j] = b[i][j] = (i + j) % 7 / 7.0;
    for (int argument = 2 + calibrating; argument < argc; argument++) {
        struct test test = {"", 0};
        long amount;
        if (sscanf(argv[argument], "%31[^:]:%d:%ld", test.label, &test.size, &amount) != 3) {
            fprintf(stderr, "not DIMENSIONSd:SIZE:AMOUNT: %s\n", argv[argument]);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        struct torus torus = make_torus(atoi(test.label));
        const size_t all = (size_t)test.size * 2 * torus.dimensions;
        const struct halo halo = {some_bytes(all), some_bytes(all), test.size};
        const int rounds = fewer(atoi(argv[1 + calibrating]), test.size, 5);
        fill_halo(&torus, &halo);
        if (calibrating) {
            calibrate(&torus, &halo, test.label, rounds, (int)amount);
        } else {
            measure(&torus, &halo, &test, rounds, amount);
        }
        free(halo.out);
        free(halo.in);
        MPI_Comm_free(&torus.comm);
    }
    finish();
    return 0;
}
