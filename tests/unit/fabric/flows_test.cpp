// Parties and what passes between them: what opens, at which receive, and what does not.
#include "fabric/flows.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <map>

#include "by_hand.hpp"
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

Job join(std::string_view id = "job", const keys::JobKey& key = some_key(), const seal::Crypto& with = crypto()) {
    auto job = Job::join(with, key, id);
    EXPECT_TRUE(job);
    return std::move(*job);
}

/// A party with its own job, as if in a process of its own.
struct End {
    explicit End(std::string_view id = "job", const keys::JobKey& key = some_key(), const seal::Crypto& with = crypto())
        : job(join(id, key, with)), party(std::move(*Party::make(job))) {}

    Bytes seal(const End& to, const Envelope& envelope, const Bytes& plain) const {
        Bytes wire(plain.size() + kOverhead);
        const iovec in{const_cast<std::uint8_t*>(plain.data()), plain.size()};
        auto peer = party->meet(to.party->share());
        EXPECT_TRUE(peer);
        EXPECT_TRUE(party->seal(**peer, envelope, {&in, 1}, plain.size(), wire.data()));
        return wire;
    }
    Bytes seal_tagged(const End& to, std::uint64_t tag, const Bytes& plain) const {
        return seal(to, {Kind::tagged, tag}, plain);
    }

    /// What it opened to; `error` is empty if it opened. What did not open left zeros.
    struct Opened {
        Bytes plain;
        int error = 0;
    };
    Opened result(const Result<Peer*>& opened, Bytes plain) const {
        if (opened) return {std::move(plain), 0};
        EXPECT_TRUE(all_zero(plain.data(), plain.size()));
        EXPECT_FALSE(opened.error().line.empty());
        return {{}, opened.error().code};
    }
    Opened open(const Envelope& envelope, const Bytes& wire) const {
        Bytes plain(wire.size() < kOverhead ? 0 : wire.size() - kOverhead, 0xAA);
        const iovec out{plain.data(), plain.size()};
        const auto opened = party->open(envelope, wire.data(), wire.size(), {&out, 1});
        return result(opened, plain);
    }
    Opened open_at(Posted& posted, std::uint64_t tag, const Bytes& wire,
                   std::span<const std::uint8_t> bound = {}) const {
        Bytes plain(wire.size() < kOverhead ? 0 : wire.size() - kOverhead, 0xAA);
        const iovec out{plain.data(), plain.size()};
        const auto opened = party->open(posted, tag, bound, wire.data(), wire.size(), {&out, 1});
        return result(opened, plain);
    }
    /// At a receive that is posted for it now.
    Opened open_tagged(std::uint64_t tag, const Bytes& wire) const {
        Posted posted;
        party->post(posted, exactly(tag));
        return open_at(posted, tag, wire);
    }
    static Wanted exactly(std::uint64_t tag) { return {tag, ~std::uint64_t{0}, nullptr, true}; }

    Job job;
    std::unique_ptr<Party> party;
};

/// Ends whose processes began before and after another key was put into the key file.
class Rotation : public testing::Test {
protected:
    struct RingEnd {
        explicit RingEnd(const std::filesystem::path& file)
            : ring(std::move(*keys::KeyRing::read(*crypto().kex, file, KeyReaders::owner, ""))),
              end("job", ring->own()) {
            end.party.reset();
            end.job = std::move(*Job::join(crypto(), *ring, "job"));
            end.party = std::move(*Party::make(end.job));
        }
        std::unique_ptr<keys::KeyRing> ring;
        End end;
    };

    void SetUp() override {
        std::string name = (std::filesystem::temp_directory_path() / "cryptmpi-ring-XXXXXX").string();
        ASSERT_NE(mkdtemp(name.data()), nullptr);
        folder_ = name;
        file_ = folder_ / "job.key";
        ASSERT_TRUE(keys::write_job_key(file_, *crypto().kex, false));
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }
    void rotate() const {
        keys::JobKeys both;
        both.push_back(std::move(*keys::draw_job_key(*crypto().kex)));
        both.push_back(std::move(*keys::read_job_key(file_)));
        ASSERT_TRUE(keys::write_job_keys(file_, both, true));
    }
    void revoke_the_old() const {
        keys::JobKeys one;
        one.push_back(std::move(*keys::read_job_key(file_)));
        ASSERT_TRUE(keys::write_job_keys(file_, one, true));
    }

    std::filesystem::path folder_;
    std::filesystem::path file_;
};

// protocol: F17
TEST_F(Rotation, WhatBeganBeforeAndWhatBeganAfterUnderstandEachOther) {
    const RingEnd before(file_);
    rotate();
    const RingEnd after(file_);
    const Bytes plain = random_bytes(1000);
    for (int i = 0; i < 3; ++i) {
        EXPECT_EQ(after.end.open_tagged(5, before.end.seal_tagged(after.end, 5, plain)).plain, plain);
        EXPECT_EQ(before.end.open_tagged(5, after.end.seal_tagged(before.end, 5, plain)).plain, plain);
        EXPECT_EQ(before.end.open({Kind::active, 1}, after.end.seal(before.end, {Kind::active, 1}, plain)).plain,
                  plain);
    }
    std::uint8_t proof[kProofSize];
    ASSERT_TRUE(before.end.party->prove(plain, before.end.party->share(), proof));
    EXPECT_TRUE(*after.end.party->proves(plain, before.end.party->share(), proof));
}

TEST_F(Rotation, AMessageThatWasCutOffBeforeSaysNothingOfThePeersKey) {
    const RingEnd before(file_);
    rotate();
    const RingEnd after(file_);
    const Bytes cut = before.end.seal_tagged(after.end, 5, random_bytes(100));
    Posted posted;
    after.end.party->post(posted, End::exactly(5));
    ASSERT_TRUE(after.end.party->meet(before.end.party->share()));
    ASSERT_TRUE(after.end.party->cut_off(posted, 5, cut.data(), cut.size()));
    EXPECT_EQ(after.end.open({Kind::active, 1}, before.end.seal(after.end, {Kind::active, 1}, {7})).plain, Bytes{7});
    EXPECT_EQ(after.end.open_tagged(5, before.end.seal_tagged(after.end, 5, {8})).plain, Bytes{8});
}

TEST_F(Rotation, ARevokedKeyOpensNothing) {
    const RingEnd before(file_);
    rotate();
    const RingEnd after(file_);
    revoke_the_old();
    EXPECT_EQ(after.end.open_tagged(5, before.end.seal_tagged(after.end, 5, {1, 2})).error, EBADMSG);
    std::uint8_t proof[kProofSize];
    ASSERT_TRUE(before.end.party->prove({}, before.end.party->share(), proof));
    EXPECT_FALSE(*after.end.party->proves({}, before.end.party->share(), proof));
}

TEST_F(Rotation, NobodySpeaksForAPeerWithoutItsPrivateKey) {
    const RingEnd before(file_);
    rotate();
    const RingEnd after(file_);
    EXPECT_EQ(after.end.open_tagged(5, before.end.seal_tagged(after.end, 5, {1})).plain, Bytes{1});
    // A message by the same share under another key that is taken, by whoever has both.
    Bytes forged = after.end.seal_tagged(before.end, 5, {2});
    const auto& share = before.end.party->share();
    std::copy(share.begin(), share.end(), forged.begin());
    EXPECT_EQ(after.end.open_tagged(5, forged).error, EBADMSG);
}

/// Crypto by which every party has the same private key, and so the same share.
seal::Crypto of_one_party() {
    static const cryptmpi_kex kex = [] {
        cryptmpi_kex copy = *crypto().kex;
        copy.random = [](std::uint8_t* out, std::size_t size) -> int {
            std::fill_n(out, size, std::uint8_t{0x42});
            return CRYPTMPI_OK;
        };
        return copy;
    }();
    seal::Crypto with = crypto();
    with.kex = &kex;
    return with;
}

// protocol: F17
TEST_F(Rotation, WhatOpenedStaysThatPartys) {
    rotate();
    const auto keys = *keys::read_job_keys(file_);
    for (const std::size_t first : {0U, 1U}) {
        const RingEnd receiver(file_);
        // Who has both keys and the private key speaks under one of them first.
        const End as_before("job", *keys[first], of_one_party());
        const End otherwise("job", *keys[1 - first], of_one_party());
        ASSERT_EQ(as_before.party->share(), otherwise.party->share());
        EXPECT_EQ(receiver.end.open_tagged(5, as_before.seal_tagged(receiver.end, 5, {1})).plain, Bytes{1});

        // In another lane, and later in the same one: nothing but the key is wrong.
        EXPECT_EQ(receiver.end.open_tagged(6, otherwise.seal_tagged(receiver.end, 6, {2})).error, EBADMSG);
        (void)otherwise.seal_tagged(receiver.end, 5, {3});
        EXPECT_EQ(receiver.end.open_tagged(5, otherwise.seal_tagged(receiver.end, 5, {4})).error, EBADMSG);
        const Envelope active{Kind::active, 1};
        EXPECT_EQ(receiver.end.open(active, otherwise.seal(receiver.end, active, {5})).error, EBADMSG);
        EXPECT_EQ(receiver.end.open(active, as_before.seal(receiver.end, active, {6})).plain, Bytes{6});
        EXPECT_EQ(receiver.end.open_tagged(5, as_before.seal_tagged(receiver.end, 5, {7})).plain, Bytes{7});
    }
}

class EveryFlow : public testing::TestWithParam<aead::Suite> {};
INSTANTIATE_TEST_SUITE_P(Flows, EveryFlow, testing::ValuesIn(test::suites()), test::test_name);

TEST_P(EveryFlow, OpensToWhatWasSealed) {
    const End a("job", some_key(), crypto(GetParam()));
    const End b("job", some_key(), crypto(GetParam()));
    for (const std::size_t size : {0, 1, 15, 16, 17, 4096, 100000}) {
        const Bytes plain = random_bytes(size);
        EXPECT_EQ(b.open_tagged(5, a.seal_tagged(b, 5, plain)).plain, plain);
        EXPECT_EQ(a.open_tagged(5, b.seal_tagged(a, 5, plain)).plain, plain);
        EXPECT_EQ(b.open({Kind::active, 3}, a.seal(b, {Kind::active, 3}, plain)).plain, plain);
        EXPECT_EQ(b.open({Kind::message}, a.seal(b, {Kind::message}, plain)).plain, plain);
    }
    const auto counters = a.party->counters();
    EXPECT_EQ(counters.peers, 1U);
    EXPECT_EQ(counters.sent[0].messages, 7U);
    EXPECT_EQ(counters.sent[0].bytes, b.party->counters().received[0].bytes);
    EXPECT_EQ(counters.sent[1].messages, 7U);
}

TEST(Flows, NobodyNeedsTheSendersAddress) {
    const End a;
    const End b;
    const Bytes plain = random_bytes(100);
    EXPECT_EQ(b.open_tagged(1, a.seal_tagged(b, 1, plain)).plain, plain);  // b never met a
    EXPECT_EQ(b.party->counters().peers, 1U);
}

TEST(Flows, APartyTalksToItself) {
    const End a;
    const Bytes plain = random_bytes(100);
    EXPECT_EQ(a.open_tagged(1, a.seal_tagged(a, 1, plain)).plain, plain);
}

TEST(Flows, EveryByteOfAMessageIsBound) {
    const End a;
    const End b;
    const Bytes wire = a.seal(b, {Kind::active, 3}, random_bytes(20));
    for (std::size_t at = 0; at < wire.size(); ++at) {
        for (const int bit : {0x01, 0x80}) {
            Bytes altered = wire;
            altered[at] = static_cast<std::uint8_t>(altered[at] ^ bit);
            // X25519 ignores the highest bit of a share; what is derived from the share does not.
            EXPECT_NE(b.open({Kind::active, 3}, altered).error, 0) << at;
        }
    }
    EXPECT_EQ(b.party->counters().peers, 0U) << "a share that nothing opened under was remembered";
    EXPECT_EQ(b.open({Kind::active, 3}, wire).error, 0);
}

TEST(Flows, NeitherShorterNorLongerOpens) {
    const End a;
    const End b;
    const Bytes wire = a.seal(b, {Kind::active}, random_bytes(20));
    for (const std::size_t size : {std::size_t{0}, std::size_t{1}, kOverhead - 1, kOverhead, wire.size() - 1}) {
        EXPECT_EQ(b.open({Kind::active}, Bytes(wire.begin(), wire.begin() + static_cast<long>(size))).error, EBADMSG);
    }
    Bytes longer = wire;
    longer.push_back(0);
    EXPECT_EQ(b.open({Kind::active}, longer).error, EBADMSG);
}

/// docs/protocol.md, step by step, by a peer that is played by hand.
// protocol: F2, F5
TEST(Flows, MessagesAreSealedAsDescribed) {
    const End a("job", some_key());
    const PlayedPeer peer(*a.party, some_key());
    const Bytes bound = {7, 8};
    const struct {
        Kind kind;
        std::string label;
        std::uint64_t tag;
    } kinds[] = {{Kind::tagged, "fabric tagged", 0x1112131415161718},
                 {Kind::active, "fabric active", 5},
                 {Kind::message, "fabric message", 0}};
    for (const auto& [kind, label, tag] : kinds) {
        const Bytes epoch = peer.epoch_secret(label);
        Bytes nonce = expanded(epoch, text("nonce"), 12);
        for (unsigned i = 0; i < 8; ++i) nonce[i] ^= static_cast<std::uint8_t>(tag >> (56 - 8 * i));
        const Bytes plain = random_bytes(30);
        Bytes wire = joined({peer.share, {0, 0, 0, 0, 0, 0, 3, 0}, plain, Bytes(16)});
        const Bytes associated = joined({Bytes(wire.begin(), wire.begin() + 40), bound});
        void* const context = crypto().aead->create(CRYPTMPI_AES_256_GCM, expanded(epoch, text("key"), 32).data());
        const iovec piece{const_cast<std::uint8_t*>(plain.data()), plain.size()};
        ASSERT_EQ(crypto().aead->seal(context, nonce.data(), associated.data(), associated.size(), &piece, 1,
                                      wire.data() + 40, wire.data() + 70),
                  CRYPTMPI_OK);
        crypto().aead->destroy(context);
        if (kind == Kind::tagged) {
            Posted posted;
            a.party->post(posted, End::exactly(tag));
            EXPECT_EQ(a.open_at(posted, tag, wire, bound).plain, plain);
        } else {
            EXPECT_EQ(a.open({kind, tag, bound}, wire).plain, plain);
        }
    }
}

// protocol: F3
TEST(Flows, KeysChangeAtTheLimitAndAFlowEndsWithItsKeys) {
    seal::Crypto lowered = crypto();
    lowered.lowered = {2, 100};
    const End a("job", some_key(), lowered);
    const End b("job", some_key(), lowered);
    const auto epoch_of = [](const Bytes& wire) { return wire[38] | wire[39] << 8; };
    const auto send = [&](std::size_t size) {
        const Bytes plain = random_bytes(size);
        const Bytes wire = a.seal(b, {Kind::message}, plain);
        EXPECT_EQ(b.open({Kind::message}, wire).plain, plain);
        return epoch_of(wire);
    };
    std::vector<int> epochs;
    for (const std::size_t size : {1, 1, 1, 1, 60, 60, 500, 1}) epochs.push_back(send(size));
    EXPECT_EQ(epochs, (std::vector{0, 0, 1, 1, 2, 3, 4, 5}));
    EXPECT_EQ(a.party->counters().rekeys, 5U);

    seal::Crypto once = crypto();
    once.lowered = {1, 100};
    const End c("job", some_key(), once);
    for (int message = 0; message < 1 << 15; ++message) (void)c.seal(b, {Kind::message}, {});
    auto peer = c.party->meet(b.party->share());
    Bytes wire(kOverhead);
    const auto one_more = c.party->seal(**peer, {Kind::message}, {}, 0, wire.data());
    ASSERT_FALSE(one_more);
    EXPECT_EQ(one_more.error().code, EOVERFLOW);
}

// protocol: F1
TEST(Flows, EveryPartyHasAFreshShare) {
    const End a;
    const End b;
    const auto another = Party::make(a.job);
    ASSERT_TRUE(another);
    EXPECT_NE(a.party->share(), b.party->share());
    EXPECT_NE(a.party->share(), (*another)->share());
}

// protocol: F5
TEST(Flows, TagKindAndWhatTheDoorBindsAreBound) {
    const End a;
    const End b;
    const std::uint8_t header[] = {1, 2, 3};
    const std::uint8_t other[] = {1, 2, 4};
    const Bytes plain = random_bytes(20);
    const Bytes wire = a.seal(b, {Kind::active, 3, header}, plain);
    EXPECT_NE(b.open({Kind::active, 4, header}, wire).error, 0);
    EXPECT_NE(b.open({Kind::active, std::uint64_t{1} << 63 | 3, header}, wire).error, 0);
    EXPECT_NE(b.open({Kind::message, 3, header}, wire).error, 0);
    EXPECT_NE(b.open({Kind::active, 3, other}, wire).error, 0);
    EXPECT_NE(b.open({Kind::active, 3}, wire).error, 0);
    EXPECT_EQ(b.open({Kind::active, 3, header}, wire).plain, plain);
    const Bytes tagged = a.seal_tagged(b, 7, plain);
    for (const std::uint64_t tag : {6ULL, 7ULL | 1ULL << 32, 7ULL | 1ULL << 63}) {
        EXPECT_NE(b.open_tagged(tag, tagged).error, 0) << tag;
    }
}

/// As a module that reads twice, while a network card writes what a forged packet has.
std::uint8_t* written_by_network = nullptr;
int open_while_somebody_writes(void* context, const std::uint8_t* nonce, const std::uint8_t* bound,
                               std::size_t bound_size, const std::uint8_t* wire, std::size_t size, const iovec* out,
                               std::size_t count, const std::uint8_t* tag) {
    *written_by_network ^= 1;
    return crypto().aead->open(context, nonce, bound, bound_size, wire, size, out, count, tag);
}

TEST(Flows, WhatTheNetworkWritesMeanwhileChangesNothing) {
    static cryptmpi_aead writing = *crypto().aead;
    writing.open = open_while_somebody_writes;
    const End a;
    auto job = Job::join({&writing, crypto().kex, crypto().suite}, some_key(), "job", true);
    ASSERT_TRUE(job);
    auto b = Party::make(*job);
    ASSERT_TRUE(b);
    auto to = a.party->meet((*b)->share());
    ASSERT_TRUE(to);
    const Bytes plain = random_bytes(100);
    const iovec in{const_cast<std::uint8_t*>(plain.data()), plain.size()};
    for (const std::size_t at : {std::size_t{0}, kShareSize, kPrefixSize, kPrefixSize + plain.size()}) {
        Bytes wire(plain.size() + kOverhead);
        ASSERT_TRUE(a.party->seal(**to, {Kind::message}, {&in, 1}, plain.size(), wire.data()));
        written_by_network = wire.data() + at;
        Bytes got(plain.size());
        const iovec out{got.data(), got.size()};
        EXPECT_TRUE((*b)->open({Kind::message}, wire.data(), wire.size(), {&out, 1})) << at;
        EXPECT_EQ(got, plain);
    }
}

/// As a module that reads back what it has encrypted, and so authenticates what is there by then.
int seal_while_somebody_writes(void* context, const std::uint8_t* nonce, const std::uint8_t* bound,
                               std::size_t bound_size, const iovec* in, std::size_t count, std::uint8_t* out,
                               std::uint8_t* tag) {
    const int status = crypto().aead->seal(context, nonce, bound, bound_size, in, count, out, tag);
    const std::uint8_t written = out[0];
    *written_by_network ^= 1;
    if (status != CRYPTMPI_OK || out[0] == written) return status;
    const auto* const at = static_cast<const std::uint8_t*>(in->iov_base);
    Bytes changed(at, at + in->iov_len);
    changed[0] ^= 1;
    const iovec one{changed.data(), changed.size()};
    return crypto().aead->seal(context, nonce, bound, bound_size, &one, 1, out, tag);
}

TEST(Flows, WhatTheNetworkWritesIsNotAuthenticated) {
    static cryptmpi_aead writing = *crypto().aead;
    writing.seal = seal_while_somebody_writes;
    auto job = Job::join({&writing, crypto().kex, crypto().suite}, some_key(), "job", true);
    ASSERT_TRUE(job);
    auto a = Party::make(*job);
    ASSERT_TRUE(a);
    const End b;
    auto to = (*a)->meet(b.party->share());
    ASSERT_TRUE(to);
    const Bytes plain = random_bytes(100);
    const iovec in{const_cast<std::uint8_t*>(plain.data()), plain.size()};
    Bytes wire(plain.size() + kOverhead);
    written_by_network = wire.data() + kPrefixSize;
    ASSERT_TRUE((*a)->seal(**to, {Kind::message}, {&in, 1}, plain.size(), wire.data()));
    EXPECT_EQ(b.open({Kind::message}, wire).plain, plain);
}

/// As many lanes as are kept in use, and more: what the first of them had is known all the same.
class ManyLanes : public testing::Test {
protected:
    static constexpr std::uint64_t kMany = 1500;

    /// One message in each lane but the first.
    void use_others() {
        for (std::uint64_t tag = 1; tag < kMany; ++tag) {
            ASSERT_EQ(b.open_tagged(tag, a.seal_tagged(b, tag, plain)).error, 0) << tag;
        }
    }

    const End a;
    const End b;
    const Bytes plain = random_bytes(8);
};

TEST_F(ManyLanes, GoOnWhereTheyWere) {
    for (int round = 0; round < 3; ++round) {
        EXPECT_EQ(b.open_tagged(0, a.seal_tagged(b, 0, plain)).plain, plain);
        use_others();
    }
}

TEST_F(ManyLanes, FindAReplay) {
    const Bytes first = a.seal_tagged(b, 0, plain);
    EXPECT_EQ(b.open_tagged(0, first).error, 0);
    use_others();
    EXPECT_EQ(b.open_tagged(0, first).error, EBADMSG);
}

TEST_F(ManyLanes, FindADrop) {
    EXPECT_EQ(b.open_tagged(0, a.seal_tagged(b, 0, plain)).error, 0);
    a.seal_tagged(b, 0, plain);
    use_others();
    EXPECT_EQ(b.open_tagged(0, a.seal_tagged(b, 0, plain)).error, EBADMSG);
}

TEST_F(ManyLanes, FindASwapWithAReceiveThatWaitedAllTheTime) {
    Posted early;
    b.party->post(early, {0, 0, nullptr, false});  // of any tag
    EXPECT_EQ(b.open_tagged(0, a.seal_tagged(b, 0, plain)).error, 0);
    use_others();
    EXPECT_EQ(b.open_at(early, 0, a.seal_tagged(b, 0, plain)).error, EBADMSG);
}

TEST_F(ManyLanes, KnowWhatWasCutOffBeforeTheyRestedAndAfter) {
    EXPECT_EQ(b.open_tagged(0, a.seal_tagged(b, 0, plain)).error, 0);
    use_others();
    a.seal_tagged(b, 0, plain);
    Posted small;
    b.party->post(small, End::exactly(0));
    ASSERT_TRUE(b.party->cut_off(small, 0));
    use_others();
    EXPECT_EQ(b.open_tagged(0, a.seal_tagged(b, 0, plain)).error, 0);
    a.seal_tagged(b, 0, plain);
    use_others();
    EXPECT_EQ(b.open_tagged(0, a.seal_tagged(b, 0, plain)).error, EBADMSG);
}

TEST(Flows, AReceiveGetsOnlyWhatItWants) {
    const End a;
    const End b;
    const End c;
    auto from_c = b.party->meet(c.party->share());
    ASSERT_TRUE(from_c);
    Posted of_c;
    b.party->post(of_c, {1, ~std::uint64_t{0}, *from_c, true});
    EXPECT_EQ(b.open_at(of_c, 1, a.seal_tagged(b, 1, random_bytes(8))).error, EBADMSG);
    Posted of_tag;
    b.party->post(of_tag, End::exactly(2));
    EXPECT_EQ(b.open_at(of_tag, 3, a.seal_tagged(b, 3, random_bytes(8))).error, EBADMSG);
}

// protocol: F6
TEST(Flows, NeitherReflectedNorLedToAnother) {
    const End a;
    const End b;
    const End c;
    const Bytes wire = a.seal(b, {Kind::message}, random_bytes(20));
    EXPECT_NE(a.open({Kind::message}, wire).error, 0);
    EXPECT_NE(c.open({Kind::message}, wire).error, 0);
    Bytes as_c = wire;  // under another's name
    std::copy(c.party->share().begin(), c.party->share().end(), as_c.begin());
    EXPECT_NE(b.open({Kind::message}, as_c).error, 0);
}

TEST(Flows, NothingOpensWithoutTheJobKeyNorInAnotherJob) {
    keys::JobKey other_key;
    other_key.bytes[0] = 8;
    const End a;
    const End stranger("job", other_key);
    const End elsewhere("another job");
    EXPECT_NE(a.open({Kind::message}, stranger.seal(a, {Kind::message}, random_bytes(20))).error, 0);
    EXPECT_NE(stranger.open({Kind::message}, a.seal(stranger, {Kind::message}, random_bytes(20))).error, 0);
    EXPECT_NE(a.open({Kind::message}, elsewhere.seal(a, {Kind::message}, random_bytes(20))).error, 0);
}

TEST(Flows, ASuiteDoesNotOpenAnothers) {
    const End a("job", some_key(), crypto(aead::Suite::aes_128_gcm));
    const End b("job", some_key(), crypto(aead::Suite::aes_256_gcm));
    EXPECT_NE(b.open({Kind::message}, a.seal(b, {Kind::message}, random_bytes(20))).error, 0);
}

TEST(Flows, AnAddressIsTheJobsOrNot) {
    keys::JobKey other_key;
    other_key.bytes[0] = 8;
    const End a;
    const End b;
    const End stranger("job", other_key);
    const Bytes address = random_bytes(200);
    std::uint8_t proof[kProofSize];
    ASSERT_TRUE(a.party->prove(address, a.party->share(), proof));
    EXPECT_TRUE(b.party->proves(address, a.party->share(), proof).value());
    EXPECT_FALSE(b.party->proves(address, b.party->share(), proof).value());
    EXPECT_FALSE(stranger.party->proves(address, a.party->share(), proof).value());
    Bytes altered = address;
    altered[199] ^= 1;
    EXPECT_FALSE(b.party->proves(altered, a.party->share(), proof).value());
    proof[15] ^= 1;
    EXPECT_FALSE(b.party->proves(address, a.party->share(), proof).value());
}

TEST(Flows, AShareThatIsNoneIsRefused) {
    const End a;
    EXPECT_FALSE(a.party->meet(Share{}));
    Share one{};
    one[0] = 1;
    EXPECT_FALSE(a.party->meet(one));
}

// protocol: F14, F15
TEST(Flows, CountedMessagesComeOnceAndInAnyNearOrder) {
    const End a;
    const End b;
    const Bytes first = a.seal(b, {Kind::active}, {1});
    const Bytes second = a.seal(b, {Kind::active}, {2});
    EXPECT_EQ(b.open({Kind::active}, second).plain, Bytes{2});
    EXPECT_FALSE(b.party->expect_none_missing());
    EXPECT_EQ(b.open({Kind::active}, second).error, EBADMSG);
    EXPECT_EQ(b.open({Kind::active}, first).plain, Bytes{1});
    EXPECT_EQ(b.open({Kind::active}, first).error, EBADMSG);
    EXPECT_TRUE(b.party->expect_none_missing());
}

TEST(Flows, ALostCountedMessageIsMissed) {
    const End a;
    const End b;
    (void)a.seal(b, {Kind::active}, {1});
    for (std::uint64_t i = 0; i < kMostEarly; ++i) {
        ASSERT_EQ(b.open({Kind::active}, a.seal(b, {Kind::active}, {2})).error, 0);
    }
    EXPECT_EQ(b.open({Kind::active}, a.seal(b, {Kind::active}, {2})).error, EBADMSG);
}

TEST(Flows, TaggedMessagesComeInTheOrderOfReceives) {
    const End a;
    const End b;
    Posted receives[3];
    for (Posted& posted : receives) b.party->post(posted, End::exactly(9));
    const Bytes wires[] = {a.seal_tagged(b, 9, {0}), a.seal_tagged(b, 9, {1}), a.seal_tagged(b, 9, {2})};
    // They may end in any order, each with its own.
    EXPECT_EQ(b.open_at(receives[1], 9, wires[1]).plain, Bytes{1});
    EXPECT_EQ(b.open_at(receives[2], 9, wires[2]).plain, Bytes{2});
    EXPECT_EQ(b.open_at(receives[0], 9, wires[0]).plain, Bytes{0});
}

// protocol: F13
TEST(Flows, ALostReplayedOrSwappedTaggedMessageIsFound) {
    const Bytes none;
    {
        const End a;
        const End b;
        (void)a.seal_tagged(b, 9, {0});
        EXPECT_EQ(b.open_tagged(9, a.seal_tagged(b, 9, {1})).error, EBADMSG) << "the first one was dropped";
    }
    {
        const End a;
        const End b;
        const Bytes wire = a.seal_tagged(b, 9, {0});
        EXPECT_EQ(b.open_tagged(9, wire).error, 0);
        EXPECT_EQ(b.open_tagged(9, wire).error, EBADMSG) << "replayed";
    }
    {
        const End a;
        const End b;
        Posted first;
        Posted second;
        b.party->post(first, End::exactly(9));
        b.party->post(second, End::exactly(9));
        (void)a.seal_tagged(b, 9, {0});
        EXPECT_EQ(b.open_at(first, 9, a.seal_tagged(b, 9, {1})).error, EBADMSG) << "swapped";
    }
    {
        const End a;
        const End b;
        Posted first;
        Posted second;
        b.party->post(first, End::exactly(9));
        b.party->post(second, End::exactly(9));
        EXPECT_EQ(b.open_at(second, 9, a.seal_tagged(b, 9, {0})).error, EBADMSG) << "led past the first receive";
    }
}

TEST(Flows, WildcardsCancelledAndCutOffReceivesKeepTheOrder) {
    const End a;
    const End b;
    Posted any;
    Posted cancelled;
    Posted last;
    b.party->post(any, {0, 0});
    b.party->post(cancelled, End::exactly(9));
    b.party->post(last, End::exactly(9));
    const Bytes first = a.seal_tagged(b, 9, {0});
    const Bytes second = a.seal_tagged(b, 9, {1});
    cancelled.ask_to_cancel();
    EXPECT_EQ(b.open_at(last, 9, second).plain, Bytes{1}) << "the wildcard has the first one";
    cancelled.withdraw();
    EXPECT_EQ(b.open_at(any, 9, first).plain, Bytes{0});

    Posted small;
    Posted next;
    b.party->post(small, End::exactly(9));
    b.party->post(next, End::exactly(9));
    const Bytes third = a.seal_tagged(b, 9, {2});
    const Bytes fourth = a.seal_tagged(b, 9, {3});
    EXPECT_TRUE(b.party->cut_off(small, 9));
    EXPECT_EQ(b.open_at(next, 9, fourth).plain, Bytes{3});
    EXPECT_EQ(b.open_tagged(9, third).error, EBADMSG) << "what was cut off comes again";
}

TEST(Flows, TheFirstMessageOfALaneMayBeCutOff) {
    const End a;
    const End b;
    Posted small;
    b.party->post(small, End::exactly(9));
    const Bytes first = a.seal_tagged(b, 9, {0});
    EXPECT_TRUE(b.party->cut_off(small, 9));
    EXPECT_EQ(b.open_tagged(9, a.seal_tagged(b, 9, {1})).error, 0);
    EXPECT_EQ(b.open_tagged(9, first).error, EBADMSG);
}

/// Who lengthens a packet on its way may write any share into it.
TEST(Flows, WhatWasCutOffMakesNobodyAPeer) {
    for (const Share& forged : {Share{}, End().party->share()}) {  // of low order, and a stranger's
        const End a;
        const End b;
        Posted small;
        b.party->post(small, End::exactly(9));
        Bytes first = a.seal_tagged(b, 9, {0});
        std::copy(forged.begin(), forged.end(), first.begin());
        EXPECT_TRUE(b.party->cut_off(small, 9, first.data(), first.size()));
        EXPECT_EQ(b.party->counters().peers, 0U);
        EXPECT_EQ(b.open_tagged(9, a.seal_tagged(b, 9, {1})).plain, Bytes{1}) << "its sender's lane goes on";
    }
}

TEST(Flows, WhatWasCutOffAtAReceiveForOneIsNotAnothers) {
    const End a;
    const End b;
    const End c;
    Posted from_a;
    b.party->post(from_a, {9, ~std::uint64_t{0}, b.party->meet(a.party->share()).value(), true});
    ASSERT_TRUE(b.party->meet(c.party->share()));
    Bytes first = a.seal_tagged(b, 9, {0});
    std::copy(c.party->share().begin(), c.party->share().end(), first.begin());
    EXPECT_TRUE(b.party->cut_off(from_a, 9, first.data(), first.size()));
    EXPECT_EQ(b.open_tagged(9, a.seal_tagged(b, 9, {1})).plain, Bytes{1});
    (void)c.seal_tagged(b, 9, {2});
    EXPECT_EQ(b.open_tagged(9, c.seal_tagged(b, 9, {3})).error, EBADMSG);
}

TEST(Flows, ACountedMessageThatWasCutOffIsNotMissed) {
    const End a;
    const End b;
    const auto send = [&] { return a.seal(b, {Kind::message}, {1}); };
    const Bytes cut = send();
    EXPECT_TRUE(b.party->cut_off(cut.data(), cut.size())) << "of nobody who is known";
    EXPECT_EQ(b.party->counters().peers, 0U);
    EXPECT_EQ(b.open({Kind::message}, send()).error, 0);
    EXPECT_TRUE(b.party->expect_none_missing());
    const Bytes second = send();
    EXPECT_TRUE(b.party->cut_off(second.data(), second.size()));
    EXPECT_EQ(b.open({Kind::message}, send()).error, 0);
    EXPECT_TRUE(b.party->expect_none_missing());
    EXPECT_TRUE(b.party->cut_off(nullptr, 0)) << "of anybody";
    (void)send();
    EXPECT_EQ(b.open({Kind::message}, send()).error, 0);
    EXPECT_TRUE(b.party->expect_none_missing());
    (void)send();
    EXPECT_EQ(b.open({Kind::message}, send()).error, 0);
    EXPECT_FALSE(b.party->expect_none_missing()) << "that one was lost";
}

/// Nobody knows whose it was: one message of one sender may be missing for it, not one of each.
TEST(Flows, ACountedMessageOfAnUnknownSenderThatWasCutOffIsOne) {
    const End a;
    const End b;
    const End c;
    const auto lose_one_of = [&](const End& from) {
        (void)from.seal(b, {Kind::message}, {1});
        EXPECT_EQ(b.open({Kind::message}, from.seal(b, {Kind::message}, {2})).error, 0);
    };
    EXPECT_TRUE(b.party->cut_off(nullptr, 0));
    lose_one_of(a);
    EXPECT_TRUE(b.party->expect_none_missing());
    lose_one_of(c);
    EXPECT_FALSE(b.party->expect_none_missing());
    EXPECT_TRUE(b.party->cut_off(nullptr, 0));
    EXPECT_TRUE(b.party->expect_none_missing());
    // Where too many have overtaken it, too.
    for (std::uint64_t i = 0; i < kMostEarly; ++i)
        EXPECT_EQ(b.open({Kind::message}, a.seal(b, {Kind::message}, {3})).error, 0);
    EXPECT_TRUE(b.party->expect_none_missing()) << "it was the one of a's";
    int error = 0;
    for (std::uint64_t i = 0; i < kMostEarly && error == 0; ++i)
        error = b.open({Kind::message}, c.seal(b, {Kind::message}, {4})).error;
    EXPECT_EQ(error, 0);
    lose_one_of(a);
    EXPECT_FALSE(b.party->expect_none_missing()) << "no excuse is left";
}

TEST(Flows, SendersAndTagsAreLanesOfTheirOwn) {
    const End a;
    const End b;
    const End c;
    (void)a.seal_tagged(b, 1, {0});
    EXPECT_EQ(b.open_tagged(2, a.seal_tagged(b, 2, {5})).error, 0);
    EXPECT_EQ(b.open_tagged(1, c.seal_tagged(b, 1, {6})).error, 0);
    EXPECT_EQ(b.party->counters().peers, 2U);
}

TEST(Flows, AReceiveFromOnePeerDoesNotHoldAnothers) {
    const End a;
    const End b;
    const End c;
    Posted from_c;
    b.party->post(from_c, {9, ~std::uint64_t{0}, b.party->meet(c.party->share()).value(), true});
    EXPECT_EQ(b.open_tagged(9, a.seal_tagged(b, 9, {0})).error, 0);
}

}  // namespace
}  // namespace cryptmpi::fabric
