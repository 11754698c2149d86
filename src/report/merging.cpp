#include "report/merging.hpp"

#include <fmt/core.h>
#include <pwd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "base/joined.hpp"
#include "report/judging.hpp"
#include "report/part.hpp"

namespace cryptmpi::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array kSealed = {"sealed_connections",      "sealed_bytes_sent",      "sealed_bytes_received",
                                "padding_bytes_sent",      "padding_bytes_received", "sealed_records_sent",
                                "sealed_records_received", "records_by_workers"};
constexpr std::array kEvents = {"native_connections", "rekeys", "failed_opens", "cut_off", "refused_handshakes"};
constexpr std::array kSizes = {"sizes_sent", "sizes_received"};

/// What the parts say under `key`, each value once, sorted; empty ones left out.
std::vector<std::string> distinct(const std::vector<Json>& parts, const char* key) {
    std::set<std::string> values;
    for (const auto& part : parts) {
        if (auto value = part.value(key, ""); !value.empty()) values.insert(std::move(value));
    }
    return {values.begin(), values.end()};
}

Json collected(const std::vector<Json>& parts, const char* key) {
    std::set<std::string> lines;
    for (const auto& part : parts) {
        for (const auto& line : part.value(key, std::vector<std::string>{})) lines.insert(line);
    }
    return lines;
}

/// "FILE (DIGEST)", with why it was not used; each once.
std::vector<std::string> profiles_of(const std::vector<Json>& parts) {
    std::set<std::string> texts;
    for (const auto& part : parts) {
        const Json profile = part.value("profile", Json::object());
        const auto unused = profile.value("unused", "");
        const auto digest = profile.value("digest", "");
        if (profile.value("file", "").empty()) continue;
        texts.insert(profile.value("file", "") + (digest.empty() ? "" : " (" + digest + ")") +
                     (unused.empty() ? "" : ", not used: " + unused));
    }
    return {texts.begin(), texts.end()};
}

/// "alice (1000)" of each user whose processes these were.
std::vector<std::string> users_of(const std::vector<Json>& parts) {
    std::set<std::int64_t> numbers;
    for (const auto& part : parts) {
        if (const auto number = part.value("user", std::int64_t{-1}); number >= 0) numbers.insert(number);
    }
    std::vector<std::string> texts;
    for (const auto number : numbers) {
        const passwd* entry = getpwuid(static_cast<uid_t>(number));
        texts.push_back(entry == nullptr ? std::to_string(number) : fmt::format("{} ({})", entry->pw_name, number));
    }
    return texts;
}

/// What the ranks ran, each file once.
Json programs_of(const std::vector<Json>& parts) {
    std::map<std::pair<std::string, std::string>, std::set<int>> ranks;
    for (const auto& part : parts) {
        if (!counts_as_rank(part)) continue;
        ranks[{part.value("program", ""), part.value("program_sha256", "")}].insert(part.value("rank", -1));
    }
    Json list = Json::array();
    for (const auto& [program, of] : ranks) {
        list.push_back({{"file", program.first}, {"sha256", program.second}, {"ranks", of}});
    }
    return list;
}

/// When the first of the processes began, and when the last one wrote its part; 0: none says.
std::pair<std::int64_t, std::int64_t> times_of(const std::vector<Json>& parts) {
    std::int64_t began = 0;
    std::int64_t until = 0;
    for (const auto& part : parts) {
        const auto from = part.value("began", std::int64_t{0});
        if (from != 0 && (began == 0 || from < began)) began = from;
        until = std::max(until, part.value("until", std::int64_t{0}));
    }
    return {began, until};
}

std::vector<Json> of_the_layer(const std::vector<Json>& parts) {
    std::vector<Json> chosen;
    std::copy_if(parts.begin(), parts.end(), std::back_inserter(chosen), is_of_the_layer);
    return chosen;
}

Json nodes_of(const std::vector<Json>& parts) {
    Json nodes = Json::array();
    for (const auto& name : distinct(parts, "node")) {
        std::vector<int> ranks;
        std::uint64_t sent = 0;
        std::uint64_t received = 0;
        for (const auto& part : parts) {
            if (part.value("node", "") != name) continue;
            if (counts_as_rank(part)) ranks.push_back(part.value("rank", -1));
            if (!is_of_the_layer(part)) continue;
            sent += part.value("sealed_bytes_sent", std::uint64_t{0});
            received += part.value("sealed_bytes_received", std::uint64_t{0});
        }
        std::sort(ranks.begin(), ranks.end());
        ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
        nodes.push_back({{"name", name},
                         {"ranks", std::move(ranks)},
                         {"sealed_bytes_sent", sent},
                         {"sealed_bytes_received", received}});
    }
    return nodes;
}

Json sizes_of(const std::vector<Json>& parts, const char* key) {
    std::map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>> sums;
    for (const auto& part : parts) {
        if (!part.contains(key)) continue;
        for (const auto& entry : part.at(key)) {
            auto& [messages, bytes] = sums[entry.value("up_to", std::uint64_t{0})];
            messages += entry.value("messages", std::uint64_t{0});
            bytes += entry.value("bytes", std::uint64_t{0});
        }
    }
    Json list = Json::array();
    for (const auto& [up_to, sum] : sums) {
        list.push_back({{"up_to", up_to}, {"messages", sum.first}, {"bytes", sum.second}});
    }
    return list;
}

Json not_sealed_of(const std::vector<Json>& parts) {
    std::map<std::string, Unsealed> sums;
    for (const auto& part : parts) {
        if (!part.contains("not_sealed")) continue;
        for (const auto& entry : part.at("not_sealed")) {
            auto& sum = sums[entry.value("reason", "")];
            const bool first = sum.reason.empty();
            sum.reason = entry.value("reason", "");
            sum.connections += entry.value("connections", std::uint64_t{0});
            sum.bytes += entry.value("bytes", std::uint64_t{0});
            sum.allowed = entry.value("allowed", false) && (first || sum.allowed);
        }
    }
    Json list = Json::array();
    for (const auto& [reason, sum] : sums) list.push_back(json_of(sum));
    return list;
}

void add_reason(Json& not_sealed, const std::string& reason) {
    not_sealed.push_back(json_of(Unsealed{reason, 0, 0, true}));
}

bool on_several_nodes(const std::vector<Json>& parts) {
    return distinct(parts, "node").size() > 1 || distinct(parts, "kernel").size() > 1;
}

/// Of ranks whose sockets are not sealed. Between nodes MPI's own packets are named for it (below); on one node nothing
/// of MPI's leaves it, and what a rank or a child of it sends elsewhere by a socket of its own does.
void add_clear_sockets(Json& not_sealed, const std::vector<Json>& parts) {
    const bool clear = std::any_of(parts.begin(), parts.end(), [](const Json& part) {
        return counts_as_rank(part) && part.value("library", "") != "channel" && !part.value("seals_sockets", true);
    });
    if (clear && !on_several_nodes(parts))
        add_reason(not_sealed,
                   "what ranks, and programs that they start, may have sent by sockets of their own: the sockets are "
                   "not sealed (seal_sockets = false)");
}

/// The connections of a launcher that was not started by us, and MPI's own packets where no socket of ours carries
/// them.
void add_what_is_left(Json& not_sealed, const std::vector<Json>& parts) {
    const auto any = [&](const auto& condition) { return std::any_of(parts.begin(), parts.end(), condition); };
    const bool several_nodes = on_several_nodes(parts);
    const bool ours = any([](const Json& part) { return part.value("role", "") == "launcher"; });
    // Ranks of one node may have been started from another one, which has no part.
    const bool from_elsewhere =
        any([](const Json& part) { return part.value("rank", -1) >= 0 && !part.value("launcher_here", false); });
    if (!several_nodes && (ours || !from_elsewhere)) return;
    const bool by_srun = any([](const Json& part) { return part.value("slurm_step", false); });
    if (by_srun) {
        add_reason(not_sealed, ours
                                   ? "srun, which reached other nodes for the launcher: the command lines and the "
                                     "environment of its daemons, which Slurm authenticates and does not encrypt"
                                   : "srun's own connections: command lines and environment, which Slurm authenticates "
                                     "and does not encrypt, and standard input and output, for which it does neither");
    }
    // A launcher that was started by hand in a step of srun's has connections of its own, which Slurm knows nothing of.
    const bool by_launcher =
        any([](const Json& part) { return part.value("rank", -1) >= 0 && !part.value("slurm_step", false); });
    if (!ours && (by_launcher || !by_srun)) {
        add_reason(not_sealed,
                   "the launcher's own connections: whoever owns the network can make a node start another program as "
                   "this user (cryptmpi run would have sealed them)");
    }
    if (!several_nodes) return;
    for (const auto& why : distinct(parts, "clear_packets")) {
        add_reason(not_sealed, "MPI's own packets (ranks, tags, sizes; the program's data in them is sealed): " + why);
    }
}

/// What the sockets of the launcher and of ranks under the MPI layer sealed: partly bytes that were sealed already.
Json sockets_of(const std::vector<Json>& parts) {
    Json sums = Json::object();
    for (const auto& part : parts) {
        if (is_of_the_layer(part)) continue;
        for (const char* key : kSealed) {
            sums[key] = sums.value(key, std::uint64_t{0}) + part.value(key, std::uint64_t{0});
        }
    }
    return sums;
}

/// Ranks first, in their order.
void sort_by_rank(std::vector<Json>& parts) {
    std::sort(parts.begin(), parts.end(), [](const Json& a, const Json& b) {
        const auto order = [](const Json& part) {
            const int rank = part.value("rank", -1);
            return std::tuple(rank < 0, rank, part.value("node", ""), part.value("pid", 0));
        };
        return order(a) < order(b);
    });
}

Json totals_of(const std::vector<Json>& parts) {
    Json totals = Json::object();
    for (const char* key : kSealed) totals[key] = std::uint64_t{0};
    for (const char* key : kEvents) totals[key] = std::uint64_t{0};
    for (const auto& part : parts) {
        const auto add = [&](const char* key) {
            totals[key] = totals[key].get<std::uint64_t>() + part.value(key, std::uint64_t{0});
        };
        std::for_each(kEvents.begin(), kEvents.end(), add);
        if (!is_of_the_layer(part)) continue;
        std::for_each(kSealed.begin(), kSealed.end(), add);
    }
    for (const char* key : kSizes) totals[key] = sizes_of(parts, key);
    return totals;
}

/// Of those that a launcher has started: ranks that were spawned have numbers of their own.
std::string ranks_told_twice(const std::vector<Json>& parts) {
    std::map<int, int> times;
    for (const auto& part : parts) {
        if (counts_as_rank(part) && part.value("group", "").empty()) ++times[part.value("rank", -1)];
    }
    std::string text;
    for (const auto& [rank, count] : times) {
        if (count > 1) text += fmt::format(" {}", rank);
    }
    return text;
}

/// Parts that cannot be of one job.
void find_contradictions(const std::vector<Json>& parts, std::vector<std::string>& problems) {
    const auto jobs = distinct(parts, "job_id");
    if (jobs.size() > 1)
        problems.push_back(fmt::format("parts of {} jobs share this report file: {}", jobs.size(), joined(jobs)));
    if (const auto starts = distinct(parts, "report_token"); starts.size() > 1)
        problems.push_back(fmt::format(
            "parts of {} jobs of one id, each with its own cryptmpi run, share this report file", starts.size()));
    const auto nameless = std::count_if(parts.begin(), parts.end(), [](const Json& part) {
        return counts_as_rank(part) && part.value("job_id", "").empty();
    });
    if (nameless > 0 && !jobs.empty())
        problems.push_back("parts of ranks of job " + jobs.front() +
                           " and of ranks of a job without an id share this "
                           "report file");
    // Of jobs without an id nothing else tells parts of two from each other.
    if (const auto twice = ranks_told_twice(parts); nameless > 0 && !twice.empty())
        problems.push_back("rank(s)" + twice +
                           " reported more than once, so parts of an earlier job are among these: "
                           "remove the report's folder before a job, or give each a CRYPTMPI_JOB_ID");
    const auto layers = distinct(parts, "layer");
    if (layers.size() > 1) {
        problems.push_back("the job's processes ran under different layers (" + joined(layers) +
                           "); give all the same --layer");
    }
}

/// Whose job it was, when, and how it ended.
Json story_of(const std::vector<Json>& parts, const Started& started, bool complete) {
    const auto [began, until] = times_of(parts);
    return {{"job_id", started.job_id.empty() ? joined(distinct(parts, "job_id")) : started.job_id},
            {"report_token", started.token.empty() ? joined(distinct(parts, "report_token")) : started.token},
            {"complete", complete},
            {"began", began},
            {"until", until},
            {"users", users_of(parts)},
            {"versions", distinct(parts, "version")},
            {"programs", programs_of(parts)},
            {"settings", collected(parts, "settings")},
            {"layer", joined(distinct(parts, "layer"))},
            {"layer_reason", joined(distinct(parts, "layer_reason"), "; ")},
            {"nodes", nodes_of(parts)},
            {"status", started.status},
            {"unfetched", started.unfetched}};
}

/// By what it was sealed.
Json means_of(const std::vector<Json>& parts) {
    return {{"suites", distinct(parts, "suite")},
            {"modules", distinct(parts, "module")},
            {"handshake_modules", distinct(parts, "handshake_module")},
            {"kem_modules", distinct(parts, "kem_module")},
            {"padding", joined(distinct(parts, "padding"))},
            {"key_exchange", joined(distinct(parts, "key_exchange"))},
            {"scope", joined(distinct(of_the_layer(parts), "scope"))},
            {"members", collected(parts, "peer_members")},
            {"profiles", profiles_of(parts)}};
}

}  // namespace

Json merged(std::vector<Json> parts, std::vector<std::string> problems, const Started& started) {
    sort_by_rank(parts);
    find_contradictions(parts, problems);
    const RankCount count = count_ranks(parts, started.ranks);
    Json not_sealed = not_sealed_of(parts);
    add_clear_sockets(not_sealed, parts);
    add_what_is_left(not_sealed, parts);
    Json errors = collected(parts, "errors");
    for (auto& problem : problems) errors.push_back(std::move(problem));

    Json job = story_of(parts, started, problems.empty() && count.all && started.unfetched.empty());
    job.update({{"ranks", count.expected},
                {"ranks_reported", count.counted},
                {"ranks_known", count.is_known},
                {"spawned_missing", count.spawned_missing},
                {"half_told", count.half_told}});
    job.update(means_of(parts));
    job.update({{"totals", totals_of(parts)},
                {"sockets", sockets_of(parts)},
                {"not_sealed", std::move(not_sealed)},
                {"refused_roads", collected(parts, "refused_roads")},
                {"errors", std::move(errors)},
                {"processes", std::move(parts)}});
    return job;
}

}  // namespace cryptmpi::report
