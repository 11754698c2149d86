// What an earlier job left under the name of a report: whatever comes of this one, a verdict must not be that one's.
#pragma once

#include <filesystem>

#include "base/result.hpp"

namespace cryptmpi::command {

/// Removes the report, its parts, and all else that CryptMPI writes in their folder. Error: something else has one of
/// the names, as the program has where the report's name was forgotten, and then all stays; or it cannot be removed.
Result<void> forget_report(const std::filesystem::path& file);

}  // namespace cryptmpi::command
