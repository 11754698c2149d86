// Large messages: an announcement and its segments.
#include "seal/segments.hpp"

#include <algorithm>
#include <cerrno>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "seal/message.hpp"
#include "seal/support.hpp"

namespace cryptmpi::seal {
namespace {

using test::Bytes;
using test::crypto;
using test::random_bytes;

/// A flow's key in its first epoch, as docs/protocol.md has it.
Result<RecordKey> first_key(const Bytes& flow_secret) {
    Secret<2 * kSecretSize> branches;  // the first epoch is at the first
    EXPECT_TRUE(expand(*crypto().kex, flow_secret.data(), "mpi branch", branches.data(), branches.size()));
    return RecordKey::derive(crypto(), branches.data());
}

/// Both ends of a flow, and one message of it on its way.
struct Large {
    explicit Large(std::uint64_t length, std::uint32_t segment = 100, Crypto with = crypto())
        : Large(length, segment, limits_of(with.suite), with) {}
    Large(std::uint64_t length, std::uint32_t segment, Limits limits, Crypto with = crypto())
        : secret(random_bytes(kSecretSize)),
          sealer(with, secret.data(), limits),
          opener(with, secret.data()),
          plain(random_bytes(length)),
          announcement{length, segment, segment, 9} {}

    /// All segments as they travel, in their order; the announcement first.
    std::vector<Bytes> seal(std::uint64_t number) {
        std::vector<Bytes> wires{Bytes(kAnnouncedWire)};
        auto segments = sealer.announce(5, number, announcement, wires[0].data());
        EXPECT_TRUE(segments);
        for (std::uint32_t i = 0; i < segments->count(); ++i) {
            wires.emplace_back(segments->size(i) + kSegmentOverhead);
            EXPECT_TRUE(segments->seal(i, plain.data() + segments->offset(i), wires.back().data()));
        }
        return wires;
    }
    Result<Segments> announced(const Bytes& wire) { return opener.open_announcement(5, wire.data(), wire.size()); }

    Bytes secret;
    MessageSealer sealer;
    MessageOpener opener;
    Bytes plain;
    Announcement announcement;
};

Result<void> open(const Segments& segments, std::uint32_t position, const Bytes& wire, Bytes& out) {
    out.assign(segments.size(position), 0xAA);
    return segments.open(position, wire.data(), wire.size(), out.data());
}

class EverySegment : public testing::TestWithParam<aead::Suite> {};

INSTANTIATE_TEST_SUITE_P(Segments, EverySegment, testing::ValuesIn(test::suites()), test::test_name);

void expect_to_open(aead::Suite suite, std::uint64_t length, std::uint32_t first) {
    Large large(length, 100, crypto(suite));
    large.announcement.first = first;
    const auto wires = large.seal(3);
    auto segments = large.announced(wires[0]);
    ASSERT_TRUE(segments) << segments.error().line;
    EXPECT_EQ(segments->announcement().length, length);
    EXPECT_EQ(segments->announcement().mark, 9U);
    EXPECT_EQ(segments->number(), 3U);
    ASSERT_EQ(segments->count() + 1, wires.size());
    EXPECT_EQ(wires[1].size(), std::min<std::uint64_t>(length, first) + kSegmentOverhead);
    Bytes all;
    for (std::uint32_t i = 0; i < segments->count(); ++i) {
        Bytes out;
        ASSERT_TRUE(open(*segments, i, wires[i + 1], out));
        all.insert(all.end(), out.begin(), out.end());
    }
    EXPECT_EQ(all, large.plain) << length << " from " << first;
}

TEST_P(EverySegment, OpensToWhatWasSealed) {
    for (const std::uint64_t length : {1, 99, 100, 101, 1000, 1001}) {
        for (const std::uint32_t first : {1, 30, 100, 250}) expect_to_open(GetParam(), length, first);
    }
}

TEST(Segments, DoNotOpenAltered) {
    Large large(150);
    auto wires = large.seal(0);
    auto segments = large.announced(wires[0]);
    ASSERT_TRUE(segments);
    for (std::size_t bit = 0; bit < wires[2].size() * 8; ++bit) {
        Bytes altered = wires[2];
        altered[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
        Bytes out;
        const auto opened = open(*segments, 1, altered, out);
        ASSERT_FALSE(opened) << bit;
        EXPECT_EQ(opened.error().code, EBADMSG);
        EXPECT_TRUE(test::all_zero(out.data(), out.size()));
    }
}

// protocol: M18
TEST(Segments, DoNotOpenCutOrLengthened) {
    Large large(150);
    const auto wires = large.seal(0);
    auto segments = large.announced(wires[0]);
    ASSERT_TRUE(segments);
    Bytes out;
    for (std::size_t size = 0; size < wires[1].size(); ++size) {
        EXPECT_FALSE(open(*segments, 0, Bytes(wires[1].begin(), wires[1].begin() + static_cast<int>(size)), out));
        EXPECT_TRUE(test::all_zero(out.data(), out.size()));
    }
    Bytes longer = wires[1];
    longer.push_back(0);
    EXPECT_FALSE(open(*segments, 0, longer, out));
}

// protocol: M19
TEST(Segments, DoNotOpenAtAnotherPositionOrInAnotherMessage) {
    Large large(300);  // three of equal size
    const auto wires = large.seal(0);
    const auto others = large.seal(1);
    auto segments = large.announced(wires[0]);
    ASSERT_TRUE(segments);
    Bytes out;
    for (std::uint32_t i = 0; i < 3; ++i) {
        for (std::uint32_t j = 0; j < 3; ++j) EXPECT_EQ(bool(open(*segments, i, wires[j + 1], out)), i == j);
        EXPECT_FALSE(open(*segments, i, others[i + 1], out));
        EXPECT_FALSE(open(*segments, i, wires[0], out));
    }
}

TEST(Segments, AreBoundToTheLengthThatWasAnnounced) {
    // Two lengths under one number, which no sealer says (debug builds stop one that repeats a nonce): made by hand.
    Large large(300);
    const auto wires = large.seal(0);
    Bytes announcement(wires[0].begin(), wires[0].begin() + kMessageHeaderSize);
    announcement.resize(kAnnouncedWire);
    auto key = first_key(large.secret);
    ASSERT_TRUE(key);
    std::uint8_t nonce[kNonceRoom];
    key->nonce(5, 0, nonce);
    std::uint8_t payload[kAnnouncementSize];
    write_announcement({200, 100, 100, 9}, payload);
    const iovec in{payload, sizeof payload};
    std::uint8_t* const body = announcement.data() + kMessageHeaderSize;
    ASSERT_EQ(crypto().aead->seal(key->context(), nonce, announcement.data(), kMessageHeaderSize, &in, 1, body,
                                  body + sizeof payload),
              CRYPTMPI_OK);
    auto segments = large.announced(announcement);
    ASSERT_TRUE(segments);
    Bytes out;
    EXPECT_FALSE(open(*segments, 0, wires[1], out));
    EXPECT_FALSE(open(*segments, 1, wires[2], out));
}

TEST(Segments, AnnouncementsDoNotOpenAlteredOrAsMessages) {
    Large large(300);
    const auto wires = large.seal(0);
    for (std::size_t bit = 0; bit < wires[0].size() * 8; ++bit) {
        Bytes altered = wires[0];
        altered[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
        EXPECT_FALSE(large.announced(altered)) << bit;
    }
    Bytes out(kAnnouncementSize, 0xAA);
    const iovec piece{out.data(), out.size()};
    EXPECT_FALSE(large.opener.open(5, wires[0].data(), wires[0].size(), {&piece, 1}));
    EXPECT_TRUE(test::all_zero(out.data(), out.size()));
    Bytes whole(kAnnouncedWire);
    const iovec in{out.data(), out.size()};
    ASSERT_TRUE(large.sealer.seal(5, 1, {&in, 1}, out.size(), whole.data()));
    whole[7] |= 0x80;  // now it says that it announces
    EXPECT_FALSE(large.announced(whole));
    EXPECT_TRUE(announces(wires[0].data(), wires[0].size()));
    EXPECT_FALSE(announces(wires[0].data(), 7));
}

// protocol: M18
TEST(Segments, AnnouncementsOfWhatCannotBeAreRefused) {
    Bytes payload(kAnnouncementSize);
    const auto valid = [&](const Announcement& announcement, std::uint8_t last) {
        write_announcement(announcement, payload.data());
        payload[kAnnouncementSize - 1] = last;
        return bool(read_announcement(payload.data()));
    };
    EXPECT_TRUE(valid({kMostSegments, 1, 1, 0}, 0));
    EXPECT_TRUE(valid({kMostSegments + 9, 10, 1, 0}, 0));
    EXPECT_FALSE(valid({std::uint64_t{kMostSegments} + 1, 1, 1, 0}, 0));
    EXPECT_FALSE(valid({std::uint64_t{kMostSegments} + 10, 10, 1, 0}, 0));
    EXPECT_FALSE(valid({~std::uint64_t{0}, 1, 1, 0}, 0));
    EXPECT_FALSE(valid({0, 1, 1, 0}, 0));
    EXPECT_FALSE(valid({1, 0, 1, 0}, 0));
    EXPECT_FALSE(valid({1, 1, 0, 0}, 0));
    EXPECT_TRUE(valid({1, 1, 1, 0}, 1));
    EXPECT_FALSE(valid({1, 1, 1, 0}, 2));
    MessageSealer sealer(crypto(), Large(1).secret.data());
    Bytes wire(kAnnouncedWire);
    EXPECT_FALSE(sealer.announce(0, 0, {std::uint64_t{kMostSegments} + 1, 1, 1, 0}, wire.data()));
}

TEST(Segments, AnAnnouncementTellsItsModeAndAPeekCountsNothing) {
    Large large(1000, 100, {16, 1 << 20});
    large.announcement.synchronous = true;
    const auto wires = large.seal(0);
    for (int i = 0; i < 20; ++i) {
        const auto seen = large.opener.peek(5, wires[0].data());
        ASSERT_TRUE(seen);
        EXPECT_EQ(*seen, 1000U);
    }
    EXPECT_FALSE(large.opener.peek(6, wires[0].data()));
    EXPECT_EQ(large.opener.counters().messages, 0U);
    auto segments = large.announced(wires[0]);
    ASSERT_TRUE(segments);
    EXPECT_TRUE(segments->announcement().synchronous);
}

TEST(Segments, APeekAtAWholeMessageThatIsAsLongAsAnAnnouncementCountsNothing) {
    Large large(kAnnouncementSize, 100);
    Bytes wire(kAnnouncedWire);
    const iovec in{large.plain.data(), kAnnouncementSize};
    ASSERT_TRUE(large.sealer.seal(5, 0, {&in, 1}, kAnnouncementSize, wire.data()));
    const auto seen = large.opener.peek(5, wire.data());
    ASSERT_TRUE(seen);
    EXPECT_EQ(*seen, kAnnouncementSize);
    EXPECT_FALSE(large.opener.peek(6, wire.data()));
    wire.back() ^= 1;
    EXPECT_FALSE(large.opener.peek(5, wire.data()));
    EXPECT_EQ(large.opener.counters().messages, 0U);
}

TEST(Segments, NoNonceComesTwice) {
    // Equal segments under one key: only nonces can make the ciphertexts differ.
    Large large(64 * 8, 64);
    std::fill(large.plain.begin(), large.plain.end(), std::uint8_t{0});
    std::set<Bytes> bodies;
    for (std::uint64_t number = 0; number < 8; ++number) {
        const auto wires = large.seal(number);
        for (std::size_t i = 1; i < wires.size(); ++i)
            bodies.insert(Bytes(wires[i].begin(), wires[i].end() - kTagSize));
    }
    EXPECT_EQ(bodies.size(), 64U);
}

TEST(Segments, CountForTheKeysLimitsAndKeepTheirKey) {
    Large large(1000, 100, {16, 1 << 20});
    const auto first = large.seal(0);   // eleven pieces
    const auto second = large.seal(1);  // would be more than sixteen
    EXPECT_EQ(large.sealer.counters().rekeys, 1U);
    EXPECT_EQ(large.sealer.counters().messages, 2U);
    EXPECT_EQ(large.sealer.counters().bytes, 2000U);
    auto later = large.announced(second[0]);
    auto earlier = large.announced(first[0]);
    ASSERT_TRUE(later && earlier);
    // Two more epochs push the keys of both out of the opener.
    for (std::uint64_t number = 2; number < 5; ++number) ASSERT_TRUE(large.announced(large.seal(number)[0]));
    Bytes out;
    EXPECT_TRUE(open(*earlier, 9, first[10], out));
    EXPECT_TRUE(open(*later, 9, second[10], out));
    EXPECT_EQ(large.opener.counters().bytes, 5000U);
}

// protocol: M19
TEST(Segments, AreSealedAsDescribed) {
    // docs/protocol.md, step by step.
    Large large(250);
    const auto wires = large.seal(7);
    auto key = first_key(large.secret);
    ASSERT_TRUE(key);
    for (std::uint8_t position = 1; position <= 3; ++position) {
        const Bytes& wire = wires[position];
        const std::size_t size = wire.size() - kSegmentOverhead;
        std::uint8_t nonce[kNonceRoom];
        key->nonce(5, (std::uint64_t{position} << 48) + 7, nonce);
        Bytes associated(wires[0].begin(), wires[0].begin() + 8);
        associated.insert(associated.end(), {250, 0, 0, 0, 0, 0, 0, 0});
        associated.insert(associated.end(), {position, 0, 0, 0});
        associated.push_back(position == 3 ? 1 : 0);
        Bytes out(size);
        const iovec piece{out.data(), out.size()};
        EXPECT_EQ(crypto().aead->open(key->context(), nonce, associated.data(), associated.size(), wire.data(), size,
                                      &piece, 1, wire.data() + size),
                  CRYPTMPI_OK);
        EXPECT_TRUE(std::equal(out.begin(), out.end(), large.plain.begin() + (position - 1) * 100));
    }
}

/// For several threads at a time.
Crypto shared_crypto(aead::Suite suite, std::size_t threads) {
    Crypto made = crypto(suite);
    made.threads = threads;
    return made;
}

TEST_P(EverySegment, AreSealedAndOpenedBySeveralThreadsAtOnce) {
    constexpr std::uint32_t kThreads = 4;
    constexpr std::uint32_t kSegment = 5000;
    Large large(40 * kSegment, kSegment, shared_crypto(GetParam(), kThreads));
    for (std::uint64_t number = 0; number < 2; ++number) {
        Bytes announcement(kAnnouncedWire);
        auto sealing = large.sealer.announce(5, number, large.announcement, announcement.data());
        ASSERT_TRUE(sealing);
        const std::uint32_t count = sealing->count();
        std::vector<Bytes> wires(count);
        std::vector<int> done(count);
        const auto on_all_threads = [&](auto work) {
            std::vector<std::thread> threads;
            for (std::uint32_t thread = 0; thread < kThreads; ++thread) {
                threads.emplace_back([&, thread] {
                    for (std::uint32_t i = thread; i < count; i += kThreads) done[i] = work(i, thread) ? 1 : 0;
                });
            }
            for (std::thread& thread : threads) thread.join();
            EXPECT_EQ(std::count(done.begin(), done.end(), 1), count);
        };
        on_all_threads([&](std::uint32_t i, std::uint32_t thread) {
            wires[i].resize(sealing->size(i) + kSegmentOverhead);
            return bool(sealing->seal(i, large.plain.data() + sealing->offset(i), wires[i].data(), thread));
        });
        auto opening = large.announced(announcement);
        ASSERT_TRUE(opening);
        Bytes out(large.plain.size());
        on_all_threads([&](std::uint32_t i, std::uint32_t thread) {
            return bool(opening->open(i, wires[i].data(), wires[i].size(), out.data() + opening->offset(i), thread));
        });
        EXPECT_EQ(out, large.plain);
        wires[20][100] ^= 1;
        on_all_threads([&](std::uint32_t i, std::uint32_t thread) {
            const bool opened(
                opening->open(i, wires[i].data(), wires[i].size(), out.data() + opening->offset(i), thread));
            return opened == (i != 20);
        });
    }
}

TEST(Segments, ThreadsHaveContextsOfTheirOwn) {
    Large large(300, 100, shared_crypto(aead::Suite::aes_256_gcm, 3));
    auto key = RecordKey::derive(shared_crypto(aead::Suite::aes_256_gcm, 3), large.secret.data());
    ASSERT_TRUE(key);
    ASSERT_TRUE(key->share_among_threads());
    ASSERT_TRUE(key->share_among_threads());
    const std::set<void*> contexts{key->context_of(0), key->context_of(1), key->context_of(2)};
    EXPECT_EQ(contexts.size(), 3U);
    EXPECT_EQ(key->context_of(0), key->context());
    RecordKey moved = std::move(*key);
    EXPECT_EQ(contexts, (std::set<void*>{moved.context_of(0), moved.context_of(1), moved.context_of(2)}));
}

#ifndef NDEBUG
TEST(SegmentsDeathTest, APositionIsNotSealedTwice) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";  // a forked child does not seal
    Large large(300);
    Bytes wire(kAnnouncedWire);
    auto segments = large.sealer.announce(5, 0, large.announcement, wire.data());
    ASSERT_TRUE(segments);
    Bytes out(100 + kSegmentOverhead);
    ASSERT_TRUE(segments->seal(0, large.plain.data(), out.data()));
    ASSERT_TRUE(segments->seal(1, large.plain.data(), out.data()));
    EXPECT_DEATH((void)segments->seal(1, large.plain.data(), out.data()), "was about to be used twice under one key");
}
#endif

}  // namespace
}  // namespace cryptmpi::seal
