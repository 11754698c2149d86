// The calls of MPI's that are seen here: after MPI_Abort the process may be killed before it can report anything, and
// the ranks that MPI_Comm_spawn starts are under CryptMPI only where their launcher is, so their reports are counted.
//
// A communicator and an info are numbers or pointers, as the MPI has it: either is in the place of a pointer.
#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <numeric>

#include "channel/calls.hpp"
#include "programs/mpi_witness.hpp"

using namespace cryptmpi::channel;

namespace {

using Abort = int (*)(void* communicator, int status);
using Rank = int (*)(void* communicator, int* rank);
using Size = int (*)(void* communicator, int* size);
using Spawn = int (*)(void* command, void* words, int most, void* info, int root, void* communicator, void* made,
                      int* codes);
using SpawnMultiple = int (*)(int count, void* commands, void* words, const int* most, void* infos, int root,
                              void* communicator, void* made, int* codes);

/// What would have been called without us: of a tool behind us, of the MPI layer, or MPI's own, which the loader does
/// not show where a script loaded it for itself.
template <class Function>
Function next(const char* name, const char* inner_name) {
    void* const found = dlsym(RTLD_NEXT, name);
    return reinterpret_cast<Function>(found != nullptr ? found : cryptmpi::programs::mpi_function(inner_name));
}

/// A tool that is called as MPI_Comm_spawn calls it as PMPI_Comm_spawn.
thread_local bool is_spawning = false;

bool is_root(void* communicator, int root) {
    const auto rank_in = reinterpret_cast<Rank>(cryptmpi::programs::mpi_function("PMPI_Comm_rank"));
    int rank = -1;
    return rank_in != nullptr && rank_in(communicator, &rank) == 0 && rank == root;
}

/// The communicator that stands there. A pointer stands at a multiple of its size; of a number the eight bytes there
/// may have others behind it, which belong to the same page, and which nobody looks at who is given a number.
__attribute__((no_sanitize_address)) void* communicator_at(const void* place) {
    std::uintptr_t handle = 0;
    const bool may_be_pointer = reinterpret_cast<std::uintptr_t>(place) % sizeof handle == 0;
    std::memcpy(&handle, place, may_be_pointer ? sizeof handle : sizeof(std::uint32_t));
    return reinterpret_cast<void*>(handle);
}

/// How many ranks are on the other side of this intercommunicator; `otherwise` where MPI does not say.
int size_beyond(const void* made, int otherwise) {
    const auto size_of = reinterpret_cast<Size>(cryptmpi::programs::mpi_function("PMPI_Comm_remote_size"));
    int size = 0;
    return size_of != nullptr && made != nullptr && size_of(communicator_at(made), &size) == 0 ? size : otherwise;
}

/// Calls MPI, and counts at the root what was started, which may be less than what was asked for (the info `soft`, a
/// tool). `most` says how many were, which is the root's to know.
template <class Most, class Function, class... Arguments>
int spawn(int root, void* communicator, const void* made, const Most& most, Function function, Arguments... arguments) {
    constexpr int kNoMpi = 15;  // MPI_ERR_OTHER or MPI_ERR_UNKNOWN of most
    if (function == nullptr) return kNoMpi;
    if (is_spawning) return function(arguments...);
    is_spawning = true;
    const int code = function(arguments...);
    is_spawning = false;
    Process* const process = Process::made();
    if (code != 0 || process == nullptr || !is_root(communicator, root)) return code;
    process->report().tell_of_spawned(size_beyond(made, most()));
    return code;
}

int spawn_one(const char* name, void* command, void* words, int most, void* info, int root, void* communicator,
              void* made, int* codes) {
    const auto asked = [most] { return most; };
    return spawn(root, communicator, made, asked, next<Spawn>(name, "PMPI_Comm_spawn"), command, words, most, info,
                 root, communicator, made, codes);
}

int spawn_several(const char* name, int count, void* commands, void* words, const int* most, void* infos, int root,
                  void* communicator, void* made, int* codes) {
    const auto asked = [&] { return std::accumulate(most, most + count, 0); };
    return spawn(root, communicator, made, asked, next<SpawnMultiple>(name, "PMPI_Comm_spawn_multiple"), count,
                 commands, words, most, infos, root, communicator, made, codes);
}

}  // namespace

CRYPTMPI_CALL int MPI_Abort(void* communicator, int status) {
    if (Process* process = Process::made()) process->report().tell_of_abort();
    if (const auto abort = next<Abort>("MPI_Abort", "PMPI_Abort")) return abort(communicator, status);
    _exit(status);
}

CRYPTMPI_CALL int MPI_Comm_spawn(void* command, void* words, int most, void* info, int root, void* communicator,
                                 void* made, int* codes) {
    return spawn_one("MPI_Comm_spawn", command, words, most, info, root, communicator, made, codes);
}

/// As tools and Fortran call it.
CRYPTMPI_CALL int PMPI_Comm_spawn(void* command, void* words, int most, void* info, int root, void* communicator,
                                  void* made, int* codes) {
    return spawn_one("PMPI_Comm_spawn", command, words, most, info, root, communicator, made, codes);
}

CRYPTMPI_CALL int MPI_Comm_spawn_multiple(int count, void* commands, void* words, const int* most, void* infos,
                                          int root, void* communicator, void* made, int* codes) {
    return spawn_several("MPI_Comm_spawn_multiple", count, commands, words, most, infos, root, communicator, made,
                         codes);
}

CRYPTMPI_CALL int PMPI_Comm_spawn_multiple(int count, void* commands, void* words, const int* most, void* infos,
                                           int root, void* communicator, void* made, int* codes) {
    return spawn_several("PMPI_Comm_spawn_multiple", count, commands, words, most, infos, root, communicator, made,
                         codes);
}
