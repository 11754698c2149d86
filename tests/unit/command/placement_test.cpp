// Where the ranks of a job go, and how many the report has to have.
#include "command/placement.hpp"

#include <gtest/gtest.h>

#include "folder.hpp"

namespace cryptmpi::command {
namespace {

Launch launch_of(Mpi mpi, const std::vector<std::string>& words) {
    Launch launch;
    const auto line = read_line(mpi, words);
    EXPECT_FALSE(line.error.has_value());
    launch.command = line.contexts.front().program;
    launch.options = line.contexts.front().options;
    launch.more.assign(line.contexts.begin() + 1, line.contexts.end());
    return launch;
}

/// "a:2 b:2" of a launch.
std::string hosts_of(const Launch& launch) {
    std::string text;
    for (const auto& host : launch.hosts)
        text += (text.empty() ? "" : " ") + host.name + ":" + std::to_string(host.slots);
    return text;
}

TEST(Placement, FillsOneNodeAfterTheOther) {
    Launch launch = launch_of(Mpi::open_mpi, {"./a"});
    EXPECT_EQ(place_ranks({3, "a,b", 0}, Mpi::open_mpi, {}, launch), 3);
    EXPECT_EQ(hosts_of(launch), "a:2 b:2");
    launch = launch_of(Mpi::open_mpi, {"./a"});
    EXPECT_EQ(place_ranks({0, "a,b:4", 3}, Mpi::open_mpi, {}, launch), 7);
    EXPECT_EQ(hosts_of(launch), "a:3 b:4");
}

TEST(Placement, CountsTheRanksOfAllPrograms) {
    Launch launch = launch_of(Mpi::open_mpi, {"./a", ":", "-n", "3", "./b"});
    EXPECT_EQ(place_ranks({1, "a,b", 0}, Mpi::open_mpi, {}, launch), 4);
    EXPECT_EQ(launch.ranks, 1);
    launch = launch_of(Mpi::open_mpi, {"./a", ":", "-n", "3", "./b"});
    const auto unsaid = place_ranks({}, Mpi::open_mpi, {}, launch);
    ASSERT_FALSE(unsaid);
    EXPECT_EQ(unsaid.error().line, "run: how many ranks of ./a? Give -n N");
}

TEST(Placement, TakesTheBatchJobsNodes) {
    const config::Environment slurm(
        {{"SLURM_JOB_ID", "1"}, {"SLURM_JOB_NODELIST", "n[1-2]"}, {"SLURM_TASKS_PER_NODE", "2,1"}});
    Launch launch = launch_of(Mpi::open_mpi, {"./a"});
    EXPECT_EQ(place_ranks({}, Mpi::open_mpi, slurm, launch), 3);
    EXPECT_EQ(hosts_of(launch), "n1:2 n2:1");
    launch = launch_of(Mpi::open_mpi, {"-host", "x:2", "./a"});
    EXPECT_EQ(place_ranks({}, Mpi::open_mpi, slurm, launch), 2);
    EXPECT_EQ(hosts_of(launch), "");
}

TEST(Placement, RefusesToGuess) {
    Launch launch = launch_of(Mpi::open_mpi, {"./a"});
    const auto unsaid = place_ranks({}, Mpi::open_mpi, {}, launch);
    ASSERT_FALSE(unsaid);
    EXPECT_EQ(unsaid.error().line, "run: how many ranks? Give -n N, or --hosts with slots");
}

using PlacementFile = FolderTest;

/// Who fills nodes' cores says itself how many ranks there are.
TEST_F(PlacementFile, LeavesTheLauncherWhatOnlyItKnows) {
    write("nodes", "a\nb\n");
    const std::vector<std::string> words = {"-hostfile", (folder() / "nodes").string(), "./a"};
    for (const auto& [mpi, expected] :
         {std::pair{Mpi::open_mpi, -1}, std::pair{Mpi::intel, -1}, std::pair{Mpi::mpich, 2}}) {
        Launch launch = launch_of(mpi, words);
        EXPECT_EQ(place_ranks({}, mpi, {}, launch), expected) << name(mpi);
    }
    Launch launch = launch_of(Mpi::open_mpi, {"-hostfile", (folder() / "none").string(), "./a"});
    EXPECT_FALSE(place_ranks({}, Mpi::open_mpi, {}, launch));
}

}  // namespace
}  // namespace cryptmpi::command
