// Reads the line that somebody has typed behind "cryptmpi run": our own options, the launcher's, and the programs. A
// line may start several programs, with a ":" between them: -n 1 ./a x : -n 2 ./b y
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "command/launcher_options.hpp"

namespace cryptmpi::command {

/// An option of the launcher's as it was typed, and as the launcher will understand it.
struct TypedOption {
    const LauncherOption* known = nullptr;  // nullptr: no table has it
    std::string name;                       // as typed, without its value: "-host"
    std::vector<std::string> values;        // "-genv=A=B" has A and B, as "-genv A B" has
    std::vector<std::string> words;         // all of it, for the launcher

    Meaning meaning() const { return known == nullptr ? Meaning::plain : known->meaning; }
};

struct Context {
    int ranks = 0;                     // 0: not said; only the first one may leave it to run's own -n
    std::vector<TypedOption> options;  // for the launcher, -n left out
    std::vector<std::string> program;  // and its arguments
};

struct LaunchLine {
    std::vector<std::string> own;   // run's own options and their values; the number of the first one's ranks, as --np
    std::vector<Context> contexts;  // one at least, unless there is an error
    std::optional<Error> error;     // why nothing can be started; what stood before it has been read
    bool wants_help = false;        // and nothing else
    std::size_t read = 0;           // words, before the error
};

/// The line as this MPI's launcher would understand it. Errors: an option of which it is not known where it ends, a
/// value that is missing, no program; one that would start nothing.
LaunchLine read_line(Mpi mpi, const std::vector<std::string>& words);

/// What stands in --launcher-args. Errors: what would be a program there, and what would start nothing.
Result<std::vector<TypedOption>> read_launcher_arguments(Mpi mpi, const std::vector<std::string>& words);

/// The words of options, for the launcher.
void append_words(std::vector<std::string>& line, const std::vector<TypedOption>& options);

}  // namespace cryptmpi::command
