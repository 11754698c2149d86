// Small things about processes and shells that several subcommands need.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/exit_status.hpp"
#include "config/settings.hpp"
#include "programs/coverable.hpp"

namespace cryptmpi::command {

/// A status of run and of report --check beside those of base/exit_status.hpp: env(1), timeout(1) and the shells leave
/// it free.
inline constexpr int kNotSealed = 123;  // the job ended well, but its report's verdict is not good

/// Prints "cryptmpi: LINE" to stderr and returns `status`.
int complain(const std::string& line, int status);

/// 32 hexadecimal digits: a job's id, a report's token. Error: one line of `subcommand`'s.
Result<std::string> random_name(const std::string& subcommand);

/// What `command` prints to stdout (and stderr), run without our library; nullopt when it cannot be run or does not end
/// in time.
std::optional<std::string> output_of(const std::vector<std::string>& command);

/// The same, with this on its standard input: no more than a pipe takes at once (4096 bytes).
std::optional<std::string> answer_of(const std::vector<std::string>& command, std::span<const std::uint8_t> input);

/// The same of several commands at once; without stderr if so asked.
std::vector<std::optional<std::string>> outputs_of(const std::vector<std::vector<std::string>>& commands,
                                                   bool with_stderr);

/// Words between spaces, as a remote shell with its options is given.
std::vector<std::string> split_words(const std::string& text);

/// `name` as execvp would find it; nullopt when nothing of that name can be run.
std::optional<std::filesystem::path> find_in_path(const std::string& name, const config::Environment& environment);

/// `word` so that a shell reads it as one word.
std::string shell_word(std::string_view word);

/// The file of this very executable, as the first call found it: once another file has taken its name, as in an
/// upgrade, the kernel tells another one.
std::filesystem::path own_file();

/// A starter may have left SIGCHLD ignored, as daemons do: the kernel then tells nobody how a child ended. Launchers,
/// too, have to know (MPICH 4.0's never ends else); a program finds what its starter left.
void watch_children();
void leave_children_as_found();

/// Replaces this process. Returns only on failure: kExitNotFound or kExitNotExecutable, after a line on stderr.
int replace_by(const std::string& program, const std::vector<std::string>& arguments);
/// The same by a program that is to run without our library, also where this process is under it: nobody else may.
int replace_by_outside(const std::string& program, const std::vector<std::string>& arguments);

/// arguments as execv wants them; valid as long as `arguments` is.
std::vector<char*> pointers(const std::vector<std::string>& arguments);

}  // namespace cryptmpi::command
