// Where the ranks of a job that cryptmpi run starts go, and how many there are.
#pragma once

#include <string>

#include "base/result.hpp"
#include "command/launchers.hpp"
#include "config/settings.hpp"

namespace cryptmpi::command {

/// What run's own options say of it; 0 and empty: nothing.
struct Places {
    int ranks = 0;
    std::string hosts;
    int per_node = 0;
};

/// As --hosts, -n and --ppn say, or the launcher's own options in `launch`, or the batch system's job: it is noted in
/// `launch`. Returns the number of ranks that the report has to have; -1: only the launcher knows.
Result<int> place_ranks(const Places& places, Mpi mpi, const config::Environment& environment, Launch& launch);

}  // namespace cryptmpi::command
