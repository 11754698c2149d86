// Messages that go in segments: what opens, in which parts, and what does not.
#include <gtest/gtest.h>

#include <cerrno>
#include <string>

#include "by_hand.hpp"
#include "fabric/flows.hpp"
#include "seal/support.hpp"

namespace cryptmpi::fabric {
namespace {

using test::all_zero;
using test::Bytes;
using test::crypto;
using test::expanded;
using test::joined;
using test::PlayedPeer;
using test::random_bytes;
using test::some_key;
using test::text;

constexpr std::size_t kOnWire = kSegment + seal::kTagSize;
constexpr std::uint64_t kTag = 0x1112131415161718;

iovec whole(const Bytes& bytes) {
    return {const_cast<std::uint8_t*>(bytes.data()), bytes.size()};
}

/// A party with its own job, as if in a process of its own.
struct End {
    explicit End(const seal::Crypto& with = crypto(), std::size_t threads = 1)
        : workers({.threads = threads}), job(std::move(*Job::join(with, some_key(), "job"))) {
        job.share_work(workers);
        party = std::move(*Party::make(job));
    }
    static End of_threads(std::size_t threads) {
        seal::Crypto with = crypto();
        with.threads = threads;
        return End(with, threads);
    }

    Bytes seal(const End& to, const Bytes& plain, std::uint64_t tag = kTag) const {
        auto peer = party->meet(to.party->share());
        EXPECT_TRUE(peer);
        const iovec in = whole(plain);
        Bytes wire(wire_size_of(plain.size()));
        auto message = party->begin_long(**peer, tag, plain.size(), wire.data());
        EXPECT_TRUE(message);
        EXPECT_TRUE(party->seal_long(*message, wire.size(), {&in, 1}, wire.data()));
        EXPECT_EQ(message->ready(), wire.size());
        return wire;
    }
    /// At a receive that is posted for it now, and gets `step` bytes more each time. The error's code; 0: it opened.
    int open(const Bytes& wire, Bytes& plain, std::size_t step, std::uint64_t tag = kTag) const {
        Posted posted;
        party->post(posted, {tag, ~std::uint64_t{0}, nullptr, true});
        LongReceive message;
        plain.assign(size_of(wire.size()).value_or(wire.size()), 0xAA);
        const iovec out = whole(plain);
        for (std::size_t come = step; come < wire.size(); come += step) {
            if (auto done = party->open_long(message, wire.data(), come, {&out, 1}); !done) return ended(plain, done);
        }
        auto from = party->end_long(message, posted, tag, wire.data(), wire.size(), {&out, 1});
        return from ? 0 : ended(plain, from);
    }
    template <class Result>
    static int ended(const Bytes& plain, const Result& result) {
        EXPECT_TRUE(all_zero(plain.data(), plain.size())) << "of what does not open something was left";
        EXPECT_FALSE(result.error().line.empty());
        return result.error().code;
    }
    int open(const Bytes& wire, std::size_t step = kOnWire) const {
        Bytes plain;
        return open(wire, plain, step);
    }

    engine::Workers workers;
    Job job;
    std::unique_ptr<Party> party;
};

// protocol: F19
TEST(LongMessages, HaveALengthOnTheWireThatNoOtherHas) {
    std::size_t before = 0;
    for (std::size_t size = 0; size < kLongestWhole + 3 * kSegment; ++size) {
        const std::size_t wire = wire_size_of(size);
        EXPECT_GT(wire, before);
        EXPECT_EQ(size_of(wire), size);
        EXPECT_EQ(is_long(wire), size > kLongestWhole);
        for (std::size_t none = before + 1; size != 0 && none < wire; ++none) EXPECT_EQ(size_of(none), std::nullopt);
        before = wire;
    }
    for (std::size_t wire = 0; wire < kOverhead; ++wire) EXPECT_EQ(size_of(wire), std::nullopt);
}

TEST(LongMessages, OpenInWhateverPartsTheyCome) {
    const End a, b;
    for (const std::size_t size : {kLongestWhole + 1, kLongestWhole + kSegment, kLongestWhole + kSegment + 1,
                                   10 * kSegment, 10 * kSegment + 4321}) {
        for (const std::size_t step : {std::size_t{1000}, kOnWire, kOnWire + 1, 3 * kSegment, 100 * kSegment}) {
            const Bytes plain = random_bytes(size);
            Bytes opened;
            EXPECT_EQ(b.open(a.seal(b, plain), opened, step), 0) << size << " in " << step;
            EXPECT_EQ(opened, plain);
        }
    }
    EXPECT_EQ(b.party->counters().received[0].messages, 25U);
}

TEST(LongMessages, AreSealedAsFarAsIsAskedAndOpenedAsFarAsTheyCame) {
    const End a, b;
    Bytes plain = random_bytes(kLongestWhole + 2 * kSegment);
    const iovec in = whole(plain);
    Bytes wire(wire_size_of(plain.size()));
    auto message = a.party->begin_long(**a.party->meet(b.party->share()), kTag, plain.size(), wire.data());
    ASSERT_TRUE(message);
    EXPECT_EQ(message->ready(), kLongPrefixSize);
    ASSERT_TRUE(a.party->seal_long(*message, kLongPrefixSize + 1, {&in, 1}, wire.data()));
    EXPECT_EQ(message->ready(), kLongPrefixSize + kOnWire);

    LongReceive receive;
    Bytes opened(plain.size());
    const iovec out = whole(opened);
    ASSERT_TRUE(b.party->open_long(receive, wire.data(), kLongPrefixSize + kOnWire, {&out, 1}));
    EXPECT_TRUE(all_zero(opened.data(), opened.size())) << "it may be the last one, as far as is known";
    ASSERT_TRUE(b.party->open_long(receive, wire.data(), kLongPrefixSize + kOnWire + 1, {&out, 1}));
    EXPECT_TRUE(std::equal(plain.begin(), plain.begin() + kSegment, opened.begin()));
    EXPECT_TRUE(all_zero(opened.data() + kSegment, opened.size() - kSegment));
}

TEST(LongMessages, AreTheSameWhicheverThreadsSealAndOpenThem) {
    const End alone, several = End::of_threads(4);
    for (const std::size_t size : {kLongestWhole + 1, 40 * kSegment, 100 * kSegment + 4321}) {
        for (const std::size_t step : {std::size_t{1000}, 5 * kSegment, 200 * kSegment}) {
            const Bytes plain = random_bytes(size);
            Bytes opened;
            EXPECT_EQ(several.open(alone.seal(several, plain), opened, step), 0) << size << " in " << step;
            EXPECT_EQ(opened, plain);
            EXPECT_EQ(alone.open(several.seal(alone, plain), opened, step), 0) << size << " in " << step;
            EXPECT_EQ(opened, plain);
        }
    }
}

TEST(LongMessages, ThatSeveralThreadsSealAreSealedOnceHoweverTheyAreAskedFor) {
    const End a = End::of_threads(4), b;
    Bytes plain = random_bytes(50 * kSegment);
    const iovec in = whole(plain);
    Bytes wire(wire_size_of(plain.size()));
    auto message = a.party->begin_long(**a.party->meet(b.party->share()), kTag, plain.size(), wire.data());
    ASSERT_TRUE(message);
    for (std::size_t end = kLongPrefixSize; end < wire.size(); end += 1000) {
        const Bytes before(wire.begin(), wire.begin() + static_cast<std::ptrdiff_t>(message->ready()));
        ASSERT_TRUE(a.party->seal_long(*message, end, {&in, 1}, wire.data()));
        ASSERT_GE(message->ready(), end);
        ASSERT_TRUE(std::equal(before.begin(), before.end(), wire.begin()));
    }
    Bytes opened;
    EXPECT_EQ(b.open(wire, opened, kOnWire), 0);
    EXPECT_EQ(opened, plain);
}

TEST(LongMessages, ThatSeveralThreadsOpenAreAlteredNowhere) {
    const End a, b = End::of_threads(4);
    const Bytes first = random_bytes(kLongestWhole + 1);
    ASSERT_EQ(b.open(a.seal(b, first)), 0) << "the peer has spoken";
    const Bytes plain = random_bytes(40 * kSegment);
    std::uint64_t tag = 0;
    for (std::size_t segment = 0; segment < 40; ++segment) {
        for (const std::size_t step : {kOnWire, 200 * kSegment}) {
            const End fresh = End::of_threads(4);
            for (const End* const to : {&b, &fresh}) {
                // Each has a lane of its own, so that no order is missed.
                Bytes wire = a.seal(*to, plain, ++tag);
                wire[kLongPrefixSize + segment * kOnWire + 5] ^= 1;
                Bytes opened;
                EXPECT_EQ(to->open(wire, opened, step, tag), EBADMSG) << segment;
                wire = a.seal(*to, plain, ++tag);
                EXPECT_EQ(to->open(wire, opened, step, tag), 0) << segment;
            }
        }
    }
}

TEST(LongMessages, ComeFromAndGoToSeveralPieces) {
    const End a, b;
    const Bytes plain = random_bytes(kLongestWhole + kSegment + 77);
    const std::size_t cuts[] = {5, kSegment - 3, kLongestWhole, plain.size()};
    const auto pieces_of = [&](const Bytes& bytes) {
        std::vector<iovec> pieces;
        std::size_t begin = 0;
        for (const std::size_t cut : cuts) {
            pieces.push_back({const_cast<std::uint8_t*>(bytes.data()) + begin, cut - begin});
            begin = cut;
        }
        return pieces;
    };
    Bytes wire(wire_size_of(plain.size())), opened(plain.size());
    auto message = a.party->begin_long(**a.party->meet(b.party->share()), kTag, plain.size(), wire.data());
    ASSERT_TRUE(a.party->seal_long(*message, wire.size(), pieces_of(plain), wire.data()));
    Posted posted;
    b.party->post(posted, {kTag, ~std::uint64_t{0}, nullptr, true});
    LongReceive receive;
    ASSERT_TRUE(b.party->open_long(receive, wire.data(), wire.size() / 2, pieces_of(opened)));
    ASSERT_TRUE(b.party->end_long(receive, posted, kTag, wire.data(), wire.size(), pieces_of(opened)));
    EXPECT_EQ(opened, plain);
}

class AlteredLongMessage : public testing::Test {
protected:
    const End a, b;
    const Bytes first = a.seal(b, random_bytes(kLongestWhole + 2 * kSegment));
    const Bytes second = a.seal(b, random_bytes(kLongestWhole + 2 * kSegment));
    static constexpr std::size_t kSegments = kLongestWhole / kSegment + 2;

    static Bytes segment(const Bytes& wire, std::size_t number) {
        const auto begin = wire.begin() + static_cast<long>(kLongPrefixSize + number * kOnWire);
        return {begin, begin + kOnWire};
    }
    static void put(Bytes& wire, std::size_t number, const Bytes& segment) {
        std::copy(segment.begin(), segment.end(), wire.begin() + static_cast<long>(kLongPrefixSize + number * kOnWire));
    }
    void TearDown() override {
        EXPECT_EQ(b.open(first), 0);
        EXPECT_EQ(b.open(second), 0);
    }
};

TEST_F(AlteredLongMessage, IsFoundWhereverAByteIsFlipped) {
    for (std::size_t at = 0; at < first.size(); at += at < kLongPrefixSize + 20 ? 1 : 1021) {
        for (const std::size_t step : {kOnWire, first.size()}) {
            Bytes altered = first;
            altered[at] ^= 1;
            const int error = End().open(altered, step);
            EXPECT_NE(error, 0) << at;
            EXPECT_NE(b.open(altered, step), 0) << at;
        }
    }
    for (std::size_t i = 1; i <= seal::kTagSize; ++i) {
        Bytes altered = first;
        altered[altered.size() - i] ^= 0x80;
        EXPECT_EQ(b.open(altered), EBADMSG);
    }
}

TEST_F(AlteredLongMessage, IsFoundWithSegmentsSwappedRepeatedOrOfAnother) {
    for (std::size_t number = 0; number < kSegments; ++number) {
        Bytes altered = first;
        put(altered, number, segment(second, number));
        EXPECT_EQ(b.open(altered), EBADMSG) << number;
        put(altered, number, segment(first, (number + 1) % kSegments));
        EXPECT_EQ(b.open(altered), EBADMSG) << number;
    }
}

TEST_F(AlteredLongMessage, IsFoundShorterOrLonger) {
    for (std::size_t less = 1; less <= 2 * kOnWire; less += less < 40 ? 1 : 997) {
        EXPECT_EQ(b.open(Bytes(first.begin(), first.end() - static_cast<long>(less))), EBADMSG) << less;
    }
    Bytes longer = first;
    longer.resize(longer.size() + kOnWire);
    put(longer, kSegments, segment(first, kSegments - 1));
    EXPECT_EQ(b.open(longer), EBADMSG);
    longer.resize(first.size() + 17);
    EXPECT_EQ(b.open(longer), EBADMSG);
}

/// The network says how long a message was, and may say so after more of it has opened.
TEST_F(AlteredLongMessage, IsFoundWhereItEndsBeforeWhatHasOpened) {
    Posted posted;
    b.party->post(posted, {kTag, ~std::uint64_t{0}, nullptr, true});
    LongReceive message;
    Bytes plain(*size_of(first.size()));
    const iovec out = whole(plain);
    ASSERT_TRUE(b.party->open_long(message, first.data(), first.size() - 1, {&out, 1}));
    const std::size_t shorter = first.size() - kOnWire;
    const auto from = b.party->end_long(message, posted, kTag, first.data(), shorter, {&out, 1});
    ASSERT_FALSE(from);
    EXPECT_EQ(from.error().code, EBADMSG);
    EXPECT_TRUE(all_zero(plain.data(), plain.size()));
}

/// The network may write the beginning of a buffer again: what opened under one prefix does not end under another.
TEST_F(AlteredLongMessage, IsFoundWhereItsBeginningIsWrittenAgain) {
    // The first is the one that is due.
    Posted posted;
    b.party->post(posted, {kTag, ~std::uint64_t{0}, nullptr, true});
    LongReceive message;
    Bytes plain(*size_of(first.size()));
    const iovec out = whole(plain);
    ASSERT_TRUE(b.party->open_long(message, second.data(), kLongPrefixSize + kOnWire + 1, {&out, 1}));
    EXPECT_FALSE(b.party->end_long(message, posted, kTag, first.data(), first.size(), {&out, 1}));
    EXPECT_TRUE(all_zero(plain.data(), plain.size()));
}

TEST_F(AlteredLongMessage, IsFoundUnderAnotherTagOrForAnother) {
    Bytes plain;
    EXPECT_EQ(b.open(first, plain, kOnWire, kTag ^ 1), EBADMSG);
    EXPECT_EQ(a.open(first), EBADMSG) << "reflected";
    EXPECT_EQ(End().open(first), EBADMSG);
}

TEST(LongMessages, AreNotTakenForWholeOnesOrTheOtherWay) {
    const End a, b;
    Bytes plain = random_bytes(kLongestWhole + 1);
    const iovec in = whole(plain);
    Bytes wire(plain.size() + kOverhead);
    ASSERT_TRUE(
        a.party->seal(**a.party->meet(b.party->share()), {Kind::tagged, kTag}, {&in, 1}, plain.size(), wire.data()));
    EXPECT_NE(b.open(wire), 0);
    const Bytes in_segments = a.seal(b, plain);
    Posted posted;
    b.party->post(posted, {kTag, ~std::uint64_t{0}, nullptr, true});
    Bytes out(in_segments.size() - kOverhead);
    const iovec room = whole(out);
    EXPECT_FALSE(b.party->open(posted, kTag, {}, in_segments.data(), in_segments.size(), {&room, 1}));
}

// protocol: F13
TEST(LongMessages, KeepTheOrderOfTheirLaneWithShortOnes) {
    const End a, b;
    const Bytes plain = random_bytes(kLongestWhole + 1);
    const Bytes first = a.seal(b, plain), second = a.seal(b, plain), third = a.seal(b, plain);
    EXPECT_EQ(b.open(second), EBADMSG) << "before the first";
    EXPECT_EQ(b.open(first), 0);
    EXPECT_EQ(b.open(first), EBADMSG) << "replayed";
    EXPECT_EQ(b.open(third), EBADMSG) << "one is missing";
    EXPECT_EQ(b.open(second), 0);
    const Bytes few = random_bytes(10);
    const iovec in = whole(few);
    Bytes wire(few.size() + kOverhead);
    ASSERT_TRUE(
        a.party->seal(**a.party->meet(b.party->share()), {Kind::tagged, kTag}, {&in, 1}, few.size(), wire.data()));
    Posted posted;
    b.party->post(posted, {kTag, ~std::uint64_t{0}, nullptr, true});
    Bytes out(few.size());
    const iovec room = whole(out);
    EXPECT_FALSE(b.party->open(posted, kTag, {}, wire.data(), wire.size(), {&room, 1})) << "the third is missing";
}

// protocol: F3
TEST(LongMessages, AreSealedToTheirEndUnderTheKeyThatTheyBeganWith) {
    seal::Crypto lowered = crypto();
    lowered.lowered = {1, ~std::uint64_t{0}};
    const End a(lowered), b(lowered);
    auto peer = a.party->meet(b.party->share());
    const Bytes plains[] = {random_bytes(kLongestWhole + 100), random_bytes(kLongestWhole + 200)};
    Bytes wires[2];
    std::vector<LongSend> messages;
    for (int i = 0; i < 2; ++i) {
        wires[i].resize(wire_size_of(plains[i].size()));
        messages.push_back(std::move(*a.party->begin_long(**peer, kTag, plains[i].size(), wires[i].data())));
    }
    EXPECT_EQ(a.party->counters().rekeys, 1U);
    for (std::size_t end = 0; end < wires[1].size(); end += 1000) {
        for (int i = 0; i < 2; ++i) {
            const iovec in = whole(plains[i]);
            ASSERT_TRUE(a.party->seal_long(messages[i], std::min(end, wires[i].size()), {&in, 1}, wires[i].data()));
        }
    }
    for (int i = 0; i < 2; ++i) {
        const iovec in = whole(plains[i]);
        ASSERT_TRUE(a.party->seal_long(messages[i], wires[i].size(), {&in, 1}, wires[i].data()));
        Bytes opened;
        EXPECT_EQ(b.open(wires[i], opened, kOnWire), 0);
        EXPECT_EQ(opened, plains[i]);
    }
}

/// The nonce of a message that is sealed whole has half of its number, which long ones take, too.
// protocol: F3
TEST(LongMessages, CountForTheKeyOfThoseThatAreSealedWhole) {
    seal::Crypto lowered = crypto();
    lowered.lowered = {10, ~std::uint64_t{0}};
    const End a(lowered), b(lowered);
    auto peer = a.party->meet(b.party->share());
    const Bytes few = random_bytes(10), many = random_bytes(kLongestWhole + 1);
    const auto epoch_of_short = [&] {
        const iovec in = whole(few);
        Bytes wire(few.size() + kOverhead);
        EXPECT_TRUE(a.party->seal(**peer, {Kind::tagged, kTag}, {&in, 1}, few.size(), wire.data()));
        Posted posted;
        b.party->post(posted, {kTag, ~std::uint64_t{0}, nullptr, true});
        Bytes out(few.size());
        const iovec room = whole(out);
        EXPECT_TRUE(b.party->open(posted, kTag, {}, wire.data(), wire.size(), {&room, 1}));
        EXPECT_EQ(out, few);
        return wire[38] | wire[39] << 8;
    };
    std::vector<int> epochs;
    for (const int long_ones : {0, 8, 0, 8, 30}) {
        for (int i = 0; i < long_ones; ++i) EXPECT_EQ(b.open(a.seal(b, many)), 0);
        epochs.push_back(epoch_of_short());
    }
    EXPECT_EQ(epochs, (std::vector{0, 0, 1, 1, 2}));
}

// protocol: F3
TEST(LongMessages, TakeNoKeyOverItsLimitOfRecords) {
    seal::Crypto lowered = crypto();
    lowered.lowered = {12, ~std::uint64_t{0}};
    const End a(lowered), b(lowered);
    auto peer = a.party->meet(b.party->share());
    const auto epoch_of_one = [&](std::size_t segments) {
        const std::size_t size = segments * kSegment;
        Bytes wire(wire_size_of(size));
        EXPECT_TRUE(a.party->begin_long(**peer, kTag, size, wire.data()));
        return wire[38] | (wire[39] & 0x7f) << 8;
    };
    std::vector<int> epochs;
    for (const std::size_t segments : {5, 5, 5, 7, 5, 100, 5}) epochs.push_back(epoch_of_one(segments));
    EXPECT_EQ(epochs, (std::vector{0, 0, 1, 1, 2, 3, 4})) << "the last but one is alone under its key";
}

// protocol: F3
TEST(LongMessages, ThatNoKeyMaySealAreRefused) {
    const End a, b;
    auto peer = a.party->meet(b.party->share());
    Bytes wire(kLongPrefixSize);
    const std::size_t most = std::size_t{1} << 36;
    EXPECT_TRUE(a.party->begin_long(**peer, kTag, most, wire.data()));
    const auto more = a.party->begin_long(**peer, kTag, most + 1, wire.data());
    ASSERT_FALSE(more);
    EXPECT_EQ(more.error().code, EMSGSIZE);
}

/// docs/protocol.md, step by step, by a peer that is played by hand.
// protocol: F19
TEST(LongMessages, AreSealedAsDescribed) {
    const End a;
    const PlayedPeer peer(*a.party, some_key());
    const Bytes epoch = peer.epoch_secret("fabric segments");
    const Bytes base = expanded(epoch, text("nonce"), 12);

    void* const context = crypto().aead->create(CRYPTMPI_AES_256_GCM, expanded(epoch, text("key"), 32).data());
    const auto in_segments = [&](const Bytes& plain, std::uint8_t number) {
        const Bytes prefix = joined({peer.share, {number, 0, 0, 0, 0, 0, 3, 0x80}, {9, 8, 0, 0, 0, 0, 0, 0}});
        Bytes wire = prefix;
        for (std::size_t begin = 0, segment = 0; begin < plain.size(); begin += 16384, ++segment) {
            const std::size_t size = std::min<std::size_t>(16384, plain.size() - begin);
            const bool is_last = begin + size == plain.size();
            Bytes nonce = base;
            nonce[0] ^= is_last ? 0x80 : 0;
            nonce[3] ^= static_cast<std::uint8_t>(segment);
            nonce[10] ^= 8;
            nonce[11] ^= 9;
            const Bytes associated =
                is_last ? joined({prefix, {0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11}}) : prefix;
            const iovec piece{const_cast<std::uint8_t*>(plain.data()) + begin, size};
            Bytes sealed(size + 16);
            EXPECT_EQ(crypto().aead->seal(context, nonce.data(), associated.data(), associated.size(), &piece, 1,
                                          sealed.data(), sealed.data() + size),
                      CRYPTMPI_OK);
            wire = joined({wire, sealed});
        }
        return wire;
    };
    const Bytes plain = random_bytes(65536 + 100);
    Bytes opened;
    EXPECT_EQ(a.open(in_segments(plain, 0), opened, 5000), 0);
    EXPECT_EQ(opened, plain);
    EXPECT_EQ(a.open(in_segments(random_bytes(100), 1)), EBADMSG) << "one that is not long";
    EXPECT_EQ(a.open(in_segments(random_bytes(20000), 1)), EBADMSG) << "one that is not long";
    EXPECT_EQ(a.open(in_segments(plain, 1)), 0);
    crypto().aead->destroy(context);
}

}  // namespace
}  // namespace cryptmpi::fabric
