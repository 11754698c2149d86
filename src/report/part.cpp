#include "report/part.hpp"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>

#include "config/settings.hpp"
#include "report/judging.hpp"
#include "report/summary.hpp"

namespace cryptmpi::report {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::array kSealed = {"sealed_connections",      "sealed_bytes_sent",      "sealed_bytes_received",
                                "padding_bytes_sent",      "padding_bytes_received", "sealed_records_sent",
                                "sealed_records_received", "records_by_workers"};
constexpr std::array kEvents = {"native_connections", "rekeys", "failed_opens", "cut_off", "refused_handshakes"};

fs::path parts_folder(const fs::path& report_file) {
    return report_file.string() + ".parts";
}

constexpr std::array kSizes = {"sizes_sent", "sizes_received"};

Json to_json(const Sizes& sizes) {
    Json classes = Json::array();
    for (std::size_t i = 0; i < Sizes::kClasses; ++i) {
        const auto& [messages, bytes] = sizes.classes()[i];
        if (messages != 0) classes.push_back({{"up_to", Sizes::up_to(i)}, {"messages", messages}, {"bytes", bytes}});
    }
    return classes;
}

Json to_json(const Unsealed& entry) {
    return {{"reason", entry.reason},
            {"connections", entry.connections},
            {"bytes", entry.bytes},
            {"allowed", entry.allowed}};
}

/// Which process it was, and with what it sealed.
Json identity_to_json(const Part& part) {
    Json profile = {{"file", part.profile.file}, {"digest", part.profile.digest}, {"unused", part.profile.unused}};
    return {{"job_id", part.job_id},
            {"version", CRYPTMPI_VERSION},
            {"user", part.user},
            {"began", part.began},
            {"until", seconds_now()},
            {"layer", part.layer},
            {"layer_reason", part.layer_reason},
            {"library", part.library.empty() ? part.layer : part.library},
            {"node", part.node},
            {"kernel", part.kernel},
            {"pid", part.pid},
            {"role", part.role},
            {"rank", part.rank},
            {"ranks", part.ranks},
            {"group", part.group},
            {"slurm_step", part.slurm_step},
            {"launcher_here", part.launcher_here},
            {"seals_sockets", part.seals_sockets},
            {"spawned", part.spawned},
            {"mpi_initialized", part.mpi_initialized},
            {"mpi_finalized", part.mpi_finalized},
            {"mpi_aborted", part.mpi_aborted},
            {"ended", part.ended},
            {"program", part.program},
            {"program_sha256", part.program_sha256},
            {"settings", part.settings},
            {"suite", part.suite},
            {"module", part.module},
            {"handshake_module", part.handshake_module},
            {"kem_module", part.kem_module},
            {"padding", part.padding},
            {"key_exchange", part.key_exchange},
            {"scope", part.scope},
            {"member", part.member},
            {"peer_members", part.peer_members},
            {"clear_packets", part.clear_packets},
            {"processor", part.processor},
            {"processors", part.processors},
            {"mpi", part.mpi},
            {"abi", part.abi},
            {"profile", std::move(profile)}};
}

/// What it sealed, and what it did not.
Json counts_to_json(const Part& part) {
    Json not_sealed = Json::array();
    for (const auto& entry : part.not_sealed) not_sealed.push_back(to_json(entry));
    return {{"sealed_connections", part.sealed_connections},
            {"sealed_bytes_sent", part.sealed_bytes_sent},
            {"sealed_bytes_received", part.sealed_bytes_received},
            {"padding_bytes_sent", part.padding_bytes_sent},
            {"padding_bytes_received", part.padding_bytes_received},
            {"sealed_records_sent", part.sealed_records_sent},
            {"sealed_records_received", part.sealed_records_received},
            {"records_by_workers", part.records_by_workers},
            {"sizes_sent", to_json(part.sizes_sent)},
            {"sizes_received", to_json(part.sizes_received)},
            {"native_connections", part.native_connections},
            {"rekeys", part.rekeys},
            {"failed_opens", part.failed_opens},
            {"cut_off", part.cut_off},
            {"refused_handshakes", part.refused_handshakes},
            {"refused_roads", part.refused_roads},
            {"not_sealed", std::move(not_sealed)},
            {"errors", part.errors}};
}

Json to_json(const Part& part) {
    Json json = identity_to_json(part);
    json.update(counts_to_json(part));
    return json;
}

/// Names and lines come from programs and hosts, so they may hold bytes that are not UTF-8.
std::string to_text(const Json& json) {
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

/// For people's terminals, which obey control characters.
std::string to_ascii(const Json& json) {
    return json.dump(2, ' ', true, Json::error_handler_t::replace) + "\n";
}

constexpr const char* kNote = ".host";
constexpr const char* kSignature = "signature";
// What is signed begins with what it is, so that a part is no report.
constexpr std::string_view kPartKind = "part of a report\n";
constexpr std::string_view kReportKind = "report\n";
constexpr std::string_view kNoteKind = "host of a job\n";
// Names a key, and tells nothing of it: an HMAC under a key that is expanded from it.
constexpr std::string_view kFingerprintKind = "fingerprint of a key\n";

/// The text with the signature of all the rest as its last entry.
Result<std::string> signed_text(std::string_view kind, Json json, const Sign& sign) {
    json.erase(kSignature);
    auto tag = sign(std::string(kind) + to_text(json));
    if (!tag) return tl::unexpected<Error>(tag.error());
    json[kSignature] = *tag;
    return to_text(json);
}

// protocol: P5
Result<std::string> fingerprint_text(const Sign& sign) {
    constexpr std::size_t kDigits = 32;
    auto tag = sign(std::string(kFingerprintKind));
    if (tag && tag->size() > kDigits) tag->resize(kDigits);
    return tag;
}

/// Takes as long for tags that differ early as for those that differ late, or somebody could find one byte by byte.
bool is_same_tag(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return false;
    unsigned difference = 0;
    for (std::size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
    return difference == 0;
}

// protocol: P2
/// What is verified is what was parsed, written again: nothing that a parser may overlook goes unsigned.
bool is_signed(std::string_view kind, Json json, const Sign& sign) {
    const std::string claimed = json.value(kSignature, "");
    json.erase(kSignature);
    const auto tag = sign(std::string(kind) + to_text(json));
    return tag && is_same_tag(*tag, claimed);
}
bool is_signed(std::string_view kind, const Json& json, const std::vector<Sign>& signers) {
    return std::any_of(signers.begin(), signers.end(), [&](const Sign& sign) { return is_signed(kind, json, sign); });
}

/// A file that was not there, nor a link by its name: in a folder where others may write, that leads where they like.
int open_fresh(const std::string& name) {
    ::unlink(name.c_str());  // of a process with this number that was killed
    return ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
}

bool write_all(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t part = ::write(fd, text.data(), text.size());
        if (part < 0 && errno == EINTR) continue;
        if (part <= 0) return false;
        text.remove_prefix(static_cast<std::size_t>(part));
    }
    return true;
}

/// Writes beside `file` and renames, so that a reader never sees half of it.
Result<void> write_whole(const fs::path& file, const std::string& text) {
    const std::string temporary = file.string() + "." + std::to_string(getpid()) + ".new";
    errno = 0;
    const int fd = open_fresh(temporary);
    bool written = fd >= 0 && write_all(fd, text);
    written = fd >= 0 && ::close(fd) == 0 && written;
    if (!written || std::rename(temporary.c_str(), file.c_str()) != 0) {
        const int code = errno != 0 ? errno : EIO;
        if (fd >= 0) std::remove(temporary.c_str());
        return fail(code, "cannot write " + file.string() + ": " + std::strerror(code));
    }
    return {};
}

/// Somebody else may have made it first, where all may write.
Result<void> check_own_folder(const fs::path& folder) {
    struct stat found = {};
    if (::lstat(folder.c_str(), &found) != 0)
        return fail(errno, "report folder " + folder.string() + ": " + std::strerror(errno));
    if (!S_ISDIR(found.st_mode)) return fail(ENOTDIR, "report folder " + folder.string() + " is no folder");
    if (found.st_uid == ::geteuid()) return {};
    return fail(EPERM, "report folder " + folder.string() + " belongs to user " + std::to_string(found.st_uid) +
                           ", who could change what is written there: name another place for the report");
}

Result<Json> read_json(const fs::path& file) {
    errno = 0;
    std::ifstream stream(file, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
    if (!stream) {
        const int code = errno != 0 ? errno : EIO;
        return fail(code, "cannot read report " + file.string() + ": " + std::strerror(code));
    }
    Json json = Json::parse(text, nullptr, false);
    if (!json.is_object()) return fail(EINVAL, file.string() + " is not a report of CryptMPI: no JSON object in it");
    return json;
}

std::string joined(const std::vector<std::string>& names, const char* separator = ", ") {
    std::string text;
    for (const auto& name : names) text += (text.empty() ? "" : separator) + name;
    return text;
}

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
        texts.push_back(entry == nullptr ? std::to_string(number)
                                         : std::string(entry->pw_name) + " (" + std::to_string(number) + ")");
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
    for (const auto& [reason, sum] : sums) list.push_back(to_json(sum));
    return list;
}

void add_reason(Json& not_sealed, const std::string& reason) {
    not_sealed.push_back(to_json(Unsealed{reason, 0, 0, true}));
}

/// The connections of a launcher that was not started by us, and MPI's own packets where no socket of ours carries
/// them.
void add_what_is_left(Json& not_sealed, const std::vector<Json>& parts) {
    const auto any = [&](const auto& condition) { return std::any_of(parts.begin(), parts.end(), condition); };
    const bool several_nodes = distinct(parts, "node").size() > 1 || distinct(parts, "kernel").size() > 1;
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
        if (count > 1) text += " " + std::to_string(rank);
    }
    return text;
}

/// Parts that cannot be of one job.
void find_contradictions(const std::vector<Json>& parts, std::vector<std::string>& problems) {
    const auto jobs = distinct(parts, "job_id");
    if (jobs.size() > 1)
        problems.push_back("parts of " + std::to_string(jobs.size()) + " jobs share this report file: " + joined(jobs));
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

Json merged(std::vector<Json> parts, std::vector<std::string> problems, const Started& started) {
    sort_by_rank(parts);
    find_contradictions(parts, problems);
    const RankCount count = count_ranks(parts, started.ranks);
    const bool complete = problems.empty() && count.all && started.unfetched.empty();

    Json not_sealed = not_sealed_of(parts);
    add_what_is_left(not_sealed, parts);
    const auto [began, until] = times_of(parts);
    Json errors = collected(parts, "errors");
    for (auto& problem : problems) errors.push_back(std::move(problem));
    return {{"job_id", started.job_id.empty() ? joined(distinct(parts, "job_id")) : started.job_id},
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
            {"unfetched", started.unfetched},
            {"ranks", count.expected},
            {"ranks_reported", count.counted},
            {"ranks_known", count.is_known},
            {"spawned_missing", count.spawned_missing},
            {"half_told", count.half_told},
            {"suites", distinct(parts, "suite")},
            {"modules", distinct(parts, "module")},
            {"handshake_modules", distinct(parts, "handshake_module")},
            {"kem_modules", distinct(parts, "kem_module")},
            {"padding", joined(distinct(parts, "padding"))},
            {"key_exchange", joined(distinct(parts, "key_exchange"))},
            {"scope", joined(distinct(of_the_layer(parts), "scope"))},
            {"members", collected(parts, "peer_members")},
            {"profiles", profiles_of(parts)},
            {"totals", totals_of(parts)},
            {"sockets", sockets_of(parts)},
            {"not_sealed", std::move(not_sealed)},
            {"refused_roads", collected(parts, "refused_roads")},
            {"errors", std::move(errors)},
            {"processes", std::move(parts)}};
}

constexpr const char* kNotSigned = " is not signed with this job key: it is not believed";
constexpr const char* kFreshGone =
    " is signed with its job's fresh key, which only cryptmpi run had, until the job ended, or by nobody of the job: "
    "it cannot be checked any more";

constexpr std::string_view kFreshKeyMark = "fresh key";

/// Did this job have a key of its own? Cryptmpi run wrote so beside the parts.
bool has_fresh_key(const fs::path& report_file) {
    std::ifstream stream(config::report_token_file(report_file));
    for (std::string line; std::getline(stream, line);) {
        if (line == kFreshKeyMark) return true;
    }
    return false;
}

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

/// Tells what a process runs from what it ran before an exec, which keeps its number: a part of a shell that has
/// something to tell must outlive the program that takes its place.
const std::string& image() {
    static const std::string text = std::to_string(std::chrono::steady_clock::now().time_since_epoch().count());
    return text;
}

bool is_part_or_note(const fs::path& file) {
    return file.extension() == ".json" || file.extension() == kNote;
}

/// Runs `work`, turning an exception (out of memory, a report with values of other kinds) into an error line.
template <class Work>
auto guarded(const fs::path& report_file, Work work) -> decltype(work()) {
    try {
        return work();
    } catch (const std::exception& error) {
        return fail(EINVAL, "report " + report_file.string() + ": " + error.what());
    }
}

}  // namespace

Result<void> write_file(const fs::path& file, const std::string& text) {
    return write_whole(file, text);
}

std::int64_t seconds_now() {
    return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

Result<std::string> fingerprint(const Sign& sign) {
    return fingerprint_text(sign);
}

Result<void> write_part(const fs::path& report_file, const Part& part, const Sign& sign) {
    return guarded(report_file, [&]() -> Result<void> {
        const fs::path folder = parts_folder(report_file);
        std::error_code error;
        fs::create_directories(folder, error);
        if (error) return fail(error.value(), "cannot make report folder " + folder.string() + ": " + error.message());
        std::string name = part.node + "." + std::to_string(part.pid) + "." +
                           (part.library.empty() ? part.layer : part.library) + "." + image() + ".json";
        std::replace(name.begin(), name.end(), '/', '_');
        auto text = signed_text(kPartKind, to_json(part), sign);
        if (!text) return tl::unexpected<Error>(text.error());
        return write_whole(folder / name, *text);
    });
}

Result<void> prepare_parts(const fs::path& report_file) {
    return guarded(report_file, [&]() -> Result<void> {
        const fs::path folder = parts_folder(report_file);
        std::error_code error;
        fs::create_directories(folder, error);
        if (error) return fail(error.value(), "cannot make report folder " + folder.string() + ": " + error.message());
        if (auto ours = check_own_folder(folder); !ours) return ours;
        if (fs::is_directory(report_file, error))
            return fail(EISDIR, "report " + report_file.string() + " is a folder");
        // Beside the report and among its parts: both are written by name and renamed.
        for (const fs::path& trial : {folder / "trial", fs::path(report_file.string() + ".trial")}) {
            if (auto written = write_whole(trial, ""); !written) return written;
            fs::remove(trial, error);
        }
        return {};
    });
}

Result<void> mark_parts(const fs::path& report_file, const std::string& token, bool fresh_key) {
    return guarded(report_file, [&] {
        return write_whole(config::report_token_file(report_file),
                           token + "\n" + std::string(fresh_key ? kFreshKeyMark : "") + "\n");
    });
}

Result<Verdict> finish_job(const fs::path& report_file, const Started& started, const Sign& sign_of_parts,
                           const Sign& sign_of_report) {
    return guarded(report_file, [&]() -> Result<Verdict> {
        auto job = merge(report_file, started, {sign_of_parts});
        if (!job) return tl::unexpected<Error>(job.error());
        // Of what was merged, not of the file, which somebody else may write.
        Verdict verdict = verdict_of(*job);
        const auto key_of_job = fingerprint_text(sign_of_parts);
        const auto key_of_report = fingerprint_text(sign_of_report);
        if (!key_of_job) return tl::unexpected<Error>(key_of_job.error());
        if (!key_of_report) return tl::unexpected<Error>(key_of_report.error());
        (*job)["job_key"] = *key_of_job;
        (*job)["report_key"] = *key_of_report;
        auto text = signed_text(kReportKind, std::move(*job), sign_of_report);
        if (!text) return tl::unexpected<Error>(text.error());
        if (auto written = write_whole(report_file, *text); !written) return tl::unexpected<Error>(written.error());
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

Result<void> note_host(const fs::path& report_file, const std::string& host, const std::string& job_id,
                       const Sign& sign) {
    return guarded(report_file, [&]() -> Result<void> {
        std::string name = host + kNote;
        std::replace(name.begin(), name.end(), '/', '_');
        auto text = signed_text(kNoteKind, {{"job_id", job_id}, {"host", host}}, sign);
        if (!text) return tl::unexpected<Error>(text.error());
        const fs::path folder = parts_folder(report_file);
        std::error_code error;
        fs::create_directories(folder, error);
        return write_whole(folder / name, *text);
    });
}

// protocol: P3
std::set<std::string> noted_hosts(const fs::path& report_file, const std::string& job_id, const Sign& sign) {
    std::set<std::string> hosts;
    std::error_code error;
    for (fs::directory_iterator entry(parts_folder(report_file), error), end; !error && entry != end;
         entry.increment(error)) {
        if (entry->path().extension() != kNote) continue;
        const auto host = guarded(report_file, [&]() -> Result<std::string> {
            const auto note = read_json(entry->path());
            if (!note || !is_signed(kNoteKind, *note, sign) || note->value("job_id", "") != job_id) return "";
            return note->value("host", "");
        });
        if (host && !host->empty() && !host->starts_with('-')) hosts.insert(*host);
    }
    return hosts;
}

std::map<std::string, std::string> raw_parts(const fs::path& report_file) {
    std::map<std::string, std::string> parts;
    std::error_code error;
    for (fs::directory_iterator entry(parts_folder(report_file), error), end; !error && entry != end;
         entry.increment(error)) {
        if (!is_part_or_note(entry->path())) continue;
        std::ifstream stream(entry->path(), std::ios::binary);
        parts[entry->path().filename().string()] = {std::istreambuf_iterator<char>(stream),
                                                    std::istreambuf_iterator<char>()};
    }
    return parts;
}

Result<void> add_raw_part(const fs::path& report_file, const std::string& name, const std::string& text) {
    return guarded(report_file, [&]() -> Result<void> {
        constexpr std::size_t kLongest = 255;
        const fs::path file = parts_folder(report_file) / name;
        const bool plain = name.find('/') == std::string::npos && !name.starts_with('.') && name.size() < kLongest &&
                           is_part_or_note(file);
        if (!plain) return fail(EINVAL, "\"" + name + "\" is no name of a report's part");
        return write_whole(file, text);
    });
}

namespace {

/// What a rank that was killed wrote when its job had been merged is that job's.
bool has_parts_of_another(const fs::path& report_file, const std::string& job_id) {
    const auto parts = raw_parts(report_file);
    return std::any_of(parts.begin(), parts.end(), [&](const auto& part) {
        const Json json = Json::parse(part.second, nullptr, false);
        return job_id.empty() || !json.is_object() || json.value("job_id", "") != job_id;
    });
}

}  // namespace

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
