// The handshake with ML-KEM-768 beside X25519: what it gives, what both are needed for, and what is refused.
#include <cerrno>
#include <cstring>

#include "keys/handshake.hpp"
#include "seal/support.hpp"

namespace cryptmpi::keys {
namespace {

using test::Bytes;

constexpr char kDoesNotOpen[] =
    "the peer's hello does not open: it was altered on the way, or the peer does not have the job key that it names";
constexpr char kWeAreHybrid[] =
    "the peer exchanges keys by x25519, we by x25519-mlkem768: give every node the same setting key_exchange";
constexpr char kTheyAreHybrid[] =
    "the peer exchanges keys by x25519-mlkem768, we by x25519: give every node the same setting key_exchange";

const cryptmpi_kem* kem() {
    static const auto module = test::loaded(aead::load_kem(CRYPTMPI_MODULE_FOLDER));
    return module.kem;
}

const JobKey& job_key() {
    static const auto* key = [] {
        auto* made = new JobKey;
        std::memset(made->data(), 0x33, kJobKeySize);
        return made;
    }();
    return *key;
}

/// One end, that has begun.
struct End {
    Local local{test::crypto(), test::crypto().aead, &job_key(), false};
    HandshakeState state{};
    seal::DirectionState send{};
    seal::DirectionState receive{};

    explicit End(Role role, const cryptmpi_kem* with = kem()) {
        local.kem = with;
        const auto done = start(local, role, {}, state);
        EXPECT_TRUE(done.has_value()) << done.error().line;
    }
    Bytes hello() {
        Bytes out(local.hello_size(state.role));
        const auto done = write_hello(local, state, out);
        EXPECT_TRUE(done.has_value()) << done.error().line;
        return out;
    }
    Result<void> read(const Bytes& in) { return read_hello(local, state, in); }
    void end() {
        const auto done = finish(local, state, send, receive);
        EXPECT_TRUE(done.has_value()) << done.error().line;
    }
};

/// `end` refused `in`, and keeps nothing.
std::string refusal(End& end, const Bytes& in, int code) {
    const auto done = end.read(in);
    if (done) {
        ADD_FAILURE() << "accepted";
        return "accepted";
    }
    EXPECT_EQ(done.error().code, code) << done.error().line;
    EXPECT_TRUE(test::all_zero(&end.state, sizeof end.state));
    return done.error().line;
}

void expect_same_secrets(const End& initiator, const End& responder) {
    EXPECT_EQ(std::memcmp(initiator.send.secret, responder.receive.secret, 32), 0);
    EXPECT_EQ(std::memcmp(initiator.receive.secret, responder.send.secret, 32), 0);
    EXPECT_NE(std::memcmp(initiator.send.secret, initiator.receive.secret, 32), 0);
}

// protocol: H19
TEST(Hybrid, GivesBothEndsTheSameSecretsByAnyModule) {
    for (const aead::Module& one : aead::inspect(CRYPTMPI_MODULE_FOLDER).usable) {
        if (one.kem == nullptr || one.kem->start() != nullptr) continue;
        SCOPED_TRACE(one.api->name);
        End initiator(Role::initiator), responder(Role::responder, one.kem);
        const Bytes first = initiator.hello();
        EXPECT_EQ(first.size(), 1400U);
        EXPECT_EQ(first[7], kHybrid);
        ASSERT_TRUE(responder.read(first));
        const Bytes second = responder.hello();
        EXPECT_EQ(second.size(), 1304U);
        EXPECT_EQ(second[7], kHybrid);
        ASSERT_TRUE(initiator.read(second));
        initiator.end();
        responder.end();
        expect_same_secrets(initiator, responder);
    }
}

TEST(Hybrid, NothingIsKeptOfIt) {
    End initiator(Role::initiator), responder(Role::responder);
    ASSERT_TRUE(responder.read(initiator.hello()));
    ASSERT_TRUE(initiator.read(responder.hello()));
    for (End* end : {&initiator, &responder}) {
        end->end();
        EXPECT_TRUE(test::all_zero(end->state.kem_private, sizeof end->state.kem_private));
        EXPECT_TRUE(test::all_zero(end->state.kem_shared, sizeof end->state.kem_shared));
        EXPECT_TRUE(test::all_zero(end->state.kem_ciphertext, sizeof end->state.kem_ciphertext));
    }
}

// protocol: H19
/// Somebody has recorded a handshake and finds the job key later. He has a quantum computer, and so the private keys of
/// X25519, or he has broken ML-KEM: one of the two is not enough.
TEST(Hybrid, WhoHasOneOfTheTwoPrivateKeysOpensNothing) {
    End initiator(Role::initiator), responder(Role::responder);
    ASSERT_TRUE(responder.read(initiator.hello()));
    const Bytes second = responder.hello();

    End without_ml_kem(Role::initiator), without_x25519(Role::initiator), with_both(Role::initiator);
    without_ml_kem.state = without_x25519.state = with_both.state = initiator.state;
    without_ml_kem.state.kem_private[0] ^= 1;
    without_x25519.state.ephemeral_private[0] ^= 8;
    EXPECT_EQ(refusal(without_ml_kem, second, EKEYREJECTED), kDoesNotOpen);
    EXPECT_EQ(refusal(without_x25519, second, EKEYREJECTED), kDoesNotOpen);
    EXPECT_TRUE(with_both.read(second));
}

// protocol: H20
TEST(Hybrid, BothSidesUseItOrNone) {
    const auto plain = [](Role role) { return End(role, nullptr); };
    {
        End one = plain(Role::initiator), other(Role::responder);
        EXPECT_EQ(refusal(other, one.hello(), EPROTO), kWeAreHybrid);
    }
    {
        End one(Role::initiator), other = plain(Role::responder);
        EXPECT_EQ(refusal(other, one.hello(), EPROTO), kTheyAreHybrid);
    }
    {
        End one(Role::initiator), helper = plain(Role::initiator), other = plain(Role::responder);
        one.hello();
        ASSERT_TRUE(other.read(helper.hello()));
        EXPECT_EQ(refusal(one, other.hello(), EPROTO), kWeAreHybrid);
    }
    {
        End one = plain(Role::initiator), helper(Role::initiator), other(Role::responder);
        one.hello();
        ASSERT_TRUE(other.read(helper.hello()));
        EXPECT_EQ(refusal(one, other.hello(), EPROTO), kTheyAreHybrid);
    }
}

// protocol: H20
/// Somebody on the way makes either hello look as the other side expects it.
TEST(Hybrid, ABitThatIsSetOrClearedOnTheWayHelpsNobody) {
    {
        End plain(Role::initiator, nullptr), other(Role::responder);
        Bytes hello = plain.hello();
        hello[7] |= kHybrid;
        hello.insert(hello.begin() + 48, kem_part_size(Role::initiator), 0);
        EXPECT_EQ(refusal(other, hello, EKEYREJECTED), kDoesNotOpen);
    }
    {
        End hybrid(Role::initiator), other(Role::responder, nullptr);
        Bytes hello = hybrid.hello();
        hello[7] = 0;
        hello.erase(hello.begin() + 48, hello.begin() + 48 + static_cast<long>(kem_part_size(Role::initiator)));
        EXPECT_EQ(refusal(other, hello, EKEYREJECTED), kDoesNotOpen);
    }
    {
        // To the initiator the responder seems to be hybrid, and to the responder the initiator seems not to be.
        End hybrid(Role::initiator), helper(Role::initiator, nullptr), other(Role::responder, nullptr);
        hybrid.hello();
        ASSERT_TRUE(other.read(helper.hello()));
        Bytes answer = other.hello();
        answer[7] |= kHybrid;
        answer.insert(answer.begin() + 48, kem_part_size(Role::responder), 0);
        EXPECT_EQ(refusal(hybrid, answer, EKEYREJECTED), kDoesNotOpen);
    }
    {
        End hybrid(Role::initiator), other(Role::responder);
        Bytes hello = hybrid.hello();
        hello.resize(kHelloSize);
        EXPECT_NE(refusal(other, hello, EPROTO).find("200 bytes where 1400 were due"), std::string::npos);
    }
}

TEST(Hybrid, EveryFlippedBitIsRefusedInEitherHello) {
    End initiator(Role::initiator), responder(Role::responder);
    const HandshakeState untouched = responder.state;
    const Bytes first = initiator.hello();
    for (std::size_t at = 0; at < first.size(); ++at) {
        Bytes altered = first;
        altered[at] ^= static_cast<std::uint8_t>(1U << test::random_below(8));
        responder.state = untouched;
        ASSERT_FALSE(responder.read(altered)) << at;
    }
    responder.state = untouched;
    ASSERT_TRUE(responder.read(first));
    const HandshakeState waiting = initiator.state;
    const Bytes second = responder.hello();
    for (std::size_t at = 0; at < second.size(); ++at) {
        Bytes altered = second;
        altered[at] ^= static_cast<std::uint8_t>(1U << test::random_below(8));
        initiator.state = waiting;
        ASSERT_FALSE(initiator.read(altered)) << at;
    }
    initiator.state = waiting;
    EXPECT_TRUE(initiator.read(second));
}

/// The parts of another handshake under the same key, in the places where they belong.
TEST(Hybrid, AKeyOrACiphertextOfAnotherHandshakeIsRefused) {
    End initiator(Role::initiator), other(Role::initiator), responder(Role::responder),
        second_responder(Role::responder);
    const Bytes first = initiator.hello(), foreign = other.hello();
    const auto swapped = [](Bytes hello, const Bytes& from, Role sender) {
        std::copy_n(from.begin() + 48, kem_part_size(sender), hello.begin() + 48);
        return hello;
    };
    End victim(Role::responder);
    EXPECT_EQ(refusal(victim, swapped(first, foreign, Role::initiator), EKEYREJECTED), kDoesNotOpen);

    ASSERT_TRUE(responder.read(first));
    ASSERT_TRUE(second_responder.read(first));
    const Bytes answer = responder.hello(), replayed = second_responder.hello();
    EXPECT_EQ(refusal(initiator, swapped(answer, replayed, Role::responder), EKEYREJECTED), kDoesNotOpen);
    EXPECT_EQ(refusal(other, answer, EKEYREJECTED), kDoesNotOpen) << "a hello 2 of another handshake";
}

// protocol: H21
TEST(Hybrid, AKeyThatIsNoneIsRefusedAlsoFromWhoHasTheJobKey) {
    static cryptmpi_kem forging;
    forging = *kem();
    forging.public_key = [](std::uint8_t* key, const std::uint8_t*) -> int {
        std::memset(key, 0xff, CRYPTMPI_KEM_PUBLIC_SIZE);  // no coefficient below 3329
        return CRYPTMPI_OK;
    };
    End initiator(Role::initiator, &forging), responder(Role::responder);
    EXPECT_EQ(refusal(responder, initiator.hello(), EPROTO),
              "the peer's encapsulation key is none of ML-KEM-768: a forged hello");
}

// protocol: H21
/// Implicit rejection gives a secret that the peer has not.
TEST(Hybrid, ACiphertextThatIsNoneEndsAsAHelloThatDoesNotOpen) {
    static cryptmpi_kem forging;
    forging = *kem();
    forging.encapsulate = [](std::uint8_t* ciphertext, std::uint8_t* shared, const std::uint8_t* key,
                             const std::uint8_t* coins) -> int {
        const int status = kem()->encapsulate(ciphertext, shared, key, coins);
        ciphertext[17] ^= 1;
        return status;
    };
    End initiator(Role::initiator), responder(Role::responder, &forging);
    ASSERT_TRUE(responder.read(initiator.hello()));
    EXPECT_EQ(refusal(initiator, responder.hello(), EKEYREJECTED), kDoesNotOpen);
}

TEST(Hybrid, AModuleThatFailsEndsTheHandshake) {
    static cryptmpi_kem failing;
    failing = *kem();
    failing.encapsulate = [](std::uint8_t*, std::uint8_t*, const std::uint8_t*, const std::uint8_t*) -> int {
        return CRYPTMPI_FAILED;
    };
    failing.decapsulate = [](std::uint8_t*, const std::uint8_t*, const std::uint8_t*) -> int {
        return CRYPTMPI_FAILED;
    };
    End initiator(Role::initiator, &failing), responder(Role::responder), failing_responder(Role::responder, &failing);
    const Bytes first = initiator.hello();
    EXPECT_EQ(refusal(failing_responder, first, EIO), "handshake: the crypto module's ML-KEM failed");
    ASSERT_TRUE(responder.read(first));
    EXPECT_EQ(refusal(initiator, responder.hello(), EIO), "handshake: the crypto module's ML-KEM failed");

    failing.public_key = [](std::uint8_t*, const std::uint8_t*) -> int { return CRYPTMPI_FAILED; };
    End silent(Role::initiator, &failing);
    Bytes out(silent.local.hello_size(Role::initiator));
    EXPECT_FALSE(write_hello(silent.local, silent.state, out));
    EXPECT_TRUE(test::all_zero(&silent.state, sizeof silent.state));
}

}  // namespace
}  // namespace cryptmpi::keys
