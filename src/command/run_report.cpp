#include "command/run_report.hpp"

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/hex.hpp"
#include "base/pieces.hpp"
#include "command/earlier_report.hpp"
#include "command/job.hpp"
#include "command/shell.hpp"
#include "report/parts_folder.hpp"

namespace cryptmpi::command {
namespace {

namespace fs = std::filesystem;

report::Sign signing_with(const keys::ReportKey& key) {
    return [&key](std::string_view text) { return key.sign(text); };
}

/// Leads nowhere else, is no hidden file, and leaves room for what is written beside it.
bool is_plain_name(std::string_view job) {
    constexpr std::size_t kLongest = 100;
    constexpr std::string_view kPlain = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    return !job.empty() && job.size() <= kLongest && job.front() != '.' &&
           job.find_first_not_of(kPlain) == std::string_view::npos;
}

Result<std::string> digest_of(std::string_view job, const cryptmpi_kex& kex) {
    std::array<std::uint8_t, 32> digest{};
    const iovec in = piece(job.data(), job.size());
    if (kex.sha256(digest.data(), &in, 1) != CRYPTMPI_OK) return fail(EIO, "run: SHA-256 of the job's id failed");
    return hex(digest);
}

}  // namespace

Result<fs::path> cache_file(const config::Environment& environment, const std::string& job, const cryptmpi_kex& kex) {
    fs::path cache;
    if (auto xdg = environment("XDG_CACHE_HOME"); xdg && xdg->starts_with('/')) {
        cache = *xdg;
    } else if (auto home = environment("HOME"); home && !home->empty()) {
        cache = fs::path(*home) / ".cache";
    } else {
        return fs::path();
    }
    const auto name = is_plain_name(job) ? Result<std::string>(job) : digest_of(job, kex);
    if (!name) return tl::unexpected<Error>(name.error());
    return cache / "cryptmpi" / "jobs" / (*name + ".json");
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
