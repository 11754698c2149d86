#include "report/parts_folder.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>

#include "base/descriptor.hpp"
#include "config/places.hpp"
#include "report/guarded.hpp"
#include "report/waiting_parts.hpp"
#include "report/whole_file.hpp"

namespace cryptmpi::report {

namespace fs = std::filesystem;

namespace {

constexpr std::string_view kFreshKeyMark = "fresh key";

bool is_part_or_note(const fs::path& file) {
    return file.extension() == ".json" || file.extension() == kNote;
}

/// The first line of the folder's token file; empty: there is none.
std::string token_of(const fs::path& report_file) {
    std::ifstream stream(config::report_token_file(report_file));
    std::string line;
    std::getline(stream, line);
    return line;
}

constexpr mode_t kOthersRead = 0755;

Result<int> cannot_make(const fs::path& folder) {
    return fail(errno, "cannot make report folder " + folder.string() + ": " + std::strerror(errno));
}

Result<int> open_in_waiting(const fs::path& folder) {
    const auto place = make_waiting_folder(folder.parent_path());
    if (!place) return place;
    const Descriptor held(*place);
    const std::string name = folder.filename();
    if (::mkdirat(*held, name.c_str(), kOthersRead) != 0 && errno != EEXIST) return cannot_make(folder);
    const int opened = ::openat(*held, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return opened < 0 ? cannot_make(folder) : Result<int>(opened);
}

Result<int> open_beside_report(const fs::path& folder) {
    std::error_code ignored;
    fs::create_directories(folder.parent_path(), ignored);
    if (::mkdir(folder.c_str(), kOthersRead) != 0 && errno != EEXIST) return cannot_make(folder);
    const int opened = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return opened < 0 ? cannot_make(folder) : Result<int>(opened);
}

/// Made where it is missing; whose it is, is not asked. The caller closes it.
Result<int> open_any(const fs::path& report_file) {
    const fs::path folder = parts_folder(report_file);
    return is_waiting_place(report_file) ? open_in_waiting(folder) : open_beside_report(folder);
}

/// Root may do anything anyway.
bool is_trusted(uid_t owner) {
    return owner == 0 || owner == ::geteuid();
}

Result<void> check_owner(int folder, const fs::path& shown) {
    struct stat found {};
    if (::fstat(folder, &found) != 0)
        return fail(errno, "report folder " + shown.string() + ": " + std::strerror(errno));
    if (is_trusted(found.st_uid)) return {};
    return fail(EPERM, belongs_to_another(shown, found.st_uid));
}

}  // namespace

fs::path parts_folder(const fs::path& report_file) {
    return report_file.string() + ".parts";
}

Result<void> make_parts_folder(const fs::path& report_file) {
    const auto opened = open_any(report_file);
    if (!opened) return tl::unexpected<Error>(opened.error());
    ::close(*opened);
    return {};
}

Result<void> check_parts_folder(const fs::path& report_file) {
    const auto opened = open_any(report_file);
    if (!opened) {
        const int code = opened.error().code;
        const bool other = code == ENOTDIR || code == ELOOP || code == EPERM;
        return other ? Result<void>(tl::unexpected<Error>(opened.error())) : Result<void>();
    }
    const Descriptor held(*opened);
    return check_owner(*held, parts_folder(report_file));
}

Result<void> write_among_parts(const fs::path& report_file, const KnownFolder& known, const std::string& name,
                               const std::string& text) {
    const auto opened = open_any(report_file);
    if (!opened) return tl::unexpected<Error>(opened.error());
    const Descriptor held(*opened);
    const fs::path folder = parts_folder(report_file);
    // A folder of another user's may be the job's all the same: whoever started it has looked.
    const bool is_known = config::compare_seen(report_file, known.token, known.seen) == config::Seen::same;
    if (!is_known) {
        if (auto ours = check_owner(*held, folder); !ours) return ours;
    }
    return write_file_in(*held, name, folder / name, text);
}

Result<void> check_place(const fs::path& report_file, const KnownFolder& known) {
    if (known.token.empty()) return {};
    if (report_file.parent_path() == config::local_report_folder(known.token)) return check_mark(known.token);
    const auto seen = config::compare_seen(report_file, known.token, known.seen);
    const auto there = config::token_there(report_file, known.token);
    const bool readable = there == config::TokenThere::same;
    const bool told = readable || (there == config::TokenThere::unreadable && seen == config::Seen::same);
    if (told && seen != config::Seen::another) return {};
    return fail(ENOENT,
                parts_folder(report_file).string() + " is not the job's folder, or is not to be seen from here");
}

std::optional<unsigned> other_owner(const fs::path& report_file) {
    struct stat found {};
    if (::lstat(parts_folder(report_file).c_str(), &found) != 0 || is_trusted(found.st_uid)) return std::nullopt;
    return found.st_uid;
}

bool is_a_strangers(const fs::path& parts_folder, const fs::path& report_file) {
    struct stat folder {};
    struct stat report {};
    if (::lstat(parts_folder.c_str(), &folder) != 0 || ::stat(report_file.c_str(), &report) != 0) return false;
    return folder.st_uid != ::geteuid() && folder.st_uid != report.st_uid;
}

Result<void> prepare_parts(const fs::path& report_file) {
    return guarded(report_file, [&]() -> Result<void> {
        const fs::path folder = parts_folder(report_file);
        if (auto made = make_parts_folder(report_file); !made) return made;
        if (auto ours = check_own_folder(folder); !ours) return ours;
        std::error_code error;
        fs::permissions(folder, fs::perms::group_write | fs::perms::others_write, fs::perm_options::remove, error);
        if (error) return fail(error.value(), "cannot close report folder " + folder.string() + ": " + error.message());
        if (fs::is_directory(report_file, error))
            return fail(EISDIR, "report " + report_file.string() + " is a folder");
        // Beside the report and among its parts: both are written by name and renamed.
        for (const fs::path& one : {folder / "trial", report_file}) {
            if (auto tried = try_to_write(one); !tried) return tried;
        }
        return {};
    });
}

Result<void> mark_parts(const fs::path& report_file, const std::string& token, bool fresh_key) {
    // Of a job that is started by hand others may read it: it names no place where they could put a folder of theirs.
    constexpr unsigned kForOwner = 0600;
    return guarded(report_file, [&] {
        const fs::path file = config::report_token_file(report_file);
        const std::string text = token + "\n" + std::string(fresh_key ? kFreshKeyMark : "") + "\n";
        return write_file_in(AT_FDCWD, file.string(), file, text, kForOwner);
    });
}

std::string join_parts(const fs::path& report_file, const std::string& fresh) {
    if (!make_parts_folder(report_file)) return {};
    const auto written = write_first(config::report_token_file(report_file), fresh + "\n");
    const std::string found = written ? token_of(report_file) : std::string();
    return config::is_report_token(found) ? found : std::string();
}

bool has_token(const fs::path& report_file, const std::string& token) {
    return config::token_there(report_file, token) != config::TokenThere::another;
}

void take_token(const fs::path& report_file) {
    (void)::unlink(config::report_token_file(report_file).c_str());
}

bool has_fresh_key(const fs::path& report_file) {
    std::ifstream stream(config::report_token_file(report_file));
    for (std::string line; std::getline(stream, line);) {
        if (line == kFreshKeyMark) return true;
    }
    return false;
}

std::map<std::string, std::string> raw_parts(const fs::path& report_file) {
    std::map<std::string, std::string> parts;
    std::error_code error;
    for (fs::directory_iterator entry(parts_folder(report_file), error), end; !error && entry != end;
         entry.increment(error)) {
        if (!is_part_or_note(entry->path())) continue;
        std::ifstream stream(entry->path(), std::ios::binary);
        parts[entry->path().filename().string()] = {std::istreambuf_iterator<char>(stream),
                                                    std::istreambuf_iterator<char>()};
    }
    return parts;
}

Result<void> add_raw_part(const fs::path& report_file, const std::string& name, const std::string& text) {
    return guarded(report_file, [&]() -> Result<void> {
        constexpr std::size_t kLongest = 255;
        const fs::path file = parts_folder(report_file) / name;
        const bool plain = name.find('/') == std::string::npos && !name.starts_with('.') && name.size() < kLongest &&
                           is_part_or_note(file);
        if (!plain) return fail(EINVAL, "\"" + name + "\" is no name of a report's part");
        return write_among_parts(report_file, {}, name, text);
    });
}

bool parts_wait(const std::string& token) {
    if (token.empty()) return false;
    const auto parts = waiting_parts(token);
    return parts && !parts->empty();
}

Result<std::map<std::string, std::string>> waiting_parts(const std::string& token) {
    const fs::path folder = config::local_report_folder(token);
    std::map<std::string, std::string> parts;
    const auto opened = open_waiting_folder(folder);
    if (!opened && opened.error().code == ENOENT) return parts;
    if (!opened) return tl::unexpected<Error>(opened.error());
    const Descriptor held(*opened);  // nobody else can take it away, nor rename what is in it
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
        if (entry->path().extension() == ".parts") parts.merge(raw_parts(folder / entry->path().stem()));
    }
    return parts;
}

}  // namespace cryptmpi::report
