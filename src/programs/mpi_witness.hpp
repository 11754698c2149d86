// The MPI in this process: whether it was initialised, and ended in order; its own functions.
#pragma once

#include <string>
#include <string_view>

namespace cryptmpi::programs {

/// Asks the MPI that is loaded into this process, or is a part of its program, by MPI_Initialized or MPI_Finalized
/// (`what`: "Initialized", "Finalized"): the standard allows both at any time, after MPI_Finalize, too, and they start
/// nothing. False where there is no MPI, and where the program has one inside of which no symbol table names them. It
/// takes the loader's lock: not for signal handlers, nor for a child of vfork.
/// `open_file` opens for reading, `close_file` closes: a library that stands before libc's has its own.
bool mpi_says(std::string_view what, int (*open_file)(const char*), int (*close_file)(int));

/// A function of the MPI library that is loaded into this process, however; null: none is, or it has none of that name.
void* mpi_function(const std::string& name);

}  // namespace cryptmpi::programs
