#include "command/earlier_report.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "config/places.hpp"
#include "report/json_file.hpp"
#include "report/parts_folder.hpp"

namespace cryptmpi::command {
namespace {

namespace fs = std::filesystem;

bool is_empty_file(const fs::path& file) {
    std::error_code error;
    return fs::is_regular_file(file, error) && fs::file_size(file, error) == 0 && !error;
}

/// One JSON object that has all of these. Looks at the first byte before it reads the whole: a file that only has the
/// name of a report may be large.
bool is_object_with(const fs::path& file, std::initializer_list<const char*> keys) {
    std::error_code error;
    if (!fs::is_regular_file(file, error) || std::ifstream(file).peek() != '{') return false;
    const auto json = report::read_json(file);
    return json && std::all_of(keys.begin(), keys.end(), [&](const char* key) { return json->contains(key); });
}

/// Nothing is lost that is not CryptMPI's. A link that leads nowhere holds nothing.
Result<void> check_report(const fs::path& file) {
    std::error_code unknown;
    // Totals and processes are also what other programs count.
    if (!fs::exists(file, unknown) || is_empty_file(file) ||
        is_object_with(file, {"job_id", "totals", "processes", "not_sealed", "signature"}))
        return {};
    return fail(EEXIST, "report " + file.string() +
                            ": what is there is no whole report of CryptMPI, and stays; name another file for the "
                            "report, or remove this one");
}

/// The name of a file that was being written, under which its writer has left it: NAME.PID.new.
std::string_view without_new(std::string_view name) {
    constexpr std::string_view kNew = ".new";
    if (!name.ends_with(kNew)) return name;
    const auto before = name.substr(0, name.size() - kNew.size());
    const auto dot = before.rfind('.');
    const bool numbered = dot != std::string_view::npos && dot + 1 < before.size() &&
                          before.find_first_not_of("0123456789", dot + 1) == std::string_view::npos;
    return numbered ? before.substr(0, dot) : name;
}

bool has_token(const fs::path& file) {
    std::ifstream stream(file);
    std::string line;
    return std::getline(stream, line) && config::is_report_token(line);
}

/// A part, a note or a token that was never written to its end.
bool begins_as_ours(const fs::path& file) {
    const int first = std::ifstream(file).peek();
    return first == '{' || (std::isxdigit(first) != 0 && file.filename().string().starts_with("token"));
}

/// Does CryptMPI write such a file beside a report's parts?
bool is_of_parts(const fs::path& file) {
    const std::string name = file.filename().string();
    const fs::path whole = without_new(name);
    const bool part = whole.extension() == ".json" || whole.extension() == report::kNote;
    if (!part && whole != "token" && whole != "trial") return false;
    std::error_code unknown;
    const auto kind = fs::symlink_status(file, unknown).type();
    if (kind == fs::file_type::symlink) return true;  // somebody's who wanted it followed; what it leads to stays
    if (kind != fs::file_type::regular) return false;
    if (is_empty_file(file)) return true;
    if (whole != name) return begins_as_ours(file);
    if (!part) return whole == "token" && has_token(file);
    // Batch systems and their tools write job_id, too.
    return is_object_with(file, {"job_id", whole.extension() == report::kNote ? "host" : "library", "signature"});
}

/// What CryptMPI has written there. Error: there is something else.
Result<std::vector<fs::path>> parts_in(const fs::path& folder) {
    std::vector<fs::path> files;
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
        if (!is_of_parts(entry->path()))
            return fail(EEXIST, "report folder " + folder.string() + ": " + entry->path().filename().string() +
                                    " is nothing that CryptMPI writes there, and stays; name another file for the "
                                    "report, or move this one away");
        files.push_back(entry->path());
    }
    return files;
}

Result<std::vector<fs::path>> files_of(const fs::path& report_file) {
    const fs::path folder = report::parts_folder(report_file);
    std::error_code unknown;
    const auto kind = fs::symlink_status(folder, unknown).type();
    if (kind == fs::file_type::not_found || kind == fs::file_type::none) return std::vector<fs::path>{};
    if (kind != fs::file_type::directory && kind != fs::file_type::symlink && !is_empty_file(folder))
        return fail(ENOTDIR, "report folder " + folder.string() + " is no folder; name another file for the report");
    auto files = kind == fs::file_type::directory ? parts_in(folder) : std::vector<fs::path>{};
    if (files) files->push_back(folder);
    return files;
}

}  // namespace

Result<void> forget_report(const fs::path& file) {
    std::error_code unknown;
    if (fs::is_directory(file, unknown)) return {};  // no report; prepare_parts() says so
    if (auto checked = check_report(file); !checked) return checked;
    auto files = files_of(file);
    if (!files) return tl::unexpected<Error>(files.error());
    files->push_back(file);
    std::error_code why;
    for (const auto& one : *files) {
        fs::remove(one, why);
        if (!fs::exists(fs::symlink_status(one, unknown))) continue;
        return fail(EACCES, "report " + one.string() + " of an earlier job cannot be removed: " + why.message());
    }
    return {};
}

}  // namespace cryptmpi::command
