#include "config/job_process.hpp"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <map>
#include <string>

namespace cryptmpi::config {
namespace {

using Variables = std::map<std::string, std::string, std::less<>>;

TEST(Identify, RanksLaunchersAndOthers) {
    auto rank =
        identify(Environment(Variables{{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"CRYPTMPI_INTERNAL_ROLE", "launcher"}}));
    EXPECT_EQ(rank.role, "rank");
    EXPECT_EQ(rank.rank, 3);
    EXPECT_EQ(rank.ranks, 4);
    EXPECT_EQ(identify(Environment(Variables{{"CRYPTMPI_INTERNAL_ROLE", "launcher"}, {"SLURM_PROCID", "0"}})).role,
              "launcher");
    EXPECT_EQ(identify(Environment{}).role, "process");
    EXPECT_EQ(identify(Environment(Variables{{"PMI_RANK", "x"}})).role, "process");
}

TEST(Identify, TasksOfASlurmStep) {
    const auto in_step = [](Variables variables) {
        variables.insert({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}});
        return identify(Environment(std::move(variables)));
    };
    EXPECT_EQ(in_step({}).rank, 1);
    EXPECT_EQ(in_step({}).ranks, 2);
    EXPECT_TRUE(in_step({}).slurm_step);
    EXPECT_EQ(in_step({{"SLURM_NTASKS", "7"}}).ranks, 2);  // the step's own number
    EXPECT_EQ(in_step({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}).ranks, 2);
    EXPECT_EQ(in_step({{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "slurm.pmix.7.0"}}).ranks, 2);
    // A launcher's ranks in the step of its daemon, which is one task or two.
    EXPECT_EQ(in_step({{"PMIX_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}}).ranks, 4);
    EXPECT_EQ(in_step({{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}}).ranks, 4);
    EXPECT_EQ(in_step({{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "prterun-node-1@1"}}).ranks, std::nullopt);
    EXPECT_EQ(in_step({{"CRYPTMPI_INTERNAL_ROLE", "launcher"}}).role, "launcher");
    EXPECT_TRUE(in_step({{"CRYPTMPI_INTERNAL_ROLE", "launcher"}}).slurm_step);
    // srun has started its own tasks alone.
    EXPECT_TRUE(in_step({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}).slurm_step);
    EXPECT_TRUE(in_step({{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "slurm.pmix.7.0"}}).slurm_step);
    EXPECT_FALSE(in_step({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}).slurm_step);
    EXPECT_FALSE(in_step({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "1"}}).slurm_step);
    EXPECT_FALSE(in_step({{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "prterun-node-1@1"}}).slurm_step);
}

TEST(Identify, NoRankInABatchScript) {
    // As slurmd sets them for the script; salloc's shell may be in a step of its own.
    const Variables script = {{"SLURM_JOB_ID", "7"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}};
    EXPECT_EQ(identify(Environment(script)).role, "process");
    EXPECT_FALSE(identify(Environment(script)).slurm_step);
    Variables shell = script;
    shell["SLURM_STEP_ID"] = "4294967290";
    EXPECT_EQ(identify(Environment(shell)).role, "process");
    EXPECT_FALSE(identify(Environment(shell)).slurm_step);
}

TEST(Identify, TasksOfFluxAndLsf) {
    const auto flux = identify(Environment(Variables{{"FLUX_TASK_RANK", "2"}, {"FLUX_JOB_SIZE", "3"}}));
    EXPECT_EQ(flux.rank, 2);
    EXPECT_EQ(flux.ranks, 3);
    const auto lsf = identify(Environment(
        Variables{{"JSM_NAMESPACE_RANK", "2"}, {"JSM_NAMESPACE_SIZE", "3"}, {"JSM_NAMESPACE_LOCAL_SIZE", "1"}}));
    EXPECT_EQ(lsf.rank, 2);
    EXPECT_EQ(lsf.ranks, 3);
    EXPECT_EQ(lsf.node_ranks, 1);
}

TEST(Identify, HowManyRanksTheNodeHas) {
    const auto on_node = [](Variables variables) {
        variables.emplace("PMI_RANK", "0");
        return identify(Environment(std::move(variables))).node_ranks;
    };
    EXPECT_EQ(on_node({{"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}, {"OMPI_COMM_WORLD_SIZE", "6"}}), 3);
    EXPECT_EQ(on_node({{"MPI_LOCALNRANKS", "4"}}), 4);
    EXPECT_EQ(on_node({}), std::nullopt);
    EXPECT_EQ(identify(Environment(Variables{{"MPI_LOCALNRANKS", "4"}})).node_ranks, std::nullopt);  // no rank
    const auto under_slurm = [&](const char* tasks, const char* node) {
        return on_node({{"SLURM_STEP_TASKS_PER_NODE", tasks}, {"SLURM_NODEID", node}});
    };
    EXPECT_EQ(under_slurm("8", "0"), 8);
    EXPECT_EQ(under_slurm("2(x3),1", "0"), 2);
    EXPECT_EQ(under_slurm("2(x3),1", "2"), 2);
    EXPECT_EQ(under_slurm("2(x3),1", "3"), 1);
    for (const char* tasks : {"2(x3),1", "", "x", "2(y9)", "2(x9", "2(x)", "2x"}) {
        EXPECT_EQ(under_slurm(tasks, "4"), std::nullopt) << tasks;
    }
}

TEST(Identify, RanksThatAJobSpawnsAreAGroupOfTheirOwn) {
    const auto group = [](Variables variables) {
        variables.emplace("PMI_RANK", "0");
        return identify(Environment(std::move(variables))).group;
    };
    EXPECT_EQ(group({}), "");
    EXPECT_EQ(group({{"PMI_SPAWNED", "1"}}), "spawned");
    EXPECT_EQ(group({{"PMIX_NAMESPACE", "65537"}}), "");
    EXPECT_EQ(group({{"PMIX_NAMESPACE", "65538"}}), "2");
    EXPECT_EQ(group({{"PMIX_NAMESPACE", "prterun-node-123@1"}}), "");
    EXPECT_EQ(group({{"PMIX_NAMESPACE", "prterun-node-123@2"}}), "2");
    EXPECT_EQ(group({{"PMIX_NAMESPACE", "slurm.pmix.7.0"}}), "");
}

TEST(Identify, RanksOfALauncherThatARankHasStartedAreNested) {
    const auto of = [](Variables variables) {
        variables.emplace("PMI_RANK", "0");
        const auto process = identify(Environment(std::move(variables)));
        return process.launch + "/" + process.group;
    };
    const auto nested = [&](const char* name_space, const char* place) {
        return of({{"PMIX_NAMESPACE", name_space}, {"CRYPTMPI_INTERNAL_PLACE", place}});
    };
    EXPECT_EQ(of({{"PMIX_NAMESPACE", "131073"}}), "2/");
    EXPECT_EQ(nested("131073", "2"), "2/");
    EXPECT_EQ(nested("131074", "2"), "2/2") << "spawned";
    EXPECT_EQ(nested("196609", "2"), "3/nested");
    EXPECT_EQ(nested("196610", "2"), "3/nested 2") << "spawned by a nested one";
    EXPECT_EQ(nested("prterun-node-123@1", "prterun-node-123"), "prterun-node-123/");
    EXPECT_EQ(nested("prterun-node-124@1", "prterun-node-123"), "prterun-node-124/nested");
    EXPECT_EQ(of({{"CRYPTMPI_INTERNAL_PLACE", "socket:[1]"}}), "/") << "nothing tells";
}

TEST(Identify, HydrasRanksAreKnownByTheirSocketsToItsProxy) {
    int ends[2][2];
    for (auto& pair : ends) ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    const auto with = [&](int descriptor, const std::string& place) {
        return Environment(
            Variables{{"PMI_RANK", "0"}, {"PMI_FD", std::to_string(descriptor)}, {"CRYPTMPI_INTERNAL_PLACE", place}});
    };
    const std::string place = launch_of_place(with(ends[0][0], ""));
    EXPECT_TRUE(place.starts_with("socket:[")) << place;
    EXPECT_EQ(identify(with(ends[0][0], place)).group, "");
    EXPECT_EQ(identify(with(ends[1][0], place)).group, "nested");
    for (const auto& pair : ends)
        for (const int end : pair) close(end);
    EXPECT_EQ(identify(with(ends[0][0], place)).group, "") << "it is closed: nothing tells";
}

TEST(OpenMP, ThreadsOfAllLevels) {
    const auto threads = [](const char* text) {
        return openmp_threads(Environment(Variables{{"OMP_NUM_THREADS", text}}));
    };
    EXPECT_EQ(openmp_threads(Environment{}), 0U);
    EXPECT_EQ(threads("4"), 4U);
    EXPECT_EQ(threads("2,4"), 8U);
    EXPECT_EQ(threads("999999999,999999999"), 4096U);
    for (const char* text : {"", "0", "x", "2,x", "-1"}) EXPECT_EQ(threads(text), 0U) << text;
}

}  // namespace
}  // namespace cryptmpi::config
