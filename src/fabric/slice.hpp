// A part of the bytes that lie in several pieces.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/pieces.hpp"

namespace cryptmpi::fabric {

/// `size` bytes of them, from `begin` on; fewer where they have fewer.
inline std::vector<iovec> slice(std::span<const iovec> pieces, std::size_t begin, std::size_t size) {
    std::vector<iovec> cut;
    for (const iovec& piece : pieces) {
        const std::size_t skipped = std::min(piece.iov_len, begin);
        const std::size_t taken = std::min(piece.iov_len - skipped, size);
        if (taken > 0) cut.push_back({static_cast<std::uint8_t*>(piece.iov_base) + skipped, taken});
        begin -= skipped;
        size -= taken;
    }
    return cut;
}

}  // namespace cryptmpi::fabric
