// What this process's machine and program are called.
#pragma once

#include <string>

namespace cryptmpi {

std::string host_name();

/// The file that this process runs; where nobody says which, the name that it was started by.
std::string program_name();

}  // namespace cryptmpi
