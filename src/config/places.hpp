// Where files of ours lie: those of the user's settings, the modules, and a report's parts.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
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
/// What the first line of that file says of this token. Unreadable: the file is another user's.
enum class TokenThere { same, another, unreadable };
TokenThere token_there(const std::filesystem::path& report_file, std::string_view token);

/// Tells an open folder from a copy of it and from a mount that shows its files, as an overlay does. Of file systems
/// that number their files anew, or that are mounted again while they are used, less is compared. Empty: the system
/// does not say.
std::string folder_identity(int folder);

/// For kSeenFolderVariable: that the folder of parts with this token, as this process sees it now, is the job's. Empty:
/// there is none.
std::string seen_folder(const std::filesystem::path& report_file, const std::string& token);
/// Is it the one that `seen` tells of? Unknown: `seen` tells of another token's, or of what another machine has seen.
enum class Seen { same, another, unknown };
Seen compare_seen(const std::filesystem::path& report_file, std::string_view token, std::string_view seen);

/// Where parts wait on a node that does not see the folder.
std::filesystem::path local_report_folder(std::string_view token);
bool is_report_token(std::string_view token);

/// The report's place as this node sees it.
std::filesystem::path report_place(const std::filesystem::path& report_file, const Environment& environment);

}  // namespace cryptmpi::config
