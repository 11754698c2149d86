// The procedures of the table as this MPI ABI has them.
#pragma once

#include <span>

namespace cryptmpi::interpose {

struct Entry {
    const char* name;
    void* entry;   // null: calls go straight to MPI
    bool refused;  // unless the settings allow it by name
};

/// Sorted by name.
std::span<const Entry> entries();

}  // namespace cryptmpi::interpose
