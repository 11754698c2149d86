// What has come in a lane, in every order.
#include "seal/arrivals.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace cryptmpi::seal {
namespace {

TEST(Arrivals, EachNumberComesOnceInAnyOrder) {
    std::vector<std::uint64_t> order(6);
    std::iota(order.begin(), order.end(), 0);
    do {
        Arrivals arrivals;
        std::vector<bool> came(order.size());
        for (const std::uint64_t number : order) {
            ASSERT_FALSE(arrivals.has(number));
            const auto missing = std::count(came.begin(), came.begin() + static_cast<std::ptrdiff_t>(number), false);
            EXPECT_EQ(arrivals.missing_before(number), static_cast<std::uint64_t>(missing));
            arrivals.accept(number);
            came[number] = true;
            for (std::uint64_t n = 0; n < order.size(); ++n) EXPECT_EQ(arrivals.has(n), came[n]);
        }
        EXPECT_EQ(arrivals.missing_before(order.size()), 0U);
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST(Arrivals, WhatIsSkippedIsNotMissed) {
    Arrivals arrivals;
    arrivals.accept(0);
    arrivals.accept(3);
    EXPECT_EQ(arrivals.missing_before(5), 3U);
    arrivals.skip_to(5);
    EXPECT_EQ(arrivals.missing_before(5), 0U);
    EXPECT_TRUE(arrivals.has(2));
    arrivals.accept(5);
    EXPECT_EQ(arrivals.missing_before(6), 0U);
}

}  // namespace
}  // namespace cryptmpi::seal
