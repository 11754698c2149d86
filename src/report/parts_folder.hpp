// The folder in which the parts of a job's report wait until they are merged.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "base/result.hpp"

namespace cryptmpi::report {

std::filesystem::path parts_folder(const std::filesystem::path& report_file);

/// Makes it, where it is missing, so that only its owner can write there, whatever the umask: who takes a part of a
/// launcher or a tool out of it is not found out.
Result<void> make_parts_folder(const std::filesystem::path& report_file);

/// Which folder a process knows as its job's: by its token, and by what was seen of it (config::seen_folder). Empty:
/// nobody has told the process.
struct KnownFolder {
    std::string token;
    std::string seen;
};

/// Could somebody else have put it there, who may take parts out of it? It is made where it is missing. Error: one
/// line; a folder that cannot be made is none.
Result<void> check_parts_folder(const std::filesystem::path& report_file);

/// Writes a file among the parts, whatever takes the folder's name meanwhile. Error: one line, also where the folder is
/// another user's and not known as the job's.
Result<void> write_among_parts(const std::filesystem::path& report_file, const KnownFolder& known,
                               const std::string& name, const std::string& text);

/// Does whoever makes the job's report look where this process writes its part? Error: one line. Asked again when the
/// part is written: the folder's token and the mark of the node's place are taken before the parts are read.
Result<void> check_place(const std::filesystem::path& report_file, const KnownFolder& known);

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

/// Is it still the folder that has this token? One that this user may not read is taken for it.
bool has_token(const std::filesystem::path& report_file, const std::string& token);

/// The job has ended: from now on nothing goes in clear that only a part in this folder would tell of.
void take_token(const std::filesystem::path& report_file);

/// The folder's owner, where it is neither this user nor root; nullopt also where there is no folder.
std::optional<unsigned> other_owner(const std::filesystem::path& report_file);

/// Did this job have a key of its own? Cryptmpi run wrote so beside the parts.
bool has_fresh_key(const std::filesystem::path& report_file);

/// The files of parts and of notes in the folder of a report, by name, and their text.
std::map<std::string, std::string> raw_parts(const std::filesystem::path& report_file);
/// Puts one beside the others. Error: no name of a part, or it cannot be written.
Result<void> add_raw_part(const std::filesystem::path& report_file, const std::string& name, const std::string& text);

/// Do parts of the job wait on this node? What is in a stranger's folder is none of the job's.
bool parts_wait(const std::string& token);
/// Those, by name; empty where there is no folder. Error: it is somebody else's.
Result<std::map<std::string, std::string>> waiting_parts(const std::string& token);

}  // namespace cryptmpi::report
