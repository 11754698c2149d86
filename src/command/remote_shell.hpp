// How a command of ours reaches another node.
#pragma once

#include <string>

#include "command/subcommands.hpp"
#include "config/settings.hpp"

namespace cryptmpi::command {

/// What starts commands on other nodes where nobody says: srun in a Slurm job, ssh elsewhere.
std::string default_remote_shell(const config::Environment& environment);

/// Is it Slurm's srun, also behind env and its like? It takes the node as an option, and what passes through it is not
/// encrypted.
bool is_srun(const Words& shell);

/// The line that runs `command`, written for a shell, on `host`. Options are ssh's, and srun gets none of them.
Words remote_line(const Words& shell, const Words& options, const std::string& host, const std::string& command);

}  // namespace cryptmpi::command
