#include "keys/job_key.hpp"

#include <grp.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <thread>
#include <utility>

#include "seal/support.hpp"

namespace cryptmpi::keys {
namespace {

namespace fs = std::filesystem;

const std::string kDigits = "00112233445566778899aabbccddeeff0123456789abcdef0123456789ABCDEF";
const std::string kLine = "cryptmpi-job-key-1 " + kDigits;

class JobKeyFile : public testing::Test {
protected:
    void SetUp() override {
        std::string name = (fs::temp_directory_path() / "cryptmpi-keys-XXXXXX").string();
        ASSERT_NE(mkdtemp(name.data()), nullptr);
        folder_ = name;
        file_ = folder_ / "job.key";
    }
    void TearDown() override { fs::remove_all(folder_); }

    void put(const std::string& content, mode_t mode = 0600) const {
        std::ofstream(file_, std::ios::binary) << content;
        ASSERT_EQ(chmod(file_.c_str(), mode), 0);
    }
    /// The error's line without the file's name.
    std::string refusal(int code) const {
        const auto key = read_job_key(file_);
        if (key) {
            return "accepted";
        }
        EXPECT_EQ(key.error().code, code) << key.error().line;
        const std::string lead = "job key file " + file_.string() + " ";
        EXPECT_EQ(key.error().line.substr(0, lead.size()), lead);
        EXPECT_EQ(key.error().line.find('\n'), std::string::npos);
        return key.error().line.substr(std::min(lead.size(), key.error().line.size()));
    }
    static mode_t mode_of(const fs::path& path) {
        struct stat found {};
        EXPECT_EQ(stat(path.c_str(), &found), 0);
        return found.st_mode & 07777;
    }
    std::string content() const {
        std::ifstream in(file_, std::ios::binary);
        return {std::istreambuf_iterator<char>(in), {}};
    }

    fs::path folder_;
    fs::path file_;
};

TEST_F(JobKeyFile, IsReadWithAndWithoutItsNewline) {
    for (const std::string& content : {kLine, kLine + "\n"}) {
        put(content);
        const auto key = read_job_key(file_);
        ASSERT_TRUE(key.has_value()) << key.error().line;
        EXPECT_EQ(test::Bytes((*key)->data(), (*key)->data() + kJobKeySize), test::from_hex(kDigits));
    }
}

// protocol: K3
TEST_F(JobKeyFile, MayBeReadOnlyAndBehindALink) {
    put(kLine, 0400);
    const fs::path link = folder_ / "link";
    fs::create_symlink(file_, link);
    EXPECT_TRUE(read_job_key(link).has_value());
    put(kLine, 0644);
    EXPECT_FALSE(read_job_key(link).has_value());
}

TEST_F(JobKeyFile, Missing) {
    EXPECT_EQ(refusal(ENOENT), "is missing: make one with `cryptmpi keygen`, and copy it to every node");
}

// protocol: K2
TEST_F(JobKeyFile, AFolderOrAFifoIsNoKeyFile) {
    const std::string line = "is not a regular file: name the file that `cryptmpi keygen` made";
    fs::create_directory(file_);
    EXPECT_EQ(refusal(EINVAL), line);
    fs::remove(file_);
    ASSERT_EQ(mkfifo(file_.c_str(), 0600), 0);
    EXPECT_EQ(refusal(EINVAL), line);
}

TEST_F(JobKeyFile, Unreadable) {
    put(kLine, 0000);
    const bool root = geteuid() == 0;
    if (root) {  // who may read everything
        ASSERT_EQ(chmod(folder_.c_str(), 0755), 0);
        ASSERT_EQ(seteuid(65534), 0);
    }
    EXPECT_EQ(refusal(EACCES), "cannot be read: Permission denied");
    if (root) {
        ASSERT_EQ(seteuid(0), 0);
    }
}

// protocol: K2
TEST_F(JobKeyFile, OpenToOthers) {
    for (const mode_t mode : {0644, 0640, 0604, 0620, 0601, 0777}) {
        put(kLine, mode);
        char text[8];
        std::snprintf(text, sizeof text, "%04o", static_cast<unsigned>(mode));
        const std::string line = std::string("is open to others (mode ") + text +
                                 "): run chmod 600 on it, and make a new key if others may have read it";
        EXPECT_TRUE(refusal(EACCES).starts_with(line)) << refusal(EACCES);
    }
}

// protocol: K2
TEST_F(JobKeyFile, SomebodyElses) {
    if (geteuid() != 0) {
        GTEST_SKIP() << "only root can give a file away";
    }
    put(kLine);
    ASSERT_EQ(chown(file_.c_str(), 12345, 12345), 0);
    EXPECT_EQ(refusal(EACCES), "belongs to user 12345, who could read and replace it: make it yours with chown");
}

TEST_F(JobKeyFile, OfRootsForOurGroup) {
    if (geteuid() != 0) {
        GTEST_SKIP() << "only root can make a file of root's";
    }
    constexpr gid_t kGroup = 23456;
    const auto taken = [&](mode_t mode, KeyReaders readers, bool in_group = true) {
        put(kLine, mode);
        EXPECT_EQ(chown(file_.c_str(), 0, kGroup), 0);
        EXPECT_EQ(chmod(file_.c_str(), mode), 0);  // chown takes some bits away
        EXPECT_EQ(chmod(folder_.c_str(), 0755), 0);
        // As a container with a Secret: an ordinary user, the Secret's group among the supplementary ones.
        const gid_t groups[] = {34567, in_group ? kGroup : gid_t{34568}};
        EXPECT_EQ(setgroups(2, groups), 0);
        EXPECT_EQ(setegid(12345), 0);
        EXPECT_EQ(seteuid(12345), 0);
        const bool read = read_job_key(file_, readers).has_value();
        EXPECT_EQ(seteuid(0), 0);
        EXPECT_EQ(setegid(0), 0);
        EXPECT_EQ(setgroups(0, nullptr), 0);
        return read;
    };
    EXPECT_TRUE(taken(0440, KeyReaders::group));
    EXPECT_TRUE(taken(0640, KeyReaders::group));
    EXPECT_FALSE(taken(0440, KeyReaders::owner)) << "the default";
    EXPECT_FALSE(taken(0640, KeyReaders::owner));
    for (const mode_t mode : {0444, 0644, 0460, 0660, 0450, 0441, 0442, 02440, 04440})
        EXPECT_FALSE(taken(mode, KeyReaders::group)) << std::oct << mode;
    EXPECT_FALSE(taken(0440, KeyReaders::group, false)) << "cannot even be read";

    put(kLine, 0440);
    ASSERT_EQ(chown(file_.c_str(), 0, kGroup), 0);
    EXPECT_FALSE(read_job_key(file_, KeyReaders::group)) << "root can read it, but whose group is that?";
    ASSERT_EQ(chown(file_.c_str(), 12345, 0), 0);
    EXPECT_FALSE(read_job_key(file_, KeyReaders::group)) << "user 12345 can write it";
    ASSERT_EQ(chown(file_.c_str(), 0, 0), 0);
    EXPECT_TRUE(read_job_key(file_, KeyReaders::group));
}

TEST_F(JobKeyFile, OfAGroupStaysTheGroupsWhenItIsReplaced) {
    if (geteuid() != 0) {
        GTEST_SKIP() << "only root can make a file of root's";
    }
    constexpr gid_t kGroup = 23456;
    const auto replaced = [&](mode_t mode, KeyReaders readers) {
        put(kLine, mode);
        EXPECT_EQ(chown(file_.c_str(), 0, kGroup), 0);
        EXPECT_EQ(chmod(file_.c_str(), mode), 0);
        const gid_t groups[] = {kGroup};
        EXPECT_EQ(setgroups(1, groups), 0);
        EXPECT_TRUE(write_job_key(file_, *test::crypto().kex, true, readers).has_value());
        EXPECT_EQ(setgroups(0, nullptr), 0);
        struct stat found {};
        EXPECT_EQ(stat(file_.c_str(), &found), 0);
        return std::pair(found.st_gid, found.st_mode & 07777U);
    };
    EXPECT_EQ(replaced(0640, KeyReaders::group), std::pair(kGroup, 0640U));
    EXPECT_EQ(replaced(0440, KeyReaders::group), std::pair(kGroup, 0440U));
    EXPECT_EQ(replaced(0640, KeyReaders::owner).second, 0600U);
    EXPECT_EQ(replaced(0644, KeyReaders::group).second, 0600U) << "what others could read is no file for a group";
}

TEST_F(JobKeyFile, OfRootsWithAListOfReadersIsOpenToThem) {
    if (geteuid() != 0) {
        GTEST_SKIP() << "only root can make a file of root's";
    }
    put(kLine, 0440);
    // user::r-- user:12345:r-- group::--- mask::r-- other::---: the mode reads 0440.
    const auto list = test::from_hex(
        "02000000"
        "01000400ffffffff"
        "0200040039300000"
        "04000000ffffffff"
        "10000400ffffffff"
        "20000000ffffffff");
    if (setxattr(file_.c_str(), "system.posix_acl_access", list.data(), list.size(), 0) != 0) {
        GTEST_SKIP() << "this file system has no access control lists";
    }
    ASSERT_EQ(mode_of(file_), 0440);
    const auto key = read_job_key(file_, KeyReaders::group);
    ASSERT_FALSE(key);
    EXPECT_NE(key.error().line.find("no access control list"), std::string::npos) << key.error().line;
}

// protocol: K1
TEST_F(JobKeyFile, Malformed) {
    const std::string expected = "; one line is expected: cryptmpi-job-key-1 <64 hexadecimal digits>";
    const std::string lead = "does not begin with \"cryptmpi-job-key-1 \"" + expected;
    const std::string bad_digit = "has a character that is no hexadecimal digit" + expected;
    const std::pair<std::string, std::string> cases[] = {
        {"", "is empty" + expected},
        {"\n", lead},
        {kDigits, lead},
        {"cryptmpi-job-key-2 " + kDigits, lead},
        {" " + kLine, lead},
        {"\xef\xbb\xbf" + kLine, lead},
        {"cryptmpi-job-key-1 ", "has 0 hexadecimal digits" + expected},
        {kLine.substr(0, kLine.size() - 1), "has 63 hexadecimal digits" + expected},
        {kLine.substr(0, kLine.size() - 1) + "\n", "has 63 hexadecimal digits" + expected},
        {kLine + "0", "has 65 or more hexadecimal digits" + expected},
        {kLine + kDigits, "has 128 or more hexadecimal digits" + expected},
        {kLine.substr(0, kLine.size() - 1) + "g", bad_digit},
        {kLine + " \n", bad_digit},
        {kLine + std::string(1, '\0'), bad_digit},
        {kLine + "\n\n", "line 2 " + lead},
        {kLine + "\n" + kLine + "\n", "line 2 has a key that stands above it already: take one of them out"},
        {kLine + "\ncryptmpi-job-key-1 12\n", "line 2 has 2 hexadecimal digits" + expected},
        {kLine + "\r\n", "has Windows line ends: save it with Unix line ends"},
    };
    for (const auto& [content, line] : cases) {
        put(content);
        EXPECT_EQ(refusal(EINVAL), line) << content;
    }
}

TEST_F(JobKeyFile, AnErrorNeverShowsTheKey) {
    put(kLine + "x");
    EXPECT_EQ(refusal(EINVAL).find(kDigits.substr(0, 8)), std::string::npos);
}

TEST_F(JobKeyFile, IsMadeFreshForTheUserAlone) {
    file_ = folder_ / "a" / "b" / "job.key";
    const mode_t before = umask(0);
    const auto done = write_job_key(file_, *test::crypto().kex, false);
    umask(before);
    ASSERT_TRUE(done.has_value()) << done.error().line;
    EXPECT_EQ(mode_of(file_), 0600U);
    EXPECT_EQ(mode_of(folder_ / "a"), 0700U);
    EXPECT_EQ(mode_of(folder_ / "a" / "b"), 0700U);
    EXPECT_EQ(content().size(), kLine.size() + 1);
    EXPECT_EQ(content().substr(0, 19), "cryptmpi-job-key-1 ");
    EXPECT_EQ(content().back(), '\n');
    EXPECT_TRUE(read_job_key(file_).has_value());
    EXPECT_EQ(std::distance(fs::directory_iterator(file_.parent_path()), fs::directory_iterator()), 1);
}

TEST_F(JobKeyFile, IsReplacedOnlyOnRequest) {
    ASSERT_TRUE(write_job_key(file_, *test::crypto().kex, false).has_value());
    const std::string first = content();
    const auto again = write_job_key(file_, *test::crypto().kex, false);
    ASSERT_FALSE(again.has_value());
    EXPECT_EQ(again.error().code, EEXIST);
    EXPECT_EQ(again.error().line, "job key file " + file_.string() +
                                      " exists: replace it only if no job uses it any more (cryptmpi keygen --force)");
    EXPECT_EQ(content(), first);
    ASSERT_TRUE(write_job_key(file_, *test::crypto().kex, true).has_value());
    EXPECT_NE(content(), first);
    EXPECT_EQ(mode_of(file_), 0600U);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(JobKeyFile, OfTwoWritersAtOnceOneWins) {
    for (int round = 0; round < 20; ++round) {
        bool won[2] = {false, false};
        std::thread other([&] { won[1] = write_job_key(file_, *test::crypto().kex, false).has_value(); });
        won[0] = write_job_key(file_, *test::crypto().kex, false).has_value();
        other.join();
        EXPECT_NE(won[0], won[1]);
        EXPECT_TRUE(read_job_key(file_).has_value());
        fs::remove(file_);
    }
}

TEST_F(JobKeyFile, WhereItCannotBeWrittenIsSaid) {
    put("not a folder");
    const auto done = write_job_key(file_ / "job.key", *test::crypto().kex, false);
    ASSERT_FALSE(done.has_value());
    EXPECT_EQ(done.error().line, file_.string() + " is no folder: choose another place for the key file");

    cryptmpi_kex broken = *test::crypto().kex;
    broken.random = [](std::uint8_t*, std::size_t) -> int { return CRYPTMPI_FAILED; };
    fs::remove(file_);
    EXPECT_FALSE(write_job_key(file_, broken, false).has_value());
    EXPECT_FALSE(fs::exists(file_));
}

}  // namespace
}  // namespace cryptmpi::keys
