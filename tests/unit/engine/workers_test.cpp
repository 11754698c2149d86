// Threads that share a caller's work: each piece is done once, whoever calls, and nobody waits for what was not begun.
#include "engine/workers.hpp"

#include <dirent.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <latch>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace cryptmpi::engine {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kThreads = 4;
constexpr std::size_t kPieces = 37;

Workers some(std::size_t threads = kThreads) {
    return Workers({.threads = threads});
}

/// The names of this process's threads.
std::multiset<std::string> names() {
    std::multiset<std::string> found;
    DIR* const folder = opendir("/proc/self/task");
    while (const dirent* const entry = readdir(folder)) {
        std::string name;
        if (std::getline(std::ifstream("/proc/self/task/" + std::string(entry->d_name) + "/comm"), name)) {
            found.insert(name);
        }
    }
    closedir(folder);
    return found;
}

std::size_t running() {
    return names().count("cryptmpi-work");
}

/// Runs `pieces` and expects each to be done once, by threads of which no two had one number at the same time.
void expect_each_once(Workers& workers, std::size_t pieces) {
    std::vector<std::atomic<int>> done(pieces);
    std::vector<std::atomic<int>> inside(workers.threads());
    workers.run(pieces, [&](std::size_t piece, std::size_t thread) {
        EXPECT_LT(thread, workers.threads());
        EXPECT_EQ(inside[thread].fetch_add(1), 0);
        ++done[piece];
        inside[thread].fetch_sub(1);
        return std::size_t{1};
    });
    for (std::size_t i = 0; i < pieces; ++i) EXPECT_EQ(done[i], 1) << i << " of " << pieces;
}

/// One piece for each thread, all of them at the same time.
void expect_all_take_part(Workers& workers) {
    std::latch together(static_cast<std::ptrdiff_t>(workers.threads()));
    std::vector<std::atomic<int>> pieces_of(workers.threads());
    workers.run(workers.threads(), [&](std::size_t, std::size_t thread) {
        together.arrive_and_wait();
        ++pieces_of[thread];
        return std::size_t{1};
    });
    for (const auto& pieces : pieces_of) EXPECT_EQ(pieces, 1);
}

TEST(Workers, DoEachPieceOnce) {
    for (const std::size_t threads : {1, 2, 4, 9}) {
        Workers workers = some(threads);
        EXPECT_EQ(workers.threads(), threads);
        for (std::size_t round = 0; round < 300; ++round) expect_each_once(workers, round % kPieces);
    }
}

TEST(Workers, AreNobodyByDefault) {
    Workers workers;
    EXPECT_EQ(workers.threads(), 1U);
    EXPECT_EQ(workers.ready(), 1U);
    expect_each_once(workers, 3);
    EXPECT_EQ(running(), 0U);
}

TEST(Workers, StartWhenThereIsSomethingToShare) {
    Workers workers = some();
    EXPECT_EQ(running(), 0U);
    expect_each_once(workers, 0);
    expect_each_once(workers, 1);
    EXPECT_EQ(running(), 0U);
    expect_all_take_part(workers);
    EXPECT_EQ(running(), kThreads - 1);
    expect_all_take_part(workers);
    EXPECT_EQ(running(), kThreads - 1);
    workers = Workers();
    EXPECT_EQ(running(), 0U);
    expect_each_once(workers, 3);
}

TEST(Workers, EndWithoutEverHavingStarted) {
    { const Workers workers = some(); }
    EXPECT_EQ(running(), 0U);
}

TEST(Workers, EndAtOnceAfterACall) {
    for (int round = 0; round < 50; ++round) {
        Workers workers({.threads = kThreads, .lingers = 1000ms});
        expect_each_once(workers, 2);
    }
}

TEST(Workers, ShareWhatTheCallerSees) {
    Workers workers = some();
    for (std::size_t round = 0; round < 200; ++round) {
        std::vector<std::size_t> in(kPieces, round);
        std::vector<std::size_t> out(kPieces);
        workers.run(kPieces, [&](std::size_t piece, std::size_t) { return out[piece] = in[piece] + piece; });
        for (std::size_t i = 0; i < kPieces; ++i) ASSERT_EQ(out[i], round + i);
    }
}

TEST(Workers, AreCalledBySeveralThreads) {
    Workers workers = some();
    std::vector<std::thread> callers;
    for (int i = 0; i < 4; ++i) {
        callers.emplace_back([&] {
            for (std::size_t round = 0; round < 200; ++round) expect_each_once(workers, kPieces);
        });
    }
    for (std::thread& caller : callers) caller.join();
}

TEST(Workers, AreCalledFromWithinAPiece) {
    Workers workers = some();
    std::atomic<int> inner = 0;
    workers.run(kPieces, [&](std::size_t, std::size_t) {
        workers.run(kPieces, [&](std::size_t, std::size_t thread) {
            EXPECT_EQ(thread, 0U);
            ++inner;
            return std::size_t{1};
        });
        return std::size_t{1};
    });
    EXPECT_EQ(inner, static_cast<int>(kPieces * kPieces));
}

TEST(Workers, DoNotKeepTheCallerWaitingForWhatTheyHaveNotBegun) {
    Workers workers = some(2);
    expect_all_take_part(workers);
    // The other thread is in its first piece until the caller has done all the others.
    std::atomic<std::size_t> left = kPieces - 1;
    std::atomic<bool> begun = false;
    workers.run(kPieces, [&](std::size_t, std::size_t thread) {
        if (thread == 1 && !begun.exchange(true)) {
            while (left != 0) sched_yield();
        } else {
            while (!begun) sched_yield();
            --left;
        }
        return std::size_t{1};
    });
    EXPECT_EQ(left, 0U);
}

TEST(Workers, BeginWhileTheCallerDoesWhatIsForItAlone) {
    Workers workers = some();
    for (const std::size_t pieces : {1, 3}) {
        // The caller's own part ends only after another thread has begun.
        std::atomic<bool> begun = false;
        bool own = false;
        std::vector<std::atomic<int>> done(pieces);
        const auto caller = std::this_thread::get_id();
        workers.run_beside(
            [&] {
                EXPECT_EQ(std::this_thread::get_id(), caller);
                while (!begun) sched_yield();
                own = true;
            },
            pieces,
            [&](std::size_t piece, std::size_t thread) {
                if (thread != 0) begun = true;
                ++done[piece];
                return std::size_t{1};
            });
        EXPECT_TRUE(own);
        for (const auto& times : done) EXPECT_EQ(times, 1);
    }
}

TEST(Workers, LeaveTheCallerItsPartWhereTheyCannotHelp) {
    Workers nobody;
    Workers busy = some();
    const auto expect_in_order = [](Workers& workers) {
        std::vector<int> seen;
        workers.run_beside([&] { seen.push_back(-1); }, 3,
                           [&](std::size_t piece, std::size_t thread) {
                               EXPECT_EQ(thread, 0U);
                               seen.push_back(static_cast<int>(piece));
                               return std::size_t{1};
                           });
        EXPECT_EQ(seen, (std::vector<int>{-1, 0, 1, 2}));
    };
    expect_in_order(nobody);
    busy.run(1, [&](std::size_t, std::size_t) {
        expect_in_order(busy);
        return std::size_t{1};
    });
    bool own = false;
    busy.run_beside([&] { own = true; }, 0, [](std::size_t, std::size_t) { return std::size_t{1}; });
    EXPECT_TRUE(own);
}

TEST(Workers, LeaveTheProgramsSignalsToItsThreads) {
    Workers workers = some();
    std::vector<std::atomic<int>> open(kThreads);
    std::latch together(static_cast<std::ptrdiff_t>(kThreads));
    workers.run(kThreads, [&](std::size_t, std::size_t thread) {
        together.arrive_and_wait();
        sigset_t blocked;
        pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
        open[thread] = sigismember(&blocked, SIGUSR1) == 0 ? 1 : 0;
        return std::size_t{1};
    });
    EXPECT_EQ(open[0], 1);
    for (std::size_t thread = 1; thread < kThreads; ++thread) EXPECT_EQ(open[thread], 0);
}

TEST(Workers, RunWhereTheRankMay) {
    const auto all = HardwareThreads::of_this_thread();
    Workers workers({.threads = 2, .where = all});
    // Started by a thread that is bound to one of them.
    std::thread([&] {
        cpu_set_t one;
        CPU_ZERO(&one);
        for (std::size_t number = 0; CPU_COUNT(&one) == 0; ++number) {
            if (all.has(number)) CPU_SET(number, &one);
        }
        ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
        std::latch together(2);
        workers.run(2, [&](std::size_t, std::size_t thread) {
            together.arrive_and_wait();
            EXPECT_EQ(HardwareThreads::of_this_thread().count(), thread == 0 ? 1 : all.count());
            return std::size_t{1};
        });
    }).join();
}

TEST(Workers, GoWithoutAPlaceThatTheSystemRefuses) {
    HardwareThreads nowhere;
    nowhere.add(kMostHardwareThreads - 1);
    Workers workers({.threads = 2, .where = nowhere});
    expect_all_take_part(workers);
}

/// The exit status of a child that does `action`; it does not come back from there.
template <class Action>
int status_of_child(const Action& action) {
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        action();
    }
    int status = -1;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return status;
}

TEST(Workers, StayWithTheParentAtAFork) {
    auto workers = std::make_unique<Workers>(some());
    expect_all_take_part(*workers);
    const int status = status_of_child([&] {
        std::size_t done = 0;
        workers->run(kPieces, [&](std::size_t, std::size_t thread) {
            done += thread == 0 ? 1 : 0;
            return std::size_t{1};
        });
        workers.reset();
        _exit(done == kPieces ? 7 : 1);
    });
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
    expect_all_take_part(*workers);
}

TEST(Workers, StayWithTheParentAtAForkInTheMidstOfACall) {
    Workers workers = some();
    std::atomic<int> status = -1;
    workers.run(kThreads, [&](std::size_t piece, std::size_t) {
        if (piece != 0) return std::size_t{1};
        status = status_of_child([&] {
            std::size_t done = 0;
            workers.run(kPieces, [&](std::size_t, std::size_t) { return ++done; });
            _exit(done == kPieces ? 7 : 1);
        });
        return std::size_t{1};
    });
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
}

TEST(Workers, DoNotHoldUpTheEndOfTheProcess) {
    const int status = status_of_child([] {
        static Workers* const never_destroyed = new Workers({.threads = kThreads, .lingers = 1000ms});
        never_destroyed->run(kPieces, [](std::size_t, std::size_t) { return std::size_t{1}; });
        std::exit(7);
    });
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 7) << status;
}

/// Calls 30 times with two pieces of work. Returns in how many of them another thread took one, so that the caller had
/// to wait 20 ms for it. The caller first waits for the other thread to begin, up to `patience`.
int late_calls(Workers& workers, std::chrono::milliseconds patience) {
    int late = 0;
    for (int i = 0; i < 30; ++i) {
        std::atomic<bool> other = false;
        workers.run(2, [&](std::size_t, std::size_t thread) {
            if (thread != 0) {
                other = true;
                std::this_thread::sleep_for(20ms);
            } else {
                const auto end = std::chrono::steady_clock::now() + patience;
                while (!other && std::chrono::steady_clock::now() < end) sched_yield();
            }
            return std::size_t{1};
        });
        late += other ? 1 : 0;
    }
    return late;
}

TEST(Workers, RestAfterTheyMadeTheCallerWait) {
    Workers workers({.threads = 2, .rest_when_late = true});
    expect_all_take_part(workers);
    EXPECT_LT(late_calls(workers, 2ms), 10);
}

TEST(Workers, SayWhenTheyRest) {
    Workers workers({.threads = 2, .rest_when_late = true});
    expect_all_take_part(workers);
    EXPECT_EQ(workers.ready(), 2U);
    for (int i = 0; i < 100 && workers.ready() == 2; ++i) late_calls(workers, 2ms);
    ASSERT_EQ(workers.ready(), 1U);
    for (int i = 0; i < 2000 && workers.ready() == 1; ++i) expect_each_once(workers, 1);
    EXPECT_EQ(workers.ready(), 2U);
}

TEST(Workers, DoNotRestWhereTheyMustNot) {
    Workers workers({.threads = 2, .rest_when_late = false});
    expect_all_take_part(workers);
    EXPECT_EQ(late_calls(workers, 10s), 30);
    EXPECT_EQ(workers.ready(), 2U);
}

}  // namespace
}  // namespace cryptmpi::engine
