// Bytes that lie in several pieces.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>

#include "base/secret.hpp"

namespace cryptmpi {

inline iovec piece(const void* at, std::size_t size) {
    return {const_cast<void*>(at), size};  // iovec has no const form; who gets it only reads
}

inline std::size_t total(std::span<const iovec> pieces) {
    std::size_t size = 0;
    for (const iovec& one : pieces) size += one.iov_len;
    return size;
}

inline void wipe_pieces(std::span<const iovec> pieces) {
    for (const iovec& one : pieces) wipe(one.iov_base, one.iov_len);
}

}  // namespace cryptmpi
