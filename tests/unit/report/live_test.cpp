// Pages of running processes: what their writers may do, and what readers take from whom.
#include "report/live.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "report/live_reader.hpp"

namespace cryptmpi::report {
namespace {

namespace fs = std::filesystem;
using Threads = TrafficCounter::Threads;

constexpr uid_t kStranger = 54321;

Part part_of(const std::string& library = "channel") {
    Part part;
    part.job_id = "job 7";
    part.layer = "channel";
    part.library = library;
    part.role = "rank";
    part.rank = 3;
    part.ranks = 4;
    part.node = "node1";
    part.suite = "AES-256-GCM";
    part.module = "openssl 3.0";
    part.program = "/opt/solver";
    return part;
}

class LiveTest : public testing::Test {
protected:
    void SetUp() override {
        char made[] = "/dev/shm/cryptmpi-test-XXXXXX";
        ASSERT_NE(mkdtemp(made), nullptr);
        above_ = made;
        folder_ = above_ / "pages";
    }
    void TearDown() override { fs::remove_all(above_); }

    std::vector<fs::path> folders() const { return {folder_}; }
    LiveProcesses read(uid_t user = geteuid()) const { return read_live({{folder_, user}}); }
    std::vector<std::string> files() const {
        std::vector<std::string> names;
        for (const auto& entry : fs::directory_iterator(folder_)) names.push_back(entry.path().filename().string());
        return names;
    }
    void make_folder(mode_t mode = S_IRWXU) const {
        ASSERT_EQ(mkdir(folder_.c_str(), S_IRWXU), 0);
        ASSERT_EQ(chmod(folder_.c_str(), mode), 0);
    }

    /// A page that is good, but for what `spoil` makes of it.
    fs::path forge(const std::function<void(LivePage&)>& spoil, const std::string& name = "1.2.channel") const {
        if (!fs::exists(folder_)) make_folder();
        auto page = std::make_unique<LivePage>();
        page->magic = kLiveMagic;
        page->version = kLiveVersion;
        page->size = sizeof(LivePage);
        page->pid_namespace = own_pid_namespace();
        page->pid = getpid();
        page->started = start_of(getpid()).value();
        std::strcpy(page->texts.job_id.data(), "forged");
        spoil(*page);
        const fs::path file = folder_ / name;
        std::ofstream(file, std::ios::binary).write(reinterpret_cast<const char*>(page.get()), sizeof(LivePage));
        chmod(file.c_str(), S_IRUSR | S_IWUSR);
        return file;
    }

    fs::path above_;
    fs::path folder_;
};

TEST_F(LiveTest, WhatIsCountedIsReadWhileTheProcessRuns) {
    Live live;
    const auto counter = live.counter(Threads::several);
    counter.sealed(2, 100);
    ASSERT_TRUE(live.publish(folders(), part_of()));
    counter.sealed(1, 10);
    counter.opened(4, 7);
    counter.connection();
    counter.rekey();
    Part part = part_of();
    part.failed_opens = 5;
    part.errors = {"one", "two"};
    live.tell(part, 6);

    const auto found = read();
    ASSERT_EQ(found.processes.size(), 1U);
    const LiveProcess& process = found.processes[0];
    EXPECT_EQ(process.pid, getpid());
    EXPECT_EQ(process.user, geteuid());
    EXPECT_EQ(process.rank, 3);
    EXPECT_EQ(process.job_id, "job 7");
    EXPECT_EQ(process.module, "openssl 3.0");
    EXPECT_EQ(process.program, "/opt/solver");
    EXPECT_EQ(process.sealed_records, 3U) << "also what was counted before somebody could look";
    EXPECT_EQ(process.sealed_bytes, 110U);
    EXPECT_EQ(process.opened_records, 4U);
    EXPECT_EQ(process.opened_bytes, 7U);
    EXPECT_EQ(process.sealed_connections, 1U);
    EXPECT_EQ(process.rekeys, 1U);
    EXPECT_EQ(process.failed_opens, 5U);
    EXPECT_EQ(process.unsealed_connections, 6U);
    EXPECT_EQ(process.errors, 2U);
    counter.sealed(1, 1);
    EXPECT_EQ(read().processes.at(0).sealed_bytes, 111U);
}

TEST_F(LiveTest, ThePageIsItsUsersAlone) {
    Live live;
    ASSERT_TRUE(live.publish(folders(), part_of()));
    struct stat information {};
    ASSERT_EQ(stat(folder_.c_str(), &information), 0);
    EXPECT_EQ(information.st_mode & 07777, 0700U);
    ASSERT_EQ(files().size(), 1U) << "and nothing is left of its making";
    ASSERT_EQ(stat((folder_ / files()[0]).c_str(), &information), 0);
    EXPECT_EQ(information.st_mode & 07777, 0600U);
}

TEST_F(LiveTest, WithdrawnItIsGoneAndCountersGoOn) {
    Live live;
    const auto counter = live.counter(Threads::one);
    ASSERT_TRUE(live.publish(folders(), part_of()));
    live.withdraw();
    EXPECT_TRUE(files().empty());
    counter.sealed(1, 1);
    live.tell(part_of(), 0);
    EXPECT_TRUE(live.publish(folders(), part_of())) << "once is enough";
    EXPECT_TRUE(files().empty());
}

TEST_F(LiveTest, AFewHavePlacesOfTheirOwnTheOthersShareOne) {
    Live live;
    std::vector<TrafficCounter> counters;
    for (std::size_t i = 0; i < 2 * kTrafficPlaces; ++i) counters.push_back(live.counter(Threads::one));
    for (const auto& counter : counters) counter.sealed(1, 1);
    live.give_back(counters[0]);
    const auto heir = live.counter(Threads::one);
    heir.sealed(1, 1);
    ASSERT_TRUE(live.publish(folders(), part_of()));
    EXPECT_EQ(read().processes.at(0).sealed_records, 2 * kTrafficPlaces + 1) << "what was counted stays";
}

TEST_F(LiveTest, WhatIsCountedBySizesCountsWithTheRest) {
    Live live;
    live.sizes().sent.count(10);
    ASSERT_TRUE(live.publish(folders(), part_of()));
    live.sizes().sent.count(0);
    live.sizes().received.count(1000);
    live.counter(Threads::several).sealed(1, 1);
    const auto found = read();
    EXPECT_EQ(found.processes.at(0).sealed_records, 3U);
    EXPECT_EQ(found.processes.at(0).sealed_bytes, 11U);
    EXPECT_EQ(found.processes.at(0).opened_records, 1U);
    EXPECT_EQ(found.processes.at(0).opened_bytes, 1000U);
}

TEST_F(LiveTest, SeveralThreadsLoseNothing) {
    Live live;
    ASSERT_TRUE(live.publish(folders(), part_of()));
    const auto counter = live.counter(Threads::several);
    constexpr int kRounds = 100000;
    const auto work = [&] {
        for (int i = 0; i < kRounds; ++i) counter.opened(1, 3);
    };
    std::thread other(work);
    work();
    other.join();
    EXPECT_EQ(read().processes.at(0).opened_bytes, 6U * kRounds);
}

TEST_F(LiveTest, TextsAreReadWholeOrNotAtAll) {
    Live live;
    Part one = part_of();
    Part other = part_of();
    one.job_id = one.node = one.module = "one";
    other.job_id = other.node = other.module = "other";
    ASSERT_TRUE(live.publish(folders(), one));
    std::atomic<bool> done{false};
    std::thread writer([&] {
        while (!done) {
            live.describe(other);
            live.describe(one);
        }
    });
    int seen = 0;
    for (int i = 0; i < 3000; ++i) {
        for (const auto& process : read().processes) {
            ++seen;
            EXPECT_EQ(process.job_id, process.node);
            EXPECT_EQ(process.job_id, process.module);
        }
    }
    done = true;
    writer.join();
    EXPECT_GT(seen, 0);
}

TEST_F(LiveTest, AForkedChildNeverWritesItsParentsPage) {
    Live live;
    const auto counter = live.counter(Threads::several);
    ASSERT_TRUE(live.publish(folders(), part_of()));
    counter.sealed(1, 5);
    const pid_t child = fork();
    if (child == 0) {
        Part part = part_of();
        part.failed_opens = 9;
        live.tell(part, 0);  // not told of the fork yet
        live.withdraw();
        live.after_fork_in_child();
        counter.sealed(1, 7);
        const bool published = live.publish(folders(), part).has_value();
        bool own = false;
        for (const auto& process : read().processes) own |= process.pid == getpid() && process.sealed_bytes == 7;
        live.withdraw();
        _exit(published && own ? 0 : 1);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "the child's page has its own counts";
    const auto found = read();
    ASSERT_EQ(found.processes.size(), 1U);
    EXPECT_EQ(found.processes[0].sealed_bytes, 5U);
    EXPECT_EQ(found.processes[0].failed_opens, 0U);
}

TEST_F(LiveTest, AfterAnExecNothingIsLeftOfTheProgramBefore) {
    Live live;
    ASSERT_TRUE(live.publish(folders(), part_of("mpi")));
    ASSERT_EQ(files().size(), 1U);
    Live::remove_leftovers(folders());
    EXPECT_TRUE(files().empty());
}

// Whose folder it is

TEST_F(LiveTest, AFolderThatIsALinkIsRefused) {
    fs::create_directory(above_ / "elsewhere");
    chmod((above_ / "elsewhere").c_str(), S_IRWXU);
    fs::create_directory_symlink(above_ / "elsewhere", folder_);
    Live live;
    EXPECT_FALSE(live.publish(folders(), part_of()));
    EXPECT_TRUE(fs::is_empty(above_ / "elsewhere"));
    live.counter(Threads::several).sealed(1, 1);  // and the process goes on
}

TEST_F(LiveTest, AFolderThatOthersMayEnterIsRefused) {
    make_folder(S_IRWXU | S_IXGRP);
    Live live;
    EXPECT_FALSE(live.publish(folders(), part_of()));
    forge([](LivePage&) {});
    EXPECT_TRUE(read().processes.empty());
    chmod(folder_.c_str(), S_IRWXU);
    EXPECT_EQ(read().processes.size(), 1U) << "else the line above says nothing";
}

TEST_F(LiveTest, AFolderOfSomebodyElseIsRefused) {
    if (geteuid() != 0) GTEST_SKIP() << "only root can give a folder to somebody else";
    make_folder();
    ASSERT_EQ(chown(folder_.c_str(), kStranger, kStranger), 0);
    Live live;
    EXPECT_FALSE(live.publish(folders(), part_of()));
    EXPECT_TRUE(fs::is_empty(folder_));
}

TEST_F(LiveTest, AFolderThatIsNotInMemoryIsRefused) {
    char made[] = "/var/tmp/cryptmpi-test-XXXXXX";
    ASSERT_NE(mkdtemp(made), nullptr);
    struct statfs information {};
    ASSERT_EQ(statfs(made, &information), 0);
    Live live;
    const auto done = live.publish({fs::path(made) / "pages"}, part_of());
    fs::remove_all(made);
    if (information.f_type == 0x01021994) GTEST_SKIP() << "/var/tmp is in memory here";
    EXPECT_FALSE(done);
}

TEST_F(LiveTest, AProgramThatMayWriteNoFilesGoesOnWithoutAPage) {
    const pid_t child = fork();
    if (child == 0) {
        const rlimit none{0, 0};
        setrlimit(RLIMIT_FSIZE, &none);
        Live live;
        _exit(live.publish(folders(), part_of()) ? 1 : 0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    EXPECT_FALSE(fs::exists(folder_));
}

TEST_F(LiveTest, TheNextFolderIsTakenWhereOneIsNot) {
    Live live;
    ASSERT_TRUE(live.publish({above_ / "nowhere" / "pages", folder_}, part_of()));
    EXPECT_EQ(read().processes.size(), 1U);
}

// What a page may say

TEST_F(LiveTest, AForgedPageThatIsGoodIsRead) {
    forge([](LivePage&) {});
    EXPECT_EQ(read().processes.size(), 1U) << "else the tests below say nothing";
}

TEST_F(LiveTest, PagesOfProcessesThatAreGoneAreSkippedAndRemoved) {
    const pid_t child = fork();
    if (child == 0) {
        for (;;) pause();
    }
    const auto started = start_of(child);
    ASSERT_TRUE(started);
    const auto of_child = [&](LivePage& page) {
        page.pid = child;
        page.started = *started;
    };
    forge(of_child, "ended");
    EXPECT_EQ(read().processes.size(), 1U) << "it runs";
    kill(child, SIGKILL);
    siginfo_t information{};
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(child), &information, WEXITED | WNOWAIT), 0);
    const auto ended = folder_ / "ended";  // and nobody has fetched its status
    const auto reused = forge([](LivePage& page) { ++page.started; }, "reused");
    EXPECT_TRUE(read().processes.empty());
    EXPECT_FALSE(fs::exists(ended));
    EXPECT_FALSE(fs::exists(reused));
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
}

TEST_F(LiveTest, BeforeAJobBeginsPagesOfProcessesThatAreGoneAreRemoved) {
    folder_ = above_ / "cryptmpi";
    const auto gone = forge([](LivePage& page) { ++page.started; }, "gone");
    const auto runs = forge([](LivePage&) {}, "runs");
    const auto elsewhere = forge(
        [](LivePage& page) {
            ++page.started;
            ++page.pid_namespace;
        },
        "elsewhere");
    const auto other = forge(
        [](LivePage& page) {
            ++page.started;
            ++page.version;
        },
        "other");
    remove_stale_pages(above_.c_str());
    EXPECT_FALSE(fs::exists(gone));
    EXPECT_TRUE(fs::exists(runs));
    EXPECT_TRUE(fs::exists(elsewhere)) << "its number says nothing here";
    EXPECT_TRUE(fs::exists(other)) << "what it says is not known";
}

TEST_F(LiveTest, PagesThatAreNoneAreSkippedAndLeft) {
    const auto cut_short = forge([](LivePage&) {}, "short");
    fs::resize_file(cut_short, sizeof(LivePage) - 1);
    forge([](LivePage& page) { page.magic ^= 1; }, "magic");
    forge([](LivePage& page) { page.pid = 0; }, "zero");
    forge([](LivePage& page) { page.pid = -1; }, "all");
    forge([](LivePage& page) { page.sequence = 1; }, "half");
    forge([](LivePage& page) { page.pid_namespace ^= 1; }, "container");
    const auto open = forge([](LivePage&) {}, "open");
    chmod(open.c_str(), S_IRUSR | S_IWUSR | S_IRGRP);
    std::ofstream(folder_ / "empty");
    fs::create_directory(folder_ / "folder");
    ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), S_IRUSR | S_IWUSR), 0);
    const auto elsewhere = forge([](LivePage&) {}, "moved");
    fs::rename(elsewhere, above_ / "moved");
    fs::create_symlink(above_ / "moved", folder_ / "link");
    const auto found = read();
    EXPECT_TRUE(found.processes.empty());
    EXPECT_EQ(found.of_other_versions, 0);
    EXPECT_EQ(files().size(), 11U);
}

TEST_F(LiveTest, PagesOfOtherVersionsAreCountedWhileTheirProcessesRun) {
    const std::uint64_t started = start_of(getpid()).value_or(0);
    const auto named = [](pid_t pid, std::uint64_t start) {
        return std::to_string(pid) + "." + std::to_string(start) + ".channel";
    };
    forge([](LivePage& page) { ++page.version; }, named(getpid(), started));
    forge([](LivePage& page) { ++page.size; }, named(getpid(), started) + "2");
    forge([](LivePage& page) { ++page.version; }, named(getpid(), started + 1));
    forge([](LivePage& page) { ++page.version; }, "no name of a page");
    const auto found = read();
    EXPECT_TRUE(found.processes.empty());
    EXPECT_EQ(found.of_other_versions, 2);
    EXPECT_EQ(files().size(), 4U);
}

TEST_F(LiveTest, NobodySpeaksForAnothersProcess) {
    if (geteuid() != 0) GTEST_SKIP() << "only root reads other users' pages";
    const auto file = forge([](LivePage&) {});  // of this process, which is root's
    ASSERT_EQ(chown(file.c_str(), kStranger, kStranger), 0);
    EXPECT_TRUE(read().processes.empty()) << "the folder is root's, the file is not";
    ASSERT_EQ(chown(folder_.c_str(), kStranger, kStranger), 0);
    EXPECT_TRUE(read(kStranger).processes.empty()) << "the process is root's";
    EXPECT_TRUE(fs::exists(file)) << "and nothing is removed that is not ours";
}

TEST_F(LiveTest, TextsAreFitToBeShown) {
    forge([](LivePage& page) {
        page.texts.job_id.fill('x');  // no end
        std::strcpy(page.texts.node.data(), "\x1b[2Jnode\n");
        std::strcpy(page.texts.program.data(), "\xff\xe2\x80\xae");
    });
    const auto found = read();
    ASSERT_EQ(found.processes.size(), 1U);
    EXPECT_EQ(found.processes[0].job_id, std::string(sizeof(LiveTexts::job_id), 'x'));
    EXPECT_EQ(found.processes[0].node, "\ufffd[2Jnode\ufffd");
    EXPECT_EQ(found.processes[0].program, "\ufffd\ufffd");
}

TEST_F(LiveTest, LongTextsAreCutOff) {
    Live live;
    Part part = part_of();
    part.program = std::string(5000, 'p');
    part.module = "";
    ASSERT_TRUE(live.publish(folders(), part));
    const auto found = read();
    ASSERT_EQ(found.processes.size(), 1U);
    EXPECT_EQ(found.processes[0].program, std::string(sizeof(LiveTexts::program), 'p'));
    EXPECT_EQ(found.processes[0].module, "");
}

TEST(LiveFoldersTest, OfAUserAndOfRoot) {
    EXPECT_EQ(live_folders(nullptr, 7), std::vector<fs::path>{"/dev/shm/cryptmpi-7"});
    EXPECT_EQ(live_folders("relative", 7), std::vector<fs::path>{"/dev/shm/cryptmpi-7"});
    EXPECT_EQ(live_folders("/run/user/7", 7), (std::vector<fs::path>{"/run/user/7/cryptmpi", "/dev/shm/cryptmpi-7"}));
    for (const auto& folder : folders_to_read("/run/user/7", 7)) EXPECT_EQ(folder.user, 7U);
    EXPECT_EQ(folders_to_read("/run/user/7", 7).size(), 2U) << "each once";
}

}  // namespace
}  // namespace cryptmpi::report
