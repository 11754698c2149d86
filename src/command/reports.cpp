#include "command/reports.hpp"

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/json_text.hpp"
#include "base/own_names.hpp"
#include "base/printable.hpp"
#include "command/job.hpp"
#include "command/remote_shell.hpp"
#include "command/shell.hpp"
#include "config/internal_variables.hpp"
#include "keys/job_key.hpp"
#include "keys/key_in_memory.hpp"
#include "keys/report_key.hpp"
#include "report/noted_hosts.hpp"
#include "report/parts_folder.hpp"
#include "report/waiting_parts.hpp"

namespace cryptmpi::command {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr const char* kName = "cryptmpi_part";
constexpr const char* kText = "text";
constexpr const char* kCount = "cryptmpi_parts";  // the last line's
constexpr const char* kRefused = "refused";       // the same line's, where the folder is somebody else's

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

/// Prints a line for each part that waits here, and their number; then nothing waits any more.
int collect(const std::string& token, const std::string& key_file) {
    if (!config::is_report_token(token)) return complain("collect: \"" + token + "\" is no job's token", 1);
    await_end_of_job(key_file);
    report::take_mark(token);
    const auto parts = report::waiting_parts(token);
    if (parts) {
        for (const auto& [name, text] : *parts) print({{kName, name}, {kText, text}});
        print({{kCount, parts->size()}});
    } else {
        print({{kCount, 0}, {kRefused, parts.error().line}});
    }
    if (std::fflush(stdout) != 0) return complain("collect: the parts could not be passed on", 1);
    report::remove_waiting(token);
    return 0;
}

/// Nobody of the job puts a part there, and who had to tell of something in one was refused.
void say_whose(const std::string& line) {
    complain("note: " + line + "; what is in it is none of this job's", 0);
}

/// Those of processes that do not see the folder although their node does, as in a container. Returns why not all of
/// them are there; empty: they are.
std::string keep_own(const Collecting& what) {
    report::take_mark(what.token);
    const auto parts = report::waiting_parts(what.token);
    if (!parts) {
        say_whose(parts.error().line);
        return "";
    }
    for (const auto& [name, text] : *parts) {
        if (const auto added = report::add_raw_part(what.report_file, name, text); !added) return added.error().line;
    }
    report::remove_waiting(what.token);
    return "";
}

bool is_ours(const fs::path& folder) {
    const auto opened = report::open_waiting_folder(folder);
    if (opened) close(*opened);
    return opened.has_value();
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

/// What came of one node's answer.
struct Kept {
    std::string missing;  // why not all parts are there; empty: they are
    std::string refused;  // why there can be none
};

Kept keep(const fs::path& report_file, const std::optional<std::string>& answer) {
    if (!answer) return {"no answer", ""};
    std::size_t kept = 0;
    std::istringstream lines(*answer);
    for (std::string line; std::getline(lines, line);) {
        const auto json = parse_json<Json>(line);
        if (!json.is_object()) continue;  // what the remote shell says
        if (json.contains(kCount) && json[kCount] != kept) return {"parts are missing in what it sent", ""};
        if (json.contains(kCount) && json.contains(kRefused) && json[kRefused].is_string())
            return {"", printable(json[kRefused].get<std::string>())};
        if (json.contains(kCount)) return {};
        if (!json.contains(kName) || !json.contains(kText) || !json[kName].is_string() || !json[kText].is_string())
            continue;
        const auto added = report::add_raw_part(report_file, json[kName], json[kText]);
        if (!added) return {added.error().line, ""};
        ++kept;
    }
    return {"its answer has no end", ""};
}

/// Where to ask for parts, and where not.
class Hosts {
public:
    explicit Hosts(const Collecting& what) : what_(what) {
        // This node's own are here already, and it would wait for the end of cryptmpi run, which waits for the answer.
        if (what.everywhere) settled_ = {host_name(), first_label(host_name())};
    }

    /// Those that nobody has asked yet. A daemon may have started others: what it sends tells of them.
    std::vector<std::string> next(const report::Sign& sign) {
        for (const auto& [node, waits] : report::nodes_of_parts(what_.report_file, what_.started, sign)) {
            heard_.insert(first_label(node));
            if (!waits && !what_.everywhere) settled_.insert(first_label(node));
        }
        std::vector<std::string> hosts;
        for (const auto& host : report::noted_hosts(what_.report_file, what_.started.job_id, sign)) {
            const bool settled = settled_.count(what_.everywhere ? host : first_label(host)) != 0;
            if (!settled && settled_.insert(host).second) hosts.push_back(host);
        }
        return hosts;
    }
    /// Did a process there tell of itself?
    bool heard(const std::string& host) const { return heard_.count(first_label(host)) != 0; }

private:
    const Collecting& what_;
    std::set<std::string> settled_;
    std::set<std::string> heard_;
};

}  // namespace

bool may_leave_in_clear(const config::Settings& settings) {
    return !settings.plaintext_peers.empty() || !settings.allow_programs.empty() || settings.roads_open();
}

void mark_local_report(const std::string& token) {
    if (const auto marked = report::mark_waiting_folder(token); !marked) say_whose(marked.error().line);
}

Result<void> prepare_local_report(const config::Settings& settings, const config::Environment& environment,
                                  bool first) {
    const auto token = environment(config::kReportTokenVariable);
    if (!token || !config::is_report_token(*token) || settings.report_file.empty()) return {};
    const fs::path folder = config::local_report_folder(*token);
    if (settings.report_file.parent_path() != folder) {
        if (first && may_leave_in_clear(settings)) mark_local_report(*token);
        return {};
    }
    const auto made = report::make_waiting_folder(folder);
    if (made) close(*made);
    auto ready = made ? Result<void>() : Result<void>(tl::unexpected<Error>(made.error()));
    if (ready && first) ready = report::mark_waiting_folder(*token);
    if (ready) return {};
    return fail(ready.error().code, "this node's parts of the report: " + ready.error().line);
}

void pass_on_seen_folder(const fs::path& report_file, const std::string& token, bool first) {
    const char* const before = std::getenv(config::kSeenFolderVariable);
    const std::string told = first || before == nullptr ? "" : before;
    if (first) unsetenv(config::kSeenFolderVariable);
    if (config::token_there(report_file, token) != config::TokenThere::same ||
        config::compare_seen(report_file, token, told) != config::Seen::unknown)
        return;
    const std::string seen = config::seen_folder(report_file, token);
    if (!seen.empty()) set_variable(config::kSeenFolderVariable, seen);
}

void sweep_local_reports() {
    constexpr auto kLongest = std::chrono::hours(24 * 31);
    std::error_code error;
    const fs::path sample = config::local_report_folder("");
    for (fs::directory_iterator entry(sample.parent_path(), error), end; !error && entry != end;
         entry.increment(error)) {
        const fs::path& folder = entry->path();
        if (!folder.filename().native().starts_with(sample.filename().native()) || !is_ours(folder)) continue;
        std::error_code unknown;
        const auto written = fs::last_write_time(folder, unknown);
        if (!unknown && !fs::is_empty(folder, unknown) && fs::file_time_type::clock::now() - written > kLongest)
            fs::remove_all(folder, unknown);
    }
}

std::string collect_parts(const Collecting& what, const report::Sign& sign) {
    std::string missing;
    bool lie_there = false;
    const auto miss = [&](const std::string& host, const std::string& why) {
        missing += (missing.empty() ? "" : ", ") + host + " (" + why + ")";
    };
    if (const auto why = keep_own(what); !why.empty()) miss("this node", why);
    Hosts hosts(what);
    for (auto asked = hosts.next(sign); !asked.empty(); asked = hosts.next(sign)) {
        std::vector<Words> commands;
        for (const auto& host : asked) commands.push_back(collecting(what, host));
        const auto answers = outputs_of(commands, false);
        for (std::size_t i = 0; i < answers.size(); ++i) {
            const Kept kept = keep(what.report_file, answers[i]);
            if (!kept.missing.empty()) miss(asked[i], kept.missing);
            lie_there = lie_there || !kept.missing.empty();
            if (kept.refused.empty()) continue;
            say_whose(asked[i] + ": " + kept.refused);
            if (!hosts.heard(asked[i])) miss(asked[i], kept.refused);
        }
    }
    if (missing.empty()) return "";
    const fs::path folder = config::local_report_folder(what.token);
    return "the report's parts could not be fetched from " + missing +
           (lie_there ? "; they lie in " + folder.string() + " there" : "");
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
