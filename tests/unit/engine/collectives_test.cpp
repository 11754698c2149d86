// The algorithm of a reduction is the one with the least cost, and costs of any size are compared without overflow.
#include "engine/collectives.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace cryptmpi::engine {
namespace {

constexpr std::uint64_t kKB = 1024;
constexpr ReductionCosts kNoMessages{0, 500, 100};
constexpr ReductionCosts kOnlyMessages{1000, 0, 0};

TEST(CollectivePlan, IsUsedOnlyWhereAProfileCouldSayIt) {
    EXPECT_TRUE(is_sound({}));
    const CollectivePlan most{{ReductionCosts::kMostOfMessage, ReductionCosts::kMostOfKib, ReductionCosts::kMostOfKib},
                              CollectivePlan::kMostPiece};
    EXPECT_TRUE(is_sound(most));
    EXPECT_TRUE(is_sound({{0, 0, 0}, CollectivePlan::kLeastPiece}));
    for (const std::uint32_t piece : {0U, 1U, CollectivePlan::kLeastPiece - 1, CollectivePlan::kMostPiece + 1, ~0U}) {
        EXPECT_FALSE(is_sound({{}, piece})) << piece;
    }
    EXPECT_FALSE(is_sound({{ReductionCosts::kMostOfMessage + 1, 0, 0}, most.piece}));
    EXPECT_FALSE(is_sound({{0, ReductionCosts::kMostOfKib + 1, 0}, most.piece}));
    EXPECT_FALSE(is_sound({{0, 0, ~0U}, most.piece}));
}

TEST(AllreduceWay, OfFewBytesTakesFewMessages) {
    for (const std::uint32_t nodes : {2, 3, 4, 5, 8, 64, 1000}) {
        EXPECT_EQ(allreduce_way({}, 8, nodes), AllreduceWay::doubling) << nodes;
        EXPECT_EQ(allreduce_way(kOnlyMessages, 1 << 30, nodes), AllreduceWay::doubling) << nodes;
    }
}

TEST(AllreduceWay, OfManyBytesTravelsInParts) {
    for (const std::uint32_t power : {2, 4, 64}) {
        EXPECT_EQ(allreduce_way({}, 64 << 20, power), AllreduceWay::halves) << power;
    }
    // Of others, halves begin with a whole vector there and back.
    for (const std::uint32_t other : {3, 5, 6, 7, 63}) {
        EXPECT_EQ(allreduce_way({}, 64 << 20, other), AllreduceWay::parts) << other;
    }
}

TEST(AllreduceWay, ChangesWhereTheCostsAreEqual) {
    // Two nodes: one message more against half of the combining.
    const ReductionCosts costs{1000, 77, 10};
    EXPECT_EQ(allreduce_way(costs, 200 * kKB, 2), AllreduceWay::doubling);
    EXPECT_EQ(allreduce_way(costs, 200 * kKB + 2, 2), AllreduceWay::halves);
    // Four: two messages more against half of a vector less sent, and five quarters less combined.
    const ReductionCosts of_four{1000, 40, 0};
    EXPECT_EQ(allreduce_way(of_four, 100 * kKB, 4), AllreduceWay::doubling);
    EXPECT_EQ(allreduce_way(of_four, 100 * kKB + 4, 4), AllreduceWay::halves);
}

TEST(AllreduceWay, IsOfNoPartsWhereThoseTakeTooManyMessages) {
    EXPECT_EQ(allreduce_way({8000, 500, 100}, 256 * kKB, 1000), AllreduceWay::halves);
    EXPECT_EQ(allreduce_way(kNoMessages, 256 * kKB, 1000), AllreduceWay::parts);
}

TEST(AllreduceWay, OfTheMostThatCanBeDoesNotOverflow) {
    const ReductionCosts most{ReductionCosts::kMostOfMessage, ReductionCosts::kMostOfKib, ReductionCosts::kMostOfKib};
    // Bytes count more than messages here, then messages more than bytes.
    EXPECT_EQ(allreduce_way(most, UINT64_MAX, 3), AllreduceWay::parts);
    EXPECT_EQ(allreduce_way(most, UINT64_MAX, 1 << 10), AllreduceWay::halves);
    EXPECT_EQ(allreduce_way(most, 8, (1 << 24) - 1), AllreduceWay::doubling);
    EXPECT_FALSE(reduce_scatter_by_parts(most, 8, 1 << 24));
    EXPECT_TRUE(reduce_scatter_by_parts(most, UINT64_MAX, 1 << 10));
}

TEST(ReduceScatterByParts, PaysWithFewNodesOrManyBytes) {
    for (const std::uint32_t few : {2, 3, 4, 5}) EXPECT_TRUE(reduce_scatter_by_parts({}, 4, few)) << few;
    EXPECT_FALSE(reduce_scatter_by_parts({}, 64 * kKB, 64));
    EXPECT_TRUE(reduce_scatter_by_parts({}, 256 * kKB, 64));
    EXPECT_TRUE(reduce_scatter_by_parts(kNoMessages, 1, 1000));
    EXPECT_FALSE(reduce_scatter_by_parts(kOnlyMessages, 1 << 30, 64));
}

}  // namespace
}  // namespace cryptmpi::engine
