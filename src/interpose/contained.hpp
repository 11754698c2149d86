// MPI inside a file where the dynamic loader does not see it: calls of it lead to no entry of ours.
#pragma once

#include <string>

namespace cryptmpi::interpose {

/// Does this ELF file define PMPI_Init, in whichever of its tables of symbols? Of a program whose symbols were
/// stripped, the words tell that MPI's own errors begin with.
bool contains_mpi(const std::string& file, bool is_program);

}  // namespace cryptmpi::interpose
