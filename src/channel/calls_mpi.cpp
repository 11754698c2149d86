// The calls of MPI's that are seen here: after MPI_Abort the process may be killed before it can report anything, and
// the ranks that MPI_Comm_spawn starts are under CryptMPI only where their launcher is, so their reports are counted.
//
// A communicator and an info are numbers or pointers, as the MPI has it: either is in the place of a pointer.
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "channel/calls.hpp"
#include "programs/mpi_witness.hpp"

using namespace cryptmpi::channel;

namespace {

using Abort = int (*)(void* communicator, int status);
using Rank = int (*)(void* communicator, int* rank);
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

/// Calls MPI, and counts at the root what was started: whatever has no error's code, or all where the program takes no
/// codes. `most` says how many were asked for, which is the root's to know.
template <class Most, class Function, class... Arguments>
int spawn(int root, void* communicator, const int* codes, const Most& most, Function function, Arguments... arguments) {
    constexpr int kNoMpi = 15;  // MPI_ERR_OTHER or MPI_ERR_UNKNOWN of most
    if (function == nullptr) return kNoMpi;
    if (is_spawning) return function(arguments...);
    is_spawning = true;
    const int code = function(arguments...);
    is_spawning = false;
    Process* const process = Process::made();
    if (code != 0 || process == nullptr || !is_root(communicator, root)) return code;
    const int asked = most();
    process->report().tell_of_spawned(codes == nullptr ? asked : static_cast<int>(std::count(codes, codes + asked, 0)));
    return code;
}

int spawn_one(const char* name, void* command, void* words, int most, void* info, int root, void* communicator,
              void* made, int* codes) {
    const auto asked = [most] { return most; };
    return spawn(root, communicator, codes, asked, next<Spawn>(name, "PMPI_Comm_spawn"), command, words, most, info,
                 root, communicator, made, codes);
}

int spawn_several(const char* name, int count, void* commands, void* words, const int* most, void* infos, int root,
                  void* communicator, void* made, int* codes) {
    const auto asked = [&] { return std::accumulate(most, most + count, 0); };
    return spawn(root, communicator, codes, asked, next<SpawnMultiple>(name, "PMPI_Comm_spawn_multiple"), count,
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
