// How commands reach other nodes.
#include "command/remote_shell.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

namespace cryptmpi::command {
namespace {

namespace fs = std::filesystem;
using Variables = std::map<std::string, std::string, std::less<>>;

class DefaultRemoteShell : public ::testing::Test {
protected:
    void SetUp() override {
        fs::create_directories(folder_);
        std::ofstream(folder_ / "srun") << "#!/bin/sh\n";
        fs::permissions(folder_ / "srun", fs::perms::owner_all);
    }
    void TearDown() override { fs::remove_all(folder_); }
    std::string in_job(const std::string& path) const {
        return default_remote_shell(
            config::Environment(Variables{{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "node[1-2]"}, {"PATH", path}}));
    }

    const fs::path folder_ = fs::temp_directory_path() / ("remote_shell_test." + std::to_string(getpid()));
};

TEST_F(DefaultRemoteShell, IsSrunInASlurmJobThatHasIt) {
    EXPECT_EQ(in_job(folder_.string()), "srun");
    EXPECT_EQ(in_job("/nowhere"), "ssh");
    EXPECT_EQ(default_remote_shell(config::Environment(Variables{{"PATH", folder_.string()}})), "ssh");
    // On a login node an old variable may be left.
    EXPECT_EQ(default_remote_shell(config::Environment(Variables{{"SLURM_JOB_ID", "7"}, {"PATH", folder_.string()}})),
              "ssh");
}

TEST(RemoteLine, OfSshKeepsItsOptions) {
    EXPECT_EQ(remote_line({"ssh", "-q"}, {"-x"}, "node2", "echo 'a b'"),
              Words({"ssh", "-q", "-x", "node2", "echo 'a b'"}));
}

TEST(RemoteLine, OfSrunNamesTheNodeAsAnOption) {
    const Words line = remote_line({"/opt/slurm/bin/srun", "--immediate=9"}, {"-x"}, "node2", "echo 'a b'");
    EXPECT_EQ(Words(line.begin(), line.begin() + 2), Words({"/opt/slurm/bin/srun", "--immediate=9"}));
    EXPECT_EQ(Words(line.end() - 3, line.end()), Words({"sh", "-c", "echo 'a b'"}));
    EXPECT_NE(std::find(line.begin(), line.end(), "--nodelist=node2"), line.end());
    EXPECT_NE(std::find(line.begin(), line.end(), "--overlap"), line.end());
    EXPECT_EQ(std::find(line.begin(), line.end(), "-x"), line.end());
}

TEST(IsSrun, ByTheProgramsName) {
    EXPECT_TRUE(is_srun({"srun"}));
    EXPECT_TRUE(is_srun({"/usr/bin/srun", "--quiet"}));
    EXPECT_TRUE(is_srun({"env", "SLURM_DEBUG=1", "srun"}));
    EXPECT_FALSE(is_srun({"ssh"}));
    EXPECT_FALSE(is_srun({"/srun/ssh"}));
    EXPECT_FALSE(is_srun({}));
}

}  // namespace
}  // namespace cryptmpi::command
