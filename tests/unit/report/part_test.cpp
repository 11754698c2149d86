#include "report/part.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace cryptmpi::report {
namespace {

namespace fs = std::filesystem;

/// Stands in for keys::ReportKey.
Sign signing(const std::string& key) {
    return [key](std::string_view text) -> Result<std::string> {
        return key + std::to_string(std::hash<std::string_view>()(text));
    };
}
const Sign kSign = signing("right");

class ReportTest : public testing::Test {
protected:
    void SetUp() override {
        std::string pattern = (fs::temp_directory_path() / "cryptmpi-report-XXXXXX").string();
        ASSERT_NE(mkdtemp(pattern.data()), nullptr);
        folder_ = pattern;
        file_ = folder_ / "job.json";
    }
    void TearDown() override { fs::remove_all(folder_); }

    static Part rank(int number, int of) {
        Part part;
        part.job_id = "job";
        part.layer = "channel";
        part.node = number < 2 ? "node1" : "node2";
        part.pid = 100 + number;
        part.role = "rank";
        part.launcher_here = true;
        part.mpi_initialized = true;
        part.rank = number;
        part.ranks = of;
        part.suite = "AES-256-GCM";
        part.module = "openssl 3";
        part.handshake_module = "libsodium 1";
        part.scope = "between-nodes";
        part.sealed_connections = 2;
        part.sealed_bytes_sent = 1000;
        part.sealed_records_sent = 10;
        return part;
    }
    void write_launcher(const char* layer = "channel") const {
        Part part = rank(0, -1);
        part.layer = layer;
        part.library = "channel";
        part.role = "launcher";
        part.rank = -1;
        part.mpi_initialized = false;
        part.pid = 99;
        part.sealed_bytes_sent = part.sealed_records_sent = 0;
        ASSERT_TRUE(write_part(file_, part, kSign));
    }
    void write_ranks(int count, int of) const {
        for (int i = 0; i < count; ++i) ASSERT_TRUE(write_part(file_, rank(i, of), kSign));
    }
    std::string verdict(const Sign& sign = kSign) const {
        auto reading = Reading::of(file_, sign);
        return reading ? reading->verdict().line : reading.error().line;
    }
    std::string summary() const {
        auto reading = Reading::of(file_, kSign);
        return reading ? reading->summary() : reading.error().line;
    }
    Result<Verdict> finish(int ranks = -1, int status = 0) const {
        return finish_job(file_, {"job", ranks, status}, kSign, kSign);
    }
    /// What the parts and the launcher's side amount to.
    Verdict finished(int ranks, int status = 0) const {
        EXPECT_TRUE(finish(ranks, status));
        auto reading = Reading::of(file_, kSign);
        return reading ? reading->verdict() : Verdict{};
    }
    std::string content() const {
        std::ifstream stream(file_);
        return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
    }

    fs::path folder_;
    fs::path file_;
};

TEST_F(ReportTest, CompleteJobIsSealed) {
    write_launcher();
    write_ranks(4, 4);
    EXPECT_TRUE(verdict().starts_with("SEALED:")) << verdict();
    auto done = finish(4);
    ASSERT_TRUE(done) << done.error().line;
    EXPECT_FALSE(fs::exists(file_.string() + ".parts"));
    EXPECT_TRUE(verdict().starts_with("SEALED:")) << verdict();
    EXPECT_NE(content().find("\"sealed_bytes_sent\": 4000"), std::string::npos) << content();
    EXPECT_NE(content().find("\"complete\": true"), std::string::npos);
    EXPECT_NE(content().find("\"ranks_reported\": 4"), std::string::npos);
}

TEST_F(ReportTest, LauncherThatWasNotOursIsAnException) {
    write_ranks(4, 4);
    EXPECT_TRUE(verdict().starts_with("SEALED WITH EXCEPTIONS")) << verdict();
    EXPECT_NE(summary().find("the launcher's own connections"), std::string::npos);
}

TEST_F(ReportTest, ALauncherOnAnotherNodeIsAnExceptionThoughAllRanksAreOnOne) {
    for (int i = 0; i < 2; ++i) {
        auto part = rank(i, 2);
        part.sealed_connections = 0;
        part.launcher_here = i == 0;
        ASSERT_TRUE(write_part(file_, part, kSign));
    }
    EXPECT_TRUE(verdict().starts_with("SEALED WITH EXCEPTIONS: the launcher's own connections")) << verdict();
}

TEST_F(ReportTest, NodesOfOneNameAreSeveral) {
    for (int i = 0; i < 2; ++i) {
        auto part = rank(i, 2);
        part.kernel = "boot " + std::to_string(i);
        part.clear_packets = "network = any";
        ASSERT_TRUE(write_part(file_, part, kSign));
    }
    EXPECT_NE(verdict().find("the launcher's own connections"), std::string::npos) << verdict();
    EXPECT_NE(verdict().find("MPI's own packets"), std::string::npos) << verdict();
}

TEST_F(ReportTest, PartsBesideAReportAreNotHiddenByIt) {
    write_launcher();
    write_ranks(4, 4);
    ASSERT_TRUE(finish(4));
    ASSERT_TRUE(verdict().starts_with("SEALED:")) << verdict();
    ASSERT_TRUE(write_part(file_, rank(0, 4), kSign));
    EXPECT_TRUE(verdict().starts_with("SEALED:")) << "that came late: " << verdict();
    auto later = rank(0, 4);
    later.job_id = "later";
    later.failed_opens = 1;
    later.pid = 7;
    ASSERT_TRUE(write_part(file_, later, kSign));
    const auto reading = Reading::of(file_, kSign);
    ASSERT_FALSE(reading);
    EXPECT_NE(reading.error().line.find("has parts of another one"), std::string::npos) << reading.error().line;
}

TEST_F(ReportTest, RanksOfAJobWithoutAnIdAreNoneOfOneThatHasOne) {
    write_ranks(3, 4);
    auto old = rank(3, 4);
    old.job_id.clear();
    ASSERT_TRUE(write_part(file_, old, kSign));
    EXPECT_TRUE(verdict().starts_with("FAILED")) << verdict();
    EXPECT_NE(summary().find("of ranks of a job without an id"), std::string::npos) << summary();
}

TEST_F(ReportTest, WithoutAJobsIdARankReportsOnce) {
    for (int i = 0; i < 3; ++i) {
        auto part = rank(i % 2, 2);
        part.pid += i;
        part.job_id.clear();
        ASSERT_TRUE(write_part(file_, part, kSign));
    }
    EXPECT_TRUE(verdict().starts_with("FAILED")) << verdict();
    EXPECT_NE(summary().find("rank(s) 0 reported more than once"), std::string::npos) << summary();
}

TEST_F(ReportTest, ANumberOfRanksThatNobodyKnowsIsIncomplete) {
    write_ranks(2, -1);
    EXPECT_TRUE(verdict().starts_with("INCOMPLETE")) << verdict();
    EXPECT_NE(verdict().find("the launcher does not say how many there are"), std::string::npos) << verdict();
}

/// MPICH says of none by which call it was spawned.
TEST_F(ReportTest, EachRankThatWasSpawnedHasToReport) {
    write_launcher();
    auto parent = rank(0, 1);
    parent.spawned = 4;
    ASSERT_TRUE(write_part(file_, parent, kSign));
    const auto write_child = [&](int number, int pid) {
        auto child = rank(number, 2);
        child.group = "spawned";
        child.pid = pid;
        ASSERT_TRUE(write_part(file_, child, kSign));
    };
    for (int i = 0; i < 3; ++i) write_child(i % 2, 200 + i);
    EXPECT_TRUE(verdict().starts_with("INCOMPLETE")) << verdict();
    EXPECT_NE(verdict().find("1 rank(s) that MPI_Comm_spawn started did not report"), std::string::npos) << verdict();
    write_child(1, 203);
    EXPECT_TRUE(verdict().starts_with("SEALED:")) << verdict();
}

TEST_F(ReportTest, ARankTellsOfItsSocketsToo) {
    write_launcher("mpi");
    for (int i = 0; i < 2; ++i) {
        auto part = rank(i, 2);
        part.layer = part.library = "mpi";
        part.seals_sockets = true;
        ASSERT_TRUE(write_part(file_, part, kSign));
        part.library = "channel";
        if (i == 1) continue;
        ASSERT_TRUE(write_part(file_, part, kSign));
    }
    EXPECT_TRUE(verdict().starts_with("INCOMPLETE")) << verdict();
    EXPECT_NE(verdict().find("rank(s) 1 reported what their messages were"), std::string::npos) << verdict();
}

TEST_F(ReportTest, SrunIsAnExceptionThatIsNamed) {
    for (int i = 0; i < 4; ++i) {
        auto part = rank(i, 4);
        part.slurm_step = true;
        ASSERT_TRUE(write_part(file_, part, kSign));
    }
    EXPECT_TRUE(verdict().starts_with("SEALED WITH EXCEPTIONS: srun's own connections")) << verdict();
    EXPECT_EQ(summary().find("start another program"), std::string::npos) << summary();
    write_launcher("channel");
    EXPECT_TRUE(verdict().starts_with("SEALED WITH EXCEPTIONS: srun, which reached other nodes")) << verdict();
}

TEST_F(ReportTest, LauncherInAStepOfSrunIsAnExceptionOfItsOwn) {
    for (int i = 0; i < 4; ++i) {
        auto part = rank(i, 4);
        part.slurm_step = i == 0;  // as a rank may seem that has the number of srun's task
        ASSERT_TRUE(write_part(file_, part, kSign));
    }
    EXPECT_TRUE(verdict().starts_with("SEALED WITH EXCEPTIONS")) << verdict();
    EXPECT_NE(summary().find("start another program"), std::string::npos) << summary();
}

TEST_F(ReportTest, MpiLayerSaysWhatItLeavesInClear) {
    write_launcher("mpi");
    for (int i = 0; i < 4; ++i) {
        auto part = rank(i, 4);
        part.layer = part.library = "mpi";
        part.clear_packets = "they may take another network";
        ASSERT_TRUE(write_part(file_, part, kSign));
    }
    EXPECT_TRUE(verdict().starts_with("SEALED WITH EXCEPTIONS")) << verdict();
    EXPECT_NE(summary().find("MPI's own packets"), std::string::npos);
    EXPECT_NE(summary().find("they may take another network"), std::string::npos);
}

TEST_F(ReportTest, MessagesAndTheSocketsThatCarryThemAreCountedApart) {
    write_launcher("mpi");
    for (int i = 0; i < 4; ++i) {
        auto part = rank(i, 4);
        part.layer = part.library = "mpi";
        ASSERT_TRUE(write_part(file_, part, kSign));
        part.library = "channel";
        part.sealed_bytes_sent = 1500;
        part.failed_opens = i == 3 ? 1 : 0;
        if (i == 2) continue;  // it was killed before it could write
        ASSERT_TRUE(write_part(file_, part, kSign));
    }
    EXPECT_TRUE(verdict().starts_with("FAILED: 1 record(s) did not open")) << verdict();
    const auto text = summary();
    EXPECT_NE(text.find("4.00 KB (4000 bytes) in 40 records; 8 connections, counted at each end"), std::string::npos)
        << text;
    EXPECT_NE(text.find("4.50 KB (4500 bytes) in 30 records; 8 connections, counted at each end, the launcher's"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("4 of 4 ranks reported"), std::string::npos) << text;
    ASSERT_TRUE(finish(4));
    const auto job = nlohmann::json::parse(content());
    EXPECT_EQ(job["layer"], "mpi");
    EXPECT_EQ(job["totals"]["sealed_bytes_sent"], 4000);
    EXPECT_EQ(job["sockets"]["sealed_bytes_sent"], 4500);
    EXPECT_EQ(job["nodes"][0]["sealed_bytes_sent"], 2000);
}

TEST_F(ReportTest, UnderTheMpiLayerSocketsAloneAreNoRank) {
    for (int i = 0; i < 4; ++i) {
        auto part = rank(i, 4);
        part.layer = "mpi";
        part.library = i == 2 ? "channel" : "mpi";
        ASSERT_TRUE(write_part(file_, part, kSign));
    }
    EXPECT_TRUE(verdict().starts_with("INCOMPLETE")) << verdict();
    EXPECT_NE(summary().find("3 of 4 ranks reported"), std::string::npos);
}

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

TEST_F(ReportTest, DifferentLayersAreAFailure) {
    write_ranks(3, 4);
    auto part = rank(3, 4);
    part.layer = "mpi";
    ASSERT_TRUE(write_part(file_, part, kSign));
    EXPECT_TRUE(verdict().starts_with("FAILED")) << verdict();
    EXPECT_NE(summary().find("different layers (channel, mpi); give all the same --layer"), std::string::npos);
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

TEST_F(ReportTest, MissingRankIsIncomplete) {
    write_ranks(3, 4);
    EXPECT_TRUE(verdict().starts_with("INCOMPLETE: 3 of 4 ranks reported")) << verdict();
}

TEST_F(ReportTest, FailedOpenIsAFailure) {
    write_ranks(3, 4);
    auto part = rank(3, 4);
    part.failed_opens = 1;
    part.errors = {"a record from 10.0.0.7 did not open"};
    ASSERT_TRUE(write_part(file_, part, kSign));
    EXPECT_TRUE(verdict().starts_with("FAILED: 1 record(s)")) << verdict();
    EXPECT_NE(summary().find("a record from 10.0.0.7 did not open"), std::string::npos);
}

TEST_F(ReportTest, TrafficInClearIsAnException) {
    write_launcher();
    write_ranks(3, 4);
    auto part = rank(3, 4);
    part.not_sealed = {{"loopback", 3, 0, false}};
    ASSERT_TRUE(write_part(file_, part, kSign));
    EXPECT_TRUE(verdict().starts_with("SEALED:")) << verdict();
    part.not_sealed = {{"plaintext_peers allows 10.0.0.7", 3, 10, true}};
    ASSERT_TRUE(write_part(file_, part, kSign));
    EXPECT_EQ(verdict(),
              "SEALED WITH EXCEPTIONS: plaintext_peers allows 10.0.0.7 (3 connections, counted at each end).");
    EXPECT_TRUE(is_good(finished(4)));
}

TEST_F(ReportTest, WhatNoSettingAllowedIsNotGood) {
    write_launcher();
    write_ranks(3, 4);
    auto part = rank(3, 4);
    part.not_sealed = {{"plaintext_peers allows 10.0.0.7", 3, 10, true}, {"something else", 1, 0, false}};
    ASSERT_TRUE(write_part(file_, part, kSign));
    const auto verdict = finished(4);
    EXPECT_EQ(verdict.outcome, Outcome::exceptions) << verdict.line;
    EXPECT_FALSE(is_good(verdict));
}

TEST_F(ReportTest, WrappersAreNoRanks) {
    write_launcher();
    write_ranks(3, 4);
    auto part = rank(3, 4);
    part.mpi_initialized = false;
    ASSERT_TRUE(write_part(file_, part, kSign));
    EXPECT_TRUE(verdict().starts_with("INCOMPLETE: 3 of 4 ranks")) << verdict();
    part.mpi_initialized = true;
    part.ended = false;  // written early, of a process that was killed
    ASSERT_TRUE(write_part(file_, part, kSign));
    EXPECT_TRUE(verdict().starts_with("INCOMPLETE: 3 of 4 ranks")) << verdict();
    part.pid = 1000;
    part.ended = true;
    ASSERT_TRUE(write_part(file_, part, kSign));
    EXPECT_TRUE(verdict().starts_with("SEALED:")) << verdict();
}

TEST_F(ReportTest, TheLauncherKnowsHowManyRanksItStarted) {
    write_launcher();
    write_ranks(2, 2);
    EXPECT_TRUE(verdict().starts_with("SEALED:")) << verdict();
    const auto verdict = finished(3);
    EXPECT_TRUE(verdict.line.starts_with("INCOMPLETE: 2 of 3 ranks")) << verdict.line;
    EXPECT_NE(verdict.line.find("share"), std::string::npos);
}

TEST_F(ReportTest, NoPartAtAllIsIncomplete) {
    const auto verdict = finished(2);
    EXPECT_TRUE(verdict.line.starts_with("INCOMPLETE: 0 of 2 ranks")) << verdict.line;
    EXPECT_FALSE(is_good(verdict));
}

TEST_F(ReportTest, AJobThatFailedSaysItsStatus) {
    write_ranks(1, 2);
    const auto verdict = finished(2, 137);
    EXPECT_TRUE(verdict.line.starts_with("INCOMPLETE: 1 of 2 ranks")) << verdict.line;
    EXPECT_NE(verdict.line.find("ended with status 137"), std::string::npos) << verdict.line;
    EXPECT_EQ(verdict.line.find("share"), std::string::npos) << verdict.line;
}

TEST_F(ReportTest, AJobThatItsProgramAbortedSaysSo) {
    Part part = rank(0, 2);
    ASSERT_TRUE(write_part(file_, part, kSign));
    part = rank(1, 2);
    part.mpi_finalized = false;
    ASSERT_TRUE(write_part(file_, part, kSign));
    EXPECT_EQ(finished(2, 3).line,
              "SEALED: all traffic between the nodes was encrypted and authenticated. The program aborted the job: "
              "rank(s) 1 ended without MPI_Finalize. The job ended with status 3.");
}

TEST_F(ReportTest, WhoCalledAbortIsNamedHoweverItEnded) {
    Part part = rank(0, 2);
    ASSERT_TRUE(write_part(file_, part, kSign));
    part = rank(1, 2);
    part.mpi_aborted = true;
    ASSERT_TRUE(write_part(file_, part, kSign));
    EXPECT_EQ(finished(2, 3).line,
              "SEALED: all traffic between the nodes was encrypted and authenticated. The program aborted the job: "
              "rank(s) 1 called MPI_Abort. The job ended with status 3.");
}

TEST_F(ReportTest, WhoCalledAbortAndWasKilledIsNamedAndDoesNotCount) {
    Part part = rank(0, 2);
    part.mpi_finalized = false;
    ASSERT_TRUE(write_part(file_, part, kSign));
    part = rank(1, 2);
    part.mpi_aborted = true;
    part.ended = false;
    ASSERT_TRUE(write_part(file_, part, kSign));
    const auto verdict = finished(2, 3);
    EXPECT_EQ(verdict.outcome, Outcome::incomplete);
    EXPECT_NE(verdict.line.find("; the program aborted the job: rank(s) 1 called MPI_Abort, rank(s) 0 ended without "
                                "MPI_Finalize; the job ended with status 3."),
              std::string::npos)
        << verdict.line;
}

TEST_F(ReportTest, AMistakeOfTheProgramIsNotCalledAnAttackAlone) {
    Part part = rank(0, 1);
    part.failed_opens = 1;
    part.errors = {"a block of rank 1 does not open: altered" + std::string(kOrOtherSizes)};
    ASSERT_TRUE(write_part(file_, part, kSign));
    EXPECT_EQ(
        finished(1, 3).line,
        "FAILED: 1 record(s) did not open; the traffic was altered on its way, or corrupted, or ranks of the program "
        "disagreed in a size (below). The job ended with status 3.");
}

TEST_F(ReportTest, WhatWasRefusedLeavesAJobSealed) {
    Part part = rank(0, 1);
    part.refused_roads = {"UDP to 10.0.0.7:4242"};
    ASSERT_TRUE(write_part(file_, part, kSign));
    EXPECT_EQ(finished(1).line, "SEALED: all traffic between the nodes was encrypted and authenticated.");
    EXPECT_NE(Reading::of(file_, kSign)->summary().find("closed road       UDP to 10.0.0.7:4242"), std::string::npos);
}

TEST_F(ReportTest, SpawnedRanksAreCountedByThemselves) {
    write_launcher();
    write_ranks(1, 2);
    auto part = rank(1, 2);
    part.group = "2";
    ASSERT_TRUE(write_part(file_, part, kSign));
    EXPECT_TRUE(verdict().starts_with("INCOMPLETE: 2 of 4 ranks")) << verdict();
}

TEST_F(ReportTest, PartsOfAnotherKeyAreNotBelieved) {
    write_launcher();
    write_ranks(3, 4);
    ASSERT_TRUE(write_part(file_, rank(3, 4), signing("wrong")));
    EXPECT_TRUE(verdict().starts_with("FAILED")) << verdict();
    EXPECT_NE(summary().find("not signed with this job key"), std::string::npos) << summary();
    EXPECT_TRUE(verdict({}).starts_with("NOT VERIFIED")) << verdict({});
}

// protocol: P2
TEST_F(ReportTest, AnAlteredReportIsAFailure) {
    write_launcher();
    write_ranks(4, 4);
    EXPECT_EQ(finished(4).outcome, Outcome::sealed);
    const std::string before = content();
    std::string text = before;
    text.replace(text.find("\"node\": \"node1\""), 15, "\"node\": \"node7\"");
    std::ofstream(file_) << text;
    EXPECT_TRUE(verdict().starts_with("FAILED: the report is not signed")) << verdict();
    EXPECT_NE(summary().find("ALARM             FAILED: the report is not signed"), std::string::npos) << summary();
    std::ofstream(file_) << before;
    EXPECT_TRUE(verdict().starts_with("SEALED:")) << verdict();
    EXPECT_TRUE(verdict(signing("wrong")).starts_with("FAILED")) << verdict(signing("wrong"));
}

// protocol: P4
TEST_F(ReportTest, PartsOfAnEarlierJobAreAProblem) {
    write_launcher();
    write_ranks(4, 4);
    auto part = rank(0, 4);
    part.job_id.clear();
    part.pid = 1000;
    ASSERT_TRUE(write_part(file_, part, kSign));
    EXPECT_TRUE(finished(4).line.starts_with("FAILED"));
    EXPECT_NE(summary().find("is of another job"), std::string::npos) << summary();
    ASSERT_TRUE(finish_job(file_, {"another", 4, 0}, kSign, kSign));
    EXPECT_TRUE(verdict().starts_with("INCOMPLETE: 0 of 4")) << verdict();
}

TEST_F(ReportTest, AFolderThatCannotBeWrittenIsSeenBefore) {
    EXPECT_TRUE(prepare_parts(file_));
    EXPECT_TRUE(fs::is_empty(file_.string() + ".parts"));
    fs::create_directory(file_);
    EXPECT_FALSE(prepare_parts(file_));
    EXPECT_FALSE(prepare_parts("/proc/nowhere/job.json"));
}

TEST_F(ReportTest, TwoJobsInOneFileAreAProblem) {
    write_ranks(3, 4);
    auto part = rank(3, 4);
    part.job_id = "another";
    ASSERT_TRUE(write_part(file_, part, kSign));
    EXPECT_TRUE(verdict().starts_with("FAILED")) << verdict();
}

TEST_F(ReportTest, BrokenPartIsNamed) {
    write_ranks(4, 4);
    std::ofstream(file_.string() + ".parts/node9.1.json") << "{";
    EXPECT_TRUE(verdict().starts_with("FAILED")) << verdict();
    EXPECT_NE(summary().find("node9.1.json"), std::string::npos);
}

TEST_F(ReportTest, ErrorsAreOneLine) {
    EXPECT_NE(verdict().find("job.json"), std::string::npos) << verdict();
    EXPECT_FALSE(finish());
    std::ofstream(file_) << "[]";
    EXPECT_NE(verdict().find("is not a report"), std::string::npos) << verdict();
    std::ofstream(file_) << R"({"totals": 3, "processes": []})";
    EXPECT_FALSE(Reading::of(file_, kSign));
    const auto unwritable = write_part("/proc/nowhere/job.json", rank(0, 1), kSign);
    ASSERT_FALSE(unwritable);
    EXPECT_NE(unwritable.error().line.find("/proc/nowhere"), std::string::npos);
}

TEST_F(ReportTest, NamesThatAreNotUtf8AreKept) {
    auto part = rank(0, 1);
    part.program = "./\xff";
    ASSERT_TRUE(write_part(file_, part, kSign));
    EXPECT_TRUE(finish());
}

// protocol: P3
TEST_F(ReportTest, HostsAreThoseThatSomebodyOfTheJobNoted) {
    ASSERT_TRUE(note_host(file_, "node1", "job", kSign));
    ASSERT_TRUE(note_host(file_, "-oProxyCommand=x", "job", kSign));
    ASSERT_TRUE(note_host(file_, "node2", "another", kSign));
    ASSERT_TRUE(note_host(file_, "node3", "job", [](auto) -> Result<std::string> { return "forged"; }));
    std::ofstream(file_.string() + ".parts/node4.host") << "{\"host\": \"node4\", \"job_id\": \"job\"}";
    std::ofstream(file_.string() + ".parts/node5.host") << "[";
    EXPECT_EQ(noted_hosts(file_, "job", kSign), std::set<std::string>{"node1"});
}

TEST_F(ReportTest, FetchedPartsGoNowhereElse) {
    ASSERT_TRUE(prepare_parts(file_));
    EXPECT_TRUE(add_raw_part(file_, "node2.1.channel.1.json", "{}"));
    for (const char* name : {"../x.json", "/tmp/x.json", ".x.json", "token", "x"})
        EXPECT_FALSE(add_raw_part(file_, name, "{}")) << name;
    EXPECT_EQ(raw_parts(file_), (std::map<std::string, std::string>{{"node2.1.channel.1.json", "{}"}}));
}

TEST_F(ReportTest, PartsThatCouldNotBeFetchedMakeTheJobIncomplete) {
    write_ranks(2, 2);
    const auto verdict = finish_job(file_, {"job", 2, 0, "no way to node7"}, kSign, kSign);
    ASSERT_TRUE(verdict);
    EXPECT_EQ(verdict->outcome, Outcome::incomplete);
    EXPECT_NE(verdict->line.find("no way to node7"), std::string::npos) << verdict->line;
}

TEST_F(ReportTest, TheReportIsSignedUnderAnotherKeyThanItsParts) {
    const Sign lasting = [](std::string_view text) -> Result<std::string> {
        return "lasting" + std::to_string(text.size());
    };
    write_ranks(2, 2);
    const auto made = finish_job(file_, {"job", 2, 0}, kSign, lasting);
    ASSERT_TRUE(made);
    EXPECT_EQ(made->outcome, Outcome::sealed) << made->line;
    EXPECT_TRUE(verdict(lasting).starts_with("SEALED")) << verdict(lasting);
    EXPECT_TRUE(verdict(kSign).starts_with("FAILED")) << verdict(kSign);
}

TEST_F(ReportTest, PartsOfAKeyThatIsGoneSaySo) {
    write_ranks(2, 2);
    ASSERT_TRUE(mark_parts(file_, "0123", true));
    const Sign another = [](auto) -> Result<std::string> { return "another"; };
    const auto reading = Reading::of(file_, another);
    ASSERT_TRUE(reading);
    EXPECT_EQ(reading->verdict().outcome, Outcome::failed);
    EXPECT_NE(reading->summary().find("cannot be checked any more"), std::string::npos) << reading->summary();
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

TEST_F(ReportTest, LinksThatOthersLeaveAreNotFollowed) {
    const fs::path precious = folder_ / "precious";
    std::ofstream(precious) << "precious";
    const std::string number = "." + std::to_string(getpid()) + ".new";
    fs::create_directories(file_.string() + ".parts");
    for (const std::string& name : {file_.string() + number, file_.string() + ".parts/node2.host" + number,
                                    file_.string() + ".parts/trial" + number, file_.string() + ".trial" + number,
                                    file_.string() + ".parts/token", file_.string() + ".attestation"}) {
        fs::create_symlink(precious, name);
    }
    ASSERT_TRUE(write_file(file_.string() + ".attestation", "text"));
    ASSERT_TRUE(prepare_parts(file_));
    ASSERT_TRUE(mark_parts(file_, "0123", true));
    ASSERT_TRUE(note_host(file_, "node2", "job", kSign));
    write_launcher();
    write_ranks(4, 4);
    ASSERT_TRUE(finish(4));
    EXPECT_TRUE(verdict().starts_with("SEALED:")) << verdict();
    EXPECT_FALSE(fs::is_symlink(file_));
    std::string text;
    std::ifstream(precious) >> text;
    EXPECT_EQ(text, "precious");
}

TEST_F(ReportTest, AFolderThatSomebodyElseMadeFirstIsRefused) {
    const fs::path parts = file_.string() + ".parts";
    fs::create_directories(folder_ / "elsewhere");
    fs::create_directory_symlink(folder_ / "elsewhere", parts);
    EXPECT_FALSE(prepare_parts(file_));
    fs::remove(parts);
    fs::create_directories(parts);
    EXPECT_TRUE(prepare_parts(file_));
    if (geteuid() != 0) GTEST_SKIP() << "only root can make another user's folder";
    constexpr uid_t kOther = 12345;
    ASSERT_EQ(chown(parts.c_str(), kOther, 0), 0);
    const auto prepared = prepare_parts(file_);
    ASSERT_FALSE(prepared);
    EXPECT_NE(prepared.error().line.find("belongs to user 12345"), std::string::npos) << prepared.error().line;
}

}  // namespace
}  // namespace cryptmpi::report
