// The environment of another process.
#pragma once

#include <sys/types.h>

#include <optional>

#include "config/settings.hpp"

namespace cryptmpi::config {

/// As it was when the process's program began; nullopt: the system does not say.
std::optional<Environment> environment_of(pid_t process);

/// Is it a rank, as far as this process may know? A launcher has other children, too, such as its ways to other nodes.
bool may_be_rank(pid_t process);

}  // namespace cryptmpi::config
