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

constexpr unsigned kForAll = 0666;

/// A file that was not there, nor a link by its name: in a folder where others may write, that leads where they like.
int open_fresh(int folder, const std::string& name, unsigned mode) {
    ::unlinkat(folder, name.c_str(), 0);  // of a process with this number that was killed
    return ::openat(folder, name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode);
}

/// Writes `temporary`, then gives it its name by `name_it`, which returns 0 and leaves errno as rename(2). Names are
/// those of files in `folder`, unless they are paths of their own.
template <typename NameIt>
Result<void> write_as(int folder, const std::string& temporary, unsigned mode, const fs::path& shown,
                      const std::string& text, NameIt name_it) {
    errno = 0;
    const int fd = open_fresh(folder, temporary, mode);
    bool written = fd >= 0 && write_all(fd, text.data(), text.size());
    written = fd >= 0 && ::close(fd) == 0 && written;
    if (!written || name_it(temporary.c_str()) != 0) {
        const int code = errno != 0 ? errno : EIO;
        if (fd >= 0) ::unlinkat(folder, temporary.c_str(), 0);
        return fail(code, "cannot write " + shown.string() + ": " + std::strerror(code));
    }
    return {};
}

}  // namespace

Result<void> write_file_in(int folder, const std::string& name, const fs::path& shown, const std::string& text,
                           unsigned mode) {
    const auto renamed = [&](const char* from) { return ::renameat(folder, from, folder, name.c_str()); };
    return write_as(folder, fmt::format("{}.{}.new", name, getpid()), mode, shown, text, renamed);
}

Result<void> write_file(const fs::path& file, const std::string& text) {
    return write_file_in(AT_FDCWD, file.string(), file, text);
}

Result<void> write_first(const fs::path& file, const std::string& text) {
    std::error_code unknown;
    if (fs::exists(fs::symlink_status(file, unknown))) return {};
    std::uint64_t number = 0;  // processes of several nodes may have one, but for this
    if (::getrandom(&number, sizeof number, 0) != sizeof number)
        return fail(errno, std::string("the system gives no random bytes: ") + std::strerror(errno));
    const std::string temporary = fmt::format("{}.{}.new", file.string(), number);
    // Unlike a rename, a link takes nobody's place.
    const auto linked = [&](const char* from) {
        const bool there = ::link(from, file.c_str()) == 0 || errno == EEXIST;
        return there ? std::remove(from) : -1;
    };
    return write_as(AT_FDCWD, temporary, kForAll, file, text, linked);
}

Result<void> try_to_write(const fs::path& file) {
    const std::string temporary = fmt::format("{}.{}.new", file.string(), getpid());
    const int fd = open_fresh(AT_FDCWD, temporary, kForAll);
    if (fd < 0) return fail(errno, "cannot write " + file.string() + ": " + std::strerror(errno));
    ::close(fd);
    if (std::remove(temporary.c_str()) == 0) return {};
    return fail(errno, "cannot rename files to " + file.string() + ": " + std::strerror(errno));
}

std::string belongs_to_another(const fs::path& folder, unsigned user) {
    return fmt::format(
        "report folder {} belongs to user {}, who could change what is written there: name another place "
        "for the report",
        folder.string(), user);
}

Result<void> check_own_folder(const fs::path& folder) {
    struct stat found = {};
    if (::lstat(folder.c_str(), &found) != 0)
        return fail(errno, "report folder " + folder.string() + ": " + std::strerror(errno));
    if (!S_ISDIR(found.st_mode)) return fail(ENOTDIR, "report folder " + folder.string() + " is no folder");
    if (found.st_uid == ::geteuid()) return {};
    return fail(EPERM, belongs_to_another(folder, found.st_uid));
}

}  // namespace cryptmpi::report
