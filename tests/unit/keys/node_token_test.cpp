// Who gets the same token, and who must not.
#include "keys/node_token.hpp"

#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "seal/support.hpp"

namespace cryptmpi::keys {
namespace {

class NodeTokens : public testing::Test {
protected:
    void SetUp() override {
        char name[] = "/dev/shm/cryptmpi-test-XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        folder_ = name;
        kex_ = test::crypto().kex;
        key_.bytes[0] = 1;
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    NodeToken find(const std::string& job = "job") {
        auto token = NodeToken::find(*kex_, key_, job, folder_);
        EXPECT_TRUE(token) << token.error().line;
        return std::move(*token);
    }
    std::filesystem::path only_file() const { return *std::filesystem::directory_iterator(folder_); }

    std::filesystem::path folder_;
    const cryptmpi_kex* kex_ = nullptr;
    JobKey key_;
};

// protocol: A8
TEST_F(NodeTokens, ProcessesOfOneKernelShareOne) {
    const NodeToken first = find();
    EXPECT_EQ(first.alone(), "");
    EXPECT_EQ(find().bytes(), first.bytes());
    EXPECT_EQ(std::filesystem::status(folder_).type(), std::filesystem::file_type::directory);
}

// protocol: A8
TEST(NodeId, IsTheHashOfKernelNetworkAndToken) {
    const cryptmpi_kex& kex = *test::crypto().kex;
    const NodeToken::Bytes token = {1, 2, 3};
    const Surroundings here{"c0ffee", 0x0102, 0x0304};
    std::array<std::uint8_t, 32> expected{};
    std::string text = "c0ffee";
    text.append("\x02\x01\0\0\0\0\0\0\x04\x03\0\0\0\0\0\0\x01\x02\x03", 19).append(29, '\0');
    const iovec in{text.data(), text.size()};
    ASSERT_EQ(kex.sha256(expected.data(), &in, 1), CRYPTMPI_OK);
    EXPECT_EQ(*node_id(kex, here, token), expected);
    NodeToken::Bytes other_token = token;
    other_token[31] ^= 1;
    EXPECT_NE(*node_id(kex, here, other_token), expected);
    for (const Surroundings& other :
         {Surroundings{"c0ffef", 0x0102, 0x0304}, {"c0ffee", 0x0103, 0x0304}, {"c0ffee", 0x0102, 0x0305}}) {
        EXPECT_NE(*node_id(kex, other, token), expected);
    }
}

/// Another network namespace is another node, though kernel and token are the same.
// protocol: A8
TEST(NodeId, IsOfOneNetworkNamespace) {
    const auto id = [] {
        return *node_id(*test::crypto().kex, Surroundings::of_this_process("host"), NodeToken::Bytes{});
    };
    const auto here = id();
    EXPECT_EQ(id(), here);
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t child = fork();
    if (child == 0) {
        const bool apart = unshare(CLONE_NEWUSER | CLONE_NEWNET) == 0 || unshare(CLONE_NEWNET) == 0;
        const std::uint8_t same = apart ? (id() == here ? 1 : 0) : 2;
        _exit(write(pipe_ends[1], &same, 1) == 1 ? 0 : 1);
    }
    std::uint8_t same = 3;
    EXPECT_EQ(read(pipe_ends[0], &same, 1), 1);
    waitpid(child, nullptr, 0);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    if (same == 2) GTEST_SKIP() << "no network namespaces here";
    EXPECT_EQ(same, 0);
}

TEST_F(NodeTokens, NothingIsLeft) {
    { const NodeToken token = find(); }
    EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

// protocol: A8
TEST_F(NodeTokens, OtherJobsKeysAndFoldersHaveOthers) {
    const NodeToken token = find();
    EXPECT_NE(find("another").bytes(), token.bytes());
    key_.bytes[0] = 2;
    EXPECT_NE(find().bytes(), token.bytes());
    key_.bytes[0] = 1;
    folder_ /= "other";
    std::filesystem::create_directory(folder_);
    EXPECT_NE(find().bytes(), token.bytes());
    folder_ = folder_.parent_path();
}

TEST_F(NodeTokens, WhatADeadJobLeftIsWrittenAnew) {
    NodeToken::Bytes left{};
    std::filesystem::path file;
    {
        const NodeToken token = find();
        file = only_file();
        left = token.bytes();
    }
    std::ofstream(file).write(reinterpret_cast<const char*>(left.data()), left.size());
    ASSERT_EQ(chmod(file.c_str(), 0600), 0);
    EXPECT_NE(find().bytes(), left);
}

TEST_F(NodeTokens, ManyAtOnceGetTheSame) {
    constexpr int kProcesses = 16;
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    int go[2];
    ASSERT_EQ(pipe(go), 0);
    for (int i = 0; i < kProcesses; ++i) {
        if (fork() != 0) continue;
        const NodeToken token = find();
        bool good = write(ends[1], token.bytes().data(), token.bytes().size()) == 32;
        close(go[1]);
        char none = 0;
        good = read(go[0], &none, 1) == 0 && good;  // until all have theirs
        _exit(good ? 0 : 1);
    }
    std::optional<NodeToken::Bytes> first;
    for (int i = 0; i < kProcesses; ++i) {
        NodeToken::Bytes bytes{};
        ASSERT_EQ(read(ends[0], bytes.data(), bytes.size()), 32);
        if (!first) first = bytes;
        EXPECT_EQ(bytes, *first);
    }
    close(go[1]);
    for (int i = 0; i < kProcesses; ++i) {
        int status = 0;
        wait(&status);
        EXPECT_EQ(status, 0);
    }
    for (const int fd : {ends[0], ends[1], go[0]}) close(fd);
}

/// Somebody else's file of that name makes each rank a node of its own.
void check_refused(NodeToken one, NodeToken other, const char* why) {
    EXPECT_NE(one.bytes(), other.bytes());
    EXPECT_NE(one.alone().find(why), std::string::npos) << one.alone();
}

// protocol: A9
TEST_F(NodeTokens, AFileOfAnotherUserIsNotUsed) {
    if (geteuid() != 0) GTEST_SKIP() << "only root can give a file to somebody else";
    std::filesystem::path file;
    {
        const NodeToken token = find();
        file = only_file();
    }
    std::ofstream(file) << std::string(32, 'x');
    ASSERT_EQ(chmod(file.c_str(), 0600), 0);
    constexpr uid_t kNobody = 65534;
    ASSERT_EQ(chown(file.c_str(), kNobody, kNobody), 0);
    check_refused(find(), find(), "");
    EXPECT_TRUE(std::filesystem::exists(file));
}

// protocol: A9
TEST_F(NodeTokens, AnOpenFileOrALinkIsNotUsed) {
    std::filesystem::path file;
    {
        const NodeToken token = find();
        file = only_file();
    }
    std::ofstream(file) << std::string(32, 'x');
    ASSERT_EQ(chmod(file.c_str(), 0666), 0);
    check_refused(find(), find(), "open to other users");
    std::filesystem::remove(file);
    std::filesystem::create_symlink("elsewhere", file);
    check_refused(find(), find(), "");
}

// protocol: A9
TEST_F(NodeTokens, AFolderThatIsNotTheKernelsMemoryIsNotUsed) {
    const auto here = std::filesystem::current_path() / "node-token-test";
    std::filesystem::create_directories(here);
    std::filesystem::remove_all(folder_);
    folder_ = here;
    struct statfs system = {};
    if (statfs(here.c_str(), &system) == 0 && system.f_type == TMPFS_MAGIC) GTEST_SKIP() << "all here is tmpfs";
    check_refused(find(), find(), "tmpfs");
}

TEST_F(NodeTokens, AMissingFolderMakesEachProcessANode) {
    std::filesystem::remove_all(folder_);
    check_refused(find(), find(), "");
}

}  // namespace
}  // namespace cryptmpi::keys
