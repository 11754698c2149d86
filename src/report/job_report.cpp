#include "report/job_report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>

#include "base/json_text.hpp"
#include "report/guarded.hpp"
#include "report/json_file.hpp"
#include "report/judging.hpp"
#include "report/late_parts.hpp"
#include "report/live.hpp"
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
constexpr const char* kLateAndDoubted =
    " came after the job's end and is not signed with this job key: what it says cannot be checked";
constexpr const char* kFreshGone =
    " is signed with its job's fresh key, which only cryptmpi run had, until the job ended, or by nobody of the job: "
    "it cannot be checked any more";

/// Parts that may be believed, and what is wrong with the others.
struct Parts {
    std::vector<Json> believed;
    std::vector<Json> doubted;  // not signed by any of the signers
    std::vector<std::string> problems;
};

/// Why a part is not believed; empty: it is.
std::string doubt(const Json& part, const Started& started) {
    // protocol: P4
    if (!started.job_id.empty() && part.value("job_id", "") != started.job_id)
        return " is of another job: it is not believed";
    // protocol: P8
    if (!started.token.empty() && part.value("report_token", "") != started.token)
        return " is of another job, which was given the same id: it is not believed";
    return {};
}

/// `not_signed`: what is said of a part that none of the signers has signed.
Result<Parts> read_parts(const fs::path& report_file, const Started& started, const std::vector<Sign>& signers,
                         const char* not_signed) {
    const fs::path folder = parts_folder(report_file);
    Parts parts;
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
        if (entry->path().extension() != ".json") continue;
        auto part = read_json(entry->path());
        if (!part) {
            parts.problems.push_back(part.error().line);
        } else if (!signers.empty() && !is_signed(kPartKind, *part, signers)) {
            parts.problems.push_back("part " + entry->path().string() + not_signed);
            parts.doubted.push_back(std::move(*part));
        } else if (const auto why = doubt(*part, started); !why.empty()) {
            parts.problems.push_back("part " + entry->path().string() + why);
        } else {
            parts.believed.push_back(std::move(*part));
        }
    }
    if (error && error.value() != ENOENT) {
        return fail(error.value(), "cannot read the report's parts in " + folder.string() + ": " + error.message());
    }
    return parts;
}

std::string taken_away(const fs::path& report_file) {
    return "the report's folder " + parts_folder(report_file).string() +
           " was removed or taken by another job while this one ran: what it had of this job is not known";
}

/// Whose parts these are, in the numbers of this process's user namespace; empty: not known.
std::set<std::int64_t> users_here(const std::vector<Json>& parts) {
    std::set<std::int64_t> users;
    const std::uint64_t own = own_user_namespace();
    for (const auto& part : parts) {
        const bool here = own != 0 && part.value("user_namespace", std::uint64_t{0}) == own;
        if (here) users.insert(part.value("user", std::int64_t{-1}));
    }
    return users;
}

/// In a folder like /tmp anybody may be the first to make the folder of the parts, and then takes out what he likes.
std::optional<std::string> owned_by_stranger(const fs::path& report_file, const std::vector<Json>& parts) {
    const auto owner = other_owner(report_file);
    const auto users = users_here(parts);
    if (!owner || users.empty() || users.count(*owner) != 0) return std::nullopt;
    return fmt::format(
        "the report's folder {} belongs to user {}, who is none of this job's and could take parts out "
        "of it: what it had of this job is not known",
        parts_folder(report_file).string(), *owner);
}

/// `whole`: the folder has been the job's to its end.
Result<Json> merge(const fs::path& report_file, const Started& started, const std::vector<Sign>& signers, bool whole) {
    // Who merges a job that it started has the job's own key.
    const bool gone = started.job_id.empty() && has_fresh_key(report_file);
    auto parts = read_parts(report_file, started, signers, gone ? kFreshGone : kNotSigned);
    if (!parts) return tl::unexpected<Error>(parts.error());
    if (parts->believed.empty() && parts->problems.empty() && started.ranks < 0) {
        return fail(ENOENT, "no process of the job wrote a part of its report into " +
                                parts_folder(report_file).string() + "; it must be a folder that all nodes share");
    }
    if (!whole) parts->problems.push_back(taken_away(report_file));
    if (auto stranger = owned_by_stranger(report_file, parts->believed))
        parts->problems.push_back(std::move(*stranger));
    if (std::any_of(parts->believed.begin(), parts->believed.end(), [&](const Json& part) {
            const auto token = part.value("folder_token", "");
            return !token.empty() && !has_token(report_file, token);
        }))
        parts->problems.push_back(taken_away(report_file));
    return merged(std::move(parts->believed), std::move(parts->problems), started);
}

bool is_whole(const fs::path& report_file, const Started& started) {
    return started.token.empty() || has_token(report_file, started.token);
}

/// Of a job whose key is gone, nobody can tell a part from a forged one. One that tells of no trouble would change
/// nothing if it were believed, as that of a daemon that outlives its launcher: it is said, and alarms nobody.
bool is_harmless(const Json& job, const Parts& late) {
    return job.value("job_key", "") != job.value("report_key", "") && late.doubted.size() == late.problems.size() &&
           std::none_of(late.doubted.begin(), late.doubted.end(), has_trouble);
}

/// Adds what was reported after the end of a job whose report was made.
Result<void> add_late_parts(Json& job, const fs::path& report_file, const std::vector<Sign>& signers, bool strangers) {
    Started started{job.value("job_id", "")};
    started.token = job.value("report_token", "");
    auto late = read_parts(report_file, started, signers, kLateAndDoubted);
    if (!late) return tl::unexpected<Error>(late.error());
    // In a stranger's folder anybody may have put anything, but for what is signed, which nobody else could make.
    if (!strangers || !signers.empty()) {
        for (const auto& part : late->believed) add_late(job, part);
    }
    if (strangers) return {};
    if (is_harmless(job, *late)) {
        if (!late->doubted.empty()) job["doubted_late"] = late->doubted.size();
        return {};
    }
    for (auto& problem : late->problems) job["errors"].push_back(std::move(problem));
    return {};
}

/// What a rank that was killed wrote when its job had been merged is that job's.
bool has_parts_of_another(const fs::path& report_file, const std::string& job_id) {
    const auto parts = raw_parts(report_file);
    return std::any_of(parts.begin(), parts.end(), [&](const auto& part) {
        const auto json = parse_json<Json>(part.second);
        return job_id.empty() || !json.is_object() || json.value("job_id", "") != job_id;
    });
}

/// Where others may write beside the report, the folder stays: one of theirs in its place would hide what comes late.
void remove_parts(const fs::path& report_file) {
    const fs::path folder = parts_folder(report_file);
    std::error_code ignored;
    constexpr auto kOthers = fs::perms::group_write | fs::perms::others_write;
    if ((fs::status(folder.parent_path(), ignored).permissions() & kOthers) == fs::perms::none) {
        fs::remove_all(folder, ignored);
        return;
    }
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error))
        fs::remove_all(entry->path(), ignored);
}

}  // namespace

Result<Verdict> finish_job(const fs::path& report_file, const Started& started, const Sign& sign_of_parts,
                           const Sign& sign_of_report) {
    return guarded(report_file, [&]() -> Result<Verdict> {
        const bool whole = is_whole(report_file, started);
        // A part that comes after this look is none that lets anything go in clear.
        if (whole && !started.token.empty()) take_token(report_file);
        auto job = merge(report_file, started, {sign_of_parts}, whole);
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
        remove_parts(report_file);
        return verdict;
    });
}

std::map<std::string, bool> nodes_of_parts(const fs::path& report_file, const Started& started, const Sign& sign) {
    std::map<std::string, bool> nodes;
    const auto job = guarded(report_file, [&] { return merge(report_file, started, {sign}, true); });
    if (!job) return nodes;
    for (const auto& node : job->at("nodes")) nodes[node.value("name", "")] = false;
    for (const auto& part : job->at("processes")) {
        if (part.value("parts_wait", false)) nodes[part.value("node", "")] = true;
    }
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
        auto job = merged_already ? read_json(report_file) : merge(report_file, {}, signers, true);
        if (!job) return tl::unexpected<Error>(job.error());
        const bool strangers = is_a_strangers(parts_folder(report_file), report_file);
        if (merged_already && !strangers && has_parts_of_another(report_file, job->value("job_id", "")))
            return fail(EEXIST, "report " + report_file.string() + " is of one job, and " +
                                    parts_folder(report_file).string() +
                                    " has parts of another one: remove the one that is not meant");
        if (!job->contains("totals") || !job->contains("processes"))
            return fail(EINVAL, report_file.string() + " is not a job's report of CryptMPI");
        Reading reading;
        reading.verified_ = !signers.empty() && (!merged_already || is_signed(kReportKind, *job, signers));
        if (merged_already) {
            // What a stranger lets nobody read is none of ours.
            if (auto added = add_late_parts(*job, report_file, signers, strangers); !added && !strangers)
                return tl::unexpected<Error>(added.error());
        }
        reading.verdict_ = verdict_of(*job);
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
