#include "report/live_view.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "report/readable.hpp"

namespace cryptmpi::report {
namespace {

using Json = nlohmann::ordered_json;
using Count = std::uint64_t LiveProcess::*;

/// As a part of a report calls it, and Prometheus; and in words.
struct Number {
    const char* name;
    const char* metric;
    const char* help;
    Count count;
};
constexpr std::array kTraffic = {
    Number{"sealed_bytes_sent", "sealed_sent_bytes", "Bytes that were sealed and sent.", &LiveProcess::sealed_bytes},
    Number{"sealed_records_sent", "sealed_sent_records", "Records that were sealed and sent.",
           &LiveProcess::sealed_records},
    Number{"sealed_bytes_received", "sealed_received_bytes", "Bytes that came and were opened.",
           &LiveProcess::opened_bytes},
    Number{"sealed_records_received", "sealed_received_records", "Records that came and were opened.",
           &LiveProcess::opened_records},
};
constexpr std::array kEvents = {
    Number{"sealed_connections", "sealed_connections", "Connections or flows that were sealed.",
           &LiveProcess::sealed_connections},
    Number{"native_connections", "native_connections", "Connections that stayed inside the node.",
           &LiveProcess::native_connections},
    Number{"unsealed_connections", "unsealed_connections", "Connections that were not sealed.",
           &LiveProcess::unsealed_connections},
    Number{"rekeys", "rekeys", "Keys that were replaced.", &LiveProcess::rekeys},
    Number{"failed_opens", "failed_opens", "Records that did not pass their check.", &LiveProcess::failed_opens},
    Number{"refused_handshakes", "refused_handshakes", "Connections that were refused.",
           &LiveProcess::refused_handshakes},
    Number{"refused_roads", "refused_roads", "Roads that were tried, and are closed.", &LiveProcess::refused_roads},
    Number{"errors", "errors", "Lines of errors that were printed.", &LiveProcess::errors},
};

/// What was counted since an earlier look at the same processes.
class Rates {
public:
    Rates(const LiveLook& now, const LiveLook* before) {
        if (before == nullptr) return;
        seconds_ = std::chrono::duration<double>(now.when - before->when).count();
        for (const auto& process : before->found.processes) before_[process.id] = &process;
    }
    double seconds() const { return seconds_; }
    /// A second; nothing of a process that was not there. Whoever writes a page may count backwards.
    std::optional<double> of(const LiveProcess& process, Count count) const {
        const auto found = before_.find(process.id);
        if (found == before_.end() || seconds_ <= 0) return std::nullopt;
        const std::uint64_t was = found->second->*count;
        const std::uint64_t is = process.*count;
        return is < was ? 0 : static_cast<double>(is - was) / seconds_;
    }

private:
    double seconds_ = 0;
    std::map<std::string, const LiveProcess*> before_;
};

std::int64_t seconds_running(const LiveProcess& process, const LiveLook& now) {
    const bool can_be = process.began > 0 && process.began <= now.time;
    return can_be ? now.time - process.began : 0;
}

/// It is the sockets' library in a process whose data another layer seals.
bool seals_below(const LiveProcess& process) {
    return process.library == "channel" && process.layer != "channel" && process.role == "rank";
}

// --- The table ---

using Row = std::vector<std::string>;

std::string rate_text(std::optional<double> rate) {
    return rate ? readable_bytes(static_cast<std::uint64_t>(*rate)) + "/s" : "-";
}

std::string duration_text(std::int64_t seconds) {
    std::array<char, 48> text{};
    std::snprintf(text.data(), text.size(), "%lld:%02d:%02d", static_cast<long long>(seconds / 3600),
                  static_cast<int>(seconds / 60 % 60), static_cast<int>(seconds % 60));
    return text.data();
}

std::string file_name(const std::string& path) {
    return path.substr(path.rfind('/') + 1);
}

std::string or_dash(const std::string& text) {
    return text.empty() ? "-" : text;
}

/// Characters, of text that was made fit to be shown.
std::size_t width(const std::string& text) {
    return static_cast<std::size_t>(
        std::count_if(text.begin(), text.end(), [](char byte) { return (byte & 0xc0) != 0x80; }));
}

std::string cut(const std::string& text, std::size_t most) {
    if (width(text) <= most) return text;
    std::size_t at = 0;
    for (std::size_t seen = 0; at < text.size(); ++at) {
        if ((text[at] & 0xc0) != 0x80 && seen++ == most - 1) break;
    }
    return text.substr(0, at) + "~";
}

constexpr std::size_t kLastColumns = 2;  // to the left, as they are names

std::string aligned(const std::vector<Row>& rows) {
    std::vector<std::size_t> widths(rows.front().size());
    for (const auto& row : rows) {
        for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
    }
    std::string text;
    for (const auto& row : rows) {
        std::string line;
        for (std::size_t i = 0; i < row.size(); ++i) {
            const std::string padding(widths[i] - width(row[i]), ' ');
            const bool left = i + kLastColumns >= row.size();
            line += "  " + (left ? row[i] + padding : padding + row[i]);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + "\n";
    }
    return text;
}

Row row_of(const LiveProcess& process, const LiveLook& now, const Rates& rates) {
    const auto text = [](std::uint64_t number) { return std::to_string(number); };
    const std::string rank = process.rank >= 0 ? std::to_string(process.rank) : process.role;
    return {cut(rank, 10),
            std::to_string(process.pid),
            cut(process.library, 10),
            readable_bytes(process.sealed_bytes),
            rate_text(rates.of(process, &LiveProcess::sealed_bytes)),
            text(process.sealed_records),
            readable_bytes(process.opened_bytes),
            rate_text(rates.of(process, &LiveProcess::opened_bytes)),
            text(process.opened_records),
            text(process.sealed_connections),
            text(process.rekeys),
            text(process.failed_opens),
            text(process.refused_handshakes + process.refused_roads),
            duration_text(seconds_running(process, now)),
            cut(or_dash(process.node), 20),
            cut(or_dash(file_name(process.program)), 24)};
}

using Processes = std::span<const LiveProcess>;

double sum_of(Processes processes, const Rates& rates, Count count) {
    return std::accumulate(processes.begin(), processes.end(), 0.0, [&](double sum, const LiveProcess& one) {
        return seals_below(one) ? sum : sum + rates.of(one, count).value_or(0);
    });
}

std::string distinct(Processes processes, std::string LiveProcess::*text) {
    std::string all;
    std::vector<std::string> seen;
    for (const auto& process : processes) {
        const std::string& one = process.*text;
        if (one.empty() || std::find(seen.begin(), seen.end(), one) != seen.end()) continue;
        seen.push_back(one);
        all += (all.empty() ? "" : ", ") + cut(one, 60);
    }
    return all;
}

/// "job 4f2a: layer channel, AES-256-GCM, openssl 3.0; sealed 1.20 GB/s, opened 1.18 GB/s".
std::string heading(Processes processes, const Rates& rates) {
    std::string line =
        "job " + or_dash(processes.front().job_id) + ": layer " + or_dash(distinct(processes, &LiveProcess::layer));
    for (const auto text : {&LiveProcess::suite, &LiveProcess::module, &LiveProcess::mpi}) {
        const std::string all = distinct(processes, text);
        if (!all.empty()) line += ", " + all;
    }
    if (rates.seconds() > 0)
        line += "; sealed " + rate_text(sum_of(processes, rates, &LiveProcess::sealed_bytes)) + ", opened " +
                rate_text(sum_of(processes, rates, &LiveProcess::opened_bytes));
    return line + "\n";
}

/// What must not happen, or nobody may have meant.
std::string alarms(Processes processes) {
    std::string text;
    for (const auto& process : processes) {
        const std::string who = fmt::format(
            "{} (process {})", process.rank >= 0 ? fmt::format("rank {}", process.rank) : process.role, process.pid);
        const auto line = [&](std::uint64_t count, const char* what) {
            if (count != 0) text += fmt::format("  ALARM: {}: {} {}\n", cut(who, 60), count, what);
        };
        line(process.failed_opens, "did not open: altered, replayed, lost, or forged");
        line(process.unsealed_connections, "of its connections are not sealed (the job's report says why)");
    }
    return text;
}

/// Of one job, which are neighbours.
std::vector<Processes> by_job(const std::vector<LiveProcess>& processes) {
    std::vector<Processes> jobs;
    for (std::size_t begin = 0, end = 0; begin < processes.size(); begin = end) {
        while (end < processes.size() && processes[end].job_id == processes[begin].job_id &&
               processes[end].user == processes[begin].user)
            ++end;
        jobs.push_back(Processes(processes).subspan(begin, end - begin));
    }
    return jobs;
}

std::string of_other_versions(int count) {
    if (count == 0) return "";
    return fmt::format("{} processes run under another version of CryptMPI and are not shown\n", count);
}

// --- JSON ---

Json to_json(const LiveProcess& process, const LiveLook& now, const Rates& rates) {
    Json json = {{"job_id", process.job_id}, {"rank", process.rank},
                 {"ranks", process.ranks},   {"group", process.group},
                 {"role", process.role},     {"pid", process.pid},
                 {"user", process.user},     {"node", process.node},
                 {"layer", process.layer},   {"library", process.library},
                 {"mpi", process.mpi},       {"program", process.program},
                 {"suite", process.suite},   {"module", process.module},
                 {"began", process.began},   {"seconds", seconds_running(process, now)}};
    for (const Number& number : kTraffic) json[number.name] = process.*number.count;
    for (const Number& number : kEvents) json[number.name] = process.*number.count;
    Json per_second = Json::object();
    for (const Number& number : kTraffic) {
        if (const auto rate = rates.of(process, number.count)) per_second[number.name] = *rate;
    }
    json["per_second"] = std::move(per_second);
    return json;
}

// --- Prometheus ---

std::string label(const char* name, const std::string& value) {
    std::string text = std::string(name) + "=\"";
    for (const char letter : value) {
        if (letter == '\\' || letter == '"') text += '\\';
        text += letter;
    }
    return text + "\"";
}

std::string labels_of(const LiveProcess& process) {
    return "{" + label("job", process.job_id) + "," + label("group", process.group) + "," +
           label("rank", std::to_string(process.rank)) + "," + label("role", process.role) + "," +
           label("pid", std::to_string(process.pid)) + "," + label("node", process.node) + "," +
           label("library", process.library) + "}";
}

}  // namespace

std::string live_table(const LiveLook& now, const LiveLook* before) {
    if (now.found.processes.empty())
        return "no process of a sealed job runs on this node that this user may see\n" +
               of_other_versions(now.found.of_other_versions);
    const Rates rates(now, before);
    std::string text;
    for (const Processes job : by_job(now.found.processes)) {
        std::vector<Row> rows = {{"RANK", "PID", "LIBRARY", "SEALED", "RATE", "RECORDS", "OPENED", "RATE", "RECORDS",
                                  "CONNS", "REKEYS", "FORGED", "REFUSED", "TIME", "NODE", "PROGRAM"}};
        for (const auto& process : job) rows.push_back(row_of(process, now, rates));
        text += (text.empty() ? "" : "\n") + heading(job, rates) + alarms(job) + aligned(rows);
    }
    return text + of_other_versions(now.found.of_other_versions);
}

Json live_json(const LiveLook& now, const LiveLook* before) {
    const Rates rates(now, before);
    Json processes = Json::array();
    for (const auto& process : now.found.processes) processes.push_back(to_json(process, now, rates));
    return {{"time", now.time},
            {"interval_seconds", rates.seconds()},
            {"of_other_versions", now.found.of_other_versions},
            {"processes", std::move(processes)}};
}

std::string live_metrics(const LiveLook& now) {
    std::string text;
    const auto begin = [&](const std::string& name, const std::string& help, const char* type) {
        text.append("# HELP ").append(name).append(" ").append(help).append("\n# TYPE ").append(name);
        text.append(" ").append(type).append("\n");
    };
    begin("cryptmpi_live_processes", "Processes of sealed jobs that run on this node.", "gauge");
    text += fmt::format("cryptmpi_live_processes {}\n", now.found.processes.size());
    const auto all = [&](std::span<const Number> numbers) {
        for (const Number& number : numbers) {
            const std::string name = std::string("cryptmpi_live_") + number.metric + "_total";
            begin(name, number.help, "counter");
            for (const auto& process : now.found.processes)
                text += fmt::format("{}{} {}\n", name, labels_of(process), process.*number.count);
        }
    };
    all(kTraffic);
    all(kEvents);
    return text;
}

}  // namespace cryptmpi::report
