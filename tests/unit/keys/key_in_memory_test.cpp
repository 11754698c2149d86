// Who keeps a fresh key in a node's memory, and when it goes.
#include "keys/key_in_memory.hpp"

#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>

#include "seal/support.hpp"

namespace cryptmpi::keys {
namespace {

namespace fs = std::filesystem;

class KeysInMemory : public testing::Test {
protected:
    void SetUp() override {
        char name[] = "/dev/shm/cryptmpi-test-XXXXXX";
        ASSERT_NE(mkdtemp(name), nullptr);
        folder_ = name;
        auto file = KeyInMemory::new_file(*test::crypto().kex, folder_);
        ASSERT_TRUE(file);
        file_ = *file;
        key_.bytes[0] = 1;
    }
    void TearDown() override { fs::remove_all(folder_); }

    std::optional<KeyInMemory> keep() const {
        auto kept = KeyInMemory::keep(file_, key_);
        EXPECT_TRUE(kept) << kept.error().line;
        return kept ? std::optional<KeyInMemory>(std::move(*kept)) : std::nullopt;
    }
    std::string refusal() const {
        const auto kept = KeyInMemory::keep(file_, key_);
        return kept ? "" : kept.error().line;
    }
    std::string content() const {
        std::ifstream stream(file_);
        return {std::istreambuf_iterator<char>(stream), {}};
    }

    fs::path folder_;
    fs::path file_;
    JobKey key_;
};

TEST_F(KeysInMemory, IsReadAsAnyKeyFile) {
    const auto kept = keep();
    const auto read = read_job_key(file_);
    ASSERT_TRUE(read) << read.error().line;
    EXPECT_EQ(std::memcmp((*read)->data(), key_.data(), kJobKeySize), 0);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1);
}

TEST_F(KeysInMemory, TheLastHolderOverwritesAndRemovesIt) {
    auto first = keep();
    auto second = keep();
    const fs::path link = folder_ / "link";  // shows what is left of the content
    fs::create_hard_link(file_, link);
    first.reset();
    EXPECT_TRUE(fs::exists(file_));
    EXPECT_EQ(sweep_keys(folder_), 0U);
    second.reset();
    EXPECT_FALSE(fs::exists(file_));
    std::ifstream stream(link);
    EXPECT_EQ(std::string(std::istreambuf_iterator<char>(stream), {}), std::string(kJobKeyLineSize, '\0'));
}

TEST_F(KeysInMemory, AChildGoesOnHoldingIt) {
    auto kept = keep();
    std::array<int, 2> ends{};
    ASSERT_EQ(pipe(ends.data()), 0);
    const pid_t child = fork();
    if (child == 0) {
        char byte = 0;
        close(ends[1]);
        (void)!read(ends[0], &byte, 1);
        kept.reset();
        _exit(0);
    }
    kept->leave();
    kept.reset();
    EXPECT_EQ(sweep_keys(folder_), 0U);
    EXPECT_TRUE(fs::exists(file_));
    close(ends[0]);
    close(ends[1]);
    waitpid(child, nullptr, 0);
    EXPECT_FALSE(fs::exists(file_));
}

TEST_F(KeysInMemory, WhatNobodyHoldsIsSwept) {
    keep()->leave();
    EXPECT_NE(content(), "");
    EXPECT_EQ(sweep_keys(folder_), 1U);
    EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(KeysInMemory, WhatIsRemovedUnderItsHolderIsMadeAgain) {
    auto kept = keep();
    const std::string before = content();
    kept->restore();
    fs::remove(file_);
    kept->restore();
    EXPECT_EQ(content(), before);
    EXPECT_EQ(sweep_keys(folder_), 0U);
    kept.reset();
    EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(KeysInMemory, NothingElseIsSwept) {
    std::ofstream(folder_ / "cryptmpi-other") << "x";
    std::ofstream(folder_ / "cryptmpi-key-of-somebody") << "x";  // open to others, so none of ours
    fs::create_symlink(folder_ / "cryptmpi-other", folder_ / "cryptmpi-key-link");
    EXPECT_EQ(sweep_keys(folder_), 0U);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 3);
}

TEST_F(KeysInMemory, AnotherKeyIsNotTaken) {
    const auto kept = keep();
    key_.bytes[31] = 1;
    EXPECT_NE(refusal().find("another key"), std::string::npos) << refusal();
}

TEST_F(KeysInMemory, ALinkIsNotFollowed) {
    const fs::path target = folder_ / "target";
    fs::create_symlink(target, file_);
    EXPECT_NE(refusal(), "");
    EXPECT_FALSE(fs::exists(target));
}

TEST_F(KeysInMemory, AFileThatOthersMayReadIsNotTaken) {
    keep()->leave();
    ASSERT_EQ(chmod(file_.c_str(), 0640), 0);
    EXPECT_NE(refusal().find("open to other users"), std::string::npos) << refusal();
}

TEST_F(KeysInMemory, HalfAKeyIsNotTaken) {
    keep()->leave();
    fs::resize_file(file_, 40);
    EXPECT_NE(refusal().find("no key"), std::string::npos) << refusal();
}

TEST_F(KeysInMemory, ADiskIsNoPlaceForIt) {
    char name[] = "/var/tmp/cryptmpi-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    const auto kept = KeyInMemory::keep(fs::path(name) / file_.filename(), key_);
    EXPECT_FALSE(kept);
    EXPECT_TRUE(fs::is_empty(name));
    fs::remove_all(name);
}

TEST_F(KeysInMemory, NamesAreRandomAndOfOneForm) {
    const auto other = KeyInMemory::new_file(*test::crypto().kex, folder_);
    ASSERT_TRUE(other);
    EXPECT_NE(*other, file_);
    EXPECT_TRUE(KeyInMemory::is_file_name(file_, folder_));
    EXPECT_FALSE(KeyInMemory::is_file_name(file_));
    for (const auto& wrong : {folder_ / ".." / file_.filename(), folder_ / "cryptmpi-key-12",
                              fs::path(file_.string() + "0"), folder_ / ("cryptmpi-key-" + std::string(32, 'g'))})
        EXPECT_FALSE(KeyInMemory::is_file_name(wrong, folder_)) << wrong;
}

}  // namespace
}  // namespace cryptmpi::keys
