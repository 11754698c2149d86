#include "report/summary.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "report_fixture.hpp"

namespace cryptmpi::report {
namespace {

TEST_F(ReportTest, SaysWhyThisLayer) {
    write_launcher();
    for (int i = 0; i < 4; ++i) {
        auto part = rank(i, 4);
        part.layer_reason = i < 2 ? "this node has mlx5_0" : "this node has mlx5_1";
        ASSERT_TRUE(write_part(file_, part, kSign));
    }
    EXPECT_TRUE(verdict().starts_with("SEALED:")) << verdict();
    EXPECT_NE(summary().find("channel (this node has mlx5_0; this node has mlx5_1)"), std::string::npos) << summary();
    ASSERT_TRUE(finish());
    EXPECT_NE(content().find("\"layer_reason\": \"this node has mlx5_0; this node has mlx5_1\""), std::string::npos);
    EXPECT_NE(content().find("\"layer_reason\": \"this node has mlx5_0\""), std::string::npos);
}

TEST_F(ReportTest, NamesTheProfilesAndWhyOneWasNotUsed) {
    write_launcher();
    for (int i = 0; i < 4; ++i) {
        auto part = rank(i, 4);
        part.profile = {"/home/me/profile.json", "0123456789abcdef", i < 2 ? "" : "it was made for others"};
        ASSERT_TRUE(write_part(file_, part, kSign));
    }
    EXPECT_TRUE(verdict().starts_with("SEALED:")) << "it is about speed only: " << verdict();
    EXPECT_NE(summary().find("/home/me/profile.json (0123456789abcdef); /home/me/profile.json "
                             "(0123456789abcdef), not used: it was made for others\n"),
              std::string::npos)
        << summary();
    ASSERT_TRUE(finish());
    EXPECT_NE(content().find("\"digest\": \"0123456789abcdef\""), std::string::npos) << content();
}

TEST_F(ReportTest, CountsMessagesBySize) {
    for (int i = 0; i < 2; ++i) {
        auto part = rank(i, 2);
        for (const std::size_t size : {0, 1, 2, 3, 4, 5, 1 << 20, (1 << 20) + 1}) part.sizes_sent.count(size);
        part.sizes_received.count(PTRDIFF_MAX);
        ASSERT_TRUE(write_part(file_, part, kSign));
    }
    EXPECT_NE(summary().find("12 of up to 256 B, 2 of up to 1 MiB, 2 of more"), std::string::npos) << summary();
    ASSERT_TRUE(finish());
    const auto totals = nlohmann::json::parse(content()).at("totals");
    const nlohmann::json sent = {{{"up_to", 0}, {"messages", 2}, {"bytes", 0}},
                                 {{"up_to", 1}, {"messages", 2}, {"bytes", 2}},
                                 {{"up_to", 2}, {"messages", 2}, {"bytes", 4}},
                                 {{"up_to", 4}, {"messages", 4}, {"bytes", 14}},
                                 {{"up_to", 8}, {"messages", 2}, {"bytes", 10}},
                                 {{"up_to", 1 << 20}, {"messages", 2}, {"bytes", 2 << 20}},
                                 {{"up_to", 2 << 20}, {"messages", 2}, {"bytes", (2 << 20) + 2}}};
    EXPECT_EQ(totals.at("sizes_sent"), sent);
    EXPECT_EQ(totals.at("sizes_received").at(0).at("messages"), 2);
}

TEST_F(ReportTest, WhatIsExpectedLooksOtherThanWhatAlarms) {
    write_ranks(3, 4);
    auto part = rank(3, 4);
    part.not_sealed = {{"loopback", 3, 0, false}};
    ASSERT_TRUE(write_part(file_, part, kSign));
    EXPECT_NE(summary().find("alarms            none"), std::string::npos) << summary();
    EXPECT_NE(summary().find("exception         loopback"), std::string::npos) << summary();
    EXPECT_NE(summary().find("exception         the launcher's own connections"), std::string::npos) << summary();
    part.not_sealed = {{"something else", 1, 0, false}};
    part.refused_handshakes = 2;
    part.errors = {"a peer was refused"};
    ASSERT_TRUE(write_part(file_, part, kSign));
    EXPECT_EQ(summary().find("alarms            none"), std::string::npos) << summary();
    for (const char* line :
         {"not sealed, and no setting allows it: something else", "2 connection(s) were refused", "a peer was refused"})
        EXPECT_NE(summary().find(std::string("ALARM             ") + line), std::string::npos) << summary();
}

TEST_F(ReportTest, MissingRanksAreNamed) {
    for (const int number : {0, 3, 4, 9}) ASSERT_TRUE(write_part(file_, rank(number, 10), kSign));
    EXPECT_NE(summary().find("ALARM             ranks missing: 1-2, 5-8\n"), std::string::npos) << summary();
}

// protocol: P5
TEST_F(ReportTest, TellsWhoWhenWhatAndUnderWhichSettings) {
    write_launcher();
    for (int i = 0; i < 4; ++i) {
        auto part = rank(i, 4);
        part.user = 0;
        part.began = 1'000'000'000 + i;
        part.program = "/bin/solve";
        part.program_sha256 = i < 3 ? "00ff" : "11ee";
        part.settings = {"cipher = AES-128-GCM", "allow = MPI_Put"};
        ASSERT_TRUE(write_part(file_, part, kSign));
    }
    ASSERT_TRUE(finish(4));
    const auto text = summary();
    for (const char* row : {"began             2001-09-09 01:46:40 UTC\n", "user              root (0)\n",
                            "program           /bin/solve, ranks 0-2\n", "its SHA-256       00ff\n",
                            "program           /bin/solve, ranks 3\n", "its SHA-256       11ee\n",
                            "setting           cipher = AES-128-GCM\n", "setting           allow = MPI_Put\n"})
        EXPECT_NE(text.find(row), std::string::npos) << row << text;
    const auto job = nlohmann::json::parse(content());
    EXPECT_EQ(job["report_key"], *fingerprint(kSign));
    EXPECT_EQ(job["job_key"], *fingerprint(kSign));
    EXPECT_NE(*fingerprint(kSign), *fingerprint(signing("wrong")));
}

TEST_F(ReportTest, TellsTheModulesOfTheCipherOfTheHandshakesAndOfTheirMLKEM) {
    write_launcher();
    write_ranks(3, 4);
    auto part = rank(3, 4);
    part.handshake_module = "openssl 3";
    part.kem_module = "mlkem-native 1";
    ASSERT_TRUE(write_part(file_, part, kSign));
    ASSERT_TRUE(finish(4));
    for (const char* row : {"module            openssl 3\n", "handshakes by     libsodium 1, openssl 3\n",
                            "ML-KEM-768 by     mlkem-native 1\n"})
        EXPECT_NE(summary().find(row), std::string::npos) << row << summary();
    const auto job = nlohmann::json::parse(content());
    EXPECT_EQ(job["modules"], nlohmann::json({"openssl 3"}));
    EXPECT_EQ(job["handshake_modules"], nlohmann::json({"libsodium 1", "openssl 3"}));
    EXPECT_EQ(job["processes"][3]["handshake_module"], "openssl 3");
    EXPECT_EQ(job["kem_modules"], nlohmann::json({"mlkem-native 1"}));
}

TEST_F(ReportTest, NothingThatAPartSaysIsMarkupOrAnOrderToTheTerminal) {
    const std::string evil = "<script>alert(1)</script>\"'&\x1b[2J\x1b]0;x\x07\u202e\u009b1mEND\nSEALED: forged";
    auto part = rank(0, 2);
    part.node = part.program = part.job_id = part.suite = part.module = part.layer_reason = part.scope = evil;
    part.handshake_module = part.kem_module = part.program_sha256 = part.clear_packets = evil;
    part.errors = part.refused_roads = part.settings = {evil};
    part.not_sealed = {{evil, 1, 1, true}, {evil + "2", 1, 1, false}};
    part.profile = {evil, evil, evil};
    ASSERT_TRUE(write_part(file_, part, kSign));
    const auto reading = Reading::of(file_, kSign);
    ASSERT_TRUE(reading) << reading.error().line;
    for (const auto* text : {&reading->summary(), &reading->html(), &reading->json()}) {
        EXPECT_NE(text->find("END"), std::string::npos);
        EXPECT_EQ(text->find('\x1b'), std::string::npos);
        EXPECT_EQ(text->find('\x07'), std::string::npos);
        EXPECT_EQ(text->find("\u202e"), std::string::npos);
        EXPECT_EQ(text->find("\u009b"), std::string::npos);
        EXPECT_EQ(text->find("\nSEALED: forged"), std::string::npos);
    }
    EXPECT_EQ(reading->verdict().line.find('\x1b'), std::string::npos) << "cryptmpi run prints it";
    const auto& page = reading->html();
    EXPECT_EQ(page.find("<script"), std::string::npos) << page;
    EXPECT_NE(page.find("&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&amp;"), std::string::npos) << page;
}

TEST_F(ReportTest, SaysWhereTheLauncherAloneSealedAnything) {
    write_launcher();
    for (int i = 0; i < 4; ++i) {
        auto part = rank(i, 4);
        part.sealed_connections = part.sealed_bytes_sent = part.sealed_records_sent = 0;
        ASSERT_TRUE(write_part(file_, part, kSign));
    }
    EXPECT_NE(summary().find("no rank sealed anything for another node"), std::string::npos) << summary();
    write_ranks(1, 4);
    EXPECT_EQ(summary().find("no rank sealed anything for another node"), std::string::npos) << summary();
}

TEST_F(ReportTest, SaysWhatWasCutOffAndThatIsNoAlarm) {
    write_launcher();
    write_ranks(2, 4);
    EXPECT_EQ(summary().find("cut off"), std::string::npos) << summary();
    for (int i = 2; i < 4; ++i) {
        auto part = rank(i, 4);
        part.cut_off = 3;
        ASSERT_TRUE(write_part(file_, part, kSign));
    }
    EXPECT_NE(summary().find("cut off"), std::string::npos) << summary();
    EXPECT_NE(summary().find("6 messages: longer than their receives"), std::string::npos) << summary();
    EXPECT_NE(Reading::of(file_, kSign)->metrics().find("\ncryptmpi_job_cut_off{job=\"job\"} 6\n"), std::string::npos);
    EXPECT_TRUE(is_good(Reading::of(file_, kSign)->verdict())) << verdict();
    EXPECT_NE(verdict().find(" 6 message(s) were longer than their receives"), std::string::npos) << verdict();
    ASSERT_TRUE(finish(4));
    EXPECT_EQ(nlohmann::json::parse(content())["totals"]["cut_off"], 6);
}

TEST_F(ReportTest, TellsPrometheusTheNumbers) {
    write_launcher();
    write_ranks(3, 4);
    auto part = rank(3, 4);
    part.failed_opens = 2;
    ASSERT_TRUE(write_part(file_, part, kSign));
    const auto text = Reading::of(file_, kSign)->metrics();
    for (const char* line : {"# TYPE cryptmpi_job_good gauge\ncryptmpi_job_good{job=\"job\"} 0\n",
                             "\ncryptmpi_job_failed_opens{job=\"job\"} 2\n", "\ncryptmpi_job_ranks{job=\"job\"} 4\n",
                             "\ncryptmpi_job_sealed_sent_bytes{job=\"job\"} 4000\n"})
        EXPECT_NE(text.find(line), std::string::npos) << line << text;
}

TEST_F(ReportTest, ANumberIsGoodOnlyWhereTheSignatureIs) {
    write_launcher();
    write_ranks(4, 4);
    EXPECT_NE(Reading::of(file_, kSign)->metrics().find("good{job=\"job\"} 1\n"), std::string::npos);
    EXPECT_NE(Reading::of(file_, Sign{})->metrics().find("good{job=\"job\"} 0\n"), std::string::npos);
    EXPECT_NE(Reading::of(file_, signing("wrong"))->metrics().find("good{job=\"\"} 0\n"), std::string::npos);
}

TEST_F(ReportTest, AJobsNameIsNoOtherNumber) {
    auto part = rank(0, 1);
    part.job_id = "a\"} 1\ncryptmpi_job_good{job=\"b\\";
    ASSERT_TRUE(write_part(file_, part, kSign));
    const auto text = Reading::of(file_, kSign)->metrics();
    EXPECT_NE(text.find("good{job=\"a\\\"} 1\ufffdcryptmpi_job_good{job=\\\"b\\\\\"} 1\n"), std::string::npos) << text;
}

TEST_F(ReportTest, ThePageBeginsWithTheVerdictAndFetchesNothing) {
    write_launcher();
    write_ranks(4, 4);
    ASSERT_TRUE(finish(4));
    const auto page = Reading::of(file_, kSign)->html();
    EXPECT_TRUE(page.starts_with("<!DOCTYPE html>"));
    const auto verdict_at = page.find("<div class=\"verdict good\"><strong>SEALED</strong>: all traffic");
    ASSERT_NE(verdict_at, std::string::npos) << page;
    EXPECT_LT(verdict_at, page.find("<h2>"));
    const auto unverified = Reading::of(file_, Sign{})->html();
    EXPECT_NE(unverified.find("<div class=\"verdict bad\"><strong>NOT VERIFIED"), std::string::npos) << unverified;
    EXPECT_EQ(unverified.find("nobody on the network could read"), std::string::npos) << "anybody may have written it";
    EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
    for (const char* fetched : {"http://", "https://", "<link", "<img", "src=", "url(", "@import"})
        EXPECT_EQ(page.find(fetched), std::string::npos) << fetched;
}

}  // namespace
}  // namespace cryptmpi::report
