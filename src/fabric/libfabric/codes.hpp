// What libfabric's codes say.
#pragma once

#include <rdma/fi_errno.h>
#include <sys/types.h>

#include <cstring>
#include <string>

namespace cryptmpi::fabric::libfabric {

/// What one of libfabric's negative codes says: the system's, or one of its own, which begin at 256.
inline std::string text_of(ssize_t code) {
    if (code == -FI_ETRUNC) return "it is longer than any that was asked for";
    const bool is_own = -code >= FI_ERRNO_OFFSET;
    return is_own ? "libfabric's error " + std::to_string(-code) : std::strerror(static_cast<int>(-code));
}

}  // namespace cryptmpi::fabric::libfabric
