// A plan for a message of any length: it can be announced, and what needs no segments has none.
#include "engine/plan.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "seal/segments.hpp"

namespace cryptmpi::engine {
namespace {

TEST(Plan, SendsWholeWhatReceiversHaveRoomFor) {
    const Plan plan;
    EXPECT_FALSE(plan.in_segments(0));
    EXPECT_FALSE(plan.in_segments(Plan::kLargestWhole));
    EXPECT_TRUE(plan.in_segments(Plan::kLargestWhole + 1));
    EXPECT_FALSE(Plan::may_be_in_segments(Plan::kAlwaysWhole));
    EXPECT_TRUE(Plan::may_be_in_segments(Plan::kAlwaysWhole + 1));
}

/// The announcement of a message of that length, as a receiver reads it.
seal::Announcement announced(const Plan& plan, std::uint64_t length) {
    std::uint8_t payload[seal::kAnnouncementSize];
    const auto [first, others] = plan.segments_of(length);
    seal::write_announcement({length, first, others, 0}, payload);
    const auto announcement = seal::read_announcement(payload);
    EXPECT_TRUE(announcement) << length;
    return announcement ? *announcement : seal::Announcement{};
}

/// Bytes of its last segment.
std::uint64_t last_of(const seal::Announcement& announcement) {
    if (announcement.length <= announcement.first) return announcement.length;
    return (announcement.length - announcement.first - 1) % announcement.segment + 1;
}

TEST(Plan, HasShortSegmentsAtBothEnds) {
    const Plan plan;
    for (const std::size_t length : {std::size_t{262145}, std::size_t{300000}, std::size_t{1} << 20,
                                     (std::size_t{4} << 20) + 1, std::size_t{1} << 26}) {
        const auto announcement = announced(plan, length);
        EXPECT_EQ(announcement.first, plan.edge) << length;
        EXPECT_LE(last_of(announcement), plan.edge) << length;
        EXPECT_GT(announcement.segment, plan.edge) << length;
        EXPECT_LE(announcement.segment, plan.segment) << length;
    }
}

// The same figures as in tests/tune/test_choosing.py: predictions are of what is done.
TEST(Plan, CutsMessagesAsPredictionsDo) {
    const auto expect = [](const Plan& plan, std::uint64_t length, std::uint32_t first, std::uint32_t others,
                           std::uint64_t last) {
        const auto announcement = announced(plan, length);
        EXPECT_EQ(announcement.first, first) << length;
        EXPECT_EQ(announcement.segment, others) << length;
        EXPECT_EQ(last_of(announcement), last) << length;
    };
    Plan plan;
    expect(plan, (256 << 10) + 1, 61440, 139328, 61377);
    expect(plan, 1 << 20, 61440, 231424, 61440);
    expect(plan, 4 << 20, 61440, 254464, 61440);
    plan.edge = 16 << 10;
    plan.segment = 128 << 10;
    expect(plan, (64 << 10) + 1, 16384, 32832, 16321);
    plan.edge = 64 << 10;
    plan.segment = 1 << 20;
    expect(plan, 128 << 10, 65536, 131072, 65536);
    expect(plan, (192 << 10) - 1, 65536, 196608, 131071);
    expect(plan, 192 << 10, 65536, 65536, 65536);
    expect(Plan::of_short_segments(), 1 << 20, 61440, 58112, 57344);
    expect(Plan::of_short_segments(), 4 << 20, 61440, 60800, 59264);
}

TEST(Plan, MakesSegmentsLargerRatherThanTooMany) {
    const Plan plan;
    const std::uint64_t most = std::uint64_t{seal::kMostSegments} * plan.segment;  // in segments of the usual size
    for (const std::uint64_t length : {most - 1, most, most + 1, 10 * most, 10 * most + 1}) {
        EXPECT_EQ(announced(plan, length).length, length);
    }
    EXPECT_LE(announced(plan, most / 2).segment, plan.segment);
    EXPECT_GT(announced(plan, most + 1).segment, plan.segment);
    // About as large as a message can be whose segments' size still fits its field: 256 TiB.
    const std::uint64_t largest =
        (std::uint64_t{std::numeric_limits<std::uint32_t>::max()} - 64) * (seal::kMostSegments - 2);
    EXPECT_EQ(announced(plan, largest).length, largest);
}

TEST(Plan, OfSmallSegmentsHoldsToo) {
    Plan plan;
    plan.edge = 1;
    plan.segment = 1;
    for (std::uint64_t length = 1; length < 5 * Plan::kMostSegments; length += 997) {
        EXPECT_EQ(announced(plan, length).length, length);
    }
    for (const std::uint64_t times : {1, 2, 3}) {
        for (const int beside : {-1, 0, 1}) announced(plan, times * Plan::kMostSegments + beside);
    }
}

TEST(Plan, HasShortSegmentsWhileFewOthersAreOnTheirWay) {
    const Plan plan = Plan::of_short_segments();
    constexpr std::size_t kSentAtOnce = std::size_t{64} << 10;  // by Open MPI, its own header included
    for (const std::size_t length : {std::size_t{262145}, std::size_t{1} << 20, (std::size_t{4} << 20) + 1}) {
        const auto [first, others] = plan.segments_of(length, 1, plan.few_sends - 1);
        EXPECT_EQ(first, plan.edge);
        EXPECT_LT(others + seal::kSegmentOverhead + 128, kSentAtOnce) << length;
        EXPECT_EQ(plan.segments_of(length, 1, plan.few_sends).others,
                  Plan().segments_of(length, 1, plan.few_sends).others)
            << length;
        EXPECT_EQ(plan.segments_of(length, 4).others, Plan().segments_of(length, 4).others) << length;
    }
    // As many bytes of a message are with MPI as of long ones.
    const std::size_t short_one = plan.segments_of(std::size_t{4} << 20).others;
    EXPECT_EQ(plan.in_flight_of(short_one), plan.most_in_flight);
}

TEST(Plan, HasLongSegmentsWhileNotFewOthersAreOnTheirWay) {
    Plan plan;
    constexpr std::size_t kLength = std::size_t{4} << 20;
    EXPECT_LE(plan.segments_of(kLength, 1, plan.few_sends - 1).others, plan.segment);
    const auto [first, others] = plan.segments_of(kLength, 1, plan.few_sends);
    EXPECT_EQ(first, plan.edge);
    EXPECT_GT(others, plan.segment);
    EXPECT_LE(others, plan.segment_of_many);
    EXPECT_EQ(plan.segments_of(kLength, 8, plan.few_sends).others, plan.segments_of(kLength, 8).others);
    // Those of a profile may be longer still.
    plan.segment = std::size_t{1} << 20;
    EXPECT_GT(plan.segments_of(kLength, 1, plan.few_sends).others, plan.segment_of_many);
}

TEST(Plan, HasASegmentForEachThreadInAChunk) {
    const Plan plan;
    constexpr std::size_t kLength = std::size_t{64} << 20;
    for (const std::size_t threads : {2, 4, 8}) {
        const auto [first, others] = plan.segments_of(kLength, threads);
        EXPECT_EQ(first, plan.edge);
        EXPECT_LE(others * threads, plan.chunk) << threads;
        EXPECT_GT(others * threads, plan.chunk * 9 / 10) << threads;
        // One chunk is on its way while the next one is sealed.
        EXPECT_GE(plan.in_flight_of(others), 2 * threads) << threads;
    }
    // No smaller than the cipher needs, whatever the number of threads.
    EXPECT_GT(plan.segments_of(kLength, 64).others, plan.least_of_chunk * 9 / 10);
}

TEST(Plan, HasTheFewestSegmentsWhileManyOthersAreOnTheirWay) {
    const Plan plan;
    for (const std::size_t threads : {1, 8}) {
        for (const std::size_t length : {std::size_t{262145}, std::size_t{1} << 20, (std::size_t{4} << 20) + 1}) {
            EXPECT_EQ(plan.segments_of(length, threads, plan.many_sends).first, plan.edge);
            const auto [first, others] = plan.segments_of(length, threads, plan.many_sends + 1);
            EXPECT_EQ(first, others);
            EXPECT_LE(first, plan.segment_of_many);
            EXPECT_EQ((length + first - 1) / first, (length + plan.segment_of_many - 1) / plan.segment_of_many)
                << length;
        }
    }
    for (std::uint64_t length = 1; length < std::uint64_t{1} << 47; length *= 2) {
        std::uint8_t payload[seal::kAnnouncementSize];
        const auto [first, others] = plan.segments_of(length, 1, plan.many_sends + 1);
        seal::write_announcement({length, first, others, 0}, payload);
        EXPECT_TRUE(seal::read_announcement(payload)) << length;
    }
}

TEST(Plan, BoundsWhatAMessageHasWithMpi) {
    const Plan plan;
    EXPECT_EQ(plan.in_flight_of(plan.segment), plan.in_flight);
    EXPECT_EQ(plan.in_flight_of(100 * plan.segment), plan.in_flight);
    EXPECT_EQ(plan.in_flight_of(plan.segment / 2), 2 * plan.in_flight);
    EXPECT_EQ(plan.in_flight_of(1), plan.most_in_flight);
}

}  // namespace
}  // namespace cryptmpi::engine
