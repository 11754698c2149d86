// What the channel library says to the other libraries of ours in a process.
#pragma once

#include <dlfcn.h>

#include <optional>

namespace cryptmpi {

/// Does it let nothing in or out but by sealed connections? nullopt: it is not in this process.
inline std::optional<bool> confined_by_channel() {
    auto* const ask = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "cryptmpi_channel_confines"));
    return ask == nullptr ? std::nullopt : std::optional(ask() != 0);
}

}  // namespace cryptmpi
