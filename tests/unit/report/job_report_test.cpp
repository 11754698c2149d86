#include "report/job_report.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "report/noted_hosts.hpp"
#include "report/parts_folder.hpp"
#include "report/whole_file.hpp"
#include "report_fixture.hpp"

namespace cryptmpi::report {
namespace {

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

/// As in /tmp, where anybody can put a folder beside a report, and its owner cannot remove it.
TEST_F(ReportTest, PartsOfAStrangerBesideAReportAreNothing) {
    if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
    write_launcher();
    write_ranks(4, 4);
    ASSERT_TRUE(finish(4));
    auto strange = rank(0, 4);
    strange.job_id = "strange";
    ASSERT_TRUE(write_part(file_, strange, kSign));
    EXPECT_FALSE(Reading::of(file_, kSign));
    constexpr uid_t kStranger = 12345;
    ASSERT_EQ(chown(parts_folder(file_).c_str(), kStranger, kStranger), 0);
    EXPECT_TRUE(verdict().starts_with("SEALED:")) << verdict();
    ASSERT_EQ(chown(file_.c_str(), kStranger, kStranger), 0);
    EXPECT_FALSE(Reading::of(file_, kSign)) << "another user's report, with parts of his";
}

/// He made the folder when the job had ended, and what its processes tell later comes into it.
TEST_F(ReportTest, AStrangersFolderHidesNothingThatIsSigned) {
    if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
    write_launcher();
    write_ranks(4, 4);
    ASSERT_TRUE(finish(4));
    auto late = rank(0, 4);
    late.pid = 7;
    late.not_sealed = {{"plaintext_peers allows 10.0.0.7", 1, 10, true}};
    ASSERT_TRUE(write_part(file_, late, kSign));
    std::ofstream(parts_folder(file_) / "strange.json") << "{}";
    constexpr uid_t kStranger = 12345;
    ASSERT_EQ(chown(parts_folder(file_).c_str(), kStranger, kStranger), 0);
    EXPECT_TRUE(verdict().starts_with("SEALED WITH EXCEPTIONS: plaintext_peers allows 10.0.0.7")) << verdict();
}

/// One of theirs in its place would keep out what is told late.
TEST_F(ReportTest, WhereOthersMayWriteTheFolderStays) {
    write_launcher();
    write_ranks(4, 4);
    fs::permissions(folder_, fs::perms{01777});
    ASSERT_TRUE(finish(4));
    EXPECT_TRUE(fs::is_directory(parts_folder(file_)) && fs::is_empty(parts_folder(file_)));
    fs::permissions(folder_, fs::perms{0755});
    write_ranks(4, 4);
    ASSERT_TRUE(finish(4));
    EXPECT_FALSE(fs::exists(parts_folder(file_)));
}

/// Another job, or a line that was refused, has removed the folder; what is there now is of what came after that.
TEST_F(ReportTest, AFolderThatWasTakenAwayIsNoWholeJob) {
    const std::string token(32, 'a');
    Started started{"job", 4, 0};
    started.token = token;
    ASSERT_TRUE(prepare_parts(file_));
    ASSERT_TRUE(mark_parts(file_, token, false));
    write_launcher();
    fs::remove_all(parts_folder(file_));
    write_ranks(4, 4);
    ASSERT_TRUE(finish_job(file_, started, kSign, kSign));
    EXPECT_TRUE(verdict().starts_with("FAILED")) << verdict();
    EXPECT_NE(summary().find("was removed or taken by another job"), std::string::npos) << summary();
}

/// The same where nobody but the processes themselves has marked the folder.
TEST_F(ReportTest, AFolderThatWasTakenFromAJobStartedByHandIsMissed) {
    const auto begin = [&](char fresh) { return join_parts(file_, std::string(32, fresh)); };
    const std::string token = begin('a');
    EXPECT_EQ(begin('b'), token);  // of the same job
    const auto write = [&] {
        for (int i = 0; i < 4; ++i) {
            Part part = rank(i, 4);
            part.folder_token = token;
            ASSERT_TRUE(write_part(file_, part, kSign));
        }
    };
    write();
    EXPECT_TRUE(verdict().starts_with("SEALED")) << verdict();
    fs::remove_all(parts_folder(file_));
    write();
    EXPECT_TRUE(verdict().starts_with("FAILED")) << verdict();
    EXPECT_NE(begin('c'), token);
    EXPECT_TRUE(verdict().starts_with("FAILED")) << verdict();
    EXPECT_NE(summary().find("was removed or taken by another job"), std::string::npos) << summary();
}

TEST_F(ReportTest, AFolderThatCannotBeMarkedHasNoToken) {
    std::ofstream(parts_folder(file_)) << "no folder";
    EXPECT_EQ(join_parts(file_, std::string(32, 'a')), "");
    fs::remove(parts_folder(file_));
    ASSERT_TRUE(make_parts_folder(file_));
    std::ofstream(parts_folder(file_) / "token") << "cut of";
    EXPECT_EQ(join_parts(file_, std::string(32, 'a')), "");
}

/// Who takes a part of the launcher's out of it is not found out.
TEST_F(ReportTest, NobodyElseCanWriteAmongTheParts) {
    const mode_t before = umask(0);
    write_ranks(1, 1);
    EXPECT_EQ(fs::status(parts_folder(file_)).permissions(), fs::perms{0755});
    fs::permissions(parts_folder(file_), fs::perms{0777});
    EXPECT_TRUE(prepare_parts(file_));
    EXPECT_EQ(fs::status(parts_folder(file_)).permissions(), fs::perms{0755});
    umask(before);
}

TEST_F(ReportTest, WhatIsReportedAfterTheEndLowersTheVerdict) {
    write_launcher();
    write_ranks(4, 4);
    ASSERT_TRUE(finish(4));
    auto late = rank(0, 4);
    late.pid = 7;
    late.not_sealed = {{"plaintext_peers allows 10.0.0.7", 1, 10, true}};
    ASSERT_TRUE(write_part(file_, late, kSign));
    EXPECT_TRUE(
        verdict().starts_with("SEALED WITH EXCEPTIONS: plaintext_peers allows 10.0.0.7 [a process of this job "
                              "reported after its end (node1, process 7)]"))
        << verdict();
    late.errors = {"a line"};
    ASSERT_TRUE(write_part(file_, late, kSign));
    EXPECT_TRUE(verdict().starts_with("FAILED: there were errors")) << verdict();
    EXPECT_NE(summary().find("reported after its end (node1, process 7): a line"), std::string::npos) << summary();
    late.failed_opens = 3;
    ASSERT_TRUE(write_part(file_, late, kSign));
    EXPECT_TRUE(verdict().starts_with("FAILED: 3 record(s) did not open")) << verdict();
}

TEST_F(ReportTest, WhatWasMergedAlreadyDoesNotCountTwice) {
    write_launcher();
    write_ranks(3, 4);
    auto part = rank(3, 4);
    part.failed_opens = 1;
    part.errors = {"a line"};
    part.not_sealed = {{"plaintext_peers allows 10.0.0.7", 1, 10, true}};
    ASSERT_TRUE(write_part(file_, part, kSign));
    ASSERT_TRUE(finish(4));
    const std::string before = verdict();
    const std::string text = summary();
    ASSERT_TRUE(write_part(file_, part, kSign));
    EXPECT_EQ(verdict(), before);
    EXPECT_EQ(summary(), text);
}

TEST_F(ReportTest, ProcessesThatHaveOneNumberWriteAPartEach) {
    const auto files = [this] {
        fs::directory_iterator entry(parts_folder(file_));
        return std::distance(begin(entry), end(entry));
    };
    auto part = rank(0, 1);
    ASSERT_TRUE(write_part(file_, part, kSign));
    ASSERT_TRUE(write_part(file_, part, kSign));
    EXPECT_EQ(files(), 1) << "one process, which writes again";
    part.image = new_image();
    ASSERT_TRUE(write_part(file_, part, kSign));
    EXPECT_EQ(files(), 2) << "a forked child that has got the number of its parent, which has ended";
    part.image = new_image();
    ASSERT_TRUE(write_part(file_, part, kSign));
    EXPECT_EQ(files(), 3) << "its sibling";
    part.pid_namespace = 7;
    ASSERT_TRUE(write_part(file_, part, kSign));
    EXPECT_EQ(files(), 4) << "a process of another PID namespace";
}

TEST_F(ReportTest, WhatIsReportedAfterTheEndWithoutTheKeyIsSaid) {
    write_launcher();
    write_ranks(4, 4);
    ASSERT_TRUE(finish(4));
    ASSERT_TRUE(write_part(file_, rank(0, 4), signing("wrong")));
    EXPECT_TRUE(verdict().starts_with("FAILED")) << verdict();
    EXPECT_NE(summary().find("came after the job's end and is not signed"), std::string::npos) << summary();
}

TEST_F(ReportTest, OfAJobWhoseKeyIsGoneALatePartAlarmsOnlyByWhatItTells) {
    const Sign own = signing("of the job");
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(write_part(file_, rank(i, 2), own));
    ASSERT_TRUE(finish_job(file_, {"job", 2, 0}, own, kSign));
    auto late = rank(0, 2);
    ASSERT_TRUE(write_part(file_, late, own));
    EXPECT_TRUE(verdict().starts_with("SEALED:")) << verdict();
    EXPECT_NE(verdict().find("1 part(s) came after the job's end, when its key was gone"), std::string::npos);
    late.errors = {"a line"};
    ASSERT_TRUE(write_part(file_, late, own));
    EXPECT_TRUE(verdict().starts_with("FAILED")) << verdict();
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

// protocol: P8
TEST_F(ReportTest, PartsOfAnEarlierJobWithTheSameIdAreAProblem) {
    const auto write = [&](int number, const char* token) {
        auto part = rank(number, 2);
        part.report_token = token;
        ASSERT_TRUE(write_part(file_, part, kSign));
    };
    write(0, "this");
    write(1, "earlier");
    EXPECT_TRUE(verdict().starts_with("FAILED")) << verdict();
    EXPECT_NE(summary().find("parts of 2 jobs of one id"), std::string::npos) << summary();
    const Started started{"job", 2, 0, "", "this"};
    ASSERT_TRUE(mark_parts(file_, "this", false));
    EXPECT_EQ(finish_job(file_, started, kSign, kSign)->outcome, Outcome::failed);
    EXPECT_NE(summary().find("1 of 2 ranks reported"), std::string::npos) << summary();
    EXPECT_NE(summary().find("was given the same id"), std::string::npos) << summary();
    write(0, "this");
    write(1, "this");
    ASSERT_TRUE(mark_parts(file_, "this", false));
    EXPECT_EQ(finish_job(file_, started, kSign, kSign)->outcome, Outcome::sealed);
    write(1, "earlier");
    EXPECT_TRUE(verdict().starts_with("FAILED")) << "late: " << verdict();
    write(0, "");
    write(1, "");
    EXPECT_EQ(finish_job(file_, started, kSign, kSign)->outcome, Outcome::failed);
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

// protocol: P6
TEST_F(ReportTest, WhatHasAKeyTwiceIsNotRead) {
    write_launcher();
    write_ranks(4, 4);
    const fs::path part = fs::directory_iterator(file_.string() + ".parts")->path();
    const std::string good = content(part);
    const std::string before = "\"job_id\"";
    std::string twice = good;
    twice.insert(twice.find(before), before + ": \"another\", ");
    std::ofstream(part) << twice;
    EXPECT_TRUE(verdict().starts_with("FAILED")) << verdict();
    EXPECT_NE(summary().find("has a key twice"), std::string::npos) << summary();
    std::ofstream(part) << good;
    ASSERT_TRUE(finish(4));
    twice = content();
    twice.insert(twice.find(before), before + ": \"another\", ");
    std::ofstream(file_) << twice;
    EXPECT_NE(verdict().find("has a key twice"), std::string::npos) << verdict();
}

// protocol: P7
TEST_F(ReportTest, WhatIsNestedWithoutEndIsNotRead) {
    constexpr std::size_t kMany = 400'000;
    const std::string deep = "{\"job_id\": \"job\", \"a\": " + std::string(kMany, '[') + std::string(kMany, ']') + "}";
    write_launcher();
    write_ranks(4, 4);
    std::ofstream(file_.string() + ".parts/deep.json") << deep;
    EXPECT_TRUE(verdict().starts_with("FAILED")) << verdict();
    EXPECT_TRUE(finished(4).line.starts_with("FAILED"));
    std::ofstream(file_) << deep;
    EXPECT_NE(verdict().find("nested too deep"), std::string::npos) << verdict();
}

// protocol: P9
TEST_F(ReportTest, ANumberThatIsNoIntegerIsNotRead) {
    for (const char* number : {"1e32", "-1.5", "170000002222222222222222222222200"}) {
        write_launcher();
        write_ranks(4, 4);
        std::ofstream(file_.string() + ".parts/number.json") << R"({"job_id": "job", "began": )" << number << "}";
        EXPECT_TRUE(verdict().starts_with("FAILED")) << verdict();
        EXPECT_TRUE(finished(4).line.starts_with("FAILED"));
        std::ofstream(file_) << R"({"totals": {}, "processes": [], "began": )" << number << "}";
        EXPECT_NE(verdict().find("a number that is no integer"), std::string::npos) << verdict();
        fs::remove(file_);
    }
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
