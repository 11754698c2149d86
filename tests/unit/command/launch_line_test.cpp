// Lines as people type them behind "cryptmpi run".
#include "command/launch_line.hpp"

#include <gtest/gtest.h>

#include <array>

#include "command/launch_guard.hpp"
#include "command/node_list.hpp"
#include "command/wrappers.hpp"

namespace cryptmpi::command {
namespace {

using Words = std::vector<std::string>;
constexpr std::array kAll = {Mpi::open_mpi, Mpi::mpich, Mpi::intel};

std::string refusal(Mpi mpi, const Words& words) {
    const auto line = read_line(mpi, words);
    return line.error ? line.error->line : "";
}

/// The launcher's words of the first program, and the program.
std::pair<Words, Words> read(Mpi mpi, const Words& words) {
    const auto line = read_line(mpi, words);
    EXPECT_FALSE(line.error) << line.error->line;
    if (line.contexts.empty()) return {};
    Words options;
    append_words(options, line.contexts.front().options);
    return {options, line.contexts.front().program};
}

std::string guarded(Mpi mpi, Words words, std::string* rsh = nullptr) {
    words.emplace_back("./p");
    auto line = read_line(mpi, words);
    if (line.error) return line.error->line;
    std::string shell;
    for (auto& context : line.contexts) {
        if (auto done = guard(context.options, shell); !done) return done.error().line;
    }
    if (rsh != nullptr) *rsh = shell;
    return "";
}

TEST(LaunchLine, OneProgram) {
    for (const Mpi mpi : kAll) {
        const auto line = read_line(mpi, {"-np", "2", "./a", "-n", "2", "--mca", "x"});
        ASSERT_FALSE(line.error);
        EXPECT_EQ(line.own, (Words{"--np", "2"}));
        EXPECT_EQ(line.contexts.front().program, (Words{"./a", "-n", "2", "--mca", "x"}));
    }
}

TEST(LaunchLine, FormsOfTheNumberOfRanks) {
    for (const Mpi mpi : kAll) {
        for (const Words& form : {Words{"-n", "2"}, {"-np", "2"}, {"--np", "2"}, {"--n", "2"}, {"-n2"}, {"--np=2"}}) {
            Words words = form;
            words.emplace_back("./p");
            EXPECT_EQ(read_line(mpi, words).own, (Words{"--np", "2"})) << form.front();
        }
    }
    EXPECT_EQ(read_line(Mpi::open_mpi, {"-c", "2", "./p"}).own, (Words{"--np", "2"}));
}

TEST(LaunchLine, OwnOptions) {
    const auto line =
        read_line(Mpi::mpich, {"--hosts", "a,b", "--report=r", "-ppn", "2", "--verbose", "--env", "A=B", "./p"});
    ASSERT_FALSE(line.error);
    EXPECT_EQ(line.own, (Words{"--hosts", "a,b", "--report", "r", "--ppn", "2", "--verbose", "--env", "A=B"}));
    EXPECT_TRUE(line.contexts.front().options.empty());
}

TEST(LaunchLine, OptionsOfOpenMpi) {
    const Words options = {"-host",
                           "a:2",
                           "--host",
                           "b",
                           "-H",
                           "c",
                           "--hostfile",
                           "f",
                           "-machinefile",
                           "f",
                           "--map-by",
                           "slot",
                           "--oversubscribe",
                           "--mca",
                           "btl",
                           "tcp",
                           "-x",
                           "A=B",
                           "--bind-to",
                           "none",
                           "-rf",
                           "r",
                           "-N",
                           "1",
                           "-wdir",
                           "d",
                           "--prefix",
                           "/opt",
                           "--tag-output",
                           "--pernode",
                           "-v"};
    Words words = options;
    words.emplace_back("./p");
    Words passed_on = options;
    for (auto& word : passed_on) {
        if (word[0] == '-' && word[1] != '-' && word.size() > 2) word.insert(0, 1, '-');
    }
    EXPECT_EQ(read(Mpi::open_mpi, words), (std::pair<Words, Words>{passed_on, {"./p"}}));
}

TEST(LaunchLine, OptionsOfHydra) {
    const Words options = {"-hosts",
                           "a:2,b",
                           "-f",
                           "f",
                           "-genv",
                           "A",
                           "B",
                           "-env",
                           "C=D",
                           "-GENV",
                           "E",
                           "F",
                           "-bind-to",
                           "core",
                           "-wdir",
                           "d",
                           "-genvnone",
                           "-l",
                           "--iface=eth0",
                           "-print-all-exitcodes"};
    Words words = options;
    words.emplace_back("./p");
    EXPECT_EQ(read(Mpi::mpich, words), (std::pair<Words, Words>{options, {"./p"}}));
    EXPECT_EQ(read(Mpi::intel, words), (std::pair<Words, Words>{options, {"./p"}}));
    EXPECT_EQ(read(Mpi::intel, {"-s", "all", "-grr", "2", "-nolocal", "./p"}).second, (Words{"./p"}));
}

TEST(LaunchLine, OpenMpiIsGivenAValueAsAWordOfItsOwn) {
    const Words typed = {"--wdir=/tmp", "-x=A=B",          "--mca=pml", "ob1",
                         "--host=a:1",  "--oversubscribe", "--new=v",   "./p"};
    const Words given = {"--wdir",          "/tmp",   "-x", "A=B", "--mca", "pml", "ob1", "--host", "a:1",
                         "--oversubscribe", "--new=v"};
    EXPECT_EQ(read(Mpi::open_mpi, typed), (std::pair<Words, Words>{given, {"./p"}}));
    EXPECT_EQ(read(Mpi::mpich, {"--wdir=/tmp", "./p"}).first, Words{"--wdir=/tmp"});
}

TEST(LaunchLine, WhatNoTableKnows) {
    for (const Mpi mpi : kAll) {
        EXPECT_NE(refusal(mpi, {"--foo", "bar", "./p"}).find("write -- before the program"), std::string::npos);
        EXPECT_EQ(read(mpi, {"--foo", "bar", "--", "./p", "-x"}),
                  (std::pair<Words, Words>{{"--foo", "bar"}, {"./p", "-x"}}));
    }
    EXPECT_NE(refusal(Mpi::open_mpi, {"-genv", "A", "B", "./p"}).find("MPICH"), std::string::npos);
    EXPECT_NE(refusal(Mpi::mpich, {"--oversubscribe", "./p"}).find("Open MPI"), std::string::npos);
    EXPECT_NE(refusal(Mpi::open_mpi, {"-vx", "LD_PRELOAD=e", "--", "./p"}).find("one letter"), std::string::npos);
    // Open MPI 5 takes names that are cut short, Hydra takes none.
    for (const char* word : {"--ap", "--prtem", "--tu=f"})
        EXPECT_NE(refusal(Mpi::open_mpi, {word, "--", "./p"}).find("is cut short"), std::string::npos) << word;
    EXPECT_EQ(refusal(Mpi::mpich, {"-config=f", "--", "./p"}), "");
    // Of Open MPI 5 only it has a value.
    EXPECT_NE(refusal(Mpi::open_mpi, {"--display-topo", "./p"}), "");
}

TEST(LaunchLine, WhatStartsNothing) {
    EXPECT_NE(refusal(Mpi::open_mpi, {"-V", "./p"}).find("starts nothing"), std::string::npos);
    EXPECT_NE(refusal(Mpi::open_mpi, {"--do-not-launch", "./p"}).find("starts nothing"), std::string::npos);
    EXPECT_NE(refusal(Mpi::mpich, {"-info", "./p"}).find("starts nothing"), std::string::npos);
    EXPECT_NE(refusal(Mpi::mpich, {"-iface", "-h", "./p"}).find("starts nothing"), std::string::npos);
    EXPECT_NE(refusal(Mpi::mpich, {"-n", "2"}).find("no program"), std::string::npos);
    EXPECT_NE(refusal(Mpi::mpich, {"-n", "2", "-hosts"}).find("lacks its value"), std::string::npos);
    EXPECT_NE(refusal(Mpi::mpich, {"-l=./p", "./q"}).find("has no value"), std::string::npos);
    for (const char* help : {"-h", "-help", "--help"}) EXPECT_TRUE(read_line(Mpi::intel, {"-n", "2", help}).wants_help);
}

TEST(LaunchLine, SeveralProgramsWithTheirOptions) {
    const auto line = read_line(Mpi::mpich, {"-n", "1", "./a", "x", ":", "-host", "b", "-np", "2", "-env", "N", "V",
                                             "./b", "-n", "7", ":", "--np", "1", "./c"});
    ASSERT_FALSE(line.error) << line.error->line;
    ASSERT_EQ(line.contexts.size(), 3U);
    EXPECT_EQ(line.contexts[1].ranks, 2);
    Words options;
    append_words(options, line.contexts[1].options);
    EXPECT_EQ(options, (Words{"-host", "b", "-env", "N", "V"}));
    EXPECT_EQ(line.contexts[1].program, (Words{"./b", "-n", "7"}));
    EXPECT_EQ(line.contexts[2].program, (Words{"./c"}));
    EXPECT_NE(refusal(Mpi::mpich, {"./a", ":", "./b"}).find("how many ranks of ./b"), std::string::npos);
    EXPECT_NE(refusal(Mpi::mpich, {"./a", ":"}).find("no program"), std::string::npos);
    EXPECT_NE(refusal(Mpi::mpich, {":", "-n", "1", "./b"}).find("no program"), std::string::npos);
    EXPECT_NE(refusal(Mpi::mpich, {"./a", ":", "-n", "x", "./b"}).find("no number"), std::string::npos);
    EXPECT_NE(refusal(Mpi::mpich, {"./a", ":", "--mpi", "x", "./b"}).find("run's own"), std::string::npos);
}

TEST(LauncherArguments, NoProgramThere) {
    EXPECT_TRUE(read_launcher_arguments(Mpi::open_mpi, {"--mca", "a", "b", "--foo", "x", "y"}));
    EXPECT_FALSE(read_launcher_arguments(Mpi::open_mpi, {"--mca", "a", "b", "./evil"}));
    EXPECT_FALSE(read_launcher_arguments(Mpi::open_mpi, {":", "-n", "1", "true"}));
    EXPECT_FALSE(read_launcher_arguments(Mpi::open_mpi, {"--foo", ":", "true"}));
    EXPECT_FALSE(read_launcher_arguments(Mpi::mpich, {"--", "true"}));
    EXPECT_FALSE(read_launcher_arguments(Mpi::open_mpi, {"--ap=f"}));
}

TEST(LaunchGuard, RefusesWhatWouldNotBeSealed) {
    for (const Words& words : {Words{"--app", "f"},
                               {"-tune", "f"},
                               {"-am", "f"},
                               {"--hnp", "u"},
                               {"--path", "d"},
                               {"-s"},
                               {"--debug"},
                               {"--mca", "plm", "slurm"},
                               {"--mca", "plm", "^rsh"},
                               {"--mca", "plm", "^ssh"},
                               {"-gmca", "plm", "^slurm,rsh"},
                               {"--mca", "plm", ""},
                               {"--mca", "orte_plm", "isolated"},
                               {"--prtemca", "prte_plm", "slurm"},
                               {"--mca", "orte_hnp_uri", "u"},
                               {"--mca", "orte_orte_hnp_uri", "u"},
                               {"--mca", "opal_mca_base_param_files", "f"},
                               {"--gmca", "mca_param_files", "f"},
                               {"-x", "A=1;CRYPTMPI_ENABLED=false"},
                               {"-x", "A;CRYPTMPI_ENABLED=false;B"},
                               {"--unset-env", "CRYPTMPI_KEY_FILE"},
                               {"--prepend-env", "LD_PRELOAD", "e"},
                               {"-x", "LD_PRELOAD=e"},
                               {"--file", "f"},
                               {"--mca", "mca_base_env_list", "A=B"},
                               {"--gmca", "mca_base_param_files", "f"},
                               {"-x", "CRYPTMPI_ENABLED=0"},
                               {"--mca", "plm_rsh_agent", "ssh:rsh"}})
        EXPECT_NE(guarded(Mpi::open_mpi, words), "") << words.front();
    for (const Words& words : {Words{"-configfile", "f"},
                               {"-launcher", "slurm"},
                               {"-bootstrap=fork"},
                               {"-genv", "CRYPTMPI_LAYER", "x"},
                               {"-env", "CRYPTMPI_LAYER=x"},
                               {"-GENV=CRYPTMPI_LAYER", "x"},
                               {"-genv", "I_MPI_HYDRA_BOOTSTRAP_EXEC", "x"}})
        EXPECT_NE(guarded(Mpi::intel, words), "") << words.front();
    EXPECT_NE(guarded(Mpi::intel, {"-genvexcl", "A,CRYPTMPI_LAYER"}), "");
    EXPECT_NE(guarded(Mpi::mpich, {"-genv", "LD_PRELOAD", "e"}), "");
    EXPECT_NE(guarded(Mpi::mpich, {"-env", "LD_PRELOAD=e"}), "");
    EXPECT_FALSE(guard_variable("--env", "CRYPTMPI_ENABLED=false"));
    EXPECT_FALSE(guard_variable("--env", "A=1;CRYPTMPI_ENABLED=false"));
    EXPECT_TRUE(guard_variable("--env", "LD_PRELOAD=e"));
    EXPECT_EQ(guarded(Mpi::open_mpi, {"--mca", "plm", "rsh", "-x", "A=1;B=2"}), "");
}

TEST(LaunchGuard, TakesTheRemoteShell) {
    std::string rsh;
    EXPECT_EQ(guarded(Mpi::open_mpi, {"--mca", "plm_rsh_agent", "/my ssh"}, &rsh), "");
    EXPECT_EQ(rsh, "/my ssh");
    // Each would be preferred to ours, as was seen with Open MPI 4.1.4 and 5.0.11.
    for (const char* name : {"orte_plm_rsh_agent", "pls_rsh_agent", "orte_rsh_agent", "orte_orte_rsh_agent",
                             "orte_pls_rsh_agent", "plm_ssh_agent", "prte_plm_ssh_agent"}) {
        EXPECT_EQ(guarded(Mpi::open_mpi, {"--mca", name, name}, &rsh), "");
        EXPECT_EQ(rsh, name);
    }
    EXPECT_EQ(guarded(Mpi::mpich, {"-launcher", "ssh", "-LAUNCHER-EXEC=/x"}, &rsh), "");
    EXPECT_EQ(rsh, "/x");
    EXPECT_NE(guarded(Mpi::mpich, {"-launcher-exec", "/x", "-bootstrap-exec", "/y"}), "");
}

TEST(LaunchGuard, LetsOurVariablesPass) {
    auto line = read_line(Mpi::mpich, {"-genvnone", "-envlist", "A,B", "./p"});
    auto& options = line.contexts.front().options;
    let_pass(options, {"OURS", "TOO"});
    Words words;
    append_words(words, options);
    EXPECT_EQ(words, (Words{"-genvlist", "OURS,TOO", "-envlist", "A,B,OURS,TOO"}));
}

TEST(LaunchGuard, SaysWhatMpiIsToldOfNetworks) {
    const auto open_mpi = read_line(Mpi::open_mpi, {"-mca", "pml", "ucx", "-x", "UCX_TLS=rc", "./p"});
    EXPECT_EQ(said_of_networks(open_mpi.contexts.front().options), (Words{"--mca", "pml", "ucx", "-x", "UCX_TLS=rc"}));
    const auto hydra = read_line(Mpi::mpich, {"--genv=UCX_TLS=rc", "-env", "A", "B", "./p"});
    EXPECT_EQ(said_of_networks(hydra.contexts.front().options), (Words{"-genv", "UCX_TLS", "rc", "-genv", "A", "B"}));
}

TEST(Wrappers, ProgramBehind) {
    EXPECT_EQ(program_behind({"./p", "x"}), "./p");
    EXPECT_EQ(program_behind({"taskset", "1", "./p"}), "./p");
    EXPECT_EQ(program_behind({"taskset", "-c", "0,1", "./p"}), "./p");
    EXPECT_EQ(program_behind({"/usr/bin/env", "-u", "X", "A=B", "nice", "-n", "5", "./p", "y"}), "./p");
    EXPECT_EQ(program_behind({"timeout", "-k", "1", "10", "numactl", "--membind=0", "./p"}), "./p");
    EXPECT_EQ(program_behind({"env"}), "env");
    EXPECT_EQ(program_behind({"python3", "x.py"}), "python3");
}

TEST(Hosts, ListsAndFiles) {
    const auto list = parse_host_list("a:2,b,c:*");
    ASSERT_TRUE(list);
    EXPECT_EQ(list->at(0).slots, 2);
    EXPECT_EQ(list->at(1).slots, 0);
    for (const char* bad : {"", "a,", "a:0", "a:x", "-oProxyCommand=x", "a b"})
        EXPECT_FALSE(parse_host_list(bad)) << bad;
    const auto slurm = parse_host_list("n[1-2],m:3");
    ASSERT_TRUE(slurm);
    ASSERT_EQ(slurm->size(), 3U);
    EXPECT_EQ(slurm->at(1).name, "n2");
    EXPECT_EQ(slurm->at(2).slots, 3);
    const auto file = parse_host_file("# nodes\nnode1 slots=2 max_slots=4\n\n node2:3 binding=x # no\nnode3\n");
    ASSERT_TRUE(file);
    ASSERT_EQ(file->size(), 3U);
    EXPECT_EQ(file->at(0).slots, 2);
    EXPECT_EQ(file->at(1).name, "node2");
    EXPECT_EQ(file->at(1).slots, 3);
    EXPECT_EQ(file->at(2).slots, 0);
    const auto counted = count_lines("a\nb\na\n");
    ASSERT_TRUE(counted);
    EXPECT_EQ(counted->at(0).slots, 2);
    EXPECT_EQ(counted->at(1).name, "b");
    EXPECT_FALSE(count_lines("\n"));
}

}  // namespace
}  // namespace cryptmpi::command
