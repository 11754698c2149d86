// Files that nobody reads half written, and that lie where nobody else put a link or made the folder.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.hpp"

namespace cryptmpi::report {

/// In the place of what has this name: others, where they may write, leave links that lead where they like. Beside it
/// and renamed, so that a reader never sees half of it. Error: one line.
Result<void> write_file(const std::filesystem::path& file, const std::string& text);

/// The same by its name in an open folder; `shown` is what an error calls it. Others may read it where `mode` lets
/// them.
Result<void> write_file_in(int folder, const std::string& name, const std::filesystem::path& shown,
                           const std::string& text, unsigned mode = 0666);

/// write_file(), where nothing has this name; else leaves what is there. Of processes of many nodes that come together,
/// one writes its text.
Result<void> write_first(const std::filesystem::path& file, const std::string& text);

/// Could write_file() make this one? Leaves what has its name as it is.
Result<void> try_to_write(const std::filesystem::path& file);

/// The line that says so.
std::string belongs_to_another(const std::filesystem::path& folder, unsigned user);
/// Is this a folder of this user's? Somebody else may have made it first, where all may write. Error: one line.
Result<void> check_own_folder(const std::filesystem::path& folder);

}  // namespace cryptmpi::report
