#include "command/run_report.hpp"

#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>

#include "command/job.hpp"
#include "command/shell.hpp"
#include "report/parts_folder.hpp"

namespace cryptmpi::command {
namespace {

namespace fs = std::filesystem;

report::Sign signing_with(const keys::ReportKey& key) {
    return [&key](std::string_view text) { return key.sign(text); };
}

}  // namespace

fs::path cache_file(const config::Environment& environment, const std::string& job) {
    fs::path cache;
    if (auto xdg = environment("XDG_CACHE_HOME"); xdg && xdg->starts_with('/')) {
        cache = *xdg;
    } else if (auto home = environment("HOME"); home && !home->empty()) {
        cache = fs::path(*home) / ".cache";
    } else {
        return {};
    }
    return cache / "cryptmpi" / "jobs" / (job + ".json");
}

Result<void> forget_report(const fs::path& file) {
    std::error_code error;
    fs::remove_all(file.string() + ".parts", error);
    if (std::error_code unknown; fs::is_directory(file, unknown)) return {};  // no report; prepare_parts() says so
    fs::remove(file, error);
    if (std::error_code unknown; !fs::exists(file, unknown)) return {};
    return fail(EACCES, "report " + file.string() + " of an earlier job cannot be removed: " + error.message());
}

Result<void> make_place_of_report(const fs::path& file, bool private_folder, const std::string& token, bool fresh_key) {
    if (file.empty()) return fail(ENOENT, "run: no place for the job's report: set HOME, or name a file with --report");
    std::error_code error;
    fs::create_directories(file.parent_path(), error);
    if (error) return fail(error.value(), "report folder " + file.parent_path().string() + ": " + error.message());
    if (private_folder) fs::permissions(file.parent_path(), fs::perms::owner_all, error);
    if (auto forgotten = forget_report(file); !forgotten) return forgotten;
    if (auto prepared = report::prepare_parts(file); !prepared) return prepared;
    return report::mark_parts(file, token, fresh_key);
}

Result<Signing> signing_of(const fs::path& job_key, const config::Settings& settings) {
    config::Settings of_job = settings;
    of_job.key_file = job_key;
    auto parts = report_key(of_job);
    if (!parts) return tl::unexpected<Error>(parts.error());
    auto report = report_key(settings);
    if (!report) return tl::unexpected<Error>(report.error());
    return Signing{std::move(*parts), std::move(*report)};
}

int conclude(const Signing& keys, const Collecting& parts, bool wanted) {
    const int status = parts.started.status;
    const int bad = status != 0 ? status : kNotSealed;
    report::Started started = parts.started;
    started.unfetched = collect_parts(parts, signing_with(keys.parts));
    const auto verdict =
        report::finish_job(parts.report_file, started, signing_with(keys.parts), signing_with(keys.report));
    if (!verdict) return complain(verdict.error().line, bad);
    const bool good = report::is_good(*verdict);
    if (wanted || !good) complain(verdict->line + " Report: " + parts.report_file.string(), 0);
    return good ? status : bad;
}

}  // namespace cryptmpi::command
