#include "keys/public_list.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>

namespace cryptmpi::keys {

Result<std::string> read_public_list(const std::filesystem::path& file) {
    const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0) return fail(errno, std::string("cannot be read: ") + std::strerror(errno));
    struct stat found {};
    const bool ours = ::fstat(fd, &found) == 0 && S_ISREG(found.st_mode) &&
                      (found.st_uid == ::geteuid() || found.st_uid == 0) && (found.st_mode & 022) == 0;
    // By the descriptor that was examined, whatever happens to the name.
    std::ifstream stream(fmt::format("/proc/self/fd/{}", fd), std::ios::binary);
    std::string text(std::istreambuf_iterator<char>(stream), {});
    ::close(fd);
    if (!ours)
        return fail(EACCES,
                    "is no regular file of yours or root's that nobody else may write: chown it, and run chmod go-w "
                    "on it");
    if (stream.bad()) return fail(EIO, "cannot be read");
    return text;
}

}  // namespace cryptmpi::keys
