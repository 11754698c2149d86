// The table of procedures, as procedures.txt has it.
#pragma once

#include <algorithm>
#include <cctype>
#include <string_view>

namespace cryptmpi::interpose {

struct Procedure {
    const char* name;
    const char* group;  // "sealed", "local" or "refused"
    const char* reason;
};

constexpr Procedure kTable[] = {
#define PROCEDURE(name, group, reason) {#name, #group, reason},
#include "procedures.inc"
#undef PROCEDURE
};

/// "MPI_Send" for "PMPI_Send"; other names as they are.
constexpr std::string_view without_profiling(std::string_view name) {
    return name.starts_with("PMPI") ? name.substr(1) : name;
}

/// MPI_Send and PMPIX_Comm_agree are C procedures; MPI_SEND is Fortran's, MPI_UNWEIGHTED data.
inline bool is_c_procedure(std::string_view name) {
    name = without_profiling(name);
    if (!name.starts_with("MPI_") && !name.starts_with("MPIX_")) return false;
    return std::any_of(name.begin(), name.end(), [](unsigned char letter) { return std::islower(letter) != 0; });
}

}  // namespace cryptmpi::interpose
