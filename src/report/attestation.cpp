#include "report/attestation.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <exception>
#include <set>

#include "base/joined.hpp"
#include "base/json_text.hpp"
#include "report/judging.hpp"

namespace cryptmpi::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kKind = "cryptmpi attestation 1";
constexpr const char* kMember = "member";

std::string dumped(const Json& json, int indent) {
    return json.dump(indent, ' ', true, Json::error_handler_t::replace);
}

std::string text_in(const Json& json, const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::uint64_t number_in(const Json& json, const char* way, const char* key) {
    const auto outer = json.find(way);
    if (outer == json.end() || !outer->is_object()) return 0;
    const auto found = outer->find(key);
    return found != outer->end() && found->is_number_unsigned() ? found->get<std::uint64_t>() : 0;
}

bool is_true(const Json& json, const char* key) {
    const auto found = json.find(key);
    return found != json.end() && found->is_boolean() && found->get<bool>();
}

std::string time_text(const Json& json, const char* key) {
    const auto found = json.find(key);
    if (found == json.end() || !found->is_number_integer()) return "not recorded";
    const auto seconds = static_cast<std::time_t>(found->get<std::int64_t>());
    std::tm parts{};
    std::array<char, 32> text{};
    if (gmtime_r(&seconds, &parts) == nullptr ||
        std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts) == 0)
        return "not recorded";
    return text.data();
}

/// The entries have these names, and no others, each once: what else stood there nobody would have signed.
bool has_only(const Json& object, const std::set<std::string>& names) {
    if (object.size() != names.size()) return false;
    return std::all_of(names.begin(), names.end(), [&](const std::string& name) { return object.contains(name); });
}

/// Takes from each the name by which its signer went in files of before: nobody has signed it.
bool read_signatures(Json& all) {
    for (auto& one : all) {
        if (!one.is_object()) return false;
        one.erase(kMember);
        if (!has_only(one, {"key", "signature"}) || !one["key"].is_string() || !one["signature"].is_string())
            return false;
    }
    return true;
}

/// Why a canary does not show that the job's path is sealed; empty: it does.
std::string spoils(const Json& canary, const Json& job) {
    if (!is_true(canary, "held")) {
        const auto why = text_in(canary, "why");
        return "the canary test did not hold: " + (why.empty() ? "it does not say why" : why);
    }
    const auto layer = text_in(canary, "layer");
    if (layer != text_in(job, "layer"))
        return "the canary was sent under the " + layer + " layer, the job ran under the " + text_in(job, "layer") +
               " layer";
    const auto suites = job.value("suites", Json::array());
    for (const auto& suite : suites)
        if (suite != text_in(canary, "suite"))
            return "the canary was sealed with " + text_in(canary, "suite") + ", and the job with another cipher";
    std::set<std::string> nodes;
    for (const auto& node : job.value("nodes", Json::array())) nodes.insert(text_in(node, "name"));
    for (const auto& node : canary.value("nodes", Json::array()))
        if (!node.is_string() || !nodes.contains(node.get<std::string>()))
            return "the canary was sent between other nodes than those of the job";
    return {};
}

std::vector<Fact> canary_facts(const Json& canary) {
    const auto watched = [&](const char* way) {
        return fmt::format("{} canaries in the {} bytes that left a node; {} bytes of canaries were sent",
                           number_in(canary, way, "canaries"), number_in(canary, way, "bytes"),
                           number_in(canary, way, "payload"));
    };
    std::string nodes;
    for (const auto& node : canary.value("nodes", Json::array()))
        nodes += (nodes.empty() ? "" : " and ") + (node.is_string() ? node.get<std::string>() : "?");
    return {{"tried", time_text(canary, "made")},
            {"between", nodes},
            {"under", text_in(canary, "layer") + " layer, " + text_in(canary, "suite")},
            {"plain", watched("plain")},
            {"sealed", watched("sealed")},
            {"its report", text_in(canary, "verdict")}};
}

}  // namespace

Attestation Attestation::of(const Attested& what, const Attester& by, std::int64_t made) {
    Json statement = {{"kind", kKind},
                      {"made", made},
                      {"by", {{"user", by.user}, {"host", by.host}}},
                      {"verified", what.verified},
                      {"verdict", what.verdict},
                      {"report", what.report}};
    if (what.canary) statement["canary"] = *what.canary;
    Attestation attestation;
    // Read back, so that bytes that are no UTF-8 are replaced before they are signed, and not after.
    attestation.json_ = {{"statement", Json::parse(dumped(statement, -1))}, {"signatures", Json::array()}};
    return attestation;
}

Result<Attestation> Attestation::parse(const std::string& text) {
    Attestation attestation;
    attestation.json_ = parse_json<Json>(text);
    auto& json = attestation.json_;
    const auto is = [](const Json& from, const char* key, auto kind) {
        const auto found = from.find(key);
        return found != from.end() && ((*found).*kind)();
    };
    if (!json.is_object() || !is(json, "statement", &Json::is_object) || !is(json, "signatures", &Json::is_array))
        return fail(EINVAL, "is no attestation of CryptMPI");
    if (!has_only(json, {"statement", "signatures"}) || !read_signatures(json["signatures"]))
        return fail(EINVAL, "is no attestation of CryptMPI: it has an entry that nobody can have signed");
    const auto& statement = json.at("statement");
    if (text_in(statement, "kind") != kKind)
        return fail(EINVAL,
                    "is no attestation that this version of CryptMPI knows: " + std::string(kKind) + " is expected");
    if (!is(statement, "report", &Json::is_object) || !is(statement, "by", &Json::is_object) ||
        !is(statement.at("report"), "totals", &Json::is_object) ||
        (statement.contains("canary") && !statement.at("canary").is_object()))
        return fail(EINVAL, "is no whole attestation: it lacks a job's report, or who made it");
    // Values of other kinds than a report has are found by whoever shows it: better here than later.
    try {
        (void)attestation.summary({});
    } catch (const std::exception& error) {
        return fail(EINVAL, std::string("holds what no report of a job holds (") + error.what() + ")");
    }
    return attestation;
}

std::string Attestation::signed_bytes() const {
    return dumped(json_.at("statement"), -1);
}

void Attestation::add(const Signed& signature) {
    json_["signatures"].push_back({{"key", signature.key}, {"signature", signature.signature}});
}

std::vector<Attestation::Signed> Attestation::signatures() const {
    std::vector<Signed> all;
    for (const auto& one : json_.at("signatures")) all.push_back({text_in(one, "key"), text_in(one, "signature")});
    return all;
}

std::string Attestation::text() const {
    return dumped(json_, 1) + "\n";
}

Summary Attestation::summary(const std::vector<std::string>& vouchers) const {
    const auto& statement = json_.at("statement");
    const auto& job = statement.at("report");
    Verdict verdict = verdict_of(job);
    const bool verified = is_true(statement, "verified");
    if (!verified)
        verdict = {Outcome::failed, false,
                   "FAILED: who made this could not verify the report; it would say: " + verdict.line};
    std::string spoiled;
    if (statement.contains("canary")) spoiled = spoils(statement.at("canary"), job);
    if (!spoiled.empty()) verdict = {Outcome::failed, false, "FAILED: " + spoiled};
    if (vouchers.empty())
        verdict = {Outcome::failed, false, "NOT VERIFIED, nobody who is known to you has signed this: " + verdict.line};
    Summary summary = summary_of(job, verdict, verified && !vouchers.empty());
    summary.title = "attestation of a job";
    const auto& by = statement.at("by");
    const std::string names = joined(vouchers);
    summary.added.push_back({"The attestation",
                             {{"made", time_text(statement, "made")},
                              {"by", text_in(by, "user") + " on " + text_in(by, "host")},
                              {"signed by", names.empty() ? "nobody who is known to you" : names}}});
    if (statement.contains("canary"))
        summary.added.push_back(
            {"The canary: known bytes, sent plain and then sealed", canary_facts(statement.at("canary"))});
    else
        summary.added.back().facts.push_back({"canary", "not tried"});
    summary.who_vouches = names.empty() ? "Nobody whose key you have has signed what this page was made of."
                                        : "Signed by " + names +
                                              ". This page itself is not: cryptmpi attest --verify FILE "
                                              "checks the file that it was made of.";
    return summary;
}

}  // namespace cryptmpi::report
