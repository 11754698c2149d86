// What an attestation amounts to: of whom, of which job, and of which canary.
#include "report/attestation.hpp"

#include <gtest/gtest.h>

namespace cryptmpi::report {
namespace {

using Json = nlohmann::ordered_json;

/// A report that says SEALED, as far as a verdict looks at it.
Json sealed_report() {
    const auto rank = [](int number, const char* node) {
        return Json{{"rank", number},
                    {"ranks", 2},
                    {"node", node},
                    {"layer", "channel"},
                    {"library", "channel"},
                    {"role", "rank"},
                    {"mpi_initialized", true},
                    {"mpi_finalized", true},
                    {"ended", true},
                    {"not_sealed", Json::array()},
                    {"errors", Json::array()}};
    };
    return {{"job_id", "job"},
            {"layer", "channel"},
            {"ranks", 2},
            {"ranks_reported", 2},
            {"complete", true},
            {"suites", {"AES-256-GCM"}},
            {"totals", {{"sealed_connections", 2}, {"sealed_bytes_sent", 9}, {"failed_opens", 0}}},
            {"nodes", {{{"name", "a"}, {"ranks", {0}}}, {{"name", "b"}, {"ranks", {1}}}}},
            {"not_sealed", Json::array()},
            {"errors", Json::array()},
            {"processes", {rank(0, "a"), rank(1, "b")}}};
}

Json canary() {
    return {{"made", 1},
            {"nodes", {"a", "b"}},
            {"layer", "channel"},
            {"suite", "AES-256-GCM"},
            {"verdict", "SEALED"},
            {"plain", {{"payload", 9}, {"bytes", 10}, {"canaries", 3}}},
            {"sealed", {{"payload", 9}, {"bytes", 10}, {"canaries", 0}}},
            {"held", true},
            {"why", ""}};
}

Summary shown(const Json& canary, bool verified = true, const std::vector<std::string>& vouchers = {"alice"}) {
    const auto made = Attestation::of({sealed_report(), verified, "SEALED", canary}, {"user", "host"}, 1);
    const auto read = Attestation::parse(made.text());
    EXPECT_TRUE(read) << read.error().line;
    return read->summary(vouchers);
}

TEST(Attestation, OfASealedJobWithItsCanaryIsGood) {
    const Summary summary = shown(canary());
    EXPECT_EQ(summary.verdict.outcome, Outcome::sealed) << summary.verdict.line;
}

TEST(Attestation, SaysWhichModuleMadeTheHandshakesWhereTheReportKnows) {
    Json job = sealed_report();
    const auto row = [&] {
        const auto summary = Attestation::of({job, true, "SEALED", {}}, {"user", "host"}, 1).summary({"alice"});
        for (const auto& [label, value] : summary.job)
            if (label == "handshakes by") return value;
        return std::string("no row");
    };
    EXPECT_EQ(row(), "not recorded");
    job["handshake_modules"] = {"libsodium 1.0.18"};
    EXPECT_EQ(row(), "libsodium 1.0.18");
    job["handshake_modules"] = Json::array();
    EXPECT_EQ(row(), "no row");
}

TEST(Attestation, ACanaryOfAnotherPathShowsNothing) {
    const std::pair<const char*, Json> others[] = {
        {"layer", "mpi"}, {"suite", "AES-128-GCM"}, {"nodes", {"a", "c"}}, {"nodes", {"a", 7}}, {"held", false}};
    for (const auto& [key, value] : others) {
        Json other = canary();
        other[key] = value;
        const Summary summary = shown(other);
        EXPECT_EQ(summary.verdict.outcome, Outcome::failed) << key;
        EXPECT_NE(summary.verdict.line.find("FAILED: the canary"), std::string::npos) << summary.verdict.line;
    }
}

TEST(Attestation, NobodysIsNotBelieved) {
    EXPECT_EQ(shown(canary(), true, {}).verdict.outcome, Outcome::failed);
    EXPECT_TRUE(shown(canary(), true, {}).verdict.line.starts_with("NOT VERIFIED"));
    EXPECT_TRUE(shown(canary(), false).verdict.line.starts_with("FAILED: who made this could not verify the report"));
}

TEST(Attestation, WhatIsNoneIsRefused) {
    const std::string good = Attestation::of({sealed_report(), true, "SEALED", {}}, {"user", "host"}, 1).text();
    EXPECT_TRUE(Attestation::parse(good));
    Json without = Json::parse(good);
    without["statement"]["report"].erase("processes");
    Json other_kind = Json::parse(good);
    other_kind["statement"]["report"]["nodes"] = 7;
    Json newer = Json::parse(good);
    newer["statement"]["kind"] = "cryptmpi attestation 2";
    for (const std::string& text :
         {std::string("{"), std::string("{}"), std::string("[]"), without.dump(), other_kind.dump(), newer.dump()})
        EXPECT_FALSE(Attestation::parse(text)) << text;
}

TEST(Attestation, WhatNobodyHasSignedIsRefused) {
    auto made = Attestation::of({sealed_report(), true, "SEALED", {}}, {"user", "host"}, 1);
    made.add({"ab", "cd"});
    const Json good = Json::parse(made.text());
    ASSERT_TRUE(Attestation::parse(good.dump()));
    Json beside = good;
    beside["verdict"] = "SEALED";
    Json of_signature = good;
    of_signature["signatures"][0]["note"] = "x";
    Json no_object = good;
    no_object["signatures"].push_back("alice");
    Json without_key = good;
    without_key["signatures"][0].erase("key");
    Json other_kind = good;
    other_kind["signatures"][0]["signature"] = 7;
    for (const Json& bad : {beside, of_signature, no_object, without_key, other_kind})
        EXPECT_FALSE(Attestation::parse(bad.dump())) << bad.dump();
}

TEST(Attestation, ANameThatTheSignerGaveItselfIsLeftOut) {
    auto made = Attestation::of({sealed_report(), true, "SEALED", {}}, {"user", "host"}, 1);
    made.add({"ab", "cd"});
    Json named = Json::parse(made.text());
    named["signatures"][0]["member"] = "alice";
    const auto read = Attestation::parse(named.dump());
    ASSERT_TRUE(read) << read.error().line;
    EXPECT_EQ(read->text(), made.text());
}

TEST(Attestation, OneThatHasAKeyTwiceIsRefused) {
    const std::string good = Attestation::of({sealed_report(), true, "SEALED", {}}, {"user", "host"}, 1).text();
    for (const std::string before : {"\"statement\"", "\"verdict\"", "\"totals\""}) {
        std::string twice = good;
        twice.insert(twice.find(before), before + ": {}, ");
        EXPECT_FALSE(Attestation::parse(twice)) << twice;
    }
}

TEST(Attestation, OneThatIsNestedWithoutEndIsRefused) {
    constexpr std::size_t kMany = 400'000;
    std::string deep = Attestation::of({sealed_report(), true, "SEALED", {}}, {"user", "host"}, 1).text();
    const std::string before = "\"totals\"";
    deep.insert(deep.find(before), "\"deep\": " + std::string(kMany, '[') + std::string(kMany, ']') + ", ");
    EXPECT_FALSE(Attestation::parse(deep));
}

}  // namespace
}  // namespace cryptmpi::report
