#include "report/parts_folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string_view>

#include "config/places.hpp"
#include "report/guarded.hpp"
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

}  // namespace

fs::path parts_folder(const fs::path& report_file) {
    return report_file.string() + ".parts";
}

Result<void> make_parts_folder(const fs::path& report_file) {
    const fs::path folder = parts_folder(report_file);
    std::error_code error;
    // The place on a node that does not see the report's folder is for this user alone, whoever is the first there.
    const fs::path parent = folder.parent_path();
    if (parent.native().starts_with(config::local_report_folder("").native())) (void)::mkdir(parent.c_str(), S_IRWXU);
    fs::create_directories(parent, error);
    constexpr mode_t kOthersRead = 0755;
    if (::mkdir(folder.c_str(), kOthersRead) == 0 || errno == EEXIST) return {};
    return fail(errno, "cannot make report folder " + folder.string() + ": " + std::strerror(errno));
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
    return guarded(report_file, [&] {
        return write_file(config::report_token_file(report_file),
                          token + "\n" + std::string(fresh_key ? kFreshKeyMark : "") + "\n");
    });
}

std::string join_parts(const fs::path& report_file, const std::string& fresh) {
    if (!make_parts_folder(report_file)) return {};
    const auto written = write_first(config::report_token_file(report_file), fresh + "\n");
    const std::string found = written ? token_of(report_file) : std::string();
    return config::is_report_token(found) ? found : std::string();
}

bool has_token(const fs::path& report_file, const std::string& token) {
    return token_of(report_file) == token;
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
        return write_file(file, text);
    });
}

}  // namespace cryptmpi::report
