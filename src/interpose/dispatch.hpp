// The preloaded library's own part: which procedures there are, and where a call of each goes.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace cryptmpi::interpose {

/// The place in the table of "MPI_Send" or "PMPI_Send".
std::optional<std::size_t> procedure_named(std::string_view name);

/// Our entry for it, as the program calls it.
void* entry_of(std::size_t procedure);

/// For a procedure of MPI's that the table does not have: an entry that refuses, or its own address where it may pass.
void* entry_of_unknown(std::string_view name, void* own);

}  // namespace cryptmpi::interpose
