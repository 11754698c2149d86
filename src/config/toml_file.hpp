// A TOML file as a flat list of keys and values, so that only one file sees the TOML library.
#pragma once

#include <filesystem>
#include <string>
#include <variant>
#include <vector>

#include "base/result.hpp"

namespace cryptmpi::config {

using TomlValue = std::variant<bool, double, std::string, std::vector<std::string>>;

struct TomlEntry {
    std::string key;
    TomlValue value;
    unsigned line;
};

/// The entries in the file's order. Errors: unreadable (code: the errno), not TOML, a value of another kind than
/// TomlValue.
Result<std::vector<TomlEntry>> read_toml(const std::filesystem::path& file);

}  // namespace cryptmpi::config
