#include "keys/key_in_memory.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "base/descriptor.hpp"
#include "base/hex.hpp"
#include "keys/memory_file.hpp"

namespace cryptmpi::keys {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "cryptmpi-key-";
constexpr std::size_t kNameBytes = 16;
constexpr int kTries = 100;  // of who meets another one that makes or removes the same file
constexpr useconds_t kPause_us = 10000;
constexpr const char* kElsewhere = "on a disk";

tl::unexpected<Error> wrong(const fs::path& file, int code, const std::string& what) {
    return fail(code, "the job's key cannot be kept in this node's memory: " + file.string() + ": " + what);
}

tl::unexpected<Error> wrong_by_errno(const fs::path& file) {
    const int code = errno;
    return wrong(file, code, std::strerror(code));
}

/// The file has this name no more, or another one has.
bool is_gone(int fd, const fs::path& file) {
    struct stat open_one = {};
    struct stat named = {};
    return ::fstat(fd, &open_one) != 0 || ::lstat(file.c_str(), &named) != 0 || open_one.st_ino != named.st_ino ||
           open_one.st_dev != named.st_dev;
}

/// Needs the exclusive lock.
void wipe_and_remove(int fd, const fs::path& file) {
    constexpr std::array<char, kJobKeyLineSize> kZeros{};
    (void)!::pwrite(fd, kZeros.data(), kZeros.size(), 0);
    if (!is_gone(fd, file)) ::unlink(file.c_str());
}

bool wipe_if_last(int fd, const fs::path& file) {
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) return false;
    wipe_and_remove(fd, file);
    return true;
}

Result<std::string> random_name(const cryptmpi_kex& kex) {
    std::array<std::uint8_t, kNameBytes> bytes{};
    if (kex.random(bytes.data(), bytes.size()) != CRYPTMPI_OK) return fail(EIO, "no random bytes");
    return std::string(kPrefix) + hex(bytes);
}

/// Writes a file of another name that is locked before it is written, and gives it this one; nobody sees a part of it.
/// Returns its descriptor; -1: there is one of this name, or ours was
/// swept away.
Result<int> make(const fs::path& file, const JobKey& key) {
    std::string fresh = file.string() + ".XXXXXX";
    Descriptor fd(::mkostemp(fresh.data(), O_CLOEXEC));  // mode 0600
    if (*fd < 0) return wrong_by_errno(file);
    const auto given_up = [&](int code, const std::string& what) {
        wipe_and_remove(*fd, fresh);
        return wrong(file, code, what);
    };
    // A sweep may have come in between.
    if (::flock(*fd, LOCK_SH | LOCK_NB) != 0 || is_gone(*fd, fresh)) return -1;
    if (const std::string why = unfit(*fd, kElsewhere); !why.empty()) return given_up(EPERM, why);
    Secret<kJobKeyLineSize> line;
    write_key_line(key, line);
    const ssize_t written = ::pwrite(*fd, line.data(), line.size(), 0);
    if (written != static_cast<ssize_t>(line.size())) return given_up(ENOSPC, "there is no room");
    const bool named = ::link(fresh.c_str(), file.c_str()) == 0;
    const int code = errno;
    ::unlink(fresh.c_str());
    if (named) return fd.release();
    wipe_and_remove(*fd, fresh);
    if (code == EEXIST) return -1;
    return wrong(file, code, std::strerror(code));
}

/// Nothing: it has none.
std::unique_ptr<JobKey> read_key(int fd) {
    Secret<kJobKeyLineSize + 1> content;
    const ssize_t size = ::pread(fd, content.data(), content.size(), 0);
    auto key = std::make_unique<JobKey>();
    const bool whole = size == static_cast<ssize_t>(kJobKeyLineSize) &&
                       parse_job_key({content.data(), kJobKeyLineSize}, *key).has_value();
    return whole ? std::move(key) : nullptr;
}

/// Holds the file that is there. -1: it goes away, or is gone.
Result<int> join(const fs::path& file, const JobKey& key) {
    Descriptor fd(::open(file.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    if (*fd < 0 && errno == ENOENT) return -1;
    if (*fd < 0) return wrong_by_errno(file);
    if (const std::string why = unfit(*fd, kElsewhere); !why.empty()) return wrong(file, EPERM, why);
    if (::flock(*fd, LOCK_SH | LOCK_NB) != 0 || is_gone(*fd, file)) return -1;
    const auto found = read_key(*fd);
    if (!found) return wrong(file, EINVAL, "it has no key");
    std::uint8_t difference = 0;
    for (std::size_t i = 0; i < kJobKeySize; ++i)
        difference = static_cast<std::uint8_t>(difference | (found->bytes[i] ^ key.bytes[i]));
    if (difference != 0) return wrong(file, EEXIST, "it has another key than the one that came");
    return fd.release();
}

}  // namespace

Result<fs::path> KeyInMemory::new_file(const cryptmpi_kex& kex, const fs::path& folder) {
    auto name = random_name(kex);
    if (!name) return tl::unexpected<Error>(name.error());
    return folder / *name;
}

bool KeyInMemory::is_file_name(const fs::path& file, const fs::path& folder) {
    const std::string name = file.filename().string();
    return file.parent_path() == folder && name.size() == kPrefix.size() + 2 * kNameBytes &&
           name.starts_with(kPrefix) && name.find_first_not_of(kHexDigits, kPrefix.size()) == std::string::npos;
}

Result<KeyInMemory> KeyInMemory::keep(const fs::path& file, const JobKey& key) {
    for (int tries = 0; tries < kTries; ++tries) {
        for (const auto& step : {make, join}) {
            auto fd = step(file, key);
            if (!fd) return tl::unexpected<Error>(fd.error());
            if (*fd < 0) continue;
            KeyInMemory kept(file, *fd);
            kept.pin();
            return kept;
        }
        ::usleep(kPause_us);
    }
    return wrong(file, EAGAIN, "others make and remove it all the time");
}

KeyInMemory::KeyInMemory(KeyInMemory&& other) noexcept
    : file_(std::move(other.file_)),
      fd_(std::exchange(other.fd_, -1)),
      pinned_(std::exchange(other.pinned_, nullptr)) {}

KeyInMemory& KeyInMemory::operator=(KeyInMemory&& other) noexcept {
    std::swap(file_, other.file_);
    std::swap(fd_, other.fd_);
    std::swap(pinned_, other.pinned_);
    return *this;
}

KeyInMemory::~KeyInMemory() {
    if (fd_ >= 0) (void)wipe_if_last(fd_, file_);
    leave();
}

void KeyInMemory::leave() {
    if (pinned_ != nullptr) ::munmap(pinned_, kJobKeyLineSize);
    if (fd_ >= 0) ::close(fd_);
    pinned_ = nullptr;
    fd_ = -1;
}

void KeyInMemory::restore() {
    if (fd_ < 0 || !is_gone(fd_, file_)) return;
    auto key = read_key(fd_);
    if (!key) return;
    // What cannot be made now may be made the next time.
    if (auto again = keep(file_, *key)) *this = std::move(*again);
}

void KeyInMemory::pin() {
    if (pinned_ == nullptr) {
        void* const at = ::mmap(nullptr, kJobKeyLineSize, PROT_READ, MAP_SHARED, fd_, 0);
        if (at == MAP_FAILED) return;
        pinned_ = at;
        (void)::madvise(pinned_, kJobKeyLineSize, MADV_DONTDUMP);
    }
    (void)::mlock(pinned_, kJobKeyLineSize);  // as far as the user's limit goes
}

std::size_t sweep_keys(const fs::path& folder) {
    std::size_t swept = 0;
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
        const auto& file = entry->path();
        if (!file.filename().native().starts_with(kPrefix)) continue;
        const Descriptor fd(::open(file.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
        if (*fd < 0 || !unfit(*fd, kElsewhere).empty()) continue;
        swept += wipe_if_last(*fd, file) ? 1 : 0;
    }
    return swept;
}

}  // namespace cryptmpi::keys
