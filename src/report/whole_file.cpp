#include "report/whole_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "base/descriptor.hpp"

namespace cryptmpi::report {

namespace fs = std::filesystem;

namespace {

/// A file that was not there, nor a link by its name: in a folder where others may write, that leads where they like.
int open_fresh(const std::string& name) {
    ::unlink(name.c_str());  // of a process with this number that was killed
    return ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
}

/// Writes `temporary`, then gives it its name by `name_it`, which returns 0 and leaves errno as rename(2).
template <typename NameIt>
Result<void> write_as(const std::string& temporary, const fs::path& file, const std::string& text, NameIt name_it) {
    errno = 0;
    const int fd = open_fresh(temporary);
    bool written = fd >= 0 && write_all(fd, text.data(), text.size());
    written = fd >= 0 && ::close(fd) == 0 && written;
    if (!written || name_it(temporary.c_str(), file.c_str()) != 0) {
        const int code = errno != 0 ? errno : EIO;
        if (fd >= 0) std::remove(temporary.c_str());
        return fail(code, "cannot write " + file.string() + ": " + std::strerror(code));
    }
    return {};
}

}  // namespace

Result<void> write_file(const fs::path& file, const std::string& text) {
    return write_as(fmt::format("{}.{}.new", file.string(), getpid()), file, text, std::rename);
}

Result<void> write_first(const fs::path& file, const std::string& text) {
    std::error_code unknown;
    if (fs::exists(fs::symlink_status(file, unknown))) return {};
    std::uint64_t number = 0;  // processes of several nodes may have one, but for this
    if (::getrandom(&number, sizeof number, 0) != sizeof number)
        return fail(errno, std::string("the system gives no random bytes: ") + std::strerror(errno));
    const std::string temporary = fmt::format("{}.{}.new", file.string(), number);
    // Unlike a rename, a link takes nobody's place.
    const auto linked = [](const char* from, const char* to) {
        const bool there = ::link(from, to) == 0 || errno == EEXIST;
        return there ? std::remove(from) : -1;
    };
    return write_as(temporary, file, text, linked);
}

Result<void> try_to_write(const fs::path& file) {
    const std::string temporary = fmt::format("{}.{}.new", file.string(), getpid());
    const int fd = open_fresh(temporary);
    if (fd < 0) return fail(errno, "cannot write " + file.string() + ": " + std::strerror(errno));
    ::close(fd);
    if (std::remove(temporary.c_str()) == 0) return {};
    return fail(errno, "cannot rename files to " + file.string() + ": " + std::strerror(errno));
}

Result<void> check_own_folder(const fs::path& folder) {
    struct stat found = {};
    if (::lstat(folder.c_str(), &found) != 0)
        return fail(errno, "report folder " + folder.string() + ": " + std::strerror(errno));
    if (!S_ISDIR(found.st_mode)) return fail(ENOTDIR, "report folder " + folder.string() + " is no folder");
    if (found.st_uid == ::geteuid()) return {};
    return fail(EPERM, fmt::format("report folder {} belongs to user {}, who could change what is written there: name "
                                   "another place for the report",
                                   folder.string(), found.st_uid));
}

}  // namespace cryptmpi::report
