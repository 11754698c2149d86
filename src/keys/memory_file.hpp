// Files in the memory of this kernel, which hold secrets that no disk and no other machine may get.
#pragma once

#include <fmt/core.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace cryptmpi::keys {

/// Is it ours, for us alone, and in the memory of this kernel? Empty: it is. `elsewhere`: what another may be.
inline std::string unfit(int fd, const char* elsewhere) {
    struct stat found = {};
    if (::fstat(fd, &found) != 0) return std::strerror(errno);
    if (!S_ISREG(found.st_mode)) return "it is no regular file";
    if (found.st_uid != ::geteuid()) return fmt::format("it belongs to user {}", found.st_uid);
    if ((found.st_mode & (S_IRWXG | S_IRWXO)) != 0) return "it is open to other users";
    struct statfs system = {};
    if (::fstatfs(fd, &system) != 0) return std::strerror(errno);
    if (system.f_type != TMPFS_MAGIC) return std::string("its file system is no tmpfs, and may be ") + elsewhere;
    return {};
}

}  // namespace cryptmpi::keys
