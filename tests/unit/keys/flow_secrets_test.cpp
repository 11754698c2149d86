// What the ranks of a job make of their agreement: both ends of a flow come to the same secret, and nobody else does,
// whatever he has lost or keeps.
#include "keys/flow_secrets.hpp"

#include <cerrno>
#include <set>

#include "seal/key_schedule.hpp"
#include "seal/process_memory.hpp"
#include "seal/support.hpp"

namespace cryptmpi::keys {
namespace {

using test::Bytes;

const cryptmpi_kex& kex() {
    return *test::crypto().kex;
}

CommunicatorId id_of(std::uint8_t number) {
    CommunicatorId id;
    id.fill(number);
    return id;
}

const CommunicatorId kWorld = id_of(0xA5);

Bytes bytes_of(const Secret<32>& secret) {
    return Bytes(secret.bytes, secret.bytes + 32);
}

/// What every rank has after an agreement.
struct Job {
    explicit Job(int ranks) {
        secret = test::random_bytes(32);
        for (int rank = 0; rank < ranks; ++rank) {
            privates.push_back(test::random_bytes(32));
            EXPECT_EQ(kex().x25519_public(shares.emplace_back().data(), privates.back().data()), CRYPTMPI_OK);
        }
    }
    std::unique_ptr<FlowSecrets> rank(int self) const {
        Agreed agreed;
        std::memcpy(agreed.secret.data(), secret.data(), 32);
        std::memcpy(agreed.private_key.data(), privates[static_cast<std::size_t>(self)].data(), 32);
        agreed.shares = shares;
        auto made = FlowSecrets::make(kex(), self, kWorld, agreed);
        EXPECT_TRUE(made);
        EXPECT_TRUE(test::all_zero(agreed.secret.data(), 32) && test::all_zero(agreed.private_key.data(), 32));
        EXPECT_TRUE(agreed.shares.empty());
        return std::move(*made);
    }

    Bytes secret;
    std::vector<Bytes> privates;
    std::vector<Share> shares;
};

Bytes taken(FlowSecrets& from, int sender, int receiver, Use use, const CommunicatorId& id) {
    Secret<32> out;
    const auto done = from.take(sender, receiver, use, id, out);
    EXPECT_TRUE(done) << done.error().line;
    return bytes_of(out);
}

int refusal(FlowSecrets& from, int sender, int receiver, Use use, const CommunicatorId& id) {
    Secret<32> out;
    const auto done = from.take(sender, receiver, use, id, out);
    return done ? 0 : done.error().code;
}

Bytes expanded(const Bytes& secret, const std::string& label, std::size_t size = 32) {
    Bytes out(size);
    EXPECT_TRUE(seal::expand(kex(), secret.data(), label, out.data(), size));
    return out;
}

std::string numbers(std::initializer_list<int> values) {
    std::string text;
    for (const int value : values) text += std::string(1, static_cast<char>(value)) + std::string(3, '\0');
    return text;
}

Bytes branch(Bytes secret, const std::string& bits) {
    for (const char bit : bits) {
        const Bytes both = expanded(secret, "mpi branch", 64);
        secret.assign(both.begin() + (bit == '1' ? 32 : 0), both.begin() + (bit == '1' ? 64 : 32));
    }
    return secret;
}

/// docs/protocol.md, of ranks below 256, by hand.
Bytes pair_secret(const Job& job, int private_of, int share_of) {
    Bytes shared(32);
    EXPECT_EQ(kex().x25519_shared(shared.data(), job.privates[static_cast<std::size_t>(private_of)].data(),
                                  job.shares[static_cast<std::size_t>(share_of)].data()),
              CRYPTMPI_OK);
    const Bytes pairs = expanded(job.secret, "mpi pairs");
    Bytes extracted(32);
    const iovec in{shared.data(), shared.size()};
    EXPECT_EQ(kex().hmac_sha256(extracted.data(), pairs.data(), pairs.size(), &in, 1), CRYPTMPI_OK);
    return expanded(extracted, "mpi pair" + numbers({std::min(private_of, share_of), std::max(private_of, share_of)}));
}

std::string id_bits(const CommunicatorId& id) {
    std::string bits = "1";
    for (int at = 0; at < 61; ++at) bits += (id[static_cast<std::size_t>(at / 8)] >> (7 - at % 8) & 1) != 0 ? '1' : '0';
    return bits;
}

// protocol: M8
TEST(FlowSecrets, BothEndsHaveWhatTheDescriptionSays) {
    const Job job(4);
    const auto one = job.rank(1);
    const auto three = job.rank(3);
    const Bytes pair = pair_secret(job, 3, 1);
    const CommunicatorId other = id_of(0x3C);
    for (const Use use : {Use::messages, Use::collective}) {
        const std::string bit = use == Use::messages ? "0" : "1";
        EXPECT_EQ(taken(*one, 1, 3, use, kWorld), branch(pair, "0" + bit + "0"));
        EXPECT_EQ(taken(*one, 3, 1, use, other), branch(pair, id_bits(other) + bit + "1"));
        EXPECT_EQ(taken(*three, 3, 1, use, other), branch(pair, id_bits(other) + bit + "1"));
        EXPECT_EQ(taken(*three, 1, 3, use, kWorld), branch(pair, "0" + bit + "0"));
    }
}

TEST(FlowSecrets, EveryFlowHasItsOwn) {
    const Job job(3);
    std::set<Bytes> all;
    std::size_t flows = 0;
    for (const int self : {0, 2}) {
        const auto secrets = job.rank(self);
        for (const CommunicatorId& id : {kWorld, id_of(1), id_of(2)}) {
            for (const Use use : {Use::messages, Use::collective}) {
                all.insert(taken(*secrets, self, 1, use, id));
                all.insert(taken(*secrets, 1, self, use, id));
                flows += 2;
            }
        }
    }
    EXPECT_EQ(all.size(), flows);
}

TEST(FlowSecrets, WhatARankSendsItselfHasASecretThatWasDrawn) {
    const Job job(2);
    const auto secrets = job.rank(0);
    const Bytes first = taken(*secrets, 0, 0, Use::messages, kWorld);
    EXPECT_NE(first, taken(*secrets, 0, 0, Use::messages, id_of(1)));
    EXPECT_NE(first, taken(*job.rank(0), 0, 0, Use::messages, kWorld));
    EXPECT_EQ(refusal(*secrets, 0, 0, Use::messages, kWorld), EEXIST);
    // The other ranks are met all the same.
    EXPECT_EQ(taken(*secrets, 0, 1, Use::messages, kWorld), taken(*job.rank(1), 0, 1, Use::messages, kWorld));
}

TEST(FlowSecrets, AnotherJobSecretOrAnotherShareIsAnotherSecret) {
    const Job job(2);
    Job other = job;
    other.secret[0] ^= 1;
    EXPECT_NE(taken(*job.rank(0), 0, 1, Use::messages, kWorld), taken(*other.rank(0), 0, 1, Use::messages, kWorld));
    other = job;
    other.privates[0][1] ^= 1;
    EXPECT_NE(taken(*job.rank(0), 0, 1, Use::messages, kWorld), taken(*other.rank(0), 0, 1, Use::messages, kWorld));
}

TEST(FlowSecrets, AThirdRankCannotMakeAPairsSecret) {
    // All that rank 2 ever had: the job's secret, its own private key, everybody's shares.
    const Job job(3);
    const Bytes real = taken(*job.rank(0), 0, 1, Use::messages, kWorld);
    for (const int share_of : {0, 1}) {
        Job lost = job;
        for (const int claimed : {0, 1}) {
            if (claimed == share_of) continue;
            lost.privates[static_cast<std::size_t>(claimed)] = job.privates[2];
            EXPECT_NE(taken(*lost.rank(claimed), 0, 1, Use::messages, kWorld), real);
        }
    }
    EXPECT_EQ(refusal(*job.rank(2), 0, 1, Use::messages, kWorld), EINVAL);
}

TEST(FlowSecrets, AFlowIsGivenOnce) {
    const Job job(2);
    const auto secrets = job.rank(0);
    for (const CommunicatorId& id : {kWorld, id_of(1)}) {
        taken(*secrets, 0, 1, Use::messages, id);
        EXPECT_EQ(refusal(*secrets, 0, 1, Use::messages, id), EEXIST);
        taken(*secrets, 1, 0, Use::messages, id);
    }
    const auto group = secrets->of_all(id_of(9));
    ASSERT_TRUE(group);
    EXPECT_FALSE(secrets->of_all(id_of(9)));
    Secret<32> out;
    EXPECT_TRUE((*group)->take(1, out));
    EXPECT_FALSE((*group)->take(1, out));
}

// protocol: M7
/// Everything that a rank keeps is in this process; nothing else here knows it.
TEST(FlowSecrets, ARankThatIsLostLaterDoesNotGiveWhatItHadTaken) {
    Agreed agreed;
    agreed.shares.reserve(3);
    ASSERT_EQ(kex().random(agreed.secret.data(), 32), CRYPTMPI_OK);
    ASSERT_EQ(kex().random(agreed.private_key.data(), 32), CRYPTMPI_OK);
    const test::Hidden job_secret(agreed.secret.data(), 32);
    const test::Hidden private_key(agreed.private_key.data(), 32);
    std::vector<test::Hidden> shares;
    for (int rank = 0; rank < 3; ++rank) {
        Secret<32> secret;
        ASSERT_EQ(kex().random(secret.data(), 32), CRYPTMPI_OK);
        const std::uint8_t* const key = rank == 0 ? agreed.private_key.data() : secret.data();
        ASSERT_EQ(kex().x25519_public(agreed.shares.emplace_back().data(), key), CRYPTMPI_OK);
        shares.emplace_back(agreed.shares.back().data(), 32);
    }
    std::vector<test::Hidden> pairs;
    for (const std::size_t peer : {1, 2}) {
        Secret<32> shared;
        Secret<32> root;
        Secret<32> extracted;
        Secret<32> pair;
        ASSERT_EQ(kex().x25519_shared(shared.data(), agreed.private_key.data(), agreed.shares[peer].data()),
                  CRYPTMPI_OK);
        ASSERT_TRUE(seal::expand(kex(), agreed.secret.data(), "mpi pairs", root.data(), 32));
        const iovec in{shared.data(), 32};
        ASSERT_EQ(kex().hmac_sha256(extracted.data(), root.data(), 32, &in, 1), CRYPTMPI_OK);
        const std::string label = "mpi pair" + numbers({0, static_cast<int>(peer)});
        ASSERT_TRUE(seal::expand(kex(), extracted.data(), label, pair.data(), 32));
        pairs.emplace_back(pair.data(), 32);
    }
    EXPECT_TRUE(job_secret.is_in_memory());
    const auto secrets = std::move(*FlowSecrets::make(kex(), 0, kWorld, agreed));
    EXPECT_FALSE(job_secret.is_in_memory());
    EXPECT_TRUE(private_key.is_in_memory());  // for ranks that were not met
    EXPECT_TRUE(shares[1].is_in_memory());
    test::Hidden flow = [&] {
        Secret<32> out;
        EXPECT_TRUE(secrets->take(0, 1, Use::messages, kWorld, out));
        return test::Hidden(out.data(), 32);
    }();
#ifndef CRYPTMPI_SANITIZED  // ASan keeps what libcrypto has freed of a share, which is no secret to libcrypto
    EXPECT_FALSE(shares[1].is_in_memory());
#endif
    EXPECT_FALSE(pairs[0].is_in_memory());
    EXPECT_FALSE(flow.is_in_memory());
    EXPECT_TRUE(private_key.is_in_memory());
    EXPECT_TRUE(shares[2].is_in_memory());
    {
        Secret<32> out;
        EXPECT_TRUE(secrets->take(2, 0, Use::collective, kWorld, out));
    }
#ifndef CRYPTMPI_SANITIZED
    EXPECT_FALSE(shares[2].is_in_memory());
#endif
    EXPECT_FALSE(pairs[1].is_in_memory());
    EXPECT_FALSE(private_key.is_in_memory());  // it was for those two only
}

// protocol: M8
TEST(GroupSecret, IsWhatTheDescriptionSays) {
    const Job job(5);
    const auto secrets = job.rank(1);
    const Bytes groups = expanded(job.secret, "mpi groups");
    const auto of = [](GroupSecret& group, int sender) {
        Secret<32> out;
        EXPECT_TRUE(group.take(sender, out));
        return bytes_of(out);
    };
    auto world = secrets->of_all(kWorld);
    ASSERT_TRUE(world);
    EXPECT_EQ(of(**world, 4), branch(groups,
                                     "0"
                                     "100"));
    EXPECT_EQ(of(**world, 1), branch(groups,
                                     "0"
                                     "001"));
    auto other = secrets->of_all(id_of(0x3C));
    ASSERT_TRUE(other);
    EXPECT_EQ(of(**other, 3), branch(groups, id_bits(id_of(0x3C)) + "011"));
    Secret<32> drawn;
    drawn.bytes[0] = 1;
    auto subset = GroupSecret::of_drawn(kex(), drawn, id_of(7), 2);
    ASSERT_TRUE(subset);
    EXPECT_EQ(of(**subset, 1), branch(expanded(bytes_of(drawn), "mpi group" + std::string(32, 7)), "1"));
}

TEST(GroupSecret, OfMembersOnlyComesFromNothingThatOthersHave) {
    // What is drawn is not a function of the job's secret: two draws for one communicator have nothing in common.
    Secret<32> one;
    Secret<32> two;
    two.bytes[31] = 1;
    Secret<32> out_one;
    Secret<32> out_two;
    ASSERT_TRUE((*GroupSecret::of_drawn(kex(), one, id_of(7), 3))->take(0, out_one));
    ASSERT_TRUE((*GroupSecret::of_drawn(kex(), two, id_of(7), 3))->take(0, out_two));
    EXPECT_NE(bytes_of(out_one), bytes_of(out_two));
}

// protocol: M9
TEST(FlowSecrets, AShareThatIsNoneIsRefused) {
    Job job(2);
    job.shares[1] = Share{1};  // of low order
    EXPECT_EQ(refusal(*job.rank(0), 0, 1, Use::messages, kWorld), EPROTO);
}

TEST(FlowSecrets, AFailingModuleGivesNothing) {
    const Job job(2);
    cryptmpi_kex broken = kex();
    broken.hmac_sha256 = [](std::uint8_t*, const std::uint8_t*, std::size_t, const iovec*, std::size_t) -> int {
        return CRYPTMPI_FAILED;
    };
    Agreed agreed;
    agreed.shares = job.shares;
    EXPECT_FALSE(FlowSecrets::make(broken, 0, kWorld, agreed));
}

}  // namespace
}  // namespace cryptmpi::keys
