// What rank 0 says of collective operations, on its way to all.
#include <gtest/gtest.h>

#include <bit>

#include "comm/tuned.hpp"

namespace cryptmpi::comm {
namespace {

keys::Terms terms(std::uint32_t message, std::uint32_t kib, std::uint32_t combine, std::uint32_t piece) {
    return std::bit_cast<keys::Terms>(std::array{message, kib, combine, piece});
}

// protocol: A20
TEST(Terms, OfWhatNoProfileCanSayAreRefused) {
    EXPECT_TRUE(plan_of(terms(0, 0, 0, 16384)));
    EXPECT_TRUE(plan_of(terms(100'000'000, 1'000'000, 1'000'000, 1'048'576)));
    for (const auto& wrong :
         {terms(100'000'001, 0, 0, 61440), terms(0, 1'000'001, 0, 61440), terms(0, 0, 1'000'001, 61440),
          terms(0, 0, 0, 16383), terms(0, 0, 0, 1'048'577), terms(0, 0, 0, 0), terms(~0U, ~0U, ~0U, ~0U)}) {
        const auto plan = plan_of(wrong);
        ASSERT_FALSE(plan);
        EXPECT_NE(plan.error().line.find("what no profile can say"), std::string::npos);
    }
}

TEST(Terms, ComeBackAsTheyWent) {
    const engine::CollectivePlan plan{{1000, 20, 3}, 131072};
    const auto back = plan_of(terms_of(plan));
    ASSERT_TRUE(back);
    EXPECT_EQ(terms_of(*back), terms_of(plan));
}

}  // namespace
}  // namespace cryptmpi::comm
