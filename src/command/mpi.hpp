// The MPIs whose launchers are known.
#pragma once

namespace cryptmpi::command {

enum class Mpi { mpich, intel, open_mpi };

/// "MPICH", "Intel MPI", "Open MPI".
const char* name(Mpi mpi);

}  // namespace cryptmpi::command
