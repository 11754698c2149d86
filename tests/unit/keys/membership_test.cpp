// The handshake where members are required: who holds the job key is not everybody any more.
#include "keys/membership.hpp"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstring>

#include "keys/handshake.hpp"
#include "keys/members.hpp"

namespace cryptmpi::keys {
namespace {

using test::Bytes;

Identity identity(std::uint8_t own, std::uint8_t other) {
    Identity self{};
    std::memset(self.job, 0x4a, sizeof self.job);
    self.local.address[15] = own;
    self.remote.address[15] = other;
    std::strcpy(self.node, own == 1 ? "alpha" : "beta");
    self.process[0] = own;
    return self;
}

struct End {
    std::unique_ptr<Membership> members;
    Local local;
    Role role;
    Identity self;
    HandshakeState state{};

    End(Role which, const JobKey& key, std::unique_ptr<Membership> membership)
        : members(std::move(membership)),
          local{test::crypto(), test::crypto().aead, &key, true},
          role(which),
          self(which == Role::initiator ? identity(1, 2) : identity(2, 1)) {
        local.members = members.get();
        begin();
    }
    void begin() { ASSERT_TRUE(start(local, role, self, state)); }
    Bytes hello() {
        Bytes out(local.hello_size(state.role));
        const auto done = write_hello(local, state, out);
        EXPECT_TRUE(done) << done.error().line;
        return out;
    }
    Result<void> read(const Bytes& in) { return read_hello(local, state, in); }
    std::string member() const { return state.peer_member; }
};

/// Key functions of a liar, who puts something of somebody else's in the place of what is his.
cryptmpi_kex lying_kex;
MemberPublicKey claimed;
Signature recorded;
Bytes signed_last;

int claim(std::uint8_t* public_key, const std::uint8_t*) {
    std::copy(claimed.begin(), claimed.end(), public_key);
    return CRYPTMPI_OK;
}

int sign_by_record(std::uint8_t* signature, const std::uint8_t*, const std::uint8_t*, std::size_t) {
    std::copy(recorded.begin(), recorded.end(), signature);
    return CRYPTMPI_OK;
}

int sign_and_record(std::uint8_t* signature, const std::uint8_t* key, const std::uint8_t* message, std::size_t size) {
    const int status = test::crypto().kex->ed25519_sign(signature, key, message, size);
    std::copy_n(signature, recorded.size(), recorded.begin());
    signed_last.assign(message, message + size);
    return status;
}

class MembersInHandshake : public testing::Test {
protected:
    MembersInHandshake() {
        const Bytes bytes = test::random_bytes(kJobKeySize);
        std::memcpy(key.data(), bytes.data(), kJobKeySize);
        alice = folder.make("alice");
        bob = folder.make("bob");
        lying_kex = *test::crypto().kex;
    }
    End initiator(const std::string& name = "alice") { return End(Role::initiator, key, folder.of(name)); }
    End responder(const std::string& name = "bob") { return End(Role::responder, key, folder.of(name)); }
    End without(Role role) { return End(role, key, nullptr); }
    /// The holder of `stolen`'s member key who says that he is the one whose public key is `claimed`.
    End liar(Role role, const std::string& stolen, const MemberPublicKey& whom) {
        lying_kex.ed25519_public = claim;
        claimed = whom;
        return End(role, key, folder.of(stolen, lying_kex));
    }
    static std::string refusal(End& end, const Bytes& hello, int code) {
        const auto done = end.read(hello);
        if (done) return "taken";
        EXPECT_EQ(done.error().code, code) << done.error().line;
        EXPECT_EQ(done.error().line.find('\n'), std::string::npos);
        EXPECT_TRUE(test::all_zero(&end.state, sizeof end.state));
        return done.error().line;
    }

    test::MemberFolder folder;
    JobKey key;
    MemberPublicKey alice, bob;
};

constexpr const char* kPoses =
    "the peer says that it is member alice, and its signature is not that member's for this "
    "handshake: somebody without alice's member key poses as it";

// protocol: H15, H16
TEST_F(MembersInHandshake, EachEndLearnsWhichMemberTheOtherIs) {
    End one = initiator(), other = responder();
    const Bytes first = one.hello();
    EXPECT_EQ(first.size(), 296U);
    EXPECT_EQ(first[7], 0x80);
    ASSERT_TRUE(other.read(first));
    const Bytes second = other.hello();
    EXPECT_EQ(second.size(), 296U);
    ASSERT_TRUE(one.read(second));
    seal::DirectionState one_sends{}, one_receives{}, other_sends{}, other_receives{};
    ASSERT_TRUE(finish(one.local, one.state, one_sends, one_receives));
    ASSERT_TRUE(finish(other.local, other.state, other_sends, other_receives));
    EXPECT_EQ(std::memcmp(one_sends.secret, other_receives.secret, 32), 0);
    EXPECT_EQ(one.member(), "bob");
    EXPECT_EQ(other.member(), "alice");
    EXPECT_STREQ(other.state.peer.node, "alpha");
}

TEST_F(MembersInHandshake, ProcessesOfOneMemberTakeEachOther) {
    End one = initiator("alice"), other = responder("alice");
    ASSERT_TRUE(other.read(one.hello()));
    ASSERT_TRUE(one.read(other.hello()));
    EXPECT_EQ(one.member(), "alice");
}

// protocol: H17
TEST_F(MembersInHandshake, WhoStoleTheJobKeyAndOurMemberKeyIsNobodyElseToUs) {
    End thief = liar(Role::initiator, "bob", alice);
    End victim = responder("bob");
    EXPECT_EQ(refusal(victim, thief.hello(), EACCES), kPoses);

    End other_victim = initiator("bob");
    End other_thief = liar(Role::responder, "bob", alice);
    ASSERT_TRUE(other_thief.read(other_victim.hello()));
    EXPECT_EQ(refusal(other_victim, other_thief.hello(), EACCES), kPoses);
}

// protocol: H16
TEST_F(MembersInHandshake, ASignatureOfAnotherHandshakeIsNotTaken) {
    lying_kex.ed25519_sign = sign_and_record;
    End honest(Role::initiator, key, folder.of("alice", lying_kex));
    honest.hello();
    // The thief has the job key, and opened what alice said to somebody else.
    lying_kex.ed25519_sign = sign_by_record;
    End thief = liar(Role::initiator, "bob", alice);
    End victim = responder("bob");
    EXPECT_EQ(refusal(victim, thief.hello(), EACCES), kPoses);
}

// protocol: H16
TEST_F(MembersInHandshake, ASignatureOfTheOtherRoleIsNotTaken) {
    lying_kex.ed25519_sign = sign_and_record;
    End honest(Role::initiator, key, folder.of("alice", lying_kex));
    End other = responder();
    ASSERT_TRUE(other.read(honest.hello()));
    lying_kex.ed25519_sign = sign_by_record;
    End victim = initiator("bob");
    End thief = liar(Role::responder, "bob", alice);
    ASSERT_TRUE(thief.read(victim.hello()));
    EXPECT_EQ(refusal(victim, thief.hello(), EACCES), kPoses);
}

// protocol: H16
TEST_F(MembersInHandshake, WhatIsSignedNamesItsPurposeTheRoleTheHandshakeTheIdentityAndTheKey) {
    lying_kex.ed25519_sign = sign_and_record;
    End honest(Role::initiator, key, folder.of("alice", lying_kex));
    Bytes hash(honest.state.symmetric.hash, honest.state.symmetric.hash + 32);
    hash.insert(hash.end(), honest.state.ephemeral_public, honest.state.ephemeral_public + 32);
    std::uint8_t expected_hash[32];
    const iovec in{hash.data(), hash.size()};
    ASSERT_EQ(test::crypto().kex->sha256(expected_hash, &in, 1), CRYPTMPI_OK);
    honest.hello();
    const std::string label = "cryptmpi member handshake\n";
    Bytes expected(label.begin(), label.end());
    expected.push_back(1);
    expected.insert(expected.end(), expected_hash, expected_hash + 32);
    const auto* self = reinterpret_cast<const std::uint8_t*>(&honest.self);
    expected.insert(expected.end(), self, self + kIdentitySize);
    expected.insert(expected.end(), alice.begin(), alice.end());
    EXPECT_EQ(signed_last, expected);
}

// protocol: H16
TEST_F(MembersInHandshake, AnIdentityThatAnotherPutBesideASignatureIsNotTaken) {
    // The ephemeral key is the thief's to choose: the same as in the hello whose signature he has, which leaves the
    // identity as the only difference.
    lying_kex.ed25519_sign = sign_and_record;
    for (const auto& change :
         {+[](Identity& self) { self.node[0] = 'z'; }, +[](Identity& self) { self.process[0] = 9; },
          +[](Identity& self) { self.local.port[1] = 1; }, +[](Identity&) {}}) {
        lying_kex.ed25519_sign = sign_and_record;
        lying_kex.ed25519_public = test::crypto().kex->ed25519_public;
        End honest(Role::initiator, key, folder.of("alice", lying_kex));
        const HandshakeState fresh = honest.state;
        honest.hello();
        lying_kex.ed25519_sign = sign_by_record;
        End thief = liar(Role::initiator, "bob", alice);
        thief.state = fresh;
        change(thief.state.self);
        const bool changed = std::memcmp(&thief.state.self, &fresh.self, sizeof(Identity)) != 0;
        End victim = responder("bob");
        victim.local.check_addresses = false;
        const auto done = victim.read(thief.hello());
        EXPECT_EQ(done.has_value(), !changed) << (done ? "" : done.error().line);
        EXPECT_EQ(done ? kPoses : done.error().line, kPoses);
    }
}

// protocol: H17
TEST_F(MembersInHandshake, WhoIsRevokedIsRefusedByTheNextHandshake) {
    const auto bobs = folder.of("bob");
    End one = initiator(), other = responder();
    ASSERT_TRUE(other.read(one.hello()));
    folder.revoke("alice");
    one.begin();
    other.begin();
    const std::string line = refusal(other, one.hello(), EACCES);
    EXPECT_TRUE(line.starts_with("the peer is no member that we take: member list " + folder.list_file().string() +
                                 " has no line \"NAME ed25519 "))
        << line;
    EXPECT_THROW(folder.of("alice"), std::runtime_error);
}

TEST_F(MembersInHandshake, AListThatCannotBeReadTakesNobody) {
    End one = initiator(), other = responder();
    std::filesystem::remove(folder.list_file());
    EXPECT_NE(refusal(other, one.hello(), ENOENT).find("cannot be read"), std::string::npos);
}

// protocol: H18
TEST_F(MembersInHandshake, WhoRequiresMembersAndWhoDoesNotRefuseEachOther) {
    const std::string we_require =
        "the peer does not prove which member it is, and require_members is on here: set require_members = true where "
        "it runs, too";
    const std::string they_require =
        "the peer requires members, and require_members is off here: set require_members = true here, too, with a "
        "member key (cryptmpi keygen --member)";
    {
        End one = without(Role::initiator), other = responder();
        EXPECT_EQ(refusal(other, one.hello(), EPROTO), we_require);
    }
    {
        End one = initiator(), other = without(Role::responder);
        EXPECT_EQ(refusal(other, one.hello(), EPROTO), they_require);
    }
    {
        End one = initiator(), helper = without(Role::initiator), other = without(Role::responder);
        one.hello();
        ASSERT_TRUE(other.read(helper.hello()));
        EXPECT_EQ(refusal(one, other.hello(), EPROTO), we_require);
    }
    {
        End one = without(Role::initiator), helper = initiator(), other = responder();
        one.hello();
        ASSERT_TRUE(other.read(helper.hello()));
        EXPECT_EQ(refusal(one, other.hello(), EPROTO), they_require);
    }
}

// protocol: H18
TEST_F(MembersInHandshake, ABitThatIsSetOrClearedOnTheWayHelpsNobody) {
    // Somebody on the way makes either hello look as the other side expects it.
    End one = without(Role::initiator), other = responder();
    Bytes hello = one.hello();
    hello[7] |= kMembers;
    hello.resize(kMemberHelloSize);
    EXPECT_NE(refusal(other, hello, EKEYREJECTED).find("does not open"), std::string::npos);

    End member = initiator(), plain = without(Role::responder);
    hello = member.hello();
    hello[7] = 0;
    hello.resize(kHelloSize);
    EXPECT_NE(refusal(plain, hello, EKEYREJECTED).find("does not open"), std::string::npos);

    End again = initiator(), taker = responder();
    hello = again.hello();
    hello.resize(kHelloSize);
    EXPECT_NE(refusal(taker, hello, EPROTO).find("200 bytes where 296 were due"), std::string::npos);
}

TEST_F(MembersInHandshake, EveryFlippedBitIsRefusedInEitherHello) {
    End one = initiator(), other = responder();
    const HandshakeState untouched = other.state;
    const Bytes first = one.hello();
    for (std::size_t at = 0; at < first.size(); ++at) {
        Bytes altered = first;
        altered[at] ^= static_cast<std::uint8_t>(1U << test::random_below(8));
        other.state = untouched;
        EXPECT_FALSE(other.read(altered)) << at;
    }
    other.state = untouched;
    ASSERT_TRUE(other.read(first));
    const Bytes second = other.hello();
    const HandshakeState waiting = one.state;
    for (std::size_t at = 0; at < second.size(); ++at) {
        Bytes altered = second;
        altered[at] ^= static_cast<std::uint8_t>(1U << test::random_below(8));
        one.state = waiting;
        EXPECT_FALSE(one.read(altered)) << at;
    }
    one.state = waiting;
    EXPECT_TRUE(one.read(second));
}

// protocol: H16
TEST_F(MembersInHandshake, EveryFlippedByteOfASignatureIsRefused) {
    for (std::size_t at = 0; at < recorded.size(); ++at) {
        lying_kex.ed25519_sign = sign_and_record;
        lying_kex.ed25519_public = test::crypto().kex->ed25519_public;
        End honest(Role::initiator, key, folder.of("alice", lying_kex));
        const HandshakeState fresh = honest.state;
        honest.hello();
        recorded[at] ^= 1;
        lying_kex.ed25519_sign = sign_by_record;
        honest.state = fresh;
        End victim = responder("bob");
        EXPECT_EQ(refusal(victim, honest.hello(), EACCES), kPoses) << at;
    }
}

/// Somebody with the job key who signs the share of a hello that is not his: the one who made it notices.
TEST_F(MembersInHandshake, WhoClaimsTheShareOfAnotherGetsNoFurther) {
    End honest = initiator("alice");
    const HandshakeState fresh = honest.state;
    honest.hello();
    End thief(Role::initiator, key, folder.of("bob"));
    thief.state = fresh;
    End victim = responder("bob");
    ASSERT_TRUE(victim.read(thief.hello()));  // as bob's, under a share whose private key only alice has
    EXPECT_EQ(victim.member(), "bob");
    EXPECT_NE(refusal(honest, victim.hello(), EKEYREJECTED).find("does not open"), std::string::npos);
}

TEST_F(MembersInHandshake, AFailingSignatureEndsTheHandshake) {
    lying_kex.ed25519_sign = [](std::uint8_t*, const std::uint8_t*, const std::uint8_t*, std::size_t) -> int {
        return CRYPTMPI_FAILED;
    };
    End one(Role::initiator, key, folder.of("alice", lying_kex));
    Bytes out(kMemberHelloSize);
    EXPECT_FALSE(write_hello(one.local, one.state, out));
    EXPECT_TRUE(test::all_zero(&one.state, sizeof one.state));
    EXPECT_TRUE(test::all_zero(out.data() + 48, out.size() - 48));
}

TEST_F(MembersInHandshake, ANodeWithoutTheKeyOrTheLineSaysSo) {
    const auto none = keys::Membership::read(*test::crypto().kex, folder.key_file("nobody"), folder.list_file());
    ASSERT_FALSE(none);
    EXPECT_TRUE(none.error().line.starts_with("require_members is on: member key file ")) << none.error().line;
    EXPECT_NE(none.error().line.find("cryptmpi keygen --member"), std::string::npos) << none.error().line;
    folder.revoke("alice");
    const auto unlisted = keys::Membership::read(*test::crypto().kex, folder.key_file("alice"), folder.list_file());
    ASSERT_FALSE(unlisted);
    EXPECT_NE(unlisted.error().line.find("is of nobody here: member list "), std::string::npos)
        << unlisted.error().line;
    EXPECT_EQ(unlisted.error().line.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace cryptmpi::keys
