// The one call of MPI's that is seen here: after it the process may be killed before it can report anything.
#include <dlfcn.h>
#include <unistd.h>

#include "channel/calls.hpp"
#include "programs/mpi_witness.hpp"

using namespace cryptmpi::channel;

namespace {

using Abort = int (*)(void* communicator, int status);

/// What would have been called without us: of a tool behind us, of the MPI layer, or MPI's own, which the loader does
/// not show where a script loaded it for itself.
Abort next_abort() {
    void* const next = dlsym(RTLD_NEXT, "MPI_Abort");
    return reinterpret_cast<Abort>(next != nullptr ? next : cryptmpi::programs::mpi_function("PMPI_Abort"));
}

}  // namespace

/// A communicator is a number or a pointer, as the MPI has it: either is in the register of a pointer.
CRYPTMPI_CALL int MPI_Abort(void* communicator, int status) {
    if (Process* process = Process::made()) process->report().tell_of_abort();
    if (const auto next = next_abort()) return next(communicator, status);
    _exit(status);
}
