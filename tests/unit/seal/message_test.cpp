// Messages of the MPI layer: what opens, what does not, and that no nonce comes twice.
#include "seal/message.hpp"

#include <cerrno>
#include <set>

#include "seal/process_memory.hpp"
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
    explicit Flow(Limits limits, Crypto with = crypto()) : Flow(limits, Opening::any_order, with) {}
    Flow(Limits limits, Opening opening, Crypto with = crypto())
        : secret(random_bytes(kSecretSize)),
          sealer(with, secret.data(), limits),
          opener(with, secret.data(), opening, limits) {}

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

// protocol: M1, M8
TEST(Message, IsSealedAsDescribed) {
    // docs/protocol.md, step by step, in the first epochs.
    Flow flow({2, 1 << 20});
    for (std::uint8_t number = 0; number < 6; ++number) {
        const std::uint16_t epoch = number / 2;
        const Bytes plain = random_bytes(20);
        const Bytes wire = flow.seal(0x01020304, number, plain);
        EXPECT_EQ(Bytes(wire.begin(), wire.begin() + 8),
                  (Bytes{number, 0, 0, 0, 0, 0, static_cast<std::uint8_t>(epoch), 0}));
        // P(flow secret, e): one bit for the first epoch, else 1 and the epoch in 15 bits.
        Bytes secret = flow.secret;
        for (int bit = 15; bit >= (epoch == 0 ? 15 : 0); --bit) {
            Bytes both(64);
            const bool right = bit == 15 ? epoch != 0 : (epoch >> bit & 1) != 0;
            ASSERT_TRUE(expand(*crypto().kex, secret.data(), "mpi branch", both.data(), 64));
            secret = right ? Bytes(both.begin() + 32, both.end()) : Bytes(both.begin(), both.begin() + 32);
        }
        Bytes key(32);
        Bytes nonce(12);
        ASSERT_TRUE(expand(*crypto().kex, secret.data(), "key", key.data(), key.size()));
        ASSERT_TRUE(expand(*crypto().kex, secret.data(), "nonce", nonce.data(), nonce.size()));
        const Bytes place = {1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, number};
        for (std::size_t i = 0; i < nonce.size(); ++i) nonce[i] ^= place[i];
        Bytes out(plain.size());
        const iovec piece{out.data(), out.size()};
        void* const context = crypto().aead->create(CRYPTMPI_AES_256_GCM, key.data());
        EXPECT_EQ(crypto().aead->open(context, nonce.data(), wire.data(), 8, wire.data() + 8, plain.size(), &piece, 1,
                                      wire.data() + 8 + plain.size()),
                  CRYPTMPI_OK);
        crypto().aead->destroy(context);
        EXPECT_EQ(out, plain);
    }
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

TEST(Message, AnEpochIsClosedWhenNothingMoreCanHaveComeInIt) {
    Flow flow({4, 1 << 20});
    std::vector<Bytes> wires;
    for (std::uint64_t number = 0; number < 9; ++number) wires.push_back(flow.seal(1, number, Bytes(8, 1)));
    for (const std::size_t i : {8, 0, 1, 2}) EXPECT_TRUE(flow.open(1, wires[i]).header) << i;
    EXPECT_TRUE(flow.open(1, wires[3]).header);  // the last of its epoch
    for (const std::size_t i : {0, 3}) EXPECT_EQ(flow.open(1, wires[i]).header.error().code, EBADMSG);
    for (const std::size_t i : {4, 5, 6, 7}) EXPECT_TRUE(flow.open(1, wires[i]).header) << i;
}

// protocol: M13
TEST(Message, AnEpochIsNotClosedWhileAnEmptyMessageMayBeOnItsWay) {
    // All bytes of the epoch's limit came; what is left of it has none.
    Flow flow({1000, 101});
    const Bytes late = flow.seal(2, 0, {});
    std::vector<Bytes> wires;
    for (std::uint64_t number = 0; number < 3; ++number) wires.push_back(flow.seal(1, number, Bytes(50, 1)));
    EXPECT_EQ(parse_message_header(wires[1].data()).epoch, 0U);
    EXPECT_EQ(parse_message_header(wires[2].data()).epoch, 1U);
    for (const Bytes& wire : wires) EXPECT_TRUE(flow.open(1, wire).header);
    EXPECT_TRUE(flow.open(2, late).header);
    EXPECT_FALSE(flow.open(2, late).header);
}

// protocol: M12
TEST(Message, WhereOrderIsKeptAnOlderEpochIsForgotten) {
    Flow flow({2, 1 << 20}, Opening::in_order);
    std::vector<Bytes> wires;
    for (std::uint64_t number = 0; number < 400; ++number) wires.push_back(flow.seal(1, number, Bytes(8, 1)));
    for (const std::size_t i : {0, 1, 2, 300, 301}) EXPECT_TRUE(flow.open(1, wires[i]).header) << i;
    for (const std::size_t i : {0, 2, 3, 200, 299}) {
        const auto opened = flow.open(1, wires[i]);
        ASSERT_FALSE(opened.header) << i;
        EXPECT_EQ(opened.header.error().line, "the message does not open: altered, moved, or not ours");
        EXPECT_TRUE(test::all_zero(opened.plain.data(), opened.plain.size()));
    }
    for (const std::size_t i : {302, 399}) EXPECT_TRUE(flow.open(1, wires[i]).header) << i;
}

// protocol: M14
TEST(Message, AForgedEpochMovesNothing) {
    for (const Opening opening : {Opening::any_order, Opening::in_order}) {
        static std::size_t hmacs;
        cryptmpi_kex counting = *crypto().kex;
        counting.hmac_sha256 = [](std::uint8_t* out, const std::uint8_t* key, std::size_t size, const iovec* in,
                                  std::size_t count) -> int {
            ++hmacs;
            return crypto().kex->hmac_sha256(out, key, size, in, count);
        };
        Crypto with = crypto();
        with.kex = &counting;
        Flow flow({4, 1 << 20}, opening, with);
        std::vector<Bytes> wires;
        for (std::uint64_t number = 0; number < 12; ++number) wires.push_back(flow.seal(1, number, Bytes(8, 1)));
        EXPECT_TRUE(flow.open(1, wires[0]).header);
        for (const std::uint64_t epoch : {1, 2, 3, 1000, 32767}) {
            Bytes forged = wires[1];
            store_little((load_little(forged.data()) & ~(std::uint64_t{0x7fff} << kEpochShift)) | epoch << kEpochShift,
                         forged.data());
            hmacs = 0;
            EXPECT_FALSE(flow.open(1, forged).header);
            EXPECT_LE(hmacs, 64U) << epoch;
        }
        for (std::size_t i = 1; i < wires.size(); ++i) EXPECT_TRUE(flow.open(1, wires[i]).header) << i;
    }
}

/// The secret that a flow begins with, and what its first epoch is made of. Nothing but a flow's ends knows them.
struct Watched {
    Watched() {
        Secret<2 * kSecretSize> branches;
        Secret<kSecretSize> cipher_key;
        EXPECT_EQ(crypto().kex->random(secret.data(), secret.size()), CRYPTMPI_OK);
        EXPECT_TRUE(expand(*crypto().kex, secret.data(), "mpi branch", branches.data(), branches.size()));
        EXPECT_TRUE(expand(*crypto().kex, branches.data(), "key", cipher_key.data(), cipher_key.size()));
        flow = std::make_unique<test::Hidden>(secret.data(), kSecretSize);
        first = std::make_unique<test::Hidden>(branches.data(), kSecretSize);
        key = std::make_unique<test::Hidden>(cipher_key.data(), kSecretSize);
    }
    void forget() { wipe(secret.data(), secret.size()); }

    Secret<kSecretSize> secret;
    std::unique_ptr<test::Hidden> flow;
    std::unique_ptr<test::Hidden> first;
    std::unique_ptr<test::Hidden> key;
};

Bytes sealed(MessageSealer& sealer, std::uint64_t number) {
    Bytes wire(1 + kMessageOverhead);
    std::uint8_t plain = 7;
    const iovec in{&plain, 1};
    EXPECT_TRUE(sealer.seal(0, number, {&in, 1}, 1, wire.data()));
    return wire;
}

bool opens(MessageOpener& opener, const Bytes& wire) {
    std::uint8_t plain = 0;
    const iovec out{&plain, 1};
    return opener.open(0, wire.data(), wire.size(), {&out, 1}).has_value();
}

// protocol: M11
TEST(Message, ASenderKeepsNothingOfItsEarlierEpochs) {
    Watched watched;
    EXPECT_TRUE(watched.flow->is_in_memory());
    MessageSealer sealer(crypto(), watched.secret.data(), {2, 1 << 20});
    watched.forget();
    EXPECT_TRUE(watched.flow->is_in_memory());  // until the first message
    for (std::uint64_t number = 0; number < 2; ++number) sealed(sealer, number);
    EXPECT_FALSE(watched.flow->is_in_memory());
    EXPECT_FALSE(watched.first->is_in_memory());
    EXPECT_TRUE(watched.key->is_in_memory());
    sealed(sealer, 2);
    EXPECT_FALSE(watched.key->is_in_memory());
}

// protocol: M13
TEST(Message, AReceiverKeepsAnEpochWhileMessagesOfItMayCome) {
    Watched watched;
    const Limits limits{2, 1 << 20};
    MessageSealer sealer(crypto(), watched.secret.data(), limits);
    MessageOpener opener(crypto(), watched.secret.data(), Opening::any_order, limits);
    watched.forget();
    std::vector<Bytes> wires;
    for (std::uint64_t number = 0; number < 8; ++number) wires.push_back(sealed(sealer, number));
    for (const std::size_t i : {0, 2, 4, 6}) EXPECT_TRUE(opens(opener, wires[i]));
    EXPECT_FALSE(watched.flow->is_in_memory());
    EXPECT_TRUE(watched.first->is_in_memory());
    EXPECT_TRUE(opens(opener, wires[1]));
    EXPECT_FALSE(watched.first->is_in_memory());
    EXPECT_FALSE(watched.key->is_in_memory());
}

// protocol: M12
TEST(Message, AReceiverInOrderKeepsNothingOfEarlierEpochs) {
    Watched watched;
    const Limits limits{2, 1 << 20};
    MessageSealer sealer(crypto(), watched.secret.data(), limits);
    MessageOpener opener(crypto(), watched.secret.data(), Opening::in_order, limits);
    watched.forget();
    std::vector<Bytes> wires;
    for (std::uint64_t number = 0; number < 3; ++number) wires.push_back(sealed(sealer, number));
    EXPECT_TRUE(opens(opener, wires[0]));
    EXPECT_TRUE(watched.key->is_in_memory());
    EXPECT_TRUE(opens(opener, wires[2]));
    EXPECT_FALSE(watched.flow->is_in_memory());
    EXPECT_FALSE(watched.first->is_in_memory());
    EXPECT_FALSE(watched.key->is_in_memory());
}

// protocol: M11
TEST(Message, KeysChangeByBytesToo) {
    Flow flow({1000, 100});
    for (std::uint64_t number = 0; number < 3; ++number) flow.seal(1, number, Bytes(60, 1));
    EXPECT_EQ(flow.sealer.counters().rekeys, 2U);
    // One that is larger than the limit has a key of its own.
    const Bytes wire = flow.seal(1, 3, Bytes(500, 1));
    EXPECT_EQ(parse_message_header(wire.data()).epoch, 3U);
    EXPECT_TRUE(flow.open(1, wire).header);
}

TEST(Message, AKeyThatIsOldIsChangedInHalfOfTheEpochs) {
    static std::int64_t now = 0;
    Crypto with = crypto();
    with.age = {std::chrono::nanoseconds(10), [] { return now; }};
    Flow flow(limits_of(with), Opening::in_order, with);
    std::vector<std::uint32_t> epochs;
    for (std::uint64_t number = 0; number < 8; ++number, now += 5) {
        const Bytes wire = flow.seal(1, number, Bytes(8, 1));
        epochs.push_back(parse_message_header(wire.data()).epoch);
        EXPECT_TRUE(flow.open(1, wire).header);
    }
    EXPECT_EQ(epochs, (std::vector<std::uint32_t>{0, 0, 1, 1, 2, 2, 3, 3}));
    // What is left is for the limits: a flow does not end by growing old.
    std::uint32_t last = 0;
    for (std::uint64_t number = 8; number < kMostEpochs; ++number, now += 10) {
        last = parse_message_header(flow.seal(1, number, {}).data()).epoch;
    }
    EXPECT_EQ(last, kMostEpochs / 2);
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
