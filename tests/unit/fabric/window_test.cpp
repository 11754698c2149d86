// Numbers that the network may deliver in any order.
#include "fabric/window.hpp"

#include <gtest/gtest.h>

namespace cryptmpi::fabric {
namespace {

using Verdict = Window::Verdict;

TEST(Window, TakesEachNumberOnce) {
    Window window(8);
    for (const std::uint64_t number : {0, 2, 1, 5, 3, 4, 6}) EXPECT_EQ(window.take(number), Verdict::fits) << number;
    EXPECT_EQ(window.missing(), 0U);
    for (const std::uint64_t number : {0, 2, 6}) EXPECT_EQ(window.take(number), Verdict::repeated) << number;
    EXPECT_EQ(window.take(7), Verdict::fits);
}

TEST(Window, TellsARepeatedEarlyNumber) {
    Window window(8);
    EXPECT_EQ(window.take(3), Verdict::fits);
    EXPECT_EQ(window.take(3), Verdict::repeated);
}

// protocol: F14
TEST(Window, MissesOneThatTooManyHaveOvertaken) {
    Window window(8);
    for (std::uint64_t number = 1; number <= 8; ++number) EXPECT_EQ(window.take(number), Verdict::fits);
    EXPECT_EQ(window.missing(), 1U);
    EXPECT_EQ(window.take(9), Verdict::lost);
    EXPECT_EQ(window.take(0), Verdict::fits);
    EXPECT_EQ(window.missing(), 0U);
    EXPECT_EQ(window.take(9), Verdict::fits);
}

TEST(Window, DoesNotMissWhatWasCutOff) {
    Window window(8);
    window.excuse();
    EXPECT_EQ(window.take(1), Verdict::fits);
    EXPECT_EQ(window.missing(), 0U);
    for (std::uint64_t number = 2; number <= 20; ++number) EXPECT_EQ(window.take(number), Verdict::fits) << number;
    EXPECT_EQ(window.take(0), Verdict::repeated);
    EXPECT_EQ(window.take(22), Verdict::fits);
    EXPECT_EQ(window.missing(), 1U) << "another one";
    EXPECT_EQ(window.take(30), Verdict::lost);
}

TEST(Window, TakesTheExcusesOfAnybodyAfterItsOwn) {
    Window window(8);
    window.excuse();
    std::uint64_t of_anybody = 1;
    EXPECT_EQ(window.take(9, of_anybody), Verdict::fits);
    EXPECT_EQ(of_anybody, 1U);
    EXPECT_EQ(window.take(10, of_anybody), Verdict::fits);
    EXPECT_EQ(of_anybody, 0U);
    EXPECT_EQ(window.take(11, of_anybody), Verdict::lost);
}

TEST(Window, DoesNotOverflowAtTheLargestNumber) {
    Window window(8);
    EXPECT_EQ(window.take(~std::uint64_t{0}), Verdict::lost);
}

}  // namespace
}  // namespace cryptmpi::fabric
