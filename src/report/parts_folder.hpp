// The folder in which the parts of a job's report wait until they are merged.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "base/result.hpp"

namespace cryptmpi::report {

std::filesystem::path parts_folder(const std::filesystem::path& report_file);

/// Makes it, where it is missing, so that only its owner can write there, whatever the umask: who takes a part of a
/// launcher or a tool out of it is not found out.
Result<void> make_parts_folder(const std::filesystem::path& report_file);

/// It belongs neither to this user nor to the report's owner: in a folder like /tmp anybody can put it beside a report.
bool is_a_strangers(const std::filesystem::path& parts_folder, const std::filesystem::path& report_file);

/// What a note of a host (noted_hosts.hpp) is called by.
inline constexpr const char* kNote = ".host";

/// Makes the folder of the parts, and tries to write there. Error: one line.
Result<void> prepare_parts(const std::filesystem::path& report_file);

/// Puts a job's token beside its parts (config::report_token_file), and whether the job has a key of its own: then they
/// cannot be checked later. Error: one line.
Result<void> mark_parts(const std::filesystem::path& report_file, const std::string& token, bool fresh_key);

/// For a process of a job that nobody has marked the folder for: the token that is there, or else `fresh`, which then
/// is put there. Empty: neither can be, as where no file can be written.
std::string join_parts(const std::filesystem::path& report_file, const std::string& fresh);

/// Is it still the folder that has this token?
bool has_token(const std::filesystem::path& report_file, const std::string& token);

/// Did this job have a key of its own? Cryptmpi run wrote so beside the parts.
bool has_fresh_key(const std::filesystem::path& report_file);

/// The files of parts and of notes in the folder of a report, by name, and their text.
std::map<std::string, std::string> raw_parts(const std::filesystem::path& report_file);
/// Puts one beside the others. Error: no name of a part, or it cannot be written.
Result<void> add_raw_part(const std::filesystem::path& report_file, const std::string& name, const std::string& text);

}  // namespace cryptmpi::report
