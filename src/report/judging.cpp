#include "report/judging.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <compare>
#include <cstdint>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <tuple>

#include "base/printable.hpp"

namespace cryptmpi::report {
namespace {

using Json = nlohmann::ordered_json;

using ProcessName = std::tuple<std::string, std::string, std::uint64_t, int>;  // node, kernel, PID namespace, process

ProcessName process_of(const Json& part) {
    return {part.value("node", ""), part.value("kernel", ""), part.value("pid_namespace", std::uint64_t{0}),
            part.value("pid", 0)};
}

/// Ranks that one start of a launcher, or one spawn, has made. Where the launcher gives it no name, it may be several
/// that nothing tells from each other. Of these each rank must have reported equally often: else one's rank would stand
/// for another's, which ran in clear.
struct Group {
    bool has_name = false;
    std::int64_t expected = 0;  // of one start
    bool is_known = false;      // how many there are, by the launcher, not by who has reported
    // Parts, of which each program has one: processes of several PID namespaces may have one number.
    std::map<int, std::int64_t> counted;

    std::int64_t starts() const {
        if (has_name) return 1;
        std::int64_t most = 1;
        for (const auto& [rank, parts] : counted) most = std::max(most, parts);
        return most;
    }
    std::int64_t reported() const {
        if (has_name) return std::ssize(counted);  // several programs of one place are one rank
        std::int64_t sum = 0;
        for (const auto& [rank, parts] : counted) sum += parts;
        return sum;
    }
    bool is_whole() const { return is_known && expected > 0 && reported() == expected * starts(); }
};

/// The ranks that were spawned: some MPIs do not say by which MPI_Comm_spawn, so that their numbers meet.
struct Spawned {
    int started = 0;  // by what those say that called it
    std::set<ProcessName> processes;

    int missing() const { return std::max(0, started - static_cast<int>(processes.size())); }
};

std::string exception_text(const Json& entry) {
    const auto times = entry.value("connections", std::uint64_t{0});
    auto reason = entry.value("reason", "");
    if (times == 0) return reason;
    return fmt::format("{} ({} {})", reason, times,
                       reason.starts_with("allow_programs") ? "times" : "connections, counted at each end");
}

template <class Condition>
std::string ranks_whose(const Json& job, const Condition& condition) {
    std::set<int> ranks;
    for (const auto& part : job.at("processes")) {
        if (const int rank = part.value("rank", -1); rank >= 0 && condition(part)) ranks.insert(rank);
    }
    std::string text;
    for (const int rank : ranks) text += fmt::format(" {}", rank);
    return text;
}

/// The ranks by which the program ended the job before its time; empty: none did. Who calls MPI_Abort may be killed
/// before it has more to say, and may come to MPI_Finalize, where its MPI lets that call return.
std::string abort_text(const Json& job) {
    const std::string called = ranks_whose(job, [](const Json& part) { return part.value("mpi_aborted", false); });
    const std::string left =
        ranks_whose(job, [](const Json& part) { return counts_as_rank(part) && !part.value("mpi_finalized", true); });
    if (called.empty() && left.empty()) return {};
    return "program aborted the job:" + (called.empty() ? "" : " rank(s)" + called + " called MPI_Abort") +
           (called.empty() || left.empty() ? "" : ",") +
           (left.empty() ? "" : " rank(s)" + left + " ended without MPI_Finalize");
}

/// What nobody could open and the program was told of: no failure, since a program may send more than is received, but
/// somebody may have made it longer on its way.
std::string cut_off_text(const Json& job) {
    const auto cut_off = job.value("totals", Json::object()).value("cut_off", std::uint64_t{0});
    if (cut_off == 0) return "";
    return fmt::format(
        " {} message(s) were longer than their receives, and were cut off and not opened: altered on the "
        "way, or ranks of the program disagreed in a size.",
        cut_off);
}

/// How the job ended, where that was not in order: with messages that were cut off, by MPI_Abort, by an exit without
/// MPI_Finalize, with a status, and before all of its processes had reported.
std::string ending_text(const Json& job) {
    const std::string aborted = abort_text(job);
    const int status = job.value("status", 0);
    const auto late = job.value("doubted_late", std::uint64_t{0});
    return cut_off_text(job) + (aborted.empty() ? "" : " The " + aborted + ".") +
           (status == 0 ? "" : fmt::format(" The job ended with status {}.", status)) +
           (late == 0 ? ""
                      : fmt::format(" {} part(s) came after the job's end, when its key was gone: they tell of no "
                                    "trouble, and cannot be checked.",
                                    late));
}

/// The ranks that are missing, why, and what helps.
std::string incomplete_line(const Json& job) {
    std::string line = "INCOMPLETE: " + ranks_text(job);
    const int status = job.value("status", 0);
    if (const auto aborted = abort_text(job); !aborted.empty()) line += "; the " + aborted;
    if (const auto why = job.value("unfetched", ""); !why.empty()) {
        return line + "; " + why + (status == 0 ? "." : fmt::format("; the job ended with status {}.", status));
    }
    if (status != 0) return fmt::format("{}; the job ended with status {}.", line, status);
    if (const int spawned = job.value("spawned_missing", 0); spawned > 0)
        return fmt::format(
            "{}; {} rank(s) that MPI_Comm_spawn started did not report: what they sent is not known. Start the job by "
            "cryptmpi run, whose launcher starts them under CryptMPI.",
            line, spawned);
    if (const auto half = job.value("half_told", std::set<int>{}); !half.empty()) {
        std::string ranks;
        for (const int rank : half) ranks += fmt::format(" {}", rank);
        return line + "; rank(s)" + ranks + " reported what their messages were, and not what their sockets did.";
    }
    if (!job.value("ranks_known", true) && job.value("ranks_reported", 0) > 0)
        return line +
               "; the launcher does not say how many there are, and those that did not report may have sent "
               "anything. Start the job by cryptmpi run, or by a launcher that sets PMI_SIZE.";
    line += "; what the others sent is not known. They did not initialise MPI under CryptMPI";
    if (job.at("processes").empty() || job.at("nodes").size() < 2) {
        line += ", or the report's folder is none that all nodes share";
    }
    return line + ".";
}

}  // namespace

bool left_the_node(const Json& entry) {
    return !entry.value("reason", "").starts_with("loopback");
}

bool is_of_the_layer(const Json& part) {
    return !part.contains("library") || part["library"] == part.value("layer", "");
}

bool counts_as_rank(const Json& part) {
    return is_of_the_layer(part) && part.value("rank", -1) >= 0 && part.value("mpi_initialized", false) &&
           part.value("ended", false);
}

namespace {

/// Ranks of a layer above the sockets whose channel library has not told what it saw: its part may be gone by itself.
std::set<int> half_told(const std::vector<Json>& parts) {
    std::set<ProcessName> told;
    for (const auto& part : parts) {
        if (part.value("library", "") == "channel") told.insert(process_of(part));
    }
    std::set<int> ranks;
    for (const auto& part : parts) {
        if (counts_as_rank(part) && part.value("seals_sockets", false) && !told.contains(process_of(part)))
            ranks.insert(part.value("rank", -1));
    }
    return ranks;
}

}  // namespace

namespace {

constexpr const char* kNested = "nested";  // so begins the group's name of ranks that a rank's place has started

/// Ranks that were spawned, or that a launcher in a rank's place has started, are counted by themselves; and so are
/// those of each launch, or the ranks of one would stand for those of another that did not report. Hydra has no name
/// for a launch: at least those of different sizes are told apart.
struct GroupName {
    std::string launch;
    std::string group;
    int size_without_name = 0;

    auto operator<=>(const GroupName&) const = default;
};
using Groups = std::map<GroupName, Group>;

/// What a part says of its launch and group; no name of a launch: it does not tell.
GroupName told_by(const Json& part) {
    return {part.value("launch", ""), part.value("group", ""), 0};
}

/// The launch and group of each process that tells its launch in one of its parts. MPI_Init of Open MPI 4 takes the
/// launch out of the environment, so that the part of a library that looks later does not tell it.
std::map<ProcessName, GroupName> told_groups(const std::vector<Json>& parts) {
    std::map<ProcessName, GroupName> told;
    for (const auto& part : parts) {
        if (const GroupName name = told_by(part); !name.launch.empty()) told[process_of(part)] = name;
    }
    return told;
}

/// The kernel uses a process's number again: what a part says itself goes before what another one of that number says.
GroupName group_of(const Json& part, const std::map<ProcessName, GroupName>& told,
                   const std::map<ProcessName, int>& sizes) {
    if (GroupName own = told_by(part); !own.launch.empty()) return own;
    const ProcessName process = process_of(part);
    const auto known = told.find(process);
    return known != told.end() ? known->second : GroupName{"", part.value("group", ""), sizes.at(process)};
}

/// Of how many ranks each process says that it is one: the most that one of its parts does.
std::map<ProcessName, int> told_sizes(const std::vector<Json>& parts) {
    std::map<ProcessName, int> told;
    for (const auto& part : parts) {
        int& most = told.try_emplace(process_of(part), -1).first->second;
        most = std::max(most, part.value("ranks", -1));
    }
    return told;
}

/// The group of the launcher that whoever counts has started: it must have as many ranks as that one was told to start.
Group& own_group(Groups& groups, int started) {
    auto own = groups.end();
    for (auto one = groups.begin(); one != groups.end(); ++one) {
        if (!one->first.group.empty()) continue;
        if (own == groups.end() || one->second.expected > own->second.expected) own = one;
    }
    Group& group = own == groups.end() ? groups[{}] : own->second;
    group.expected = std::max(group.expected, std::int64_t{started});
    group.is_known = group.is_known || started > 0;
    return group;
}

/// By MPI_Comm_spawn, be it in a nested launch.
bool was_spawned(const std::string& group) {
    return !group.empty() && group != kNested;
}

/// A tool of a rank's place has its numbers in its environment, and may have another file where the launcher's socket
/// was: it seems to be in a nested launch, and is no rank of one.
bool may_be_a_tool(const Json& part, const GroupName& name) {
    return name.group.starts_with(kNested) && !counts_as_rank(part);
}

}  // namespace

RankCount count_ranks(const std::vector<Json>& parts, int started) {
    Groups groups;
    Spawned spawned;
    const auto told = told_groups(parts);
    const auto sizes = told_sizes(parts);
    for (const auto& part : parts) {
        // Who is no rank of the launcher's, having started its MPI by itself, spawns as well.
        spawned.started += part.value("spawned", 0);
        const int rank = part.value("rank", -1);
        const GroupName name = group_of(part, told, sizes);
        if (rank < 0 || may_be_a_tool(part, name)) continue;
        Group& group = groups[name];
        group.has_name = !name.launch.empty();
        group.expected = std::max({group.expected, std::int64_t{part.value("ranks", -1)}, std::int64_t{rank} + 1});
        group.is_known = group.is_known || part.value("ranks", -1) > 0;
        if (!counts_as_rank(part)) continue;
        ++group.counted[rank];
        if (was_spawned(name.group)) spawned.processes.insert(process_of(part));
    }
    const bool is_known = own_group(groups, started).is_known;
    RankCount count{0, 0, false, spawned.missing(), half_told(parts), is_known};
    count.all = count.spawned_missing == 0 && count.half_told.empty();
    std::int64_t expected = 0;
    std::int64_t counted = 0;
    for (const auto& [name, group] : groups) {
        expected += group.expected * group.starts();
        counted += group.reported();
        count.all = count.all && group.is_whole();
    }
    // Numbers that a forged report may hold are no reason to count past what an int holds.
    constexpr std::int64_t kMost = std::numeric_limits<int>::max();
    count.expected = expected == 0 ? -1 : static_cast<int>(std::min(expected, kMost));
    count.counted = static_cast<int>(std::min(counted, kMost));
    return count;
}

std::string ranks_text(const Json& job) {
    const int ranks = job.value("ranks", -1);
    const auto nodes = job.at("nodes").size();
    if (ranks < 0) return fmt::format("no rank reported, {} node(s)", nodes);
    return fmt::format("{} of {} ranks reported, on {} node(s)", job.value("ranks_reported", 0), ranks, nodes);
}

namespace {

Verdict judged(const Json& job) {
    const auto& totals = job.at("totals");
    const std::string ended = ending_text(job);
    if (const auto failed = totals.value("failed_opens", std::uint64_t{0}); failed != 0) {
        const auto& errors = job.at("errors");
        const bool or_sizes = std::any_of(errors.begin(), errors.end(), [](const Json& line) {
            return line.get<std::string>().ends_with(kOrOtherSizes);
        });
        return {Outcome::failed, false,
                fmt::format("FAILED: {} record(s) did not open; the traffic was altered on its way, or corrupted{}{}",
                            failed, or_sizes ? ", or ranks of the program disagreed in a size (below)." : ".", ended)};
    }
    if (!job.at("errors").empty()) return {Outcome::failed, false, "FAILED: there were errors (below)." + ended};
    if (!job.value("complete", false)) return {Outcome::incomplete, false, incomplete_line(job)};

    std::string exceptions;
    bool by_settings = true;
    for (const auto& entry : job.at("not_sealed")) {
        if (!left_the_node(entry)) continue;
        exceptions += (exceptions.empty() ? "" : "; ") + exception_text(entry);
        by_settings = by_settings && entry.value("allowed", false);
    }
    if (!exceptions.empty()) {
        return {Outcome::exceptions, by_settings, "SEALED WITH EXCEPTIONS: " + exceptions + "." + ended};
    }
    const auto sockets = job.value("sockets", Json::object()).value("sealed_connections", std::uint64_t{0});
    if (totals.value("sealed_connections", std::uint64_t{0}) + sockets == 0) {
        return {Outcome::nothing_to_seal, false, "NOTHING TO SEAL: no connection between nodes was made." + ended};
    }
    return {Outcome::sealed, false, "SEALED: all traffic between the nodes was encrypted and authenticated." + ended};
}

}  // namespace

Verdict verdict_of(const Json& job) {
    Verdict verdict = judged(job);
    verdict.line = printable(verdict.line);
    return verdict;
}

}  // namespace cryptmpi::report
