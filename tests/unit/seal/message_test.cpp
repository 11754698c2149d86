// Messages of the MPI layer: what opens, what does not, and that no nonce comes twice.
#include "seal/message.hpp"

#include <cerrno>
#include <set>

#include "seal/support.hpp"

namespace cryptmpi::seal {
namespace {

using test::Bytes;
using test::crypto;
using test::random_bytes;

struct Opened {
    Result<MessageHeader> header;
    Bytes plain;
};

/// Both ends of a flow.
struct Flow {
    explicit Flow(Crypto with = crypto()) : Flow(limits_of(with.suite), with) {}
    explicit Flow(Limits limits, Crypto with = crypto())
        : secret(random_bytes(kSecretSize)), sealer(with, secret.data(), limits), opener(with, secret.data()) {}

    Bytes seal(std::uint32_t lane, std::uint64_t number, const Bytes& plain) {
        Bytes wire(plain.size() + kMessageOverhead);
        const iovec in{const_cast<std::uint8_t*>(plain.data()), plain.size()};
        EXPECT_TRUE(sealer.seal(lane, number, {&in, 1}, plain.size(), wire.data()));
        return wire;
    }
    Opened open(std::uint32_t lane, const Bytes& wire) {
        Opened result{fail(0, ""), Bytes(wire.size() < kMessageOverhead ? 0 : wire.size() - kMessageOverhead, 0xAA)};
        const iovec out{result.plain.data(), result.plain.size()};
        result.header = opener.open(lane, wire.data(), wire.size(), {&out, 1});
        return result;
    }

    Bytes secret;
    MessageSealer sealer;
    MessageOpener opener;
};

class EveryMessage : public testing::TestWithParam<aead::Suite> {};

INSTANTIATE_TEST_SUITE_P(Message, EveryMessage, testing::ValuesIn(test::suites()), test::test_name);

TEST_P(EveryMessage, OpensToWhatWasSealedWithItsHeader) {
    Flow flow(crypto(GetParam()));
    for (const std::size_t size : {0, 1, 15, 16, 17, 4096, 100000}) {
        const Bytes plain = random_bytes(size);
        const auto opened = flow.open(7, flow.seal(7, size, plain));
        ASSERT_TRUE(opened.header) << opened.header.error().line;
        EXPECT_EQ(opened.plain, plain);
        EXPECT_EQ(opened.header->number, size);
        EXPECT_EQ(opened.header->form, Form::whole);
    }
    EXPECT_EQ(flow.sealer.counters().messages, 7U);
    EXPECT_EQ(flow.sealer.counters().bytes, flow.opener.counters().bytes);
}

TEST(Message, IsNotOpenedAfterAnyBitOfItChanged) {
    Flow flow;
    for (const std::size_t size : {0, 20}) {
        const Bytes wire = flow.seal(3, size, random_bytes(size));
        for (std::size_t bit = 0; bit < wire.size() * 8; ++bit) {
            Bytes altered = wire;
            altered[bit / 8] ^= static_cast<std::uint8_t>(1U << (bit % 8));
            const auto opened = flow.open(3, altered);
            ASSERT_FALSE(opened.header) << "bit " << bit;
            EXPECT_EQ(opened.header.error().code, EBADMSG);
            EXPECT_TRUE(test::all_zero(opened.plain.data(), opened.plain.size())) << "bit " << bit;
        }
        EXPECT_TRUE(flow.open(3, wire).header);
    }
}

TEST(Message, IsNotOpenedCutOrLengthened) {
    Flow flow;
    const Bytes wire = flow.seal(3, 5, random_bytes(20));
    for (std::size_t size = 0; size < wire.size(); ++size) {
        EXPECT_FALSE(flow.open(3, Bytes(wire.begin(), wire.begin() + static_cast<std::ptrdiff_t>(size))).header);
    }
    Bytes longer = wire;
    longer.push_back(0);
    EXPECT_FALSE(flow.open(3, longer).header);
}

TEST(Message, IsNotOpenedInAnotherLaneOrFlow) {
    Flow flow;
    Flow other;
    const Bytes wire = flow.seal(3, 5, random_bytes(20));
    EXPECT_FALSE(flow.open(4, wire).header);
    EXPECT_FALSE(flow.open(0x80000003, wire).header);
    EXPECT_FALSE(other.open(3, wire).header);
    EXPECT_TRUE(flow.open(3, wire).header);
}

TEST(Message, LanesAndNumbersHaveDifferentNonces) {
    // The same bytes under one key: only the nonce can make the ciphertexts differ.
    Flow flow;
    const Bytes plain(32, 0);
    std::set<Bytes> bodies;
    for (std::uint32_t lane = 0; lane < 16; ++lane) {
        for (std::uint64_t number = 0; number < 16; ++number) {
            const Bytes wire = flow.seal(lane, number, plain);
            bodies.insert(Bytes(wire.begin() + kMessageHeaderSize, wire.end() - kTagSize));
        }
    }
    EXPECT_EQ(bodies.size(), 256U);
}

TEST(Message, KeysChangeAtTheLimitAndOlderMessagesStillOpen) {
    Flow flow({4, 1 << 20});
    std::vector<Bytes> wires;
    for (std::uint64_t number = 0; number < 14; ++number) wires.push_back(flow.seal(1, number, Bytes(8, 1)));
    EXPECT_EQ(flow.sealer.counters().rekeys, 3U);
    EXPECT_EQ(parse_message_header(wires[3].data()).epoch, 0U);
    EXPECT_EQ(parse_message_header(wires[4].data()).epoch, 1U);
    EXPECT_EQ(parse_message_header(wires[13].data()).epoch, 3U);
    for (const std::size_t i : {13, 0, 4, 12, 8, 1}) EXPECT_TRUE(flow.open(1, wires[i]).header) << i;
}

TEST(Message, KeysChangeByBytesToo) {
    Flow flow({1000, 100});
    for (std::uint64_t number = 0; number < 3; ++number) flow.seal(1, number, Bytes(60, 1));
    EXPECT_EQ(flow.sealer.counters().rekeys, 2U);
    // One that is larger than the limit has a key of its own.
    const Bytes wire = flow.seal(1, 3, Bytes(500, 1));
    EXPECT_EQ(parse_message_header(wire.data()).epoch, 3U);
    EXPECT_TRUE(flow.open(1, wire).header);
}

TEST(Message, AFlowEndsWithItsKeys) {
    Flow flow({1, 1 << 20});
    const Bytes plain(1, 0);
    Bytes wire(1 + kMessageOverhead);
    const iovec in{const_cast<std::uint8_t*>(plain.data()), plain.size()};
    for (std::uint64_t number = 0; number < kMostEpochs; ++number) {
        ASSERT_TRUE(flow.sealer.seal(0, number, {&in, 1}, 1, wire.data()));
    }
    const auto done = flow.sealer.seal(0, kMostEpochs, {&in, 1}, 1, wire.data());
    ASSERT_FALSE(done);
    EXPECT_EQ(done.error().code, EOVERFLOW);
    EXPECT_FALSE(flow.sealer.seal(0, kMostMessages, {&in, 1}, 1, wire.data()));
}

#ifndef NDEBUG
TEST(MessageDeathTest, ANumberOfALaneIsNotUsedTwice) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";  // a forked child does not seal
    Flow flow;
    flow.seal(3, 5, random_bytes(4));
    flow.seal(4, 5, random_bytes(4));
    EXPECT_DEATH(flow.seal(3, 5, random_bytes(4)), "counter 5 was about to be used twice under one key");
}
#endif

}  // namespace
}  // namespace cryptmpi::seal
