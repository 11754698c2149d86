// Error handlers that throw: C++ exceptions pass through MPI, and through us, and the program goes on.
#include <mpi.h>

#include <cstdio>
#include <vector>

namespace {

struct Raised {};

void raise_error(MPI_Comm*, int*, ...) {
    throw Raised();
}

template <typename Call>
int thrown(Call call) {
    try {
        call();
    } catch (const Raised&) {
        return 1;
    }
    return 0;
}

}  // namespace

int main(int argc, char** argv) {
    MPI_Init(&argc, &argv);
    int rank, ranks;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Errhandler handler;
    MPI_Comm_create_errhandler(raise_error, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    std::vector<char> bytes(1 << 20);
    char* const data = bytes.data();
    int counts[4] = {};
    for (int round = 0; round < 3; ++round) {
        counts[0] += thrown([&] { MPI_Send(data, 1, MPI_BYTE, ranks, 0, MPI_COMM_WORLD); });
        counts[1] += thrown([&] { MPI_Bcast(data, 1, MPI_BYTE, ranks, MPI_COMM_WORLD); });
        // Messages that are too long, a short one and one in segments.
        if (rank == 0) {
            MPI_Send(data, 16, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
            MPI_Send(data, 1 << 20, MPI_BYTE, 1, 0, MPI_COMM_WORLD);
        } else if (rank == 1) {
            counts[2] += thrown([&] { MPI_Recv(data, 4, MPI_BYTE, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE); });
            MPI_Request request;
            MPI_Irecv(data, 1 << 19, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &request);
            counts[3] += thrown([&] { MPI_Wait(&request, MPI_STATUS_IGNORE); });
        }
    }
    int all[4];
    MPI_Allreduce(counts, all, 4, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) std::printf("throws: %d %d %d %d\n", all[0], all[1], all[2], all[3]);
    MPI_Errhandler_free(&handler);
    MPI_Finalize();
    return 0;
}
