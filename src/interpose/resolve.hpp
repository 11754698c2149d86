// The MPI library's own procedures, as the rooms of the MPI layer call them.
#pragma once

#include <map>
#include <string_view>

#include "comm/native.hpp"

namespace cryptmpi::interpose {

using comm::Native;

/// Fills `native` from what `lookup` finds under each procedure's PMPI_ name, or else its MPI_ name.
void resolve(Native& native, void* (*lookup)(const char* name));

/// Clears the stack before each of the procedures (clearing.hpp). Returns what now stands for each, by its MPI_ name.
std::map<std::string_view, void*> clear_before_calls(Native& native);

/// Calls act_before_wait() (this_process.hpp) before each of the procedures that may wait for another rank. Returns the
/// same.
std::map<std::string_view, void*> act_before_waits(Native& native);

extern Native resolved;
inline const Native& native() {
    return resolved;
}

}  // namespace cryptmpi::interpose
