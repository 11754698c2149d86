// The way of a job's fresh key: cryptmpi run draws it, the agent gives it to the remote shell's standard input, and
// cryptmpi exec puts it into the other node's memory, where a process of its own keeps it while the job lives there.
#pragma once

#include <memory>
#include <optional>

#include "base/result.hpp"
#include "command/subcommands.hpp"
#include "config/settings.hpp"
#include "keys/job_key.hpp"
#include "keys/key_in_memory.hpp"

namespace cryptmpi::command {

/// Draws a key into this node's memory, and leads this process and what it starts to it. What earlier jobs of this user
/// left is removed first.
struct FreshKey {
    std::filesystem::path file;
    keys::KeyInMemory held;
};
Result<FreshKey> draw_fresh_key(const config::Settings& settings);

/// How often who waits for a job's end looks whether its key is still there.
inline constexpr timespec kLookAfterKey = {5, 0};

/// What the key's line passes through: a remote shell that encrypts, or srun, for which it is wrapped by MUNGE.
enum class KeyRoad { encrypted, srun };

/// Makes the key file's line the standard input of what takes this process's place, and nothing else.
Result<void> key_to_stdin(const std::filesystem::path& key_file, KeyRoad road);

/// Reads exactly the key's line from the standard input, and keeps it where the setting key_file says.
Result<keys::KeyInMemory> key_from_stdin(const config::Settings& settings, KeyRoad road);

/// Runs the program as a child, and gives its exit status as soon as it ends. The key stays until no process that it
/// left is there any more.
int hold_while_running(keys::KeyInMemory key, const std::string& program, const Words& arguments);

}  // namespace cryptmpi::command
