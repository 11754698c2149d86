// Programs that save processes and start them again, from the same keys and counts, as often as one likes.
#pragma once

#include "config/settings.hpp"

namespace cryptmpi::config {

/// The settings of a process that has our library. Errors: those of load(), and that it must not start under one of
/// them.
Result<Settings> load_unless_checkpointed(const Environment& environment);

}  // namespace cryptmpi::config
