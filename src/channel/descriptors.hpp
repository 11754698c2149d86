// The descriptors that this process has.
#pragma once

#include <dirent.h>

#include <cstdlib>

namespace cryptmpi::channel {

/// Descriptors of this process, without allocating in a child of vfork.
template <class Action>
void each_descriptor(Action action) {
    DIR* folder = opendir("/proc/self/fd");
    if (folder == nullptr) return;
    while (const dirent* entry = readdir(folder)) {
        char* end = nullptr;
        const long fd = std::strtol(entry->d_name, &end, 10);
        if (*end == '\0' && fd != dirfd(folder)) action(static_cast<int>(fd));
    }
    closedir(folder);
}

}  // namespace cryptmpi::channel
