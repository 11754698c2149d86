// Who holds a connection: a place in the arena is many connections, one after the other.
#include <gtest/gtest.h>

#include "channel/arena.hpp"
#include "channel/shared.hpp"
#include "channel/table.hpp"

namespace cryptmpi::channel {
namespace {

TEST(Holders, AreCounted) {
    Holders holders{};
    const std::uint32_t number = holders.generation();
    EXPECT_EQ(holders.leave(number), std::nullopt);
    EXPECT_TRUE(holders.join(number));
    EXPECT_TRUE(holders.join(number));
    EXPECT_EQ(holders.count(), 2U);
    EXPECT_EQ(holders.leave(number), 1U);
    EXPECT_EQ(holders.leave(number), 0U);
    EXPECT_EQ(holders.leave(number), std::nullopt);
}

TEST(Holders, OfAnEarlierConnectionAreNone) {
    Holders holders{};
    const std::uint32_t number = holders.generation();
    ASSERT_TRUE(holders.join(number));
    holders.finish();
    EXPECT_EQ(holders.count(), 0U);
    EXPECT_FALSE(holders.join(number));
    ASSERT_TRUE(holders.join(holders.generation()));
    EXPECT_EQ(holders.leave(number), std::nullopt);
    EXPECT_EQ(holders.count(), 1U);
}

/// Who was not counted would else seal with the old connection's key under the new one's counter.
TEST(Holders, SeeThatTheirPlaceIsAnotherConnections) {
    Table table;
    Arena arena(table);
    const auto place = arena.take();
    ASSERT_TRUE(place) << place.error().line;
    Shared* const shared = *place;
    static const Entry* arenas = nullptr;  // LeakSanitizer does not look into the table
    arenas = table.find(arena.fd());
    ASSERT_NE(arenas, nullptr);
    Entry entry;
    entry.generation.store(shared->holders.generation());
    entry.shared.store(shared);
    entry.kind.store(Kind::sealed);
    const Use use(entry);
    EXPECT_TRUE(use.is_current());
    arena.give_back(shared);
    EXPECT_FALSE(use.is_current());
    const auto next = arena.take();
    ASSERT_TRUE(next) << next.error().line;
    ASSERT_EQ(*next, shared);
    EXPECT_FALSE(use.is_current());
    const Use later(entry);
    EXPECT_FALSE(later.is_current());
}

}  // namespace
}  // namespace cryptmpi::channel
