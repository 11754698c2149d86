#include "report/parts_folder.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include "config/places.hpp"
#include "report/live.hpp"
#include "report/waiting_parts.hpp"
#include "report_fixture.hpp"

namespace cryptmpi::report {
namespace {

constexpr uid_t kStranger = 12345;

/// In which parts of a job that nobody else has wait.
class WaitingParts : public ReportTest {
protected:
    void SetUp() override {
        ReportTest::SetUp();
        const std::string number = std::to_string(getpid());
        token_ = number + std::string(32 - number.size(), 'f');
        folder_of_node_ = config::local_report_folder(token_);
        place_ = folder_of_node_ / "job.json";
    }
    void TearDown() override {
        fs::remove_all(folder_of_node_);
        fs::remove_all(folder_of_node_.string() + ".moved");
        ReportTest::TearDown();
    }
    bool takes_part() const { return write_part(place_, rank(0, 1), kSign).has_value(); }

    std::string token_;
    fs::path folder_of_node_;
    fs::path place_;
};

TEST_F(WaitingParts, AreFetchedFromAFolderThatIsMarked) {
    EXPECT_FALSE(check_place(place_, {token_, ""}));
    ASSERT_TRUE(takes_part());
    EXPECT_FALSE(check_place(place_, {token_, ""})) << "nobody has marked it";
    ASSERT_TRUE(mark_waiting_folder(token_));
    EXPECT_TRUE(check_place(place_, {token_, ""}));
    struct stat mark {};
    ASSERT_EQ(stat((folder_of_node_ / "mark").c_str(), &mark), 0);
    EXPECT_EQ(mark.st_mode & 0777U, 0600U);
    take_mark(token_);
    EXPECT_FALSE(check_place(place_, {token_, ""})) << "the job has ended";
    EXPECT_EQ(waiting_parts(token_)->size(), 1U);
    remove_waiting(token_);
    EXPECT_FALSE(fs::exists(folder_of_node_));
}

/// As in a container that has a copy of the node's memory.
TEST_F(WaitingParts, AreNotFetchedFromACopy) {
    ASSERT_TRUE(mark_waiting_folder(token_));
    fs::rename(folder_of_node_, folder_of_node_.string() + ".moved");
    fs::copy(folder_of_node_.string() + ".moved", folder_of_node_);
    fs::permissions(folder_of_node_, fs::perms{0700});
    EXPECT_FALSE(check_place(place_, {token_, ""}));
}

TEST_F(WaitingParts, AreNoFolder) {
    EXPECT_FALSE(parts_wait(token_));
    fs::create_directory(folder_of_node_);
    fs::permissions(folder_of_node_, fs::perms{0700});
    EXPECT_FALSE(parts_wait(token_)) << "an empty folder";
    ASSERT_TRUE(takes_part());
    EXPECT_TRUE(parts_wait(token_));
    EXPECT_FALSE(parts_wait(""));
}

TEST_F(WaitingParts, AreToldOfByOthersOfTheirNode) {
    Part part = rank(0, 2);
    part.report_token = token_;
    ASSERT_TRUE(write_part(file_, part, kSign));
    const auto waits = [&] { return nodes_of_parts(file_, {"job", 2, 0}, kSign); };
    EXPECT_EQ(waits(), (std::map<std::string, bool>{{"node1", false}}));
    ASSERT_TRUE(takes_part());
    ASSERT_TRUE(write_part(file_, part, kSign));
    EXPECT_EQ(waits(), (std::map<std::string, bool>{{"node1", true}}));
}

TEST_F(WaitingParts, AreInNoFolderOfAnotherUser) {
    if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
    ASSERT_TRUE(mark_waiting_folder(token_));
    ASSERT_TRUE(takes_part());
    ASSERT_EQ(chown(folder_of_node_.c_str(), kStranger, kStranger), 0);
    EXPECT_FALSE(takes_part());
    EXPECT_FALSE(parts_wait(token_));
    EXPECT_FALSE(check_place(place_, {token_, ""}));
    const auto parts = waiting_parts(token_);
    ASSERT_FALSE(parts);
    EXPECT_NE(parts.error().line.find("it belongs to user 12345"), std::string::npos) << parts.error().line;
    EXPECT_FALSE(mark_waiting_folder(token_));
    remove_waiting(token_);
    EXPECT_TRUE(fs::exists(folder_of_node_)) << "it is not ours";
}

TEST_F(WaitingParts, AreInNoFolderThatIsOpenToOthersNorALink) {
    fs::create_directory(folder_of_node_);
    for (const auto mode : {fs::perms{0770}, fs::perms{0705}}) {
        fs::permissions(folder_of_node_, mode);
        EXPECT_FALSE(takes_part());
    }
    fs::remove(folder_of_node_);
    fs::create_directory_symlink(folder_, folder_of_node_);
    EXPECT_FALSE(takes_part());
}

class PartsFolder : public ReportTest {
protected:
    const std::string token_ = std::string(32, 'a');
};

TEST_F(PartsFolder, IsNotAnotherUsersUnlessItIsKnown) {
    if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
    ASSERT_TRUE(write_part(file_, rank(0, 1), kSign));
    ASSERT_TRUE(check_parts_folder(file_));
    join_parts(file_, token_);
    ASSERT_EQ(chown(parts_folder(file_).c_str(), kStranger, kStranger), 0);
    const auto checked = check_parts_folder(file_);
    ASSERT_FALSE(checked);
    EXPECT_NE(checked.error().line.find("belongs to user 12345"), std::string::npos) << checked.error().line;
    Part part = rank(0, 1);
    part.folder_token = token_;
    EXPECT_FALSE(write_part(file_, part, kSign));
    part.seen_folder = config::seen_folder(file_, token_);
    EXPECT_TRUE(write_part(file_, part, kSign)) << "whoever started the job has looked";
}

TEST_F(PartsFolder, IsNoLink) {
    fs::create_directory(folder_ / "elsewhere");
    fs::create_directory_symlink(folder_ / "elsewhere", parts_folder(file_));
    EXPECT_FALSE(check_parts_folder(file_));
    EXPECT_FALSE(write_part(file_, rank(0, 1), kSign));
    EXPECT_TRUE(fs::is_empty(folder_ / "elsewhere"));
}

/// He may have taken parts out of it.
TEST_F(PartsFolder, OfAnotherUserMakesNoWholeJob) {
    if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder away";
    Part part = rank(0, 1);
    part.user = geteuid();
    part.user_namespace = own_user_namespace();
    ASSERT_TRUE(write_part(file_, part, kSign));
    EXPECT_TRUE(verdict().starts_with("SEALED")) << verdict();
    ASSERT_EQ(chown(parts_folder(file_).c_str(), kStranger, kStranger), 0);
    EXPECT_TRUE(verdict().starts_with("FAILED")) << verdict();
    EXPECT_NE(summary().find("user 12345, who is none of this job's"), std::string::npos) << summary();
    // Root reads the report of a user's job.
    ASSERT_EQ(chown(parts_folder(file_).c_str(), 0, 0), 0);
    part.user = kStranger;
    ASSERT_TRUE(write_part(file_, part, kSign));
    ASSERT_EQ(chown(parts_folder(file_).c_str(), kStranger, kStranger), 0);
    EXPECT_TRUE(verdict().starts_with("SEALED")) << verdict();
    // Nor are numbers of users compared that are of two namespaces.
    ASSERT_EQ(chown(parts_folder(file_).c_str(), 0, 0), 0);
    part.user = 0;
    part.user_namespace = 1;
    ASSERT_TRUE(write_part(file_, part, kSign));
    ASSERT_EQ(chown(parts_folder(file_).c_str(), kStranger, kStranger), 0);
    EXPECT_TRUE(verdict().starts_with("SEALED")) << verdict();
}

/// A part that is written after the others were read would be lost.
TEST_F(PartsFolder, TakesNothingThatMustBeReadWhenTheJobHasEnded) {
    ASSERT_TRUE(prepare_parts(file_));
    ASSERT_TRUE(mark_parts(file_, token_, false));
    struct stat mark {};
    ASSERT_EQ(stat((parts_folder(file_) / "token").c_str(), &mark), 0);
    EXPECT_EQ(mark.st_mode & 0777U, 0600U);
    const KnownFolder known{token_, config::seen_folder(file_, token_)};
    EXPECT_TRUE(check_place(file_, known));
    EXPECT_FALSE(check_place(file_, {std::string(32, 'b'), ""}));
    EXPECT_TRUE(check_place(file_, {}));
    take_token(file_);
    EXPECT_FALSE(check_place(file_, known));
}

TEST_F(PartsFolder, ThatIsACopyIsNotTheJobs) {
    join_parts(file_, token_);
    const KnownFolder known{token_, config::seen_folder(file_, token_)};
    const std::string moved = parts_folder(file_).string() + ".moved";
    fs::rename(parts_folder(file_), moved);
    fs::copy(moved, parts_folder(file_));
    EXPECT_FALSE(check_place(file_, known));
    EXPECT_TRUE(check_place(file_, {token_, ""})) << "of whom nobody has told what was seen";
}

TEST_F(PartsFolder, TheTokenIsTakenBeforeThePartsAreRead) {
    Started started{"job", 1, 0};
    started.token = token_;
    ASSERT_TRUE(prepare_parts(file_));
    fs::permissions(folder_, fs::perms{01777});  // where the folder stays
    ASSERT_TRUE(mark_parts(file_, token_, false));
    Part part = rank(0, 1);
    part.report_token = token_;
    ASSERT_TRUE(write_part(file_, part, kSign));
    bool was_there = true;
    const Sign looking = [&](std::string_view text) {
        was_there = fs::exists(parts_folder(file_) / "token");  // when the part's signature is made again
        return kSign(text);
    };
    const auto made = finish_job(file_, started, looking, kSign);
    ASSERT_TRUE(made);
    EXPECT_EQ(made->outcome, Outcome::sealed) << made->line;
    EXPECT_FALSE(was_there);
}

}  // namespace
}  // namespace cryptmpi::report
