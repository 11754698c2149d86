#include "report/summary.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/joined.hpp"
#include "base/printable.hpp"
#include "report/html.hpp"
#include "report/judging.hpp"
#include "report/readable.hpp"

namespace cryptmpi::report {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> names_in(const Json& job, const char* key) {
    return job.value(key, std::vector<std::string>{});
}

std::uint64_t number_in(const Json& sums, const char* key) {
    return sums.value(key, std::uint64_t{0});
}

/// "12 of up to 256 B, 300 of up to 4 KiB, 7 of more".
std::string sizes_text(const Json& sizes) {
    constexpr std::array<std::pair<std::uint64_t, const char*>, 5> kShown = {{{256, "256 B"},
                                                                              {std::uint64_t{4} << 10, "4 KiB"},
                                                                              {std::uint64_t{64} << 10, "64 KiB"},
                                                                              {std::uint64_t{1} << 20, "1 MiB"},
                                                                              {UINT64_MAX, "more"}}};
    std::string text;
    std::uint64_t above = 0;
    for (std::size_t i = 0; i < kShown.size(); ++i) {
        const auto [limit, name] = kShown[i];
        std::uint64_t messages = 0;
        for (const auto& entry : sizes) {
            const auto up_to = entry.value("up_to", std::uint64_t{0});
            if ((i == 0 || up_to > above) && up_to <= limit) messages += entry.value("messages", std::uint64_t{0});
        }
        above = limit;
        if (messages == 0) continue;
        text += fmt::format("{}{} of {}{}", text.empty() ? "" : ", ", messages, i + 1 < kShown.size() ? "up to " : "",
                            name);
    }
    return text;
}

std::string time_text(const Json& job, const char* key) {
    const auto seconds = static_cast<std::time_t>(job.value(key, std::int64_t{0}));
    std::tm parts{};
    std::array<char, 64> text{};
    if (seconds <= 0 || gmtime_r(&seconds, &parts) == nullptr) return "not recorded";
    if (std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts) == 0) return "not recorded";
    return text.data();
}

std::string sealed_text(const Json& sums) {
    return fmt::format("{} ({} bytes) in {} records; {} connections, counted at each end",
                       readable_bytes(number_in(sums, "sealed_bytes_sent")), number_in(sums, "sealed_bytes_sent"),
                       number_in(sums, "sealed_records_sent"), number_in(sums, "sealed_connections"));
}

/// "0-3, 7".
std::string ranges_text(const std::set<int>& numbers) {
    std::string text;
    for (auto it = numbers.begin(); it != numbers.end();) {
        const int first = *it;
        int last = first;
        while (++it != numbers.end() && *it == last + 1) last = *it;
        text += fmt::format("{}{}", text.empty() ? "" : ", ", first);
        if (last != first) text += fmt::format("-{}", last);
    }
    return text;
}

/// Which of the ranks that the launcher started did not count; empty where there are none, or where their numbers begin
/// again: of ranks that were spawned, and of several launches. The report may be anybody's: what it says of the number
/// of ranks must not cost memory.
std::string missing_ranks(const Json& job) {
    std::set<std::tuple<int, std::string, std::string, std::uint64_t, int>>
        processes;  // rank, node, kernel, PID namespace, process
    for (const auto& part : job.at("processes")) {
        if (!part.value("group", "").empty()) return {};
        if (!counts_as_rank(part)) continue;
        processes.emplace(part.value("rank", -1), part.value("node", ""), part.value("kernel", ""),
                          part.value("pid_namespace", std::uint64_t{0}), part.value("pid", 0));
    }
    std::string text;
    const auto add = [&text](std::int64_t first, std::int64_t last) {
        if (first > last) return;
        text += fmt::format("{}{}", text.empty() ? "" : ", ", first);
        if (last != first) text += fmt::format("-{}", last);
    };
    std::int64_t next = 0;
    for (const auto& process : processes) {
        const std::int64_t rank = std::get<0>(process);
        if (rank < next) return {};
        add(next, rank - 1);
        next = rank + 1;
    }
    add(next, job.value("ranks", std::int64_t{-1}) - 1);
    return text;
}

std::string meaning_of(const Verdict& verdict, bool verified) {
    if (!verified) {
        return "Nobody has checked who wrote this report, as the key that would show it is not here. Whatever it says "
               "may be invented.";
    }
    switch (verdict.outcome) {
        case Outcome::sealed:
            return "Every process of the job ran under CryptMPI. All that they sent from one node to another was "
                   "encrypted, and everything that arrived was checked: nobody on the network could read or change it.";
        case Outcome::nothing_to_seal:
            return "Every process of the job ran under CryptMPI, and none of them spoke to another node.";
        case Outcome::exceptions:
            return verdict.by_settings
                       ? "What the job's processes sent from one node to another was encrypted and checked, but for "
                         "the exceptions below. The job's settings, or the way it was started, allow all of them."
                       : "What the job's processes sent from one node to another was encrypted and checked, but for "
                         "what is listed below. No setting allows all of it.";
        case Outcome::incomplete:
            return "Some processes of the job did not report. Nobody knows what these sent, so this report proves "
                   "nothing about them.";
        case Outcome::failed:
            return "Something happened that must not happen. Do not take this job's traffic, or its results, for "
                   "protected before you know why.";
    }
    return {};
}

std::string unsealed_text(const Json& entry) {
    const auto connections = number_in(entry, "connections");
    const auto bytes = number_in(entry, "bytes");
    return entry.value("reason", "") +
           (connections != 0 ? fmt::format(": {} connections, counted at each end", connections) : "") +
           (bytes != 0 ? ", " + readable_bytes(bytes) : "");
}

std::vector<std::string> alarms_of(const Json& job, const Verdict& verdict, bool verified) {
    std::vector<std::string> alarms;
    if (!verified) alarms.push_back("nobody has checked the signatures: the key is not here");
    const auto& totals = job.at("totals");
    if (const auto failed = number_in(totals, "failed_opens"); failed != 0) {
        alarms.push_back(
            fmt::format("{} record(s) did not pass their check: they were altered on their way, or corrupted", failed));
    }
    if (const auto refused = number_in(totals, "refused_handshakes"); refused != 0) {
        alarms.push_back(fmt::format(
            "{} connection(s) were refused: the other side did not show that it has the job's key", refused));
    }
    if (const auto missing = missing_ranks(job); !missing.empty()) alarms.push_back("ranks missing: " + missing);
    for (const auto& entry : job.at("not_sealed")) {
        if (!entry.value("allowed", false) && left_the_node(entry))
            alarms.push_back("not sealed, and no setting allows it: " + unsealed_text(entry));
    }
    for (const auto& line : names_in(job, "errors")) alarms.push_back(line);
    // As of a report whose signature is wrong.
    const bool bad = verdict.outcome == Outcome::failed || verdict.outcome == Outcome::incomplete;
    if (bad && alarms.empty()) alarms.push_back(verdict.line);
    return alarms;
}

std::vector<std::string> expected_of(const Json& job) {
    std::vector<std::string> expected;
    for (const auto& entry : job.at("not_sealed")) {
        if (entry.value("allowed", false) || !left_the_node(entry)) expected.push_back(unsealed_text(entry));
    }
    return expected;
}

std::vector<Fact> job_facts(const Json& job) {
    std::vector<Fact> facts;
    const auto add = [&](const char* label, std::string value) { facts.push_back({label, std::move(value)}); };
    const auto add_known = [&](const char* label, std::string value) {
        if (!value.empty()) add(label, std::move(value));
    };
    const auto name = job.value("job_id", "");
    add("job", name.empty() ? "(no id)" : name);
    add("began", time_text(job, "began"));
    add("last report", time_text(job, "until"));
    add_known("user", joined(names_in(job, "users")));
    add("ranks", ranks_text(job));
    for (const auto& program : job.value("programs", Json::array())) {
        add("program", program.value("file", "") + ", ranks " + ranges_text(program.value("ranks", std::set<int>{})));
        const auto digest = program.value("sha256", "");
        add("its SHA-256", digest.empty() ? "not recorded" : digest);
    }
    add_known("CryptMPI", joined(names_in(job, "versions")));
    add_known("cipher", joined(names_in(job, "suites")));
    add_known("module", joined(names_in(job, "modules")));
    add_known("handshakes by",
              job.contains("handshake_modules") ? joined(names_in(job, "handshake_modules")) : "not recorded");
    add_known("key exchange", job.value("key_exchange", ""));
    add_known("ML-KEM-768 by", joined(names_in(job, "kem_modules")));
    const auto reason = job.value("layer_reason", "");
    add_known("layer", job.value("layer", "") + (reason.empty() ? "" : " (" + reason + ")"));
    add_known("scope", job.value("scope", ""));
    add_known("members", joined(names_in(job, "members")));
    if (const auto padding = job.value("padding", ""); padding != "none") add_known("padding", padding);
    for (const auto& line : names_in(job, "settings")) add("setting", line);
    add_known("profile", joined(names_in(job, "profiles"), "; "));
    add_known("job key", job.value("job_key", ""));
    add_known("signed under", job.value("report_key", ""));
    return facts;
}

/// Are there ranks on several nodes, none of which sealed anything? What the launcher sealed says nothing of them.
bool ranks_sealed_nothing(const Json& job) {
    std::set<std::string> nodes;
    for (const auto& part : job.at("processes")) {
        if (!counts_as_rank(part)) continue;
        if (number_in(part, "sealed_connections") != 0) return false;
        nodes.insert(part.value("node", ""));
    }
    return nodes.size() > 1;
}

std::vector<Fact> traffic_facts(const Json& job) {
    const auto& totals = job.at("totals");
    std::vector<Fact> facts = {{"sealed", sealed_text(totals)}};
    if (ranks_sealed_nothing(job))
        facts.push_back({"between ranks",
                         "nothing: no rank sealed anything for another node. If the program does send something there, "
                         "it went by a way that CryptMPI does not see"});
    if (const auto sockets = job.value("sockets", Json::object()); !sockets.empty()) {
        facts.push_back(
            {"sockets", sealed_text(sockets) + ", the launcher's and MPI's, whose messages are sealed already"});
    }
    const auto padding =
        number_in(totals, "padding_bytes_sent") + number_in(job.value("sockets", Json::object()), "padding_bytes_sent");
    if (padding > 0)
        facts.push_back({"padding", fmt::format("{} ({} bytes) of these, so that sizes tell less",
                                                readable_bytes(padding), padding)});
    if (const auto sizes = totals.value("sizes_sent", Json::array()); !sizes.empty())
        facts.push_back({"sizes", sizes_text(sizes)});
    facts.push_back(
        {"inside nodes", fmt::format("{} connections, counted at each end; they leave no node, and are not sealed",
                                     number_in(totals, "native_connections"))});
    facts.push_back({"rekeys", std::to_string(number_in(totals, "rekeys"))});
    facts.push_back({"failed opens", std::to_string(number_in(totals, "failed_opens"))});
    if (const auto cut_off = number_in(totals, "cut_off"); cut_off != 0)
        facts.push_back({"cut off", fmt::format("{} messages: longer than their receives, so that nothing of them "
                                                "could be opened; altered on the way, or ranks disagree in sizes",
                                                cut_off)});
    facts.push_back({"refused", fmt::format("{} handshakes", number_in(totals, "refused_handshakes"))});
    return facts;
}

std::vector<Fact> node_facts(const Json& job) {
    std::vector<Fact> facts;
    for (const auto& node : job.at("nodes")) {
        const auto ranks = ranges_text(node.value("ranks", std::set<int>{}));
        facts.push_back(
            {"node " + node.value("name", ""), "ranks " + (ranks.empty() ? "none" : ranks) + "; sealed out " +
                                                   readable_bytes(number_in(node, "sealed_bytes_sent")) + ", in " +
                                                   readable_bytes(number_in(node, "sealed_bytes_received"))});
    }
    return facts;
}

/// The page's, which has nothing else: the policy forbids scripts and whatever would have to be fetched.
constexpr std::string_view kHead = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>CryptMPI</title>
<style>
body { font: 15px/1.45 system-ui, sans-serif; color: #1a1a1a; max-width: 52rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1rem; font-weight: 600; color: #555; margin: 0 0 .8rem; }
h2 { font-size: 1.1rem; margin: 1.6rem 0 .4rem; }
.verdict { border: 2px solid; border-left-width: 12px; padding: .8rem 1rem; overflow-wrap: anywhere; }
.verdict strong { font-size: 1.25rem; }
.verdict p { margin: .4rem 0 0; color: #1a1a1a; }
.good { border-color: #18794e; color: #0f5132; background: #f0faf4; }
.exceptions { border-color: #9a6700; color: #6b4700; background: #fff9e8; }
.bad { border-color: #b42318; color: #8a1c13; background: #fef3f2; }
ul { margin: .3rem 0; padding-left: 1.2rem; }
li { overflow-wrap: anywhere; }
.alarm li { color: #8a1c13; font-weight: 600; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; vertical-align: top; padding: .25rem .6rem .25rem 0; border-bottom: 1px solid #ddd; }
th { font-weight: 600; white-space: nowrap; width: 9.5rem; }
td { overflow-wrap: anywhere; }
footer { margin-top: 1.6rem; font-size: .85rem; color: #555; }
@media print {
  @page { margin: 12mm; }
  body { margin: 0; padding: 0; max-width: none; font-size: 9pt; line-height: 1.3; }
  h2 { margin: .8rem 0 .2rem; font-size: 10.5pt; }
  th, td { padding: .1rem .6rem .1rem 0; }
  footer { margin-top: .6rem; } footer p { margin: .3rem 0; }
  .verdict { background: none; print-color-adjust: exact; }
  h2 { break-after: avoid; } tr, li, .verdict { break-inside: avoid; }
}
</style>
</head>
<body>
)";

constexpr std::string_view kFoot = R"(<footer>
<p>A record is a piece of data with a check of its own; one that does not pass the check never reaches the program. A
rank is one of the job's processes that talk to each other by MPI. The two keys are named by fingerprints, which tell
nothing of the keys.</p>
)";

constexpr std::string_view kNobodyVouches =
    R"(<p>This page is not signed. The report that it was made of is: <code>cryptmpi report --check FILE</code> verifies the
signature, with the key file of whoever started the job.</p>
)";

constexpr std::string_view kEnd = R"(</footer>
</body>
</html>
)";

const char* colour_of(const Summary& summary) {
    const auto outcome = summary.verdict.outcome;
    const bool sealed = outcome == Outcome::sealed || outcome == Outcome::nothing_to_seal;
    if (!summary.verified) return "bad";
    if (sealed && summary.alarms.empty()) return "good";
    return is_good(summary.verdict) ? "exceptions" : "bad";
}

std::string html_list(const char* title, const char* kind, const std::vector<std::string>& lines) {
    if (lines.empty()) return {};
    std::string text = "<h2>" + std::string(title) + "</h2>\n<ul class=\"" + kind + "\">\n";
    for (const auto& line : lines) text += "<li>" + html(line) + "</li>\n";
    return text + "</ul>\n";
}

std::string html_table(std::string_view title, const std::vector<Fact>& facts) {
    if (facts.empty()) return {};
    std::string text = "<h2>" + html(title) + "</h2>\n<table>\n";
    for (const auto& [label, value] : facts)
        text += "<tr><th scope=\"row\">" + html(label) + "</th><td>" + html(value) + "</td></tr>\n";
    return text + "</table>\n";
}

}  // namespace

Summary summary_of(const Json& job, const Verdict& verdict, bool verified) {
    return {verdict,
            verified,
            meaning_of(verdict, verified),
            alarms_of(job, verdict, verified),
            expected_of(job),
            names_in(job, "refused_roads"),
            job_facts(job),
            traffic_facts(job),
            node_facts(job)};
}

std::string text_of(const Summary& summary) {
    std::string text = printable(summary.verdict.line) + "\n";
    const auto row = [&](std::string_view label, const std::string& value) {
        const std::string shown = printable(label);
        text += "  " + shown + std::string(shown.size() < 18 ? 18 - shown.size() : 1, ' ') + printable(value) + "\n";
    };
    for (const auto& line : summary.alarms) row("ALARM", line);
    if (summary.alarms.empty()) row("alarms", "none");
    for (const auto& line : summary.expected) row("exception", line);
    for (const auto& line : summary.closed) row("closed road", line);
    const auto rows = [&](const std::vector<Fact>& facts) {
        for (const auto& [label, value] : facts) row(label, value);
    };
    rows(summary.job);
    rows(summary.nodes);
    rows(summary.traffic);
    for (const auto& section : summary.added) {
        text += printable(section.title) + "\n";
        rows(section.facts);
    }
    return text;
}

std::string metrics_of(const Json& job, const Summary& summary) {
    std::string label;
    for (const char letter : printable(job.value("job_id", ""))) {
        if (letter == '\\' || letter == '"') label += '\\';
        label += letter;
    }
    std::string text;
    const auto add = [&](const char* name, const char* help, std::uint64_t value) {
        text += fmt::format(
            "# HELP cryptmpi_job_{0} {1}\n# TYPE cryptmpi_job_{0} gauge\ncryptmpi_job_{0}{{job=\"{2}\"}} {3}\n", name,
            help, label, value);
    };
    const auto& totals = job.at("totals");
    const auto ranks = [&](const char* key) { return static_cast<std::uint64_t>(std::max(job.value(key, 0), 0)); };
    add("good", "1 if the report is signed and its verdict is good.", summary.verified && is_good(summary.verdict));
    add("alarms", "Lines of the report that alarm.", summary.alarms.size());
    add("failed_opens", "Records that did not pass their check.", number_in(totals, "failed_opens"));
    add("cut_off", "Messages that were longer than their receives, and could not be opened.",
        number_in(totals, "cut_off"));
    add("refused_handshakes", "Connections that were refused.", number_in(totals, "refused_handshakes"));
    add("ranks", "Ranks that were started.", ranks("ranks"));
    add("ranks_reported", "Ranks that reported.", ranks("ranks_reported"));
    add("sealed_sent_bytes", "Bytes that were sealed and sent.", number_in(totals, "sealed_bytes_sent"));
    add("sealed_sent_records", "Records that were sealed and sent.", number_in(totals, "sealed_records_sent"));
    add("padding_sent_bytes", "Bytes of padding among them.", number_in(totals, "padding_bytes_sent"));
    add("rekeys", "Keys that were replaced.", number_in(totals, "rekeys"));
    add("end_time_seconds", "When the last process reported, since 1970.", number_in(job, "until"));
    return text;
}

std::string html_of(const Summary& summary) {
    const std::string& line = summary.verdict.line;
    const auto colon = line.find(':');
    const std::string word = line.substr(0, colon);
    const std::string rest = colon == std::string::npos ? "" : line.substr(colon + 1);
    std::string page(kHead);
    page += "<h1>CryptMPI: " + html(summary.title) + "</h1>\n";
    page += "<div class=\"verdict " + std::string(colour_of(summary)) + "\"><strong>" + html(word) + "</strong>" +
            (rest.empty() ? "" : ":" + html(rest)) + "<p>" + html(summary.meaning) + "</p></div>\n";
    page += summary.alarms.empty() ? "<h2>Alarms</h2>\n<p>None.</p>\n" : html_list("Alarms", "alarm", summary.alarms);
    page += html_list("Exceptions that were to be expected", "expected", summary.expected);
    page += html_list("Closed roads: tried, and nothing went there", "closed", summary.closed);
    page += html_table("The job", summary.job);
    page += html_table("Its nodes", summary.nodes);
    page += html_table("Its traffic", summary.traffic);
    for (const auto& section : summary.added) page += html_table(section.title, section.facts);
    page += kFoot;
    page += summary.who_vouches.empty() ? std::string(kNobodyVouches) : "<p>" + html(summary.who_vouches) + "</p>\n";
    return page + std::string(kEnd);
}

}  // namespace cryptmpi::report
