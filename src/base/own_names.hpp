// What this process's machine and program are called, and which machine that is.
#pragma once

#include <string>

namespace cryptmpi {

std::string host_name();

/// The running kernel, by its boot's id, and this process's network in it: what two machines of one name do not share.
std::string kernel_and_network();

/// The file that this process runs; where nobody says which, the name that it was started by.
std::string program_name();

}  // namespace cryptmpi
