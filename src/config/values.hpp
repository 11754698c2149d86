// A setting's raw value, of the file or of a variable, read as what the setting is. Errors: one line with the place,
// and what is allowed.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "config/environment.hpp"
#include "config/plaintext_peer.hpp"
#include "config/toml_file.hpp"

namespace cryptmpi::config {

/// A setting's raw value and where it stands.
struct Given {
    TomlValue value;
    bool from_variable;
    std::string where;           // "config.toml:3: cipher" or "environment variable CRYPTMPI_CIPHER"
    std::filesystem::path base;  // what a relative path is relative to
};

tl::unexpected<Error> refuse(const Given& given, const std::string& what);

/// As the settings file would have it.
std::string as_text(const TomlValue& value);
std::string lower(std::string_view text);
std::string_view trim(std::string_view text);

Result<bool> read_bool(const Given& given);
Result<std::string> read_text(const Given& given);
Result<std::filesystem::path> read_path(const Given& given, const Environment& environment);
Result<std::chrono::milliseconds> read_seconds(const Given& given, bool zero_allowed);
/// A list of strings; in the environment separated by commas.
Result<std::vector<std::string>> read_list(const Given& given);
Result<std::vector<PlaintextPeer>> read_peers(const Given& given);

/// The value of a variable that gives what was given; nullopt: none does.
std::optional<std::string> variable_value(const Given& given, bool is_path);

}  // namespace cryptmpi::config
