// Whether MPI was initialised in this process. This room knows nothing else of MPI.
#pragma once

namespace cryptmpi::channel {

/// Asks the MPI that is loaded into this process, or is a part of its program, by MPI_Initialized: the standard allows
/// that at any time, after MPI_Finalize, too, and it starts nothing. False where there is no MPI, and where the program
/// has one inside whose MPI_Initialized no symbol table names. It takes the loader's lock: not for signal handlers, nor
/// for a child of vfork.
bool mpi_was_initialized();

}  // namespace cryptmpi::channel
