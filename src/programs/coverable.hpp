// Can a preloaded library cover this program? The command asks before it starts one, the channel layer before each exec
// of a covered process. Little memory and no locks: the asker may be a child of vfork.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace cryptmpi::programs {

/// Exit statuses of our refusals, as env(1), timeout(1) and the shells have them.
inline constexpr int kRefused = 125;        // our own refusal: settings, key, a program that cannot be covered, usage
inline constexpr int kNotExecutable = 126;  // the program is there but cannot be run
inline constexpr int kNotFound = 127;

struct Refusal {
    std::string line;
    int status;  // kRefused, kNotExecutable, kNotFound
    int code;    // what exec fails with
};

/// What a script's "#!" line with env(1) will run; nullopt: its refusal is in the second. Empty: nobody looks, because
/// env will come by here, too.
using Locate = std::function<std::optional<Refusal>(const std::string& program, std::string& file)>;

/// Nothing if the loader will load our library into this file. Scripts are judged by their interpreter. Refused:
/// missing, unreadable, statically linked, set-user-ID, with file capabilities, another machine's, Go, without glibc's
/// loader. A file that is neither an ELF executable nor a script fails with ENOEXEC, as the kernel says it.
std::optional<Refusal> judge(const std::string& file, const Locate& locate);

/// `name` as execvp would find it in `path` (PATH); empty when nothing of that name can be run.
std::string find_in_path(const std::string& name, const char* path);

}  // namespace cryptmpi::programs
