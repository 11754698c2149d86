// Which program this process runs, so that nobody who reads a report later has to trust its name.
#pragma once

#include <cryptmpi/module.h>

#include <string>

namespace cryptmpi::programs {

/// SHA-256 of the file that this process runs, also where another has taken its name meanwhile, in hexadecimal digits.
/// Empty: the file cannot be read. A script's is its interpreter's. `open_file` and `close_file`: as for mpi_says.
std::string program_digest(const cryptmpi_kex& kex, int (*open_file)(const char*), int (*close_file)(int));

}  // namespace cryptmpi::programs
