// The environment of another process.
#pragma once

#include <sys/types.h>

#include <optional>

#include "config/settings.hpp"

namespace cryptmpi::config {

/// As it was when the process's program began; nullopt: the system does not say.
std::optional<Environment> environment_of(pid_t process);

}  // namespace cryptmpi::config
