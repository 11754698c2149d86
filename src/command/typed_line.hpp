// Which MPI's launcher a typed line is for, which says how to read it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "command/launch_line.hpp"
#include "command/launchers.hpp"
#include "config/settings.hpp"

namespace cryptmpi::command {

/// The MPI library of a program, or of the program that it starts in the end (env, taskset and their like).
std::optional<MpiLibrary> library_behind(const std::vector<std::string>& program,
                                         const config::Environment& environment);

/// Reads what stands behind "cryptmpi run" as the launcher would that --mpi names, or else that of the program's MPI.
LaunchLine read_typed_line(const std::vector<std::string>& words, const config::Environment& environment);

}  // namespace cryptmpi::command
