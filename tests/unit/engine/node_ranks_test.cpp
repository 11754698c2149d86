// What a rank sees of the others on its node: they are its siblings.
#include "engine/node_ranks.hpp"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <thread>
#include <vector>

namespace cryptmpi::engine {
namespace {

/// A launcher's child that waits to be killed; bound to one hardware thread, or not (-1).
pid_t start_rank(int bound_to) {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
        cpu_set_t one;
        CPU_ZERO(&one);
        if (bound_to >= 0) CPU_SET(bound_to, &one);
        if (bound_to >= 0 && sched_setaffinity(0, sizeof one, &one) != 0) _exit(1);
        if (write(ready[1], "x", 1) != 1) _exit(1);
        for (;;) pause();
    }
    close(ready[1]);
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return child;
}

/// Whether a rank of a launcher that has started `others`, too, finds what `expected` says; all in processes of their
/// own.
template <class Expected>
bool found(const std::vector<int>& others, bool by_another_thread, const Expected& expected) {
    const pid_t launcher = fork();
    if (launcher == 0) {
        std::vector<pid_t> ranks;
        const auto start = [&] {
            for (const int bound_to : others) ranks.push_back(start_rank(bound_to));
        };
        if (by_another_thread) {
            // It must still be there: what an ended thread has started counts as another one's.
            static std::vector<std::thread> starting;
            std::atomic<bool> started = false;
            starting.emplace_back([&] {
                start();
                started = true;
                for (;;) pause();
            });
            while (!started) sched_yield();
        } else {
            start();
        }
        const pid_t last = fork();
        if (last == 0) _exit(expected() ? 0 : 1);
        int status = -1;
        waitpid(last, &status, 0);
        for (const pid_t rank : ranks) kill(rank, SIGKILL);
        _exit(status == 0 ? 0 : 1);
    }
    int status = -1;
    EXPECT_EQ(waitpid(launcher, &status, 0), launcher);
    return status == 0;
}

constexpr auto kAll = [](pid_t) { return true; };

int first_of(const HardwareThreads& own) {
    int number = 0;
    while (!own.has(static_cast<std::size_t>(number))) ++number;
    return number;
}

TEST(NodeRanks, AreTheSiblings) {
    const auto own = HardwareThreads::of_this_thread();
    const int first = first_of(own);
    for (const bool by_another_thread : {false, true}) {
        EXPECT_TRUE(found({first, -1}, by_another_thread, [&] {
            PerHardwareThread expected{};
            for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = own.has(i) ? 2 : 0;
            ++expected[static_cast<std::size_t>(first)];
            return ranks_of_node(own, 3, kAll) == expected;
        }));
    }
}

TEST(NodeRanks, ThatAreNotSeenMayRunAnywhere) {
    const auto own = HardwareThreads::of_this_thread();
    EXPECT_TRUE(found({-1}, false, [&] {
        const auto ranks = ranks_of_node(own, 5, kAll);
        return std::all_of(ranks.begin(), ranks.end(), [&](const int& number) {
            return number == (own.has(static_cast<std::size_t>(&number - ranks.data())) ? 5 : 3);
        });
    }));
}

TEST(NodeRanks, AreNotAllOfTheLaunchersChildren) {
    const auto own = HardwareThreads::of_this_thread();
    EXPECT_TRUE(found({-1, -1}, false, [&] {
        int asked = 0;
        const auto ranks = ranks_of_node(own, 2, [&](pid_t) { return ++asked == 1; });
        return asked == 2 && ranks[static_cast<std::size_t>(first_of(own))] == 2;
    }));
}

TEST(NodeRanks, MayBeFewerThanTheSiblings) {
    const auto own = HardwareThreads::of_this_thread();
    EXPECT_TRUE(found({-1, -1}, false, [&] {
        const auto ranks = ranks_of_node(own, 1, kAll);
        return ranks[static_cast<std::size_t>(first_of(own))] == 3;
    }));
}

}  // namespace
}  // namespace cryptmpi::engine
