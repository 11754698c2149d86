#include "base/padding.hpp"

#include <gtest/gtest.h>

#include <initializer_list>
#include <set>
#include <utility>

namespace cryptmpi {
namespace {

using Scheme = Padding::Scheme;

// protocol: R19
TEST(Padding, PadmeIsThatOfItsAuthors) {
    const Padding padding{Scheme::padme, 1};
    for (const auto& [size, bucket] : std::initializer_list<std::pair<std::size_t, std::size_t>>{{1, 1},
                                                                                                 {2, 2},
                                                                                                 {7, 7},
                                                                                                 {8, 8},
                                                                                                 {9, 10},
                                                                                                 {11, 12},
                                                                                                 {15, 16},
                                                                                                 {17, 18},
                                                                                                 {33, 36},
                                                                                                 {1000, 1024},
                                                                                                 {1024, 1024},
                                                                                                 {1025, 1088},
                                                                                                 {65535, 65536},
                                                                                                 {65537, 67584},
                                                                                                 {1000000, 1015808}}) {
        EXPECT_EQ(padding.bucket(size), bucket) << size;
    }
}

// protocol: R19
TEST(Padding, ABucketHasRoomAndIsOneItself) {
    for (const Scheme scheme : {Scheme::padme, Scheme::power_of_two}) {
        for (const std::size_t least : {std::size_t{1}, std::size_t{128}, Padding::kMostLeast}) {
            const Padding padding{scheme, least};
            std::size_t before = 0;
            for (std::size_t size = 1; size < 300000; ++size) {
                const std::size_t bucket = padding.bucket(size);
                ASSERT_GE(bucket, size);
                ASSERT_GE(bucket, least);
                ASSERT_GE(bucket, before) << "a larger size has no smaller bucket: " << size;
                ASSERT_EQ(padding.bucket(bucket), bucket) << size;
                const double most = scheme == Scheme::padme ? 1.12 : 2;
                ASSERT_TRUE(bucket == least || static_cast<double>(bucket) <= most * static_cast<double>(size)) << size;
                before = bucket;
            }
        }
    }
}

TEST(Padding, ManySizesLookLikeFew) {
    std::set<std::size_t> padme;
    std::set<std::size_t> powers;
    for (std::size_t size = 1; size <= 65536; ++size) {
        padme.insert(Padding{Scheme::padme, 1}.bucket(size));
        powers.insert(Padding{Scheme::power_of_two, 1}.bucket(size));
    }
    EXPECT_EQ(powers.size(), 17U);
    EXPECT_LT(padme.size(), 200U);
}

TEST(Padding, OffChangesNothing) {
    const Padding padding;
    EXPECT_FALSE(padding.is_on());
    EXPECT_EQ(padding.bucket(1001), 1001U);
    EXPECT_EQ(padding.name(), "none");
}

/// Of each record's share: at least a byte of data, no more than its room; together the whole write and its bucket.
void expect_spread(std::size_t size, std::size_t bucket, std::size_t most) {
    Spread spread(size, bucket);
    std::size_t data = 0;
    std::size_t room = 0;
    while (room < bucket) {
        const auto share = spread.next(most);
        ASSERT_GE(share.data, 1U) << size << " of " << bucket;
        ASSERT_LE(share.data, share.room) << size << " of " << bucket;
        ASSERT_LE(share.room, most);
        ASSERT_LT(data, size) << "a record behind the last byte of data";
        data += share.data;
        room += share.room;
    }
    EXPECT_EQ(data, size);
    EXPECT_EQ(room, bucket);
}

TEST(Spread, EachRecordHasDataAndTheLastByteComesLast) {
    constexpr std::size_t kMost = 64 * 1024 - 4;
    for (const Scheme scheme : {Scheme::none, Scheme::padme, Scheme::power_of_two}) {
        for (const std::size_t least : {std::size_t{1}, Padding::kMostLeast}) {
            const Padding padding{scheme, least};
            for (std::size_t size = 1; size < 3000; ++size) expect_spread(size, padding.bucket(size), kMost);
            for (std::size_t size = 60000; size < 3000000; size += 997)
                expect_spread(size, padding.bucket(size), kMost);
            for (std::size_t power = 4096; power <= std::size_t{1} << 31; power *= 2) {
                for (const std::size_t size : {power - 1, power, power + 1}) {
                    expect_spread(size, padding.bucket(size), kMost);
                }
            }
        }
    }
}

}  // namespace
}  // namespace cryptmpi
