// A file descriptor with an owner, and what a loop around a call of the kernel does.
#pragma once

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace cryptmpi {

class Descriptor {
public:
    explicit Descriptor(int fd) : fd_(fd) {}
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    /// Leaves errno as it is.
    ~Descriptor() {
        if (fd_ < 0) return;
        const int error = errno;
        ::close(fd_);
        errno = error;
    }
    int operator*() const { return fd_; }
    int release() { return std::exchange(fd_, -1); }

private:
    int fd_;
};

/// False: not all of it is written; errno says why.
inline bool write_all(int fd, const void* from, std::size_t size) {
    const auto* at = static_cast<const std::uint8_t*>(from);
    while (size > 0) {
        const ssize_t part = ::write(fd, at, size);
        if (part < 0 && errno == EINTR) continue;
        if (part <= 0) return false;
        at += part;
        size -= static_cast<std::size_t>(part);
    }
    return true;
}

}  // namespace cryptmpi
