// Which MPI's launcher a typed line is for, which says how to read it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "command/launch_line.hpp"
#include "command/launchers.hpp"
#include "config/settings.hpp"

namespace cryptmpi::command {

/// A program's file as the ranks will find it, for whom the launcher may change the folder.
std::string place_of(const Context& context, const std::string& program);

/// The MPI library of a program, or of the program that it starts in the end (env, taskset and their like).
std::optional<MpiLibrary> library_behind(const Context& context, const config::Environment& environment);

/// Reads what stands behind "cryptmpi run" as the launcher would that --mpi names, or else that of the program's MPI.
LaunchLine read_typed_line(const std::vector<std::string>& words, const config::Environment& environment);

}  // namespace cryptmpi::command
