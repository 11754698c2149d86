// How a process ends that we refuse to let go on.
#pragma once

namespace cryptmpi {

/// Exit statuses of our refusals, as env(1), timeout(1) and the shells have them.
inline constexpr int kExitRefused = 125;  // our own refusal: settings, key, a program that cannot be covered, usage
inline constexpr int kExitNotExecutable = 126;  // the program is there but cannot be run
inline constexpr int kExitNotFound = 127;

}  // namespace cryptmpi
