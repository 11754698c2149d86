/* The ping-pong between two ranks of a node, each message with a secret of 16 bytes before the user's data, as one
 * message of two pieces: what it would cost to show so that a message comes from a rank that knows the secret. The
 * data's place is the user's to choose, so each message needs a datatype of its own, at both ends. */
#include "measure.h"

enum { TOKEN = 16 };
static char expected[TOKEN] = "fifteen letters", seen[TOKEN];

static MPI_Datatype with_token(char* token, char* bytes, int size) {
    int lengths[2] = {TOKEN, size};
    MPI_Aint places[2];
    MPI_Datatype kinds[2] = {MPI_BYTE, MPI_BYTE}, made;
    MPI_Get_address(token, &places[0]);
    MPI_Get_address(bytes, &places[1]);
    MPI_Type_create_struct(2, lengths, places, kinds, &made);
    MPI_Type_commit(&made);
    return made;
}

static void send(char* bytes, int size, int to) {
    MPI_Datatype type = with_token(expected, bytes, size);
    MPI_Send(MPI_BOTTOM, 1, type, to, 0, MPI_COMM_WORLD);
    MPI_Type_free(&type);
}

static void receive(char* bytes, int size, int from) {
    MPI_Datatype type = with_token(seen, bytes, size);
    MPI_Recv(MPI_BOTTOM, 1, type, from, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Type_free(&type);
    if (memcmp(seen, expected, TOKEN) != 0) MPI_Abort(MPI_COMM_WORLD, 3);
}

static double round_trip(int rank, char* bytes, int size) {
    const double began = now_us();
    if (rank == 0) {
        send(bytes, size, 1);
        receive(bytes, size, 1);
    } else {
        receive(bytes, size, 0);
        send(bytes, size, 0);
    }
    return now_us() - began;
}

static int ascending(const void* a, const void* b) {
    const double x = *(const double*)a, y = *(const double*)b;
    return (x > y) - (x < y);
}

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int argument = 2; argument < argc; argument++) {
        const struct test test = parse_test(argv[argument]);
        const int most = fewer(atoi(argv[1]), test.size, 5), some = most / 50 + 1;
        char* bytes = some_bytes(test.size);
        double* times = malloc(sizeof(double) * most);
        const double warming = now_us();
        for (int i = 0; i < some; i++) round_trip(rank, bytes, test.size);
        const int rounds = within_time(most, 5, some, now_us() - warming);
        const double cpu = cpu_us();
        for (int i = 0; i < rounds; i++) times[i] = round_trip(rank, bytes, test.size);
        const double spent = cpu_us() - cpu;
        qsort(times, rounds, sizeof(double), ascending);
        print_result(&test, rank == 0 ? times[rounds / 2] / 2 : 0, spent / rounds / 2);
        free(times);
        free(bytes);
    }
    finish();
    return 0;
}
