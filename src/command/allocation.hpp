// What a batch system has given the job in which this process runs.
#pragma once

#include <vector>

#include "base/result.hpp"
#include "command/node_list.hpp"
#include "config/settings.hpp"

namespace cryptmpi::command {

/// The nodes of Slurm's, PBS's or LSF's job, each with the number of ranks that it is to have. Empty: there is no such
/// job. Error: what the batch system says cannot be read.
Result<std::vector<Host>> allocated_hosts(const config::Environment& environment);

}  // namespace cryptmpi::command
