// What libfabric's codes say.
#pragma once

#include <fmt/core.h>
#include <rdma/fi_errno.h>
#include <sys/types.h>

#include <cstring>
#include <string>

namespace cryptmpi::fabric::libfabric {

/// What one of libfabric's negative codes says: the system's, or one of its own, which begin at 256.
inline std::string text_of(ssize_t code) {
    if (code == -FI_ETRUNC) return "it is longer than any that was asked for";
    const bool is_own = -code >= FI_ERRNO_OFFSET;
    return is_own ? fmt::format("libfabric's error {}", -code) : std::strerror(static_cast<int>(-code));
}

}  // namespace cryptmpi::fabric::libfabric
