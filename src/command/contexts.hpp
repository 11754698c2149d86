// A launcher's line may start several programs, with a ":" between them: ./a x : -n 2 ./b y
#pragma once

#include <string>
#include <vector>

#include "base/result.hpp"

namespace cryptmpi::command {

struct Context {
    int ranks = 0;                     // 0: not said; only the first one may leave it to run's own -n
    std::vector<std::string> options;  // for the launcher, -n left out
    std::vector<std::string> program;  // and its arguments
};

/// The contexts of what stands behind run's own options. Errors: one that is empty, has no number of ranks, or an
/// option of which it is not known where it ends.
Result<std::vector<Context>> contexts_of(const std::vector<std::string>& words);

}  // namespace cryptmpi::command
