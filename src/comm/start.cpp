// MPI_Init to MPI_Finalize, and the sessions beside them.
#include <array>
#include <optional>
#include <string_view>

#include "comm/calls.hpp"
#include "comm/complete.hpp"
#include "comm/layer.hpp"
#include "comm/quiet.hpp"
#include "comm/start_watch.hpp"

namespace cryptmpi::comm {
namespace {

template <class Call>
int watched(Layer& layer, const Call& call) {
    const StartWatch watch(layer);
    return call();
}

/// All that is left to do before MPI's own end, when the program sends nothing any more.
void end_traffic(Layer& layer) {
    {
        const auto guard = layer.guard();
        collect_orphans(layer, Orphans::until_none);
        end_leftovers(layer);
    }
    layer.report();
    // UCX 1.13 waits inside MPI_Finalize for its peers to acknowledge large messages, and MPICH 4.0 leaves a peer there
    // that makes no progress any more. In the first barrier all send what is left, in the others they acknowledge it.
    // The program may have revoked MPI_COMM_WORLD, and hears of no error of ours.
    constexpr int kRounds = 3;
    const bool has_own = layer.own_traffic() != MPI_COMM_NULL;
    std::optional<Quiet> quiet;
    if (!has_own) quiet.emplace(layer.mpi, MPI_COMM_WORLD);
    const MPI_Comm everybody = has_own ? layer.own_traffic() : MPI_COMM_WORLD;
    for (int round = 0; round < kRounds; ++round) layer.mpi.Barrier(everybody);
}

extern "C" {
int copy_to_no_other(MPI_Comm /*comm*/, int /*key*/, void* /*state*/, void* /*value*/, void* /*copy*/, int* flag) {
    *flag = 0;
    return MPI_SUCCESS;
}
int self_is_deleted(MPI_Comm /*comm*/, int /*key*/, void* /*value*/, void* state) {
    Layer& layer = *static_cast<Layer*>(state);
    using End = Layer::EndOfSelf;
    const bool is_end = layer.end_of_self() == End::awaited;
    if (is_end) end_traffic(layer);
    layer.set_end_of_self(is_end ? End::over : End::none);
    return MPI_SUCCESS;
}
}

/// MPI's own end first of all deletes the attributes of MPI_COMM_SELF, the youngest first, by functions of the program
/// that may wait for messages of other ranks. Ours is the oldest one: they have all returned when it is deleted. Under
/// MPICH it comes with the last session, if one is still open at MPI_Finalize: until then all that the program has may
/// be used on, and we seal it.
void watch_self(Layer& layer) {
    const auto& mpi = layer.mpi;
    int key = MPI_KEYVAL_INVALID;
    if (mpi.Comm_create_keyval(copy_to_no_other, self_is_deleted, &key, &layer) != MPI_SUCCESS) return;
    if (mpi.Comm_set_attr(MPI_COMM_SELF, key, nullptr) == MPI_SUCCESS) {
        layer.set_end_of_self(Layer::EndOfSelf::told);
    }
    mpi.Comm_free_keyval(&key);  // it lives as long as the attribute
}

void begin(Layer& layer, int level) {
    layer.begin(level);
    if (layer.begun()) watch_self(layer);
}

/// A session that does not say has threads, too.
bool has_threads(const Native& mpi, MPI_Session session) {
    MPI_Info info = MPI_INFO_NULL;
    if (mpi.Session_get_info(session, &info) != MPI_SUCCESS) return true;
    std::array<char, MPI_MAX_INFO_VAL + 1> level{};
    int known = 0;
    mpi.Info_get(info, "thread_level", MPI_MAX_INFO_VAL, level.data(), &known);
    mpi.Info_free(&info);
    return known == 0 || std::string_view(level.data()) == "MPI_THREAD_MULTIPLE";
}

}  // namespace

int Init(Layer& layer, int* argc, char*** argv) {
    const int code = watched(layer, [&] { return layer.mpi.Init(argc, argv); });
    if (code != MPI_SUCCESS) return code;
    int level = MPI_THREAD_SINGLE;  // MPI may give more than was asked for
    layer.mpi.Query_thread(&level);
    begin(layer, level);
    return code;
}

int Init_thread(Layer& layer, int* argc, char*** argv, int required, int* provided) {
    const int code = watched(layer, [&] { return layer.mpi.Init_thread(argc, argv, required, provided); });
    if (code == MPI_SUCCESS) begin(layer, *provided);
    return code;
}

bool stays_on_node(Layer& layer, MPI_Comm comm) {
    const auto guard = layer.guard();
    if (!layer.begun() || comm == MPI_COMM_NULL || layer.is_intercommunicator(comm)) return false;
    const Communicator* const communicator = layer.find(comm);
    return communicator == nullptr || !communicator->crosses();
}

int Finalize(Layer& layer) {
    using End = Layer::EndOfSelf;
    if (layer.end_of_self() == End::told) {
        layer.set_end_of_self(End::awaited);
    } else if (layer.end_of_self() == End::none) {
        if (layer.begun()) end_traffic(layer);
        layer.set_end_of_self(End::over);
    }
    const int code = layer.mpi.Finalize();
    if (layer.end_of_self() == End::awaited) {
        layer.report_so_far();
    } else {
        layer.end_if_over();
    }
    return code;
}

int Session_init(Layer& layer, MPI_Info info, MPI_Errhandler handler, MPI_Session* session) {
    const int code = layer.mpi.Session_init(info, handler, session);
    if (code != MPI_SUCCESS || session == nullptr) return code;
    if (has_threads(layer.mpi, *session)) layer.take_session_of_threads();
    return code;
}

int Session_finalize(Layer& layer, MPI_Session* session) {
    const int code = layer.mpi.Session_finalize(session);
    layer.end_if_over();
    return code;
}

}  // namespace cryptmpi::comm
