// What the file actions of posix_spawn will do, read from the object that has them: a program may copy it, so that its
// address says nothing.
#pragma once

#include <spawn.h>

#include <optional>
#include <string>
#include <vector>

namespace cryptmpi::channel {

struct SpawnActions {
    std::string folder;       // where a name that does not begin with "/" is another file's; empty: where we are
    std::vector<int> passed;  // descriptors that the child gets by another number, or without their close-on-exec flag
};

/// Nothing: this C library keeps them in a way that we do not know.
std::optional<SpawnActions> read_spawn_actions(const posix_spawn_file_actions_t* actions);

/// What is meant by a name in this folder; without one, the name.
std::string below(const std::string& folder, const std::string& path);

}  // namespace cryptmpi::channel
