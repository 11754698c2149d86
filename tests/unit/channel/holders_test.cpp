// Who holds a connection: a place in the arena is many connections, one after the other.
#include "channel/holders.hpp"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "channel/arena.hpp"
#include "channel/shared.hpp"
#include "channel/table.hpp"

namespace cryptmpi::channel {
namespace {

TEST(Holders, AreCounted) {
    Holders holders{};
    const std::uint32_t number = holders.generation();
    EXPECT_EQ(holders.leave(number, 0), std::nullopt);
    EXPECT_TRUE(holders.join(number));
    EXPECT_TRUE(holders.join(number));
    EXPECT_EQ(holders.count(), 2U);
    EXPECT_EQ(holders.leave(number, 0), 1U);
    EXPECT_EQ(holders.leave(number, 0), 0U);
    EXPECT_EQ(holders.leave(number, 0), std::nullopt);
}

TEST(Holders, OfAnEarlierConnectionAreNone) {
    Holders holders{};
    const std::uint32_t number = holders.generation();
    ASSERT_TRUE(holders.join(number));
    holders.finish();
    EXPECT_EQ(holders.count(), 0U);
    EXPECT_FALSE(holders.join(number));
    ASSERT_TRUE(holders.join(holders.generation()));
    EXPECT_EQ(holders.leave(number, 0), std::nullopt);
    EXPECT_EQ(holders.count(), 1U);
}

/// A process that lives until it is told to end.
class Other {
public:
    Other() : pid_(fork()) {
        if (pid_ == 0) {
            for (;;) pause();
        }
    }
    ~Other() { end(); }
    Other(const Other&) = delete;
    Other& operator=(const Other&) = delete;

    /// It is not waited for: its parent may never do so.
    void kill_it() const {
        ASSERT_EQ(kill(pid_, SIGKILL), 0);
        siginfo_t information{};
        ASSERT_EQ(waitid(P_PID, static_cast<id_t>(pid_), &information, WEXITED | WNOWAIT), 0);
    }
    void end() {
        if (pid_ <= 0) return;
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
        pid_ = -1;
    }
    ProcessName name() const {
        return name_of_this_process() - static_cast<ProcessName>(getpid()) + static_cast<ProcessName>(pid_);
    }

private:
    pid_t pid_;
};

TEST(Holders, AreKnownByName) {
    const ProcessName own = name_of_this_process();
    ASSERT_NE(own, 0U);
    EXPECT_FALSE(has_ended(own));
    Other other;
    EXPECT_FALSE(has_ended(other.name()));
    const ProcessName elsewhere = other.name() ^ (1ULL << 40);  // another namespace has such a number, too
    const ProcessName gone = other.name();
    other.kill_it();
    EXPECT_TRUE(has_ended(gone)) << "nobody has waited for it yet";
    EXPECT_FALSE(has_ended(elsewhere));
    other.end();
    EXPECT_TRUE(has_ended(gone));
    EXPECT_FALSE(has_ended(elsewhere));
    EXPECT_FALSE(has_ended(0));
}

TEST(Holders, DoNotCountOnceTheyWereKilled) {
    Holders holders{};
    const std::uint32_t number = holders.generation();
    const ProcessName own = name_of_this_process();
    Other living, killed, unsigned_one;
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(holders.join(number));
    for (const ProcessName name : {own, living.name(), killed.name(), killed.name()}) holders.sign(number, name);
    killed.kill_it();
    unsigned_one.kill_it();
    EXPECT_EQ(holders.leave(number, own), 3U) << "one lives";
    EXPECT_EQ(holders.leave(number, living.name()), 1U) << "one whom nobody knows";
    EXPECT_EQ(holders.leave(number, 0), 0U);
}

TEST(Holders, AreLeftOutOnceOnly) {
    Holders holders{};
    const std::uint32_t number = holders.generation();
    const ProcessName own = name_of_this_process();
    Other one;
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(holders.join(number));
    holders.sign(number, one.name());
    holders.sign(number, own);
    EXPECT_EQ(holders.leave(number, one.name()), 2U);
    one.kill_it();  // it had left before
    EXPECT_EQ(holders.leave(number, own), 1U);
}

TEST(Holders, AreExpectedBeforeTheyAreThere) {
    const ProcessName own = name_of_this_process();
    const ProcessName unborn = unborn_child_of(own);
    EXPECT_TRUE(children_are_here());
    EXPECT_FALSE(has_ended(unborn));
    Other child, other;
    EXPECT_EQ(name_of_child(static_cast<std::int32_t>(child.name() - (own - static_cast<ProcessName>(getpid())))),
              child.name());
    Holders holders{};
    const std::uint32_t number = holders.generation();
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(holders.join(number));
    holders.sign(number, own);
    holders.sign(number, unborn);
    holders.rename(number, unborn, child.name());  // who is first
    holders.rename(number, unborn, other.name());
    other.kill_it();
    EXPECT_EQ(holders.leave(number, 0), 2U);
    child.kill_it();
    EXPECT_EQ(holders.leave(number, own), 0U);
}

TEST(Holders, AChildThatHasLeftIsNotNamedAfterwards) {
    const ProcessName own = name_of_this_process();
    Holders holders{};
    const std::uint32_t number = holders.generation();
    Other child;
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(holders.join(number));
    holders.sign(number, own);
    holders.sign(number, unborn_child_of(own));
    holders.rename(number, unborn_child_of(own), child.name());
    EXPECT_EQ(holders.leave(number, child.name()), 2U);
    holders.rename(number, unborn_child_of(own), child.name());
    child.kill_it();
    EXPECT_EQ(holders.leave(number, own), 1U);
}

TEST(Holders, WhoSignedForAnEarlierConnectionAreNone) {
    Holders holders{};
    const std::uint32_t before = holders.generation();
    const ProcessName own = name_of_this_process();
    Other late;
    ASSERT_TRUE(holders.join(before));
    holders.finish();
    holders.sign(before, late.name());
    const std::uint32_t number = holders.generation();
    ASSERT_TRUE(holders.join(number));
    ASSERT_TRUE(holders.join(number));
    holders.sign(number, own);
    late.kill_it();
    EXPECT_EQ(holders.leave(number, own), 1U);
}

TEST(Holders, OfWhomThereAreTooManyAreCountedAllTheSame) {
    Holders holders{};
    const std::uint32_t number = holders.generation();
    const ProcessName own = name_of_this_process();
    constexpr std::size_t kAll = Holders::kMostNames + 2;
    for (std::size_t i = 0; i < kAll; ++i) {
        ASSERT_TRUE(holders.join(number));
        holders.sign(number, own + (1ULL << 40) + i);
    }
    for (std::size_t i = 0; i < kAll; ++i) EXPECT_EQ(holders.leave(number, own + (1ULL << 40) + i), kAll - 1 - i);
}

TEST(Holders, OfWhomMoreWereKilledThanHaveNamesAreNone) {
    Holders holders{};
    const std::uint32_t number = holders.generation();
    const ProcessName own = name_of_this_process();
    ASSERT_TRUE(holders.join(number));
    holders.sign(number, own);
    for (std::size_t i = 0; i < Holders::kMostNames + 6; ++i) {
        const Other one;
        ASSERT_TRUE(holders.join(number));
        holders.sign(number, one.name());
    }
    EXPECT_EQ(holders.leave(number, own), 0U);
}

/// Who was not counted would else seal with the old connection's key under the new one's counter.
TEST(Holders, SeeThatTheirPlaceIsAnotherConnections) {
    Table table;
    Arena arena(table);
    const auto place = arena.take(name_of_this_process());
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
    const auto next = arena.take(name_of_this_process());
    ASSERT_TRUE(next) << next.error().line;
    ASSERT_EQ(*next, shared);
    EXPECT_FALSE(use.is_current());
    const Use later(entry);
    EXPECT_FALSE(later.is_current());
    // The entry may be the next connection's, too: a call that began with the last one is not its.
    entry.generation.store(shared->holders.generation());
    EXPECT_FALSE(use.is_current());
    EXPECT_TRUE(Use(entry).is_current());
}

}  // namespace
}  // namespace cryptmpi::channel
