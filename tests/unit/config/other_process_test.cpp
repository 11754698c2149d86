#include "config/other_process.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace cryptmpi::config {
namespace {

namespace fs = std::filesystem;

TEST(OtherProcess, HasAnEnvironment) {
    int ready[2];
    ASSERT_EQ(pipe2(ready, O_CLOEXEC), 0);
    const pid_t child = fork();
    if (child == 0) {
        const char* const line[] = {"sleep", "60", nullptr};
        const char* const variables[] = {"PMI_RANK=3", "EMPTY=", nullptr};
        execve("/bin/sleep", const_cast<char* const*>(line), const_cast<char* const*>(variables));
        _exit(1);
    }
    close(ready[1]);
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 0);  // the program has begun
    close(ready[0]);
    auto environment = environment_of(child);
    for (int i = 0; i < 10000 && !environment; ++i) {
        usleep(1000);
        environment = environment_of(child);
    }
    kill(child, SIGKILL);
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
    ASSERT_TRUE(environment.has_value());
    EXPECT_EQ(environment->variables().size(), 2U);
    EXPECT_EQ((*environment)("EMPTY"), "");
    EXPECT_EQ(identify(*environment).rank, 3);
    EXPECT_EQ(environment_of(child), std::nullopt);
}

/// Run below others by the tests that follow.
TEST(Ancestors, DISABLED_Asked) {
    std::exit(has_launcher_above() ? 10 : 11);
}

class LauncherAbove : public testing::Test {
protected:
    LauncherAbove() {
        std::string name = "/tmp/cryptmpi-launcher-XXXXXX";
        folder_ = mkdtemp(name.data());
    }
    ~LauncherAbove() override { fs::remove_all(folder_); }
    fs::path folder_;

    /// Whether a program says that there is one, that `parent` starts.
    static bool is_there(const std::string& parent) {
        const std::string own = fs::read_symlink("/proc/self/exe");
        const std::string line =
            parent + " " + own + " --gtest_also_run_disabled_tests --gtest_filter=*DISABLED_Asked >/dev/null; exit $?";
        const int status = WEXITSTATUS(std::system(line.c_str()));
        EXPECT_TRUE(status == 10 || status == 11) << status;
        return status == 10;
    }
};

TEST_F(LauncherAbove, IsKnownByTheFileThatItRuns) {
    EXPECT_FALSE(is_there(""));
    const fs::path launcher = folder_ / "mpiexec.hydra";
    fs::copy_file(fs::canonical("/bin/sh"), launcher);
    std::ofstream(folder_ / "line") << "\"$@\"\nexit $?\n";
    EXPECT_TRUE(is_there(launcher.string() + " " + (folder_ / "line").string()));
}

/// A wrapper of ranks may be called as it likes.
TEST_F(LauncherAbove, IsNoScriptOfItsName) {
    const fs::path script = folder_ / "mpirun-wrapper";
    std::ofstream(script) << "#!/bin/sh\n\"$@\"\nexit $?\n";
    fs::permissions(script, fs::perms::owner_all);
    EXPECT_FALSE(is_there(script.string()));
}

}  // namespace
}  // namespace cryptmpi::config
