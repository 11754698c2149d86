// What a launcher's option could do to a job's seal, and what becomes of it. The attacker is the mistake: an option
// that makes daemons or ranks start past us is done by us, or refused in one line that says how else to write it.
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"
#include "command/launch_line.hpp"

namespace cryptmpi::command {

/// Refuses what would leave something unsealed. Takes out what is ours to do: the remote shell that an option names
/// comes into `rsh`. Errors: one that is refused; a second remote shell.
Result<void> guard(std::vector<TypedOption>& options, std::string& rsh);

/// A variable that somebody sets for the ranks alone, NAME or NAME=VALUE, must be none of our settings. Open MPI keeps
/// variables in a list with ";" between them, so a value must hold none either.
Result<void> guard_variable(const std::string& option, const std::string& variable);

/// What these options tell MPI of the networks it may use, as layer_choice reads it: --mca NAME VALUE, -x NAME=VALUE,
/// -genv NAME VALUE.
std::vector<std::string> said_of_networks(const std::vector<TypedOption>& options);

/// Hydra's -genvnone and -genvlist, and those of one program, so that these variables pass.
void let_pass(std::vector<TypedOption>& options, const std::vector<std::string>& variables);

}  // namespace cryptmpi::command
