// Can a preloaded library cover this program? The command asks before it starts one, the channel layer before each exec
// of a covered process. Little memory and no locks: the asker may be a child of vfork.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace cryptmpi::programs {

struct Refusal {
    std::string line;
    int status;               // of base/exit_status.hpp
    int code;                 // what exec fails with
    bool is_kernels = false;  // the kernel starts the file no more than we do, and says so by the same code
};

/// What a script's "#!" line with env(1) will run; nullopt: its refusal is in the second. Empty: nobody looks, because
/// env will come by here, too.
using Locate = std::function<std::optional<Refusal>(const std::string& program, std::string& file)>;

/// Nothing if the loader will load our library into this file. Scripts are judged by their interpreter. Refused:
/// missing, not executable, unreadable, statically linked, set-user-ID, with file capabilities, another machine's, Go,
/// without glibc's loader, or of a kind that binfmt_misc hands to an interpreter. Any other file that is neither an ELF
/// executable nor a script fails with ENOEXEC, as the kernel says it; shells then read the file themselves.
std::optional<Refusal> judge(const std::string& file, const Locate& locate);

/// `name` as execvp would find it in `path` (PATH); empty, with execvp's errno, when nothing of that name can be run.
std::string find_in_path(const std::string& name, const char* path);

}  // namespace cryptmpi::programs
