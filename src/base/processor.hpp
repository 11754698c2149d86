// The processor of this machine, as tuned plans are told apart by it.
#pragma once

#include <string>

namespace cryptmpi {

/// Its model, as /proc/cpuinfo has it, else the kind of machine; never empty.
std::string processor_model();

/// How many the system has, whichever of them this process may use.
int processor_count();

}  // namespace cryptmpi
