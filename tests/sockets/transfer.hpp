// Every call that moves bytes through a socket, as one kind of function.
#pragma once

#include "support.hpp"

namespace sockets {

/// Writes some of `data`: bytes taken, or -1.
struct Writer {
    const char* name;
    ssize_t (*write)(int fd, std::span<const std::uint8_t> data, Random& random);
};
std::span<const Writer> writers();

/// Reads some bytes into `space`: bytes read, 0 at the end, or -1.
struct Reader {
    const char* name;
    ssize_t (*read)(int fd, std::span<std::uint8_t> space, Random& random);
};
std::span<const Reader> readers();

/// The forms that _FORTIFY_SOURCE makes of them (fortified.cpp).
std::span<const Reader> fortified_readers();

}  // namespace sockets
