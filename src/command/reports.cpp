#include "command/reports.hpp"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/json_text.hpp"
#include "command/job.hpp"
#include "command/remote_shell.hpp"
#include "command/shell.hpp"
#include "config/internal_variables.hpp"
#include "keys/job_key.hpp"
#include "keys/key_in_memory.hpp"
#include "keys/report_key.hpp"
#include "report/noted_hosts.hpp"
#include "report/parts_folder.hpp"

namespace cryptmpi::command {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kName = "cryptmpi_part";
constexpr const char* kText = "text";
constexpr const char* kCount = "cryptmpi_parts";  // the last line's

/// A folder, ours, for us alone. Empty: it is.
std::string unfit(const fs::path& folder) {
    struct stat found = {};
    if (lstat(folder.c_str(), &found) != 0) return std::strerror(errno);
    if (!S_ISDIR(found.st_mode)) return "it is no folder";
    if (found.st_uid != geteuid()) return fmt::format("it belongs to user {}", found.st_uid);
    if ((found.st_mode & (S_IRWXG | S_IRWXO)) != 0) return "it is open to other users";
    return {};
}

/// Daemons write their parts when their launcher has ended already.
void await_end_of_job(const fs::path& key_file) {
    constexpr int kTries = 50;
    constexpr useconds_t kPause_us = 100'000;
    std::error_code ignored;
    for (int i = 0; i < kTries && keys::KeyInMemory::is_file_name(key_file) && fs::exists(key_file, ignored); ++i)
        usleep(kPause_us);
}

void print(const Json& line) {
    std::printf("%s\n", line.dump(-1, ' ', true, Json::error_handler_t::replace).c_str());
}

/// The parts of the job that wait on this node, by name. Error: others may have taken some, or put theirs there.
Result<std::map<std::string, std::string>> waiting_here(const std::string& token) {
    const fs::path folder = config::local_report_folder(token);
    std::map<std::string, std::string> parts;
    std::error_code error;
    if (!fs::exists(fs::symlink_status(folder, error))) return parts;
    if (const auto why = unfit(folder); !why.empty()) return fail(EPERM, "folder " + folder.string() + ": " + why);
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
        if (entry->path().extension() == ".parts")
            parts.merge(report::raw_parts(entry->path().parent_path() / entry->path().stem()));
    }
    return parts;
}

void wait_no_more(const std::string& token) {
    const fs::path folder = config::local_report_folder(token);
    std::error_code ignored;
    if (unfit(folder).empty()) fs::remove_all(folder, ignored);
}

/// Prints a line for each part that waits here, and their number; then nothing waits any more.
int collect(const std::string& token, const std::string& key_file) {
    if (!config::is_report_token(token)) return complain("collect: \"" + token + "\" is no job's token", 1);
    await_end_of_job(key_file);
    const auto parts = waiting_here(token);
    if (!parts) return complain("collect: " + parts.error().line, 1);
    for (const auto& [name, text] : *parts) print({{kName, name}, {kText, text}});
    print({{kCount, parts->size()}});
    if (std::fflush(stdout) != 0) return complain("collect: the parts could not be passed on", 1);
    wait_no_more(token);
    return 0;
}

/// Those of processes that do not see the folder although their node does, as in a container. Returns why not all of
/// them are there; empty: they are.
std::string keep_own(const Collecting& what) {
    const auto parts = waiting_here(what.token);
    if (!parts) return parts.error().line;
    for (const auto& [name, text] : *parts) {
        if (const auto added = report::add_raw_part(what.report_file, name, text); !added) return added.error().line;
    }
    wait_no_more(what.token);
    return "";
}

/// "node7.cluster.example", "me@node7" and "node7" are one.
std::string first_label(const std::string& name) {
    const auto user = name.rfind('@');
    const std::string host = user == std::string::npos ? name : name.substr(user + 1);
    const bool address = host.find_first_not_of("0123456789.") == std::string::npos;
    return address ? host : host.substr(0, host.find('.'));
}

/// The remote shell's line.
Words collecting(const Collecting& what, const std::string& host) {
    return remote_line(
        split_words(what.rsh), {}, host,
        shell_word(own_file().string()) + " collect " + what.token + " " + shell_word(what.key_file.string()));
}

/// Keeps the parts of one node's answer. Returns why not all are there; empty: they are.
std::string keep(const fs::path& report_file, const std::optional<std::string>& answer) {
    if (!answer) return "no answer";
    std::size_t kept = 0;
    std::istringstream lines(*answer);
    for (std::string line; std::getline(lines, line);) {
        const auto json = parse_json<Json>(line);
        if (!json.is_object()) continue;  // what the remote shell says
        if (json.contains(kCount)) return json[kCount] == kept ? "" : "parts are missing in what it sent";
        if (!json.contains(kName) || !json.contains(kText) || !json[kName].is_string() || !json[kText].is_string())
            continue;
        const auto added = report::add_raw_part(report_file, json[kName], json[kText]);
        if (!added) return added.error().line;
        ++kept;
    }
    return "its answer has no end";
}

}  // namespace

Result<void> prepare_local_report(const config::Settings& settings, const config::Environment& environment) {
    const auto token = environment(config::kReportTokenVariable);
    if (!token || !config::is_report_token(*token)) return {};
    const fs::path folder = config::local_report_folder(*token);
    if (settings.report_file.parent_path() != folder) return {};
    if (mkdir(folder.c_str(), S_IRWXU) != 0 && errno != EEXIST)
        return fail(errno,
                    "folder " + folder.string() + " for this node's parts of the report: " + std::strerror(errno));
    if (const auto why = unfit(folder); !why.empty())
        return fail(EPERM, "folder " + folder.string() + " for this node's parts of the report: " + why);
    return {};
}

void sweep_local_reports() {
    constexpr auto kLongest = std::chrono::hours(24 * 31);
    std::error_code error;
    const fs::path sample = config::local_report_folder("");
    for (fs::directory_iterator entry(sample.parent_path(), error), end; !error && entry != end;
         entry.increment(error)) {
        const fs::path& folder = entry->path();
        if (!folder.filename().native().starts_with(sample.filename().native()) || !unfit(folder).empty()) continue;
        std::error_code unknown;
        const auto written = fs::last_write_time(folder, unknown);
        if (!unknown && !fs::is_empty(folder, unknown) && fs::file_time_type::clock::now() - written > kLongest)
            fs::remove_all(folder, unknown);
    }
}

std::string collect_parts(const Collecting& what, const report::Sign& sign) {
    std::set<std::string> settled;
    std::string missing;
    if (const auto why = keep_own(what); !why.empty()) missing = "this node (" + why + ")";
    // A daemon may have started others: what it sends tells of them.
    for (;;) {
        for (const auto& node : report::nodes_of_parts(what.report_file, what.started, sign))
            settled.insert(first_label(node));
        std::vector<std::string> hosts;
        std::vector<Words> commands;
        for (const auto& host : report::noted_hosts(what.report_file, what.started.job_id, sign)) {
            if (settled.count(first_label(host)) != 0 || !settled.insert(host).second) continue;
            hosts.push_back(host);
            commands.push_back(collecting(what, host));
        }
        if (hosts.empty()) break;
        const auto answers = outputs_of(commands, false);
        for (std::size_t i = 0; i < answers.size(); ++i) {
            if (const auto why = keep(what.report_file, answers[i]); !why.empty())
                missing += (missing.empty() ? "" : ", ") + hosts[i] + " (" + why + ")";
        }
    }
    if (missing.empty()) return "";
    return "the report's parts could not be fetched from " + missing + "; they lie in " +
           config::local_report_folder(what.token).string() + " there";
}

Result<std::vector<report::Sign>> report_signers(const config::Settings& settings, const cryptmpi_kex& kex) {
    const auto keys = keys::read_job_keys(settings.key_file, settings.key_readers());
    if (!keys) return tl::unexpected<Error>(keys.error());
    std::vector<report::Sign> signers;
    for (const auto& key : *keys) {
        auto of_reports = keys::ReportKey::derive(kex, *key);
        if (!of_reports) return tl::unexpected<Error>(of_reports.error());
        const auto shared = std::make_shared<keys::ReportKey>(std::move(*of_reports));
        signers.emplace_back([shared](std::string_view text) { return shared->sign(text); });
    }
    return signers;
}

void add_collect(CLI::App& app, int& status) {
    struct Options {
        std::string token;
        std::string key_file;
    };
    auto options = std::make_shared<Options>();
    auto* sub = app.add_subcommand("collect", "Not for users: fetches what cryptmpi run left on this node")->group("");
    sub->add_option("TOKEN", options->token)->required();
    sub->add_option("KEY_FILE", options->key_file);
    sub->callback([options, &status] { status = collect(options->token, options->key_file); });
}

}  // namespace cryptmpi::command
