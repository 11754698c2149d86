// Could another user of this machine have put a file where it is, or put another in its place?
#pragma once

#include <filesystem>
#include <string>

namespace cryptmpi::command {

/// Looks at the file, at each folder down to it, and at the links on the way: all must belong to root or to this user,
/// and nobody else may write them, but for folders with the sticky bit. Returns what is wrong with the first that does
/// not; empty: nothing.
std::string planting_risk(const std::filesystem::path& file);

}  // namespace cryptmpi::command
