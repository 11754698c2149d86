// A file that lists public keys: nothing secret, but whoever can write it decides whom we believe.
#pragma once

#include <filesystem>
#include <string>

#include "base/result.hpp"

namespace cryptmpi::keys {

/// Its text. Errors complete the sentence "list FILE ...": it cannot be read; it is no regular file of this user's or
/// root's that nobody else may write.
Result<std::string> read_public_list(const std::filesystem::path& file);

}  // namespace cryptmpi::keys
