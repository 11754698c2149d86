// Programs that start another one: which of a line's words is the program whose MPI counts.
#pragma once

#include <string>
#include <vector>

namespace cryptmpi::command {

/// The program that is started in the end: `taskset -c 1 ./p x` starts ./p, `env A=B nice -n 5 ./p` too. The first word
/// where none of the wrappers that we know stands before another program.
std::string program_behind(const std::vector<std::string>& words);

}  // namespace cryptmpi::command
