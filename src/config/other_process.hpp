// What the system says of other processes.
#pragma once

#include <sys/types.h>

#include <optional>

#include "config/settings.hpp"

namespace cryptmpi::config {

/// As it was when the process's program began; nullopt: the system does not say.
std::optional<Environment> environment_of(pid_t process);

/// Is it a rank, as far as this process may know? A launcher has other children, too, such as its ways to other nodes.
bool may_be_rank(pid_t process);

/// Is a process above this one an MPI's launcher, so that it runs on this machine? One whose daemon was started over
/// the network is not.
bool has_launcher_above();

}  // namespace cryptmpi::config
