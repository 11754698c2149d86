#include "report/judging.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "report/parts_folder.hpp"
#include "report_fixture.hpp"

namespace cryptmpi::report {
namespace {

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
    for (int i = 0; i < 2; ++i) write_child(i, 200 + i);  // of one spawn all, and of the other one none
    EXPECT_TRUE(verdict().starts_with("INCOMPLETE")) << verdict();
    write_child(0, 202);
    EXPECT_TRUE(verdict().starts_with("INCOMPLETE")) << verdict();
    EXPECT_NE(verdict().find("1 rank(s) that MPI_Comm_spawn started did not report"), std::string::npos) << verdict();
    write_child(1, 203);
    EXPECT_TRUE(verdict().starts_with("SEALED:")) << verdict();
}

TEST_F(ReportTest, RanksThatAProcessWithoutARankSpawnedHaveToReport) {
    write_launcher();
    write_ranks(2, 2);
    auto alone = rank(0, -1);
    alone.rank = -1;
    alone.role = "process";
    alone.pid = 300;
    alone.spawned = 1;
    ASSERT_TRUE(write_part(file_, alone, kSign));
    EXPECT_TRUE(verdict().starts_with("INCOMPLETE")) << verdict();
    EXPECT_NE(verdict().find("1 rank(s) that MPI_Comm_spawn started did not report"), std::string::npos) << verdict();
    auto child = rank(0, 1);
    child.group = "2";
    child.pid = 301;
    ASSERT_TRUE(write_part(file_, child, kSign));
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

/// MPI_Init of Open MPI 4 takes it out of the environment, where the MPI layer looks later than the channel library.
TEST_F(ReportTest, OneLibraryOfAProcessTellsItsLaunch) {
    write_launcher("mpi");
    for (int i = 0; i < 2; ++i) {
        auto part = rank(i, 2);
        part.layer = part.library = "mpi";
        part.seals_sockets = true;
        ASSERT_TRUE(write_part(file_, part, kSign));
        part.library = "channel";
        part.launch = "29257";
        ASSERT_TRUE(write_part(file_, part, kSign));
    }
    EXPECT_TRUE(verdict().starts_with("SEALED")) << verdict();
}

/// Hydra has no name for a launch: those of one job id, as PBS gives it, meet in a report.
TEST_F(ReportTest, ARankOfOneLaunchDoesNotStandForOneOfAnother) {
    write_launcher();
    const auto write_launch = [&](int first_pid, int count, int of) {
        for (int i = 0; i < count; ++i) {
            auto part = rank(i, of);
            part.pid = first_pid + i;
            ASSERT_TRUE(write_part(file_, part, kSign));
        }
    };
    write_launch(200, 2, 2);
    EXPECT_TRUE(verdict().starts_with("SEALED:")) << verdict();
    write_launch(300, 1, 2);  // its rank 1 ran in clear
    EXPECT_TRUE(verdict().starts_with("INCOMPLETE: 3 of 4 ranks reported")) << verdict();
    EXPECT_EQ(summary().find("ranks missing"), std::string::npos) << summary();
    write_launch(300, 2, 2);
    write_launch(400, 3, 3);
    EXPECT_TRUE(verdict().starts_with("SEALED:")) << verdict();
    write_launch(500, 2, 3);
    EXPECT_TRUE(verdict().starts_with("INCOMPLETE: 9 of 10 ranks reported")) << verdict();
}

TEST_F(ReportTest, RanksWithOneProcessNumberAreNotOne) {
    write_launcher();
    write_first_process(rank(0, 2), 11);
    write_first_process(rank(1, 2), 12);
    write_first_process(rank(0, 2), 13);  // of a second launch, whose rank 1 ran in clear
    EXPECT_TRUE(verdict().starts_with("INCOMPLETE: 3 of 4 ranks reported")) << verdict();
    EXPECT_EQ(summary().find("ranks missing"), std::string::npos) << summary();
}

TEST_F(ReportTest, RanksWithOneProcessNumberAreOfTheirOwnLaunch) {
    write_launcher("mpi");
    const auto write = [&](int number, const char* launch, std::uint64_t pid_namespace) {
        auto part = rank(number, 2);
        part.layer = part.library = "mpi";
        part.seals_sockets = true;
        write_first_process(part, pid_namespace);
        part.library = "channel";  // which alone tells its launch
        part.launch = launch;
        write_first_process(part, pid_namespace);
    };
    write(0, "a", 11);
    write(1, "a", 12);
    write(0, "b", 13);  // its rank 1 ran in clear
    EXPECT_TRUE(verdict().starts_with("INCOMPLETE: 3 of 4 ranks reported")) << verdict();
}

TEST_F(ReportTest, NumbersOfRanksThatNobodyHasCostNothing) {
    write_launcher();
    auto part = rank(0, 2147483647);
    part.rank = 2147483647;
    ASSERT_TRUE(write_part(file_, part, kSign));
    EXPECT_TRUE(verdict().starts_with("INCOMPLETE: 1 of 2147483647 ranks reported")) << verdict();
    EXPECT_NE(summary().find("ranks missing: 0-2147483646"), std::string::npos) << summary();
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

TEST_F(ReportTest, OnOneNodeSocketsThatAreNotSealedAreAnException) {
    write_launcher("mpi");
    const auto write = [&](bool seals) {
        for (int i = 0; i < 2; ++i) {
            auto part = rank(i, 2);
            part.layer = part.library = "mpi";
            part.seals_sockets = seals;
            ASSERT_TRUE(write_part(file_, part, kSign));
            part.library = "channel";
            if (!seals) continue;
            ASSERT_TRUE(write_part(file_, part, kSign));
        }
    };
    write(false);
    EXPECT_TRUE(verdict().starts_with("SEALED WITH EXCEPTIONS: what ranks, and programs that they start")) << verdict();
    write(true);
    EXPECT_TRUE(verdict().starts_with("SEALED:")) << verdict();
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

TEST_F(ReportTest, DifferentLayersAreAFailure) {
    write_ranks(3, 4);
    auto part = rank(3, 4);
    part.layer = "mpi";
    ASSERT_TRUE(write_part(file_, part, kSign));
    EXPECT_TRUE(verdict().starts_with("FAILED")) << verdict();
    EXPECT_NE(summary().find("different layers (channel, mpi); give all the same --layer"), std::string::npos);
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

TEST_F(ReportTest, RanksOfTwoLaunchesDoNotCompleteEachOther) {
    write_launcher();
    const auto write = [&](int number, int pid, const char* launch, const char* group) {
        auto part = rank(number, 2);
        part.pid = pid;
        part.launch = launch;
        part.group = group;
        ASSERT_TRUE(write_part(file_, part, kSign));
    };
    write(0, 100, "a", "");
    for (int i = 0; i < 2; ++i) write(i, 200 + i, "b", "");
    EXPECT_TRUE(verdict().starts_with("INCOMPLETE: 3 of 4 ranks")) << verdict();
    write(1, 101, "a", "");
    EXPECT_TRUE(verdict().starts_with("SEALED:")) << verdict();
    write(0, 102, "a", "");  // a second program in the same place
    EXPECT_TRUE(verdict().starts_with("SEALED:")) << verdict();
    EXPECT_EQ(finished(3).outcome, Outcome::incomplete) << "none has three";
}

TEST_F(ReportTest, NestedRanksStandForNoneOfTheJobs) {
    write_launcher();
    write_ranks(1, 2);
    const auto write = [&](int number, int pid) {
        auto part = rank(number, 2);
        part.pid = pid;
        part.group = "nested";
        ASSERT_TRUE(write_part(file_, part, kSign));
    };
    for (int i = 0; i < 2; ++i) write(i, 200 + i);
    EXPECT_TRUE(verdict().starts_with("INCOMPLETE: 3 of 4 ranks")) << verdict();
    auto caller = rank(1, 2);
    caller.spawned = 1;
    ASSERT_TRUE(write_part(file_, caller, kSign));
    EXPECT_NE(verdict().find("1 rank(s) that MPI_Comm_spawn started did not report"), std::string::npos) << verdict();
    caller.spawned = 0;
    ASSERT_TRUE(write_part(file_, caller, kSign));
    EXPECT_EQ(finished(2).outcome, Outcome::sealed);
}

TEST_F(ReportTest, AToolThatSeemsToBeNestedIsNoRank) {
    write_launcher();
    write_ranks(2, 2);
    auto tool = rank(0, 2);
    tool.pid = 300;
    tool.group = "nested";
    tool.mpi_initialized = false;
    ASSERT_TRUE(write_part(file_, tool, kSign));
    EXPECT_EQ(finished(2).outcome, Outcome::sealed);
}

TEST_F(ReportTest, SpawnedRanksAreCountedByThemselves) {
    write_launcher();
    write_ranks(1, 2);
    auto part = rank(1, 2);
    part.group = "2";
    ASSERT_TRUE(write_part(file_, part, kSign));
    EXPECT_TRUE(verdict().starts_with("INCOMPLETE: 2 of 4 ranks")) << verdict();
}

}  // namespace
}  // namespace cryptmpi::report
