// Lanes at rest: what they had is known again, and tags in a row take no room.
#include "fabric/lanes.hpp"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace cryptmpi::fabric {
namespace {

/// The bits behind which MPI's tag lies over libfabric, MPICH's over UCX, Open MPI's over UCX.
constexpr std::array<unsigned, 3> kShifts = {0, 32, 40};
constexpr std::uint64_t kContext = 0x0000'0012'0000'0000 >> 32 | std::uint64_t{3} << 36;

std::uint64_t tag_of(unsigned shift, std::uint64_t value) {
    const std::uint64_t field = (shift == 40 ? 0xff'ffffULL : 0xffff'ffffULL) << shift;
    return (kContext & ~field) | value << shift;
}

TEST(RestingLanes, KnowWhatEachHad) {
    std::mt19937_64 random{7};
    RestingLanes lanes;
    std::map<std::uint64_t, std::uint64_t> right;
    for (int i = 0; i < 20'000; ++i) {
        const std::uint64_t tag = tag_of(kShifts[random() % kShifts.size()], random() % 40);
        const auto known = right.find(tag);
        ASSERT_EQ(lanes.take(tag), known == right.end() ? 0 : known->second);
        if (known != right.end()) right.erase(known);
        if (random() % 4 == 0) continue;
        const std::uint64_t count = 1 + random() % 3;
        lanes.put(tag, count);
        right.emplace(tag, count);
    }
    for (const auto& [tag, count] : right) EXPECT_EQ(lanes.take(tag), count);
    EXPECT_EQ(lanes.entries(), 0U);
}

TEST(RestingLanes, AtTheEdgesOfAFieldAreNoNeighbours) {
    RestingLanes lanes;
    const std::uint64_t last = 0xffff'ffff;
    for (const std::uint64_t tag : {last, last + 1, ~std::uint64_t{0}, std::uint64_t{0}}) lanes.put(tag, 1);
    for (const std::uint64_t tag : {last, last + 1, ~std::uint64_t{0}, std::uint64_t{0}}) {
        EXPECT_EQ(lanes.take(tag), 1U);
        EXPECT_EQ(lanes.take(tag), 0U);
    }
}

TEST(Lanes, OfTagsInARowTakeNoRoom) {
    const auto count = [](std::uint64_t, std::uint64_t had) { return had; };
    for (const unsigned shift : kShifts) {
        Lanes<std::uint64_t> lanes;
        for (std::uint64_t round = 0; round < 2; ++round) {
            for (std::uint64_t i = 0; i < 10'000; ++i) {
                auto [had, is_new] = lanes.wake(tag_of(shift, i), count);
                ASSERT_EQ(had, round);
                ASSERT_EQ(is_new, round == 0);
                ++had;
                ASSERT_EQ(++lanes.wake(tag_of(shift, 1 << 20), count).first, round * 10'000 + i + 1);  // one in use
            }
            EXPECT_LT(lanes.entries(), 2 * Lanes<std::uint64_t>::kMostAwake + 10);
        }
        EXPECT_EQ(*lanes.find(tag_of(shift, 5)), 2U);
        EXPECT_EQ(lanes.find(tag_of(shift, 1 << 21)), nullptr);
    }
}

TEST(Lanes, ThatMayNotRestStay) {
    const auto count = [](std::uint64_t tag, std::uint64_t had) { return tag % 2 == 0 ? had : 0; };
    Lanes<std::uint64_t> lanes;
    for (std::uint64_t i = 0; i < 4'000; ++i) ++lanes.wake(i, count).first;
    EXPECT_GT(lanes.entries(), 2'000U);
    for (std::uint64_t i = 0; i < 4'000; ++i) EXPECT_EQ(lanes.wake(i, count).first, 1U);
}

}  // namespace
}  // namespace cryptmpi::fabric
