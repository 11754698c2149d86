// Programs that save processes and start them again, from the same keys and counts, as often as one likes.
#pragma once

#include <string>

#include "config/settings.hpp"

namespace cryptmpi::config {

/// Why a process under one of them must not start; empty: there is none that shows.
std::string refuse_checkpoints(const Environment& environment);

}  // namespace cryptmpi::config
