// What becomes of an MPI library's procedures under the MPI layer.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "base/result.hpp"

namespace cryptmpi::command {

/// How many of the procedures that `library` exports are "sealed", "local", "refused", "unclassified".
using Counts = std::map<std::string, int>;
Result<Counts> count_procedures(const std::filesystem::path& library);

}  // namespace cryptmpi::command
