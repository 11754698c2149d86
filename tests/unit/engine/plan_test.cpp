// A plan for a message of any length: it can be announced, and what needs no segments has none.
#include "engine/plan.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "seal/segments.hpp"

namespace cryptmpi::engine {
namespace {

TEST(Plan, SendsWholeWhatReceiversHaveRoomFor) {
    EXPECT_FALSE(Plan::in_segments(0));
    EXPECT_FALSE(Plan::in_segments(65536));
    EXPECT_TRUE(Plan::in_segments(65537));
}

TEST(Plan, HasTheWholeMessageInSegmentsOfOneSize) {
    const Plan plan;
    for (const std::size_t length : {std::size_t{65537}, plan.segment, plan.segment + 1, std::size_t{1} << 30}) {
        EXPECT_EQ(plan.segment_of(length), plan.segment) << length;
    }
}

/// Can it be announced, and is the whole length in it?
void expect_announced(const Plan& plan, std::uint64_t length) {
    std::uint8_t payload[seal::kAnnouncementSize];
    seal::write_announcement({length, plan.segment_of(length), 0}, payload);
    const auto announcement = seal::read_announcement(payload);
    ASSERT_TRUE(announcement) << length;
    EXPECT_GE(announcement->segment, plan.segment) << length;
    EXPECT_EQ(announcement->length, length);
}

TEST(Plan, MakesSegmentsLargerRatherThanTooMany) {
    const Plan plan;
    const std::uint64_t most = std::uint64_t{seal::kMostSegments} * plan.segment;  // in segments of the usual size
    for (const std::uint64_t length : {most - 1, most, most + 1, 10 * most, 10 * most + 1}) {
        expect_announced(plan, length);
    }
    EXPECT_EQ(plan.segment_of(most - 1), plan.segment);
    EXPECT_GT(plan.segment_of(most + 1), plan.segment);
    // As large as a message can be whose segments' size still fits its field: 256 TiB.
    expect_announced(plan, std::uint64_t{std::numeric_limits<std::uint32_t>::max()} * seal::kMostSegments - 1);
}

TEST(Plan, OfSmallSegmentsHoldsToo) {
    Plan plan;
    plan.segment = 1;
    for (std::uint64_t length = 1; length < 5 * Plan::kMostSegments; length += 997) expect_announced(plan, length);
    for (const std::uint64_t times : {1, 2, 3}) {
        for (const int beside : {-1, 0, 1}) expect_announced(plan, times * Plan::kMostSegments + beside);
    }
}

}  // namespace
}  // namespace cryptmpi::engine
