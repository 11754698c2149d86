#include "report/job_report.hpp"

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/json_text.hpp"
#include "report/guarded.hpp"
#include "report/json_file.hpp"
#include "report/judging.hpp"
#include "report/parts_folder.hpp"
#include "report/summary.hpp"
#include "report/whole_file.hpp"

namespace cryptmpi::report {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

/// For people's terminals, which obey control characters.
std::string to_ascii(const Json& json) {
    return json.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

constexpr const char* kNotSigned = " is not signed with this job key: it is not believed";
constexpr const char* kFreshGone =
    " is signed with its job's fresh key, which only cryptmpi run had, until the job ended, or by nobody of the job: "
    "it cannot be checked any more";

Result<Json> merge(const fs::path& report_file, const Started& started, const std::vector<Sign>& signers) {
    const fs::path folder = parts_folder(report_file);
    std::vector<Json> parts;
    std::vector<std::string> problems;
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
        if (entry->path().extension() != ".json") continue;
        auto part = read_json(entry->path());
        if (!part) {
            problems.push_back(part.error().line);
        } else if (!signers.empty() && !is_signed(kPartKind, *part, signers)) {
            // Who merges a job that it started has the job's own key.
            const bool gone = started.job_id.empty() && has_fresh_key(report_file);
            problems.push_back("part " + entry->path().string() + (gone ? kFreshGone : kNotSigned));
            // protocol: P4
        } else if (!started.job_id.empty() && part->value("job_id", "") != started.job_id) {
            problems.push_back("part " + entry->path().string() + " is of another job: it is not believed");
        } else {
            parts.push_back(std::move(*part));
        }
    }
    if (error && error.value() != ENOENT) {
        return fail(error.value(), "cannot read the report's parts in " + folder.string() + ": " + error.message());
    }
    if (parts.empty() && problems.empty() && started.ranks < 0) {
        return fail(ENOENT, "no process of the job wrote a part of its report into " + folder.string() +
                                "; it must be a folder that all nodes share");
    }
    return merged(std::move(parts), std::move(problems), started);
}

/// What a rank that was killed wrote when its job had been merged is that job's.
bool has_parts_of_another(const fs::path& report_file, const std::string& job_id) {
    const auto parts = raw_parts(report_file);
    return std::any_of(parts.begin(), parts.end(), [&](const auto& part) {
        const auto json = parse_json<Json>(part.second);
        return job_id.empty() || !json.is_object() || json.value("job_id", "") != job_id;
    });
}

}  // namespace

Result<Verdict> finish_job(const fs::path& report_file, const Started& started, const Sign& sign_of_parts,
                           const Sign& sign_of_report) {
    return guarded(report_file, [&]() -> Result<Verdict> {
        auto job = merge(report_file, started, {sign_of_parts});
        if (!job) return tl::unexpected<Error>(job.error());
        // Of what was merged, not of the file, which somebody else may write.
        Verdict verdict = verdict_of(*job);
        const auto key_of_job = fingerprint(sign_of_parts);
        const auto key_of_report = fingerprint(sign_of_report);
        if (!key_of_job) return tl::unexpected<Error>(key_of_job.error());
        if (!key_of_report) return tl::unexpected<Error>(key_of_report.error());
        (*job)["job_key"] = *key_of_job;
        (*job)["report_key"] = *key_of_report;
        auto text = signed_text(kReportKind, std::move(*job), sign_of_report);
        if (!text) return tl::unexpected<Error>(text.error());
        if (auto written = write_file(report_file, *text); !written) return tl::unexpected<Error>(written.error());
        std::error_code ignored;
        fs::remove_all(parts_folder(report_file), ignored);
        return verdict;
    });
}

std::vector<std::string> nodes_of_parts(const fs::path& report_file, const Started& started, const Sign& sign) {
    std::vector<std::string> nodes;
    const auto job = guarded(report_file, [&] { return merge(report_file, started, {sign}); });
    if (!job) return nodes;
    for (const auto& node : job->at("nodes")) nodes.push_back(node.value("name", ""));
    return nodes;
}

Result<Reading> Reading::of(const fs::path& report_file, const Sign& sign) {
    return of(report_file, sign ? std::vector{sign} : std::vector<Sign>());
}

Result<Reading> Reading::of(const fs::path& report_file, const std::vector<Sign>& signers) {
    return guarded(report_file, [&]() -> Result<Reading> {
        std::error_code ignored;
        const bool merged_already =
            fs::exists(report_file, ignored) || !fs::is_directory(parts_folder(report_file), ignored);
        auto job = merged_already ? read_json(report_file) : merge(report_file, {}, signers);
        if (!job) return tl::unexpected<Error>(job.error());
        if (merged_already && has_parts_of_another(report_file, job->value("job_id", "")))
            return fail(EEXIST, "report " + report_file.string() + " is of one job, and " +
                                    parts_folder(report_file).string() +
                                    " has parts of another one: remove the one that is not meant");
        if (!job->contains("totals") || !job->contains("processes"))
            return fail(EINVAL, report_file.string() + " is not a job's report of CryptMPI");
        Reading reading;
        reading.verdict_ = verdict_of(*job);
        reading.verified_ = !signers.empty() && (!merged_already || is_signed(kReportKind, *job, signers));
        if (signers.empty()) {
            reading.verdict_.by_settings = false;
            reading.verdict_.line = "NOT VERIFIED, for want of the job key: " + reading.verdict_.line;
        } else if (!reading.verified_) {
            reading.verdict_ = {
                Outcome::failed, false,
                "FAILED: the report is not signed with this job key; it would say: " + reading.verdict_.line};
        }
        const Summary summary = summary_of(*job, reading.verdict_, !signers.empty());
        reading.summary_ = text_of(summary);
        reading.html_ = html_of(summary);
        reading.metrics_ = metrics_of(*job, summary);
        reading.json_ = to_ascii(*job);
        return reading;
    });
}

}  // namespace cryptmpi::report
