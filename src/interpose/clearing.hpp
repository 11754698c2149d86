// Some MPIs make their packets on the stack and write a part of them only: MPICH's device ch3 sends up to 72 bytes in a
// row that way, in clear, of what the program or a cipher left there, or the dynamic loader, which keeps vector
// registers on the stack while it binds a function.
#pragma once

#include <string_view>

namespace cryptmpi::interpose {

/// Zeros the stack below the caller's frame, where the function that it calls next will have its own.
void clear_stack();

/// Was an MPI that calls itself this (MPI_Get_library_version) seen to send only what it wrote? One that was not looked
/// at was not.
bool seen_clean(std::string_view library_version);

}  // namespace cryptmpi::interpose
