// What a process says of itself in its part of the report, before anything has happened in it.
#pragma once

#include <string>

#include "config/settings.hpp"
#include "report/part.hpp"

namespace cryptmpi::report {

/// The part knows its library and its layer. `process`: this one, on the machine `node`.
void tell_process(Part& part, const config::Environment& environment, const config::Settings& settings,
                  const config::Process& process, const std::string& node);

/// Its rank by what its launcher says, where nobody asks MPI.
void tell_rank(Part& part, const config::Process& process);

}  // namespace cryptmpi::report
