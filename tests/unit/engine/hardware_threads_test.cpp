// How many threads a rank has: its share of the node, without what is kept for others.
#include "engine/hardware_threads.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include <thread>

namespace cryptmpi::engine {
namespace {

HardwareThreads from_to(std::size_t first, std::size_t end) {
    HardwareThreads made;
    for (std::size_t number = first; number < end; ++number) made.add(number);
    return made;
}

/// Of the first process, on a node whose processes may run on these.
std::size_t first_share(const std::vector<HardwareThreads>& processes) {
    PerHardwareThread ranks = {};
    for (const HardwareThreads& one : processes) {
        for (std::size_t number = 0; number < kMostHardwareThreads; ++number) ranks[number] += one.members()[number];
    }
    return processes.front().share(ranks);
}

TEST(HardwareThreads, AreThoseOfTheThread) {
    std::thread([] {
        const auto all = HardwareThreads::of_this_thread();
        ASSERT_GT(all.count(), 0U);
        std::size_t last = 0;
        for (std::size_t number = 0; number < kMostHardwareThreads; ++number) last = all.has(number) ? number : last;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(last, &one);
        ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
        const auto bound = HardwareThreads::of_this_thread();
        EXPECT_EQ(bound.count(), 1U);
        EXPECT_TRUE(bound.has(last));
    }).join();
}

TEST(HardwareThreads, OfOneProcessAreItsOwn) {
    EXPECT_EQ(first_share({from_to(0, 32)}), 32U);
    EXPECT_EQ(first_share({HardwareThreads()}), 0U);
}

TEST(HardwareThreads, AreSharedEvenly) {
    EXPECT_EQ(first_share({from_to(0, 32), from_to(0, 32)}), 16U);
    EXPECT_EQ(first_share(std::vector(3, from_to(0, 3))), 1U);
    EXPECT_EQ(first_share(std::vector(3, from_to(0, 8))), 2U);
    EXPECT_EQ(first_share(std::vector(4, from_to(0, 2))), 0U);
}

TEST(HardwareThreads, OfBoundProcessesAreNotShared) {
    EXPECT_EQ(first_share({from_to(0, 8), from_to(8, 16), from_to(16, 24)}), 8U);
    // Two sockets, two processes on each.
    EXPECT_EQ(first_share({from_to(0, 16), from_to(0, 16), from_to(16, 32), from_to(16, 32)}), 8U);
    // One that is bound, one that is not.
    EXPECT_EQ(first_share({from_to(0, 4), from_to(0, 8)}), 2U);
    EXPECT_EQ(first_share({from_to(0, 8), from_to(0, 4)}), 6U);
}

TEST(RankThreads, AreThoseThatWouldBeIdle) {
    EXPECT_EQ(threads_of_rank(4, 1), 2U);
    EXPECT_EQ(threads_of_rank(8, 1), 6U);
    EXPECT_EQ(threads_of_rank(8, 3), 4U);
}

TEST(RankThreads, AreTheRanksOwnWhereNoneWouldBeIdle) {
    for (const std::size_t share : {0, 1, 2, 3}) EXPECT_EQ(threads_of_rank(share, 1), 1U) << share;
    EXPECT_EQ(threads_of_rank(16, 15), 1U);
    EXPECT_EQ(threads_of_rank(16, kMostHardwareThreads), 1U);
}

TEST(RankThreads, AreNoMoreThanHelp) {
    EXPECT_EQ(threads_of_rank(256, 1), 8U);
}

}  // namespace
}  // namespace cryptmpi::engine
