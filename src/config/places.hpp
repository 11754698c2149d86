// Where files of ours lie: those of the user's settings, the modules, and a report's parts.
#pragma once

#include <filesystem>
#include <optional>
#include <string_view>

#include "config/environment.hpp"

namespace cryptmpi::config {

/// Names the settings file.
inline constexpr const char* kConfigVariable = "CRYPTMPI_CONFIG";

/// $XDG_CONFIG_HOME/cryptmpi or ~/.config/cryptmpi (the password database's home if HOME is unset).
std::filesystem::path config_folder(const Environment& environment);

/// The settings file that a process with this environment reads, which may be missing; nullopt: none.
std::optional<std::filesystem::path> settings_file(const Environment& environment);

/// With our library and modules: the library's own folder, or for an executable in bin/ the lib folder beside it.
std::filesystem::path default_module_folder();

/// The file with the bytes of kReportTokenVariable or kFolderTokenVariable, beside the parts.
std::filesystem::path report_token_file(const std::filesystem::path& report_file);
/// Where parts wait on a node that does not see the folder. Made by cryptmpi exec.
std::filesystem::path local_report_folder(std::string_view token);
bool is_report_token(std::string_view token);

/// The report's place as this node sees it.
std::filesystem::path report_place(const std::filesystem::path& report_file, const Environment& environment);

}  // namespace cryptmpi::config
