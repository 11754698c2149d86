// The subcommands that are Python packages.
#pragma once

#include <filesystem>

namespace cryptmpi::command {

/// Where their packages are: beside the command, in the build tree as installed.
std::filesystem::path python_folder();

}  // namespace cryptmpi::command
