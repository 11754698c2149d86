// Slurm's nodes share a secret, that of their MUNGE daemons. What one of a user's processes has wrapped by it, only
// processes of this user, and root, can unwrap, on these nodes alone, for a few minutes, and once on each.
//
// libmunge is loaded when it is asked for: only who starts a job's daemons by srun needs it.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.hpp"

namespace cryptmpi::command {

/// A line of text without its newline. Error: there is no libmunge, or no daemon, or it knows no AES.
Result<std::string> munge_wrap(std::span<const std::uint8_t> secret);

/// Fills `secret` with what was wrapped. Errors: not by this user, not encrypted, too old, unwrapped before, or not of
/// this size.
Result<void> munge_unwrap(const std::string& credential, std::span<std::uint8_t> secret);

/// Longer than any credential of a key's line.
inline constexpr std::size_t kLongestCredential = 1024;

}  // namespace cryptmpi::command
