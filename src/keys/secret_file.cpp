#include "keys/secret_file.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/declassified.hpp"
#include "base/descriptor.hpp"

namespace cryptmpi::keys {
namespace {

/// Reads until `size` bytes or the end; -1 on error.
ssize_t read_up_to(int fd, std::uint8_t* at, std::size_t size) {
    std::size_t got = 0;
    while (got < size) {
        const ssize_t part = ::read(fd, at + got, size - got);
        if (part < 0 && errno == EINTR) {
            continue;
        }
        if (part < 0) {
            return -1;
        }
        if (part == 0) {
            break;
        }
        got += static_cast<std::size_t>(part);
    }
    return static_cast<ssize_t>(got);
}

/// Makes every missing folder on the way, for the user alone whatever the umask.
Result<void> make_folders(const std::filesystem::path& folder) {
    std::filesystem::path so_far;
    for (const auto& name : folder) {
        so_far /= name;
        if (::mkdir(so_far.c_str(), 0700) == 0) {
            continue;
        }
        struct stat found {};
        const int reason = errno;
        if (::stat(so_far.c_str(), &found) != 0) {
            return fail(reason, "folder " + so_far.string() + " cannot be made: " + std::strerror(reason));
        }
        if (!S_ISDIR(found.st_mode)) {
            return fail(ENOTDIR, so_far.string() + " is no folder: choose another place for the key file");
        }
    }
    return {};
}

bool is_our_group(gid_t group) {
    if (group == ::getegid()) {
        return true;
    }
    const int count = ::getgroups(0, nullptr);
    std::vector<gid_t> groups(static_cast<std::size_t>(std::max(count, 0)));
    const int got = ::getgroups(count, groups.data());
    return got > 0 && std::find(groups.begin(), groups.begin() + got, group) != groups.begin() + got;
}

/// Only root can write it, and nobody but root and a group of this process can read it. The mode does not say whom an
/// access control list lets in, so there must be none.
bool is_roots_for_our_group(int fd, const struct stat& found) {
    constexpr mode_t kForbidden = 07777 & ~(S_IRUSR | S_IWUSR | S_IRGRP);
    const bool has_list =
        ::fgetxattr(fd, "system.posix_acl_access", nullptr, 0) >= 0 || (errno != ENODATA && errno != ENOTSUP);
    return found.st_uid == 0 && (found.st_mode & kForbidden) == 0 && !has_list && is_our_group(found.st_gid);
}

/// What else mends a file of root's, on which a user cannot run chmod.
std::string hint_of_group(KeyReaders readers) {
    if (readers == KeyReaders::owner) {
        return "; where it is a Secret of Kubernetes, set allow_group_key = true and its defaultMode to 0440";
    }
    return "; allow_group_key takes mode 0440 or 0640, a group of this process, and no access control list";
}

// Hexadecimal digits of a key, without a branch or a table that depends on them: only whether a character is one shows.

/// All bits set where low <= c <= high, else none.
unsigned mask_of_range(unsigned c, unsigned low, unsigned high) {
    const unsigned outside = ((c - low) | (high - c)) >> 31;  // 1 where one of them is below zero
    return outside - 1;
}

struct Digit {
    unsigned value;
    unsigned is_one;  // all bits or none
};

Digit digit(std::uint8_t c) {
    const unsigned number = mask_of_range(c, '0', '9');
    const unsigned small = mask_of_range(c, 'a', 'f');
    const unsigned capital = mask_of_range(c, 'A', 'F');
    return {(number & (c - '0')) | (small & (c - 'a' + 10U)) | (capital & (c - 'A' + 10U)), number | small | capital};
}

std::uint8_t text_of(unsigned value) {
    const unsigned letter = (9 - value) >> 31;
    return static_cast<std::uint8_t>('0' + value + letter * ('a' - '9' - 1));
}

}  // namespace

// protocol: K1
Result<void> parse_key_line(std::string_view lead, std::span<const std::uint8_t> content,
                            std::span<std::uint8_t, kKeySize> key) {
    const std::string expected = "one line is expected: " + std::string(lead) + "<64 hexadecimal digits>";
    if (content.empty()) {
        return fail(EINVAL, "is empty; " + expected);
    }
    if (content.size() < lead.size() || std::memcmp(content.data(), lead.data(), lead.size()) != 0) {
        return fail(EINVAL, "does not begin with \"" + std::string(lead) + "\"; " + expected);
    }
    std::size_t digits = 0;
    while (lead.size() + digits < content.size() && declassified(digit(content[lead.size() + digits]).is_one) != 0) {
        ++digits;
    }
    const auto rest = content.subspan(lead.size() + digits);
    if (!rest.empty() && rest[0] == '\r') {
        return fail(EINVAL, "has Windows line ends: save it with Unix line ends");
    }
    if (!rest.empty() && rest[0] != '\n') {
        return fail(EINVAL, "has a character that is no hexadecimal digit; " + expected);
    }
    if (digits != 2 * kKeySize) {
        return fail(EINVAL, fmt::format("has {}{} hexadecimal digits; {}", digits,
                                        digits < 2 * kKeySize ? "" : " or more", expected));
    }
    if (rest.size() > 1) {
        return fail(EINVAL, "has more than one line; " + expected);
    }
    for (std::size_t i = 0; i < kKeySize; ++i) {
        const std::uint8_t* const pair = content.data() + lead.size() + 2 * i;
        key[i] = static_cast<std::uint8_t>(digit(pair[0]).value << 4 | digit(pair[1]).value);
    }
    return {};
}

void write_key_line(std::string_view lead, std::span<const std::uint8_t, kKeySize> key, std::span<std::uint8_t> line) {
    std::memcpy(line.data(), lead.data(), lead.size());
    for (std::size_t i = 0; i < kKeySize; ++i) {
        line[lead.size() + 2 * i] = text_of(key[i] >> 4U);
        line[lead.size() + 2 * i + 1] = text_of(key[i] & 15U);
    }
    line[lead.size() + 2 * kKeySize] = '\n';
}

tl::unexpected<Error> wrong(const SecretFile& kind, const std::filesystem::path& file, int code,
                            const std::string& what) {
    return fail(code, std::string(kind.noun) + " " + file.string() + " " + what);
}

Result<std::size_t> read_secret_file(const SecretFile& kind, const std::filesystem::path& file,
                                     std::span<std::uint8_t> content, KeyReaders readers) {
    // Non-blocking: a FIFO by this name must not stop us before it is refused.
    const Descriptor fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    if (*fd < 0) {
        if (errno == ENOENT || errno == ENOTDIR) {
            return wrong(kind, file, errno,
                         std::string("is missing: make one with `") + kind.maker + "`" + kind.and_then);
        }
        return wrong(kind, file, errno, std::string("cannot be read: ") + std::strerror(errno));
    }
    // protocol: K2, K3
    // All checks are of the file that is open, whatever happens to its name.
    struct stat found {};
    if (::fstat(*fd, &found) != 0) {
        return wrong(kind, file, errno, std::string("cannot be examined: ") + std::strerror(errno));
    }
    if (!S_ISREG(found.st_mode)) {
        return wrong(kind, file, EINVAL,
                     std::string("is not a regular file: name the file that `") + kind.maker + "` made");
    }
    if (found.st_uid != ::geteuid() && found.st_uid != 0) {
        return wrong(
            kind, file, EACCES,
            fmt::format("belongs to user {}, who could read and replace it: make it yours with chown", found.st_uid));
    }
    if ((found.st_mode & 077) != 0 && !(readers == KeyReaders::group && is_roots_for_our_group(*fd, found))) {
        char mode[8];
        std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(found.st_mode & 07777));
        return wrong(kind, file, EACCES,
                     std::string("is open to others (mode ") + mode +
                         "): run chmod 600 on it, and make a new key if others may have read it" +
                         (found.st_uid == 0 ? hint_of_group(readers) : ""));
    }
    const ssize_t size = read_up_to(*fd, content.data(), content.size());
    if (size < 0) {
        return wrong(kind, file, errno, std::string("cannot be read: ") + std::strerror(errno));
    }
    return static_cast<std::size_t>(size);
}

namespace {

/// Gives the file `fresh` to the group that may read `file`, if that is a file for a group. False, with errno: the
/// kernel refuses.
bool keep_group(int fresh, const std::filesystem::path& file) {
    const Descriptor old(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    struct stat found {};
    if (*old < 0 || ::fstat(*old, &found) != 0 || !S_ISREG(found.st_mode)) return true;
    // A file that is not root's is none for a group.
    if ((found.st_mode & S_IRGRP) == 0 || ::geteuid() != 0 || !is_roots_for_our_group(*old, found)) return true;
    return ::fchown(fresh, 0, found.st_gid) == 0 && ::fchmod(fresh, found.st_mode & 0777) == 0;
}

}  // namespace

Result<void> write_secret_file(const SecretFile& kind, const std::filesystem::path& file,
                               std::span<const std::uint8_t> content, bool replace, KeyReaders readers) {
    struct stat found {};
    const std::string taken = std::string("exists: ") + kind.taken;
    if (!replace && ::lstat(file.c_str(), &found) == 0) {
        return wrong(kind, file, EEXIST, taken);
    }
    if (file.has_parent_path()) {
        if (auto done = make_folders(file.parent_path()); !done) {
            return done;
        }
    }
    std::string fresh = file.string() + ".XXXXXX";
    const Descriptor fd(::mkostemp(fresh.data(), O_CLOEXEC));  // mode 0600
    if (*fd < 0) {
        return wrong(kind, file, errno, std::string("cannot be written: ") + std::strerror(errno));
    }
    bool written = !replace || readers != KeyReaders::group || keep_group(*fd, file);
    written = written && write_all(*fd, content.data(), content.size()) && ::fsync(*fd) == 0;
    // link, unlike rename, never replaces a file that appeared meanwhile.
    written = written && (replace ? ::rename(fresh.c_str(), file.c_str()) : ::link(fresh.c_str(), file.c_str())) == 0;
    const int reason = errno;
    if (!written || !replace) {
        ::unlink(fresh.c_str());
    }
    if (!written) {
        return wrong(kind, file, reason,
                     reason == EEXIST ? taken : std::string("cannot be written: ") + std::strerror(reason));
    }
    return {};
}

}  // namespace cryptmpi::keys
