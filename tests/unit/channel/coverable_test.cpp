#include "programs/coverable.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <string>

namespace cryptmpi::programs {
namespace {

namespace fs = std::filesystem;

class Coverable : public testing::Test {
protected:
    Coverable() {
        std::string pattern = fs::temp_directory_path() / "coverable-XXXXXX";
        folder_ = mkdtemp(pattern.data());
    }
    ~Coverable() override { fs::remove_all(folder_); }

    std::string write(const std::string& name, const std::string& text, mode_t mode) const {
        const fs::path file = folder_ / name;
        fs::create_directories(file.parent_path());
        std::ofstream(file) << text;
        chmod(file.c_str(), mode);
        return file;
    }

    fs::path folder_;
};

struct Limited {
    Limited(decltype(RLIMIT_AS) resource, rlim_t most) : resource_(resource) {
        getrlimit(resource, &before_);
        const rlimit lower{most, before_.rlim_max};
        setrlimit(resource, &lower);
    }
    ~Limited() { setrlimit(resource_, &before_); }
    Limited(const Limited&) = delete;
    Limited& operator=(const Limited&) = delete;

    decltype(RLIMIT_AS) resource_;
    rlimit before_{};
};

/// Its code, and whether the kernel's would be the same.
void expect_refused(const std::string& file, int code, bool is_kernels) {
    const auto refusal = judge(file, {});
    ASSERT_TRUE(refusal) << file;
    EXPECT_EQ(refusal->code, code) << refusal->line;
    EXPECT_EQ(refusal->is_kernels, is_kernels) << refusal->line;
}

TEST_F(Coverable, WhatTheKernelDoesNotStart) {
    const std::string text = write("text", "exit 0\n", 0644);
    expect_refused(text, EACCES, true);
    expect_refused(folder_, EACCES, true);
    expect_refused(folder_ / "missing", ENOENT, true);
    expect_refused(text + "/below", ENOTDIR, true);
    const std::string fifo = folder_ / "fifo";
    ASSERT_EQ(mkfifo(fifo.c_str(), 0755), 0);
    expect_refused(fifo, EACCES, true);  // and nobody waits for a writer
    expect_refused(write("by-fifo", "#!" + fifo + "\n", 0755), EACCES, true);
    expect_refused(write("by-text", "#!" + text + "\n", 0755), EACCES, true);
}

TEST_F(Coverable, WhatShellsReadThemselves) {
    expect_refused(write("text", "exit 0\n", 0755), ENOEXEC, false);
    expect_refused(write("empty", "", 0755), ENOEXEC, false);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need more than the limit themselves
TEST_F(Coverable, AProgramMayHaveTooLittleMemory) {
    EXPECT_FALSE(judge("/bin/true", {}));
    {
        const Limited limited(RLIMIT_DATA, 8'000'000);
        const auto refusal = judge("/bin/true", {});
        ASSERT_TRUE(refusal);
        EXPECT_NE(refusal->line.find("raise the limit (ulimit -d)"), std::string::npos) << refusal->line;
        EXPECT_TRUE(refusal->code == EACCES && !refusal->is_kernels);
    }
    const Limited limited(RLIMIT_DATA, 64'000'000);
    EXPECT_FALSE(judge("/bin/true", {}));
}
#endif

TEST_F(Coverable, ASearchRemembersWhatMayNotBeRun) {
    const std::string found = write("two/program", "#!/bin/sh\n", 0755);
    write("one/program", "#!/bin/sh\n", 0644);
    write("one/text", "", 0644);
    const std::string folders =
        (folder_ / "missing").string() + ":" + (folder_ / "one").string() + ":" + (folder_ / "two").string();
    EXPECT_EQ(find_in_path("program", folders.c_str()), found);
    const auto error = [&](const std::string& name) {
        errno = 0;
        EXPECT_EQ(find_in_path(name, folders.c_str()), "");
        return errno;
    };
    EXPECT_EQ(error("text"), EACCES);
    EXPECT_EQ(error("nothing"), ENOENT);
    EXPECT_EQ(error(std::string(300, 'n')), ENAMETOOLONG);
    EXPECT_EQ(error(""), ENOENT);
    EXPECT_EQ(error(folder_ / "one/text"), EACCES);
}

}  // namespace
}  // namespace cryptmpi::programs
