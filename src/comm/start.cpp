// MPI_Init to MPI_Finalize.
#include "comm/calls.hpp"
#include "comm/complete.hpp"
#include "comm/layer.hpp"
#include "comm/start_watch.hpp"

namespace cryptmpi::comm {
namespace {

template <class Call>
int watched(Layer& layer, const Call& call) {
    const StartWatch watch(layer);
    return call();
}

}  // namespace

int Init(Layer& layer, int* argc, char*** argv) {
    const int code = watched(layer, [&] { return layer.mpi.Init(argc, argv); });
    if (code != MPI_SUCCESS) return code;
    int level = MPI_THREAD_SINGLE;  // MPI may give more than was asked for
    layer.mpi.Query_thread(&level);
    layer.begin(level);
    return code;
}

int Init_thread(Layer& layer, int* argc, char*** argv, int required, int* provided) {
    const int code = watched(layer, [&] { return layer.mpi.Init_thread(argc, argv, required, provided); });
    if (code == MPI_SUCCESS) layer.begin(*provided);
    return code;
}

bool stays_on_node(Layer& layer, MPI_Comm comm) {
    const auto guard = layer.guard();
    if (!layer.begun() || comm == MPI_COMM_NULL || layer.is_intercommunicator(comm)) return false;
    const Communicator* const communicator = layer.find(comm);
    return communicator == nullptr || !communicator->crosses();
}

int Finalize(Layer& layer) {
    {
        const auto guard = layer.guard();
        collect_orphans(layer, true);
        end_leftovers(layer);
    }
    layer.report();
    // UCX 1.13 waits inside MPI_Finalize for its peers to acknowledge large messages, and MPICH 4.0 leaves a peer there
    // that makes no progress any more. In the first barrier all send what is left, in the others they acknowledge it.
    constexpr int kRounds = 3;
    for (int round = 0; layer.begun() && round < kRounds; ++round) layer.mpi.Barrier(MPI_COMM_WORLD);
    // MPI_COMM_SELF's attributes are deleted inside, by functions of the program that may still send.
    const int code = layer.mpi.Finalize();
    layer.end();
    return code;
}

}  // namespace cryptmpi::comm
