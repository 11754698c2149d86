#include "report/late_parts.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "report/judging.hpp"

namespace cryptmpi::report {
namespace {

using Json = nlohmann::ordered_json;

std::uint64_t failed_opens(const Json& part) {
    return part.value("failed_opens", std::uint64_t{0});
}

Json entries(const Json& part, const char* key) {
    return part.value(key, Json::array());
}

bool is_same_process(const Json& a, const Json& b) {
    const auto same = [&](const char* key) { return a.value(key, Json()) == b.value(key, Json()); };
    return same("node") && same("kernel") && same("pid_namespace") && same("pid") && same("library") && same("began");
}

/// What the report has of this process already; an empty object: nothing.
Json merged_before(const Json& job, const Json& part) {
    const auto& all = job.at("processes");
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const Json& one) { return is_same_process(one, part); });
    return found == all.end() ? Json::object() : *found;
}

void add_failed_opens(Json& job, const Json& part, const std::string& who) {
    const auto now = failed_opens(part);
    const auto before = failed_opens(merged_before(job, part));
    if (now <= before) return;
    job["totals"]["failed_opens"] = failed_opens(job.at("totals")) + (now - before);
    job["errors"].push_back(fmt::format("{}: {} record(s) did not open", who, now - before));
}

void add_errors(Json& job, const Json& part, const std::string& who) {
    const Json known = job.at("errors");
    for (const auto& line : entries(part, "errors")) {
        if (std::find(known.begin(), known.end(), line) == known.end())
            job["errors"].push_back(who + ": " + line.get<std::string>());
    }
}

/// An entry that no setting allows is not covered by one of the same reason that a setting allows.
bool covers(const Json& known, const Json& entry) {
    return known.value("reason", "") == entry.value("reason", "") &&
           (!known.value("allowed", false) || entry.value("allowed", false));
}

void add_unsealed(Json& job, const Json& part, const std::string& who) {
    const Json known = job.at("not_sealed");
    for (const auto& entry : entries(part, "not_sealed")) {
        const auto covered = [&](const Json& one) { return covers(one, entry); };
        if (std::any_of(known.begin(), known.end(), covered)) continue;
        Json late = entry;
        late["reason"] = entry.value("reason", "") + " [" + who + "]";
        job["not_sealed"].push_back(std::move(late));
    }
}

}  // namespace

bool has_trouble(const Json& part) {
    const Json unsealed = entries(part, "not_sealed");
    return failed_opens(part) > 0 || !entries(part, "errors").empty() ||
           std::any_of(unsealed.begin(), unsealed.end(), left_the_node);
}

void add_late(Json& job, const Json& part) {
    const std::string who = fmt::format("a process of this job reported after its end ({}, process {})",
                                        part.value("node", ""), part.value("pid", 0));
    add_failed_opens(job, part, who);
    add_errors(job, part, who);
    add_unsealed(job, part, who);
}

}  // namespace cryptmpi::report
