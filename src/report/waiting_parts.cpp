#include "report/waiting_parts.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/descriptor.hpp"
#include "config/places.hpp"
#include "report/whole_file.hpp"

namespace cryptmpi::report {

namespace fs = std::filesystem;

namespace {

constexpr const char* kMark = "mark";
constexpr unsigned kForOwner = 0600;
constexpr mode_t kOthers = S_IRWXG | S_IRWXO;

bool is_for_all_without_owner(const struct stat& parent) {
    return (parent.st_mode & (S_IWGRP | S_IWOTH)) != 0 && (parent.st_mode & S_ISVTX) == 0;
}

/// Empty: parts may wait there.
std::string unfit(int folder) {
    struct stat found {};
    struct stat parent {};
    if (::fstat(folder, &found) != 0 || ::fstatat(folder, "..", &parent, 0) != 0) return std::strerror(errno);
    if (found.st_uid != ::geteuid()) return fmt::format("it belongs to user {}", found.st_uid);
    if ((found.st_mode & kOthers) != 0) return "it is open to other users";
    if (is_for_all_without_owner(parent)) return "others may take it away";
    return {};
}

Result<void> not_ours(const fs::path& folder, const std::string& why) {
    return fail(EPERM, "folder " + folder.string() + ": " + why);
}

std::string content_in(int folder, const char* name) {
    const Descriptor file(::openat(folder, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC));
    std::array<char, 200> text{};
    const ssize_t size = *file < 0 ? 0 : ::read(*file, text.data(), text.size());
    return size > 0 ? std::string(text.data(), static_cast<std::size_t>(size)) : std::string();
}

}  // namespace

bool is_waiting_place(const fs::path& report_file) {
    return report_file.parent_path().native().starts_with(config::local_report_folder("").native());
}

Result<int> open_waiting_folder(const fs::path& folder) {
    const int opened = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (opened < 0) {
        const int code = errno;
        const bool other = code == ENOTDIR || code == ELOOP;
        return fail(code, "folder " + folder.string() + ": " + (other ? "it is no folder" : std::strerror(code)));
    }
    Descriptor held(opened);
    if (const auto why = unfit(opened); !why.empty()) return tl::unexpected<Error>(not_ours(folder, why).error());
    return held.release();
}

Result<int> make_waiting_folder(const fs::path& folder) {
    (void)::mkdir(folder.c_str(), S_IRWXU);  // who is the first there makes it
    return open_waiting_folder(folder);
}

Result<void> mark_waiting_folder(const std::string& token) {
    const fs::path folder = config::local_report_folder(token);
    const auto opened = make_waiting_folder(folder);
    if (!opened) return tl::unexpected<Error>(opened.error());
    const Descriptor held(*opened);
    return write_file_in(*held, kMark, folder / kMark, config::folder_identity(*held) + "\n", kForOwner);
}

Result<void> check_mark(const std::string& token) {
    const fs::path folder = config::local_report_folder(token);
    const auto opened = open_waiting_folder(folder);
    if (!opened) return tl::unexpected<Error>(opened.error());
    const Descriptor held(*opened);
    const std::string identity = config::folder_identity(*held);
    if (!identity.empty() && content_in(*held, kMark) == identity + "\n") return {};
    return fail(ENOENT, "folder " + folder.string() +
                            " is not the node's, or nobody fetches from there any more, since the job has ended");
}

void take_mark(const std::string& token) {
    const auto opened = open_waiting_folder(config::local_report_folder(token));
    if (!opened) return;
    const Descriptor held(*opened);
    (void)::unlinkat(*held, kMark, 0);
}

void remove_waiting(const std::string& token) {
    const fs::path folder = config::local_report_folder(token);
    const auto opened = open_waiting_folder(folder);
    if (!opened) return;
    const Descriptor held(*opened);
    std::error_code ignored;
    fs::remove_all(folder, ignored);
}

}  // namespace cryptmpi::report
