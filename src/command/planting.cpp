#include "command/planting.hpp"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>

namespace cryptmpi::command {
namespace {

namespace fs = std::filesystem;

constexpr int kMostLinks = 40;  // as the kernel follows

/// In a folder with the sticky bit, as /tmp, others can put files of theirs and can take away none of ours: whose each
/// one is tells them apart. In another folder that they may write, they could also put theirs in the place of ours,
/// between this look and its use.
std::string risk_of(const fs::path& place, const struct stat& found) {
    if (found.st_uid != 0 && found.st_uid != geteuid())
        return fmt::format("{} belongs to user {}", place.string(), found.st_uid);
    const bool keeps_ours = S_ISDIR(found.st_mode) && (found.st_mode & S_ISVTX) != 0;
    // A link's own permissions say nothing.
    if (!S_ISLNK(found.st_mode) && !keeps_ours && (found.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return fmt::format("others may write {}", place.string());
    return {};
}

}  // namespace

std::string planting_risk(const fs::path& file) {
    std::deque<fs::path> rest;
    const auto go_through = [&](const fs::path& path) {
        const fs::path words = path.relative_path();
        rest.insert(rest.begin(), words.begin(), words.end());
    };
    go_through(fs::absolute(file));
    fs::path place = "/";
    for (int links = 0;;) {
        struct stat found = {};
        if (lstat(place.c_str(), &found) != 0) return place.string() + ": " + std::strerror(errno);
        if (auto risk = risk_of(place, found); !risk.empty()) return risk;
        if (S_ISLNK(found.st_mode)) {
            std::error_code error;
            const fs::path target = fs::read_symlink(place, error);
            if (error || ++links > kMostLinks) return place.string() + " is a link that leads nowhere";
            go_through(target);
            place = target.is_absolute() ? fs::path("/") : place.parent_path();
        }
        if (rest.empty()) return {};
        place /= rest.front();
        rest.pop_front();
    }
}

}  // namespace cryptmpi::command
