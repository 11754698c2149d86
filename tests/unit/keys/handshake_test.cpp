#include "keys/handshake.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "seal/support.hpp"

namespace cryptmpi::keys {
namespace {

using test::Bytes;
using Hello = std::array<std::uint8_t, kHelloSize>;

Endpoint ipv4(std::uint8_t last, std::uint16_t port) {
    return {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, last},
            {static_cast<std::uint8_t>(port >> 8), static_cast<std::uint8_t>(port)}};
}

Identity identity(const Endpoint& local, const Endpoint& remote, const char* node) {
    Identity self{};
    std::memset(self.job, 0x4a, sizeof self.job);
    self.local = local;
    self.remote = remote;
    std::strncpy(self.node, node, sizeof self.node - 1);
    self.process[0] = 42;
    return self;
}

/// One end of a connection between 10.0.0.1:40000 and 10.0.0.2:5000.
struct End {
    std::shared_ptr<JobKey> key;
    Local local;
    Identity self;
    Role role;
    HandshakeState state{};
    seal::DirectionState send{};
    seal::DirectionState receive{};

    End(Role which, std::shared_ptr<JobKey> job_key)
        : key(std::move(job_key)), local{test::crypto(), test::crypto().aead, key.get(), true}, self{}, role(which) {
        const Endpoint initiator = ipv4(1, 40000);
        const Endpoint responder = ipv4(2, 5000);
        self =
            which == Role::initiator ? identity(initiator, responder, "alpha") : identity(responder, initiator, "beta");
    }
    void begin() {
        const auto done = start(local, role, self, state);
        ASSERT_TRUE(done.has_value()) << done.error().line;
    }
    Hello hello() {
        Hello out{};
        const auto done = write_hello(local, state, out);
        EXPECT_TRUE(done.has_value()) << done.error().line;
        return out;
    }
    Result<void> read(const Hello& in) { return read_hello(local, state, in); }
    void end() {
        const auto done = finish(local, state, send, receive);
        EXPECT_TRUE(done.has_value()) << done.error().line;
    }
};

std::shared_ptr<JobKey> fresh_key() {
    auto key = std::make_shared<JobKey>();
    const Bytes bytes = test::random_bytes(kJobKeySize);
    std::memcpy(key->data(), bytes.data(), kJobKeySize);
    return key;
}

class Handshake : public testing::Test {
protected:
    /// Both ends, started anew.
    void begin() {
        initiator.begin();
        responder.begin();
    }
    /// Up to and with finish().
    void agree() {
        begin();
        ASSERT_TRUE(responder.read(initiator.hello()).has_value());
        ASSERT_TRUE(initiator.read(responder.hello()).has_value());
        initiator.end();
        responder.end();
    }
    /// `end` refused `in` with that code, kept nothing, and cannot go on.
    static std::string refusal(End& end, const Hello& in, int code) {
        const auto done = end.read(in);
        if (done) {
            ADD_FAILURE() << "accepted";
            return "accepted";
        }
        EXPECT_EQ(done.error().code, code) << done.error().line;
        EXPECT_EQ(done.error().line.find('\n'), std::string::npos);
        EXPECT_TRUE(test::all_zero(&end.state, sizeof end.state));
        Hello out;
        EXPECT_FALSE(write_hello(end.local, end.state, out).has_value());
        EXPECT_FALSE(finish(end.local, end.state, end.send, end.receive).has_value());
        return done.error().line;
    }

    std::shared_ptr<JobKey> key = fresh_key();
    End initiator{Role::initiator, key};
    End responder{Role::responder, key};
};

std::string id(const JobKey& key) {
    return key_id_text(id_of(*test::crypto().kex, key).value());
}

constexpr char kDoesNotOpen[] =
    "the peer's hello does not open: it was altered on the way, or the peer does not have the job key that it names";

void expect_carries(seal::DirectionState& sending, seal::DirectionState& receiving, const seal::Crypto& crypto) {
    seal::StreamSealer sealer(crypto, sending);
    seal::StreamOpener opener(crypto, receiving);
    const Bytes plain = test::random_bytes(100);
    const auto opened = test::open_record(opener, test::seal_data(sealer, plain));
    EXPECT_TRUE(opened.is(seal::RecordType::data)) << opened.line();
    EXPECT_EQ(opened.plain, plain);
}

TEST_F(Handshake, GivesBothEndsTheSameTwoDirections) {
    for (const aead::Suite suite : test::suites()) {
        initiator.local.crypto = responder.local.crypto = test::crypto(suite);
        agree();
        EXPECT_EQ(std::memcmp(initiator.send.secret, responder.receive.secret, 32), 0);
        EXPECT_EQ(std::memcmp(initiator.receive.secret, responder.send.secret, 32), 0);
        EXPECT_NE(std::memcmp(initiator.send.secret, initiator.receive.secret, 32), 0);
        expect_carries(initiator.send, responder.receive, test::crypto(suite));
        expect_carries(responder.send, initiator.receive, test::crypto(suite));
    }
}

TEST_F(Handshake, TellsEachEndWhoTheOtherIs) {
    agree();
    EXPECT_EQ(std::memcmp(&initiator.state.peer, &responder.self, sizeof(Identity)), 0);
    EXPECT_EQ(std::memcmp(&responder.state.peer, &initiator.self, sizeof(Identity)), 0);
    EXPECT_STREQ(initiator.state.peer.node, "beta");
    EXPECT_EQ(initiator.state.role, Role::initiator);
    EXPECT_EQ(responder.state.role, Role::responder);
}

TEST_F(Handshake, TwoHandshakesShareNothing) {
    agree();
    const seal::DirectionState first = initiator.send;
    agree();
    EXPECT_NE(std::memcmp(first.secret, initiator.send.secret, 32), 0);
}

TEST_F(Handshake, StartsTheDirectionsAtZeroWhateverWasThere) {
    std::memset(&initiator.send, 0xff, sizeof initiator.send);
    agree();
    EXPECT_EQ(initiator.send.counter, 0U);
    EXPECT_EQ(initiator.send.bytes, 0U);
    EXPECT_EQ(initiator.send.epoch, 0U);
    EXPECT_EQ(initiator.send.closed, 0);
    EXPECT_EQ(initiator.send.failed, 0);
}

// protocol: H5
TEST_F(Handshake, FinishAndAbandonWipeTheSecrets) {
    agree();
    const HandshakeState& done = initiator.state;
    EXPECT_TRUE(test::all_zero(done.symmetric.chaining_key, sizeof done.symmetric.chaining_key));
    EXPECT_TRUE(test::all_zero(done.symmetric.hash, sizeof done.symmetric.hash));
    EXPECT_TRUE(test::all_zero(done.symmetric.key, sizeof done.symmetric.key));
    EXPECT_TRUE(test::all_zero(done.ephemeral_private, sizeof done.ephemeral_private));
    EXPECT_TRUE(test::all_zero(done.shared, sizeof done.shared));

    begin();
    EXPECT_FALSE(test::all_zero(responder.state.ephemeral_private, 32));
    abandon(responder.state);
    EXPECT_TRUE(test::all_zero(&responder.state, sizeof responder.state));
}

TEST_F(Handshake, StepsOutOfOrderAreRefused) {
    Hello hello{};
    EXPECT_EQ(write_hello(initiator.local, initiator.state, hello).error().code, EINVAL);
    begin();
    EXPECT_EQ(read_hello(initiator.local, initiator.state, hello).error().code, EINVAL);
    EXPECT_EQ(write_hello(responder.local, responder.state, hello).error().code, EINVAL);
    EXPECT_EQ(finish(initiator.local, initiator.state, initiator.send, initiator.receive).error().code, EINVAL);
    // None of these spoiled it.
    ASSERT_TRUE(responder.read(initiator.hello()).has_value());
    EXPECT_EQ(write_hello(initiator.local, initiator.state, hello).error().code, EINVAL);
    EXPECT_EQ(responder.read(hello).error().code, EINVAL);
    ASSERT_TRUE(initiator.read(responder.hello()).has_value());
    initiator.end();
    EXPECT_EQ(finish(initiator.local, initiator.state, initiator.send, initiator.receive).error().code, EINVAL);
    EXPECT_EQ(write_hello(initiator.local, initiator.state, hello).error().code, EINVAL);
}

// protocol: H9
TEST_F(Handshake, AnotherJobKeyIsRefused) {
    responder.key = fresh_key();
    responder.local.job_key = responder.key.get();
    begin();
    const std::string line = "the peer has job key " + id(*key) + ", which is not in our key file (we began with " +
                             id(*responder.key) +
                             "): give every node the same key file (cryptmpi key list, key install)";
    EXPECT_EQ(refusal(responder, initiator.hello(), EKEYREJECTED), line);

    // Who has not the key that he names.
    begin();
    Hello hello = initiator.hello();
    const KeyId named = id_of(*test::crypto().kex, *responder.key).value();
    std::copy(named.begin(), named.end(), hello.begin() + 8);
    EXPECT_EQ(refusal(responder, hello, EKEYREJECTED), kDoesNotOpen);

    // A man in the middle without the key answers with his own.
    responder.begin();
    End same_key_as_responder(Role::initiator, responder.key);
    same_key_as_responder.begin();
    initiator.begin();
    initiator.hello();
    ASSERT_TRUE(responder.read(same_key_as_responder.hello()).has_value());
    hello = responder.hello();
    const HandshakeState before = initiator.state;
    EXPECT_EQ(refusal(initiator, hello, EPROTO),
              "the peer answers under another job key than the one that we named: altered on the way");
    initiator.state = before;
    std::copy_n(before.key_id, kKeyIdSize, hello.begin() + 8);
    EXPECT_EQ(refusal(initiator, hello, EKEYREJECTED), kDoesNotOpen);
}

// protocol: H4
TEST_F(Handshake, APeerThatSpeaksPlaintextIsNamedAsSuch) {
    const std::string line =
        "the peer does not speak CryptMPI (its first bytes are no hello): start it under cryptmpi too, with the same "
        "--layer, or allow the "
        "address in the setting plaintext_peers";
    Hello plain{};
    std::memcpy(plain.data(), "SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", 32);
    begin();
    EXPECT_EQ(refusal(responder, plain, EPROTO), line);
    initiator.hello();
    EXPECT_EQ(refusal(initiator, plain, EPROTO), line);
    responder.begin();
    EXPECT_EQ(refusal(responder, Hello{}, EPROTO), line);
}

// protocol: H7
TEST_F(Handshake, AnotherVersionIsNamed) {
    begin();
    Hello hello = initiator.hello();
    hello[4] = 1;
    EXPECT_EQ(refusal(responder, hello, EPROTO),
              "the peer speaks protocol version 1, we speak 2: install the same CryptMPI release on every node");
}

// protocol: H7, V1
TEST_F(Handshake, AnotherSuiteIsNamedWithOurs) {
    responder.local.crypto.suite = aead::Suite::aes_128_gcm;
    begin();
    Hello hello = initiator.hello();
    EXPECT_EQ(refusal(responder, hello, EPROTO),
              "the peer seals with AES-256-GCM, we with AES-128-GCM: give every node the same setting cipher");
    responder.begin();
    hello[6] = 77;
    EXPECT_EQ(refusal(responder, hello, EPROTO),
              "the peer seals with an unknown suite (number 77), we with AES-128-GCM: give every node the same setting "
              "cipher");
}

// protocol: H3
TEST_F(Handshake, ASuiteCannotBeTalkedDown) {
    responder.local.crypto.suite = aead::Suite::aes_128_gcm;
    begin();
    Hello hello = initiator.hello();
    hello[6] = CRYPTMPI_AES_128_GCM;
    EXPECT_EQ(refusal(responder, hello, EKEYREJECTED), kDoesNotOpen);
}

// protocol: H7
TEST_F(Handshake, AReservedByteThatIsSetIsNamed) {
    for (const int bits : {0x01, 0x02, 0x3f}) {
        const auto value = static_cast<std::uint8_t>(bits);
        begin();
        Hello hello = initiator.hello();
        hello[7] = value;
        EXPECT_EQ(refusal(responder, hello, EPROTO), "the peer's hello has a reserved byte set: altered on the way");

        begin();
        ASSERT_TRUE(responder.read(initiator.hello()).has_value());
        Hello answer = responder.hello();
        answer[7] = value;
        EXPECT_EQ(refusal(initiator, answer, EPROTO), "the peer's hello has a reserved byte set: altered on the way");
    }
    // Nor do ends that both set it come to one connection with those that do not.
    initiator.local.conduct = kSealsAll;
    begin();
    Hello hello = initiator.hello();
    hello[7] = 0;
    EXPECT_EQ(refusal(responder, hello, EKEYREJECTED), kDoesNotOpen);
}

// protocol: H8
TEST_F(Handshake, OurOwnHelloReflectedIsNamed) {
    const std::string line = "the peer sent our own hello back: something on the way reflects what we send";
    begin();
    Hello hello = initiator.hello();
    HandshakeState before = initiator.state;
    EXPECT_EQ(refusal(initiator, hello, EPROTO), line);
    hello[5] = 2;  // dressed up as an answer
    initiator.state = before;
    EXPECT_EQ(refusal(initiator, hello, EPROTO), line);
}

// protocol: H7
TEST_F(Handshake, TwoInitiatorsAreNamed) {
    begin();
    End second(Role::initiator, key);
    second.begin();
    initiator.hello();
    EXPECT_EQ(refusal(initiator, second.hello(), EPROTO),
              "the peer sent hello 1 where hello 2 was due: both ends take the same role, or something on the way "
              "mixes connections up");
}

// protocol: H8
TEST_F(Handshake, AnAllZeroShareIsNamed) {
    const std::string line = "the peer's key share is all zeros: a forged hello";
    begin();
    Hello hello = initiator.hello();
    std::fill_n(hello.begin() + kPrefixSize, 32, std::uint8_t{0});
    EXPECT_EQ(refusal(responder, hello, EPROTO), line);
    Hello answer = hello;
    answer[5] = 2;
    EXPECT_EQ(refusal(initiator, answer, EPROTO), line);
}

// protocol: H8
// The share 1 has order 4: multiplied by any private key it gives zero. The peer here holds the job key, and is broken
// or hostile.
TEST_F(Handshake, AShareOfLowOrderIsNamed) {
    const std::string line = "the peer's key share gives an all-zero secret: a forged hello";
    begin();
    std::memset(initiator.state.ephemeral_public, 0, 32);
    initiator.state.ephemeral_public[0] = 1;
    EXPECT_EQ(refusal(responder, initiator.hello(), EPROTO), line);

    begin();
    ASSERT_TRUE(responder.read(initiator.hello()).has_value());
    std::memset(responder.state.ephemeral_public, 0, 32);
    responder.state.ephemeral_public[0] = 1;
    EXPECT_EQ(refusal(initiator, responder.hello(), EPROTO), line);
}

// protocol: H10
TEST_F(Handshake, AnotherJobIsNamed) {
    initiator.self.job[31] ^= 1;
    begin();
    const std::string line = "the peer holds our job key but belongs to another job (its job id differs)";
    EXPECT_EQ(refusal(responder, initiator.hello(), EPROTO), line);
}

TEST_F(Handshake, OtherAddressesAreNamedOnBothSides) {
    // The initiator believes that it talks to 10.0.0.3: somebody forwarded it to 10.0.0.2.
    initiator.self.remote = ipv4(3, 5000);
    begin();
    EXPECT_EQ(
        refusal(responder, initiator.hello(), EPROTO),
        "the peer sees this connection as 10.0.0.1:40000 to 10.0.0.3:5000, we as 10.0.0.1:40000 to 10.0.0.2:5000: "
        "behind address translation turn the setting check_addresses off");

    responder.local.check_addresses = false;
    responder.self.local = {{0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7}, {0x01, 0xbb}};
    begin();
    ASSERT_TRUE(responder.read(initiator.hello()).has_value());
    EXPECT_EQ(
        refusal(initiator, responder.hello(), EPROTO),
        "the peer sees this connection as [fd00::7]:443 to 10.0.0.1:40000, we as 10.0.0.3:5000 to 10.0.0.1:40000: "
        "behind address translation turn the setting check_addresses off");
}

// protocol: H11
TEST_F(Handshake, AnyOneOfTheFourEndsMatters) {
    const auto port = [](Endpoint& end) { end.port[1] ^= 1; };
    for (int which = 0; which < 2; ++which) {
        End peer(Role::initiator, key);
        port(which == 0 ? peer.self.local : peer.self.remote);
        peer.begin();
        responder.begin();
        EXPECT_NE(refusal(responder, peer.hello(), EPROTO).find("check_addresses"), std::string::npos);
    }
}

// protocol: H11
TEST_F(Handshake, OtherAddressesPassWhenTheSettingSaysSo) {
    initiator.self.remote = ipv4(3, 5000);
    initiator.local.check_addresses = responder.local.check_addresses = false;
    agree();
    expect_carries(initiator.send, responder.receive, test::crypto());
}

/// An end whose key goes by the id of another. Anybody can read an id on the wire and claim it.
class Pretender {
public:
    Pretender(Role role, const KeyId& id) : end(role, fresh_key()) {
        id_ = &id;
        kex_ = *test::crypto().kex;
        kex_.hmac_sha256 = [](std::uint8_t* out, const std::uint8_t* key, std::size_t size, const iovec* in,
                              std::size_t count) -> int {
            std::string text;
            for (std::size_t i = 0; i < count; ++i)
                text.append(static_cast<const char*>(in[i].iov_base), in[i].iov_len);
            const int status = test::crypto().kex->hmac_sha256(out, key, size, in, count);
            if (text.starts_with("cryptmpi 1 key id")) std::copy(id_->begin(), id_->end(), out);
            return status;
        };
        end.local.crypto.kex = &kex_;
        end.begin();
    }
    Pretender(const Pretender&) = delete;
    Pretender& operator=(const Pretender&) = delete;

    End end;

private:
    static inline const KeyId* id_ = nullptr;
    cryptmpi_kex kex_{};
};

// protocol: H9
TEST_F(Handshake, WhoKnowsAKeysIdAndNotTheKeyIsRefused) {
    const KeyId named = id_of(*test::crypto().kex, *key).value();
    begin();
    Pretender as_initiator(Role::initiator, named);
    EXPECT_EQ(refusal(responder, as_initiator.end.hello(), EKEYREJECTED), kDoesNotOpen);

    begin();
    initiator.hello();
    // The pretender cannot open hello 1, and answers all the same.
    Hello answer = Pretender(Role::initiator, named).end.hello();
    answer[5] = 2;  // hello 2
    EXPECT_EQ(refusal(initiator, answer, EKEYREJECTED), kDoesNotOpen);
}

/// An attacker has recorded a handshake and finds the job key later. He lacks only the private keys.
TEST_F(Handshake, TheJobKeyOpensNothingThatWasRecorded) {
    begin();
    const Hello first = initiator.hello();
    HandshakeState later = initiator.state;
    ASSERT_TRUE(responder.read(first).has_value());
    const Hello second = responder.hello();
    later.ephemeral_private[0] ^= 8;  // any but the one that is gone
    End finder(Role::initiator, key);
    finder.state = later;
    EXPECT_EQ(refusal(finder, second, EKEYREJECTED), kDoesNotOpen);
    EXPECT_TRUE(initiator.read(second).has_value());
}

// protocol: H4, H6
TEST_F(Handshake, EveryFlippedBitOfHelloOneIsRefused) {
    begin();
    const Hello hello = initiator.hello();
    const HandshakeState before = responder.state;
    for (std::size_t at = 0; at < kHelloSize; ++at) {
        Hello altered = hello;
        altered[at] ^= static_cast<std::uint8_t>(1U << test::random_below(8));
        responder.state = before;
        const auto done = responder.read(altered);
        ASSERT_FALSE(done.has_value()) << at;
        // Of what is sealed nothing is looked at that did not open.
        constexpr std::size_t kSealedAt = kHelloSize - kIdentitySize - 16;
        if (at >= kSealedAt) {
            EXPECT_EQ(done.error().code, EKEYREJECTED) << at;
        }
        EXPECT_TRUE(test::all_zero(&responder.state, sizeof responder.state));
    }
    responder.state = before;
    EXPECT_TRUE(responder.read(hello).has_value());
}

TEST_F(Handshake, EveryFlippedBitOfHelloTwoIsRefused) {
    begin();
    ASSERT_TRUE(responder.read(initiator.hello()).has_value());
    const Hello hello = responder.hello();
    const HandshakeState before = initiator.state;
    for (std::size_t at = 0; at < kHelloSize; ++at) {
        Hello altered = hello;
        altered[at] ^= static_cast<std::uint8_t>(1U << test::random_below(8));
        initiator.state = before;
        EXPECT_FALSE(initiator.read(altered).has_value()) << at;
    }
    initiator.state = before;
    EXPECT_TRUE(initiator.read(hello).has_value());
}

TEST_F(Handshake, AReplayedHelloOneGetsNoFurtherThanTheConfirm) {
    begin();
    const Hello recorded = initiator.hello();
    ASSERT_TRUE(responder.read(recorded).has_value());
    ASSERT_TRUE(initiator.read(responder.hello()).has_value());
    initiator.end();
    seal::StreamSealer sealer(test::crypto(), initiator.send);
    const Bytes confirm = test::seal_control(sealer, seal::RecordType::confirm);
    const Bytes data = test::seal_data(sealer, Bytes(20, 3));

    for (const Bytes& replayed : {confirm, data}) {
        End again(Role::responder, key);
        again.begin();
        ASSERT_TRUE(again.read(recorded).has_value());
        again.hello();
        again.end();
        seal::StreamOpener opener(test::crypto(), again.receive);
        const auto opened = test::open_record(opener, replayed);
        EXPECT_EQ(opened.code(), EBADMSG);
    }
    // The connection that it was taken from is none the worse.
    responder.end();
    seal::StreamOpener opener(test::crypto(), responder.receive);
    EXPECT_TRUE(test::open_record(opener, confirm).is(seal::RecordType::confirm));
    EXPECT_TRUE(test::open_record(opener, data).is(seal::RecordType::data));
}

TEST_F(Handshake, AReplayedHelloTwoIsRefused) {
    begin();
    ASSERT_TRUE(responder.read(initiator.hello()).has_value());
    const Hello recorded = responder.hello();
    initiator.begin();
    initiator.hello();
    EXPECT_EQ(refusal(initiator, recorded, EKEYREJECTED), kDoesNotOpen);
}

TEST_F(Handshake, RecordsOfOneDirectionDoNotOpenInTheOther) {
    agree();
    seal::StreamSealer sealer(test::crypto(), initiator.send);
    seal::StreamOpener opener(test::crypto(), initiator.receive);
    EXPECT_FALSE(test::open_record(opener, test::seal_data(sealer, Bytes(20))).type.has_value());
}

// protocol: H3
TEST_F(Handshake, BothEndsMustHaveTheSameContext) {
    const Bytes purpose = {1, 2, 3};
    const Bytes other = {1, 2};
    initiator.local.context = responder.local.context = purpose;
    agree();
    expect_carries(initiator.send, responder.receive, test::crypto());
    for (const Bytes& theirs : {other, Bytes{}}) {
        initiator.local.context = theirs;
        begin();
        EXPECT_EQ(refusal(responder, initiator.hello(), EKEYREJECTED), kDoesNotOpen);
    }
}

TEST_F(Handshake, ItsLinesCallThePeerAsTheyAreTold) {
    const Bytes purpose = {1, 2, 3};
    responder.local.context = purpose;
    responder.local.peer = "rank 7";
    begin();
    EXPECT_EQ(refusal(responder, Hello{}, EPROTO),
              "rank 7 does not speak CryptMPI (its first bytes are no hello): start it under cryptmpi too");
    responder.begin();
    EXPECT_EQ(
        refusal(responder, initiator.hello(), EKEYREJECTED),
        "rank 7's hello does not open: it was altered on the way, or the peer does not have the job key that it names");
}

/// A key file, and rings as processes read it.
class Rotation : public Handshake {
protected:
    void SetUp() override {
        std::string name = (std::filesystem::temp_directory_path() / "cryptmpi-ring-XXXXXX").string();
        ASSERT_NE(mkdtemp(name.data()), nullptr);
        folder_ = name;
        file_ = folder_ / "job.key";
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    void put(const std::vector<std::shared_ptr<JobKey>>& keys) const {
        JobKeys copies;
        for (const auto& one : keys) {
            auto copy = std::make_unique<JobKey>();
            std::copy(one->bytes, one->bytes + kJobKeySize, copy->bytes);
            copies.push_back(std::move(copy));
        }
        const auto written = write_job_keys(file_, copies, true);
        ASSERT_TRUE(written.has_value()) << written.error().line;
    }
    /// As a process that starts now.
    std::unique_ptr<KeyRing> ring(const std::string& begun_with = "") const {
        auto read = KeyRing::read(*test::crypto().kex, file_, KeyReaders::owner, begun_with);
        EXPECT_TRUE(read.has_value()) << read.error().line;
        return read ? std::move(*read) : nullptr;
    }
    static void give(End& end, KeyRing& its) {
        end.local.job_key = &its.own();
        end.local.ring = &its;
    }
    std::string not_in_file(const JobKey& theirs, const JobKey& ours) const {
        return "the peer has job key " + id(theirs) + ", which is not in " + file_.string() + " (we began with " +
               id(ours) + "): give every node the same key file (cryptmpi key list, key install)";
    }

    std::filesystem::path folder_;
    std::filesystem::path file_;
    std::shared_ptr<JobKey> old_ = fresh_key();
    std::shared_ptr<JobKey> new_ = fresh_key();
};

TEST_F(Rotation, WhatBeganBeforeAndWhatBeganAfterTalkBothWays) {
    put({old_});
    const auto before = ring();
    put({new_, old_});
    const auto after = ring();
    EXPECT_EQ(id(before->own()), id(*old_));
    EXPECT_EQ(id(after->own()), id(*new_));
    for (const bool old_connects : {true, false}) {
        give(initiator, old_connects ? *before : *after);
        give(responder, old_connects ? *after : *before);
        agree();
        expect_carries(initiator.send, responder.receive, test::crypto());
    }
}

// protocol: K4, H14
TEST_F(Rotation, ARevokedKeyIsRefusedAndItsLineNamesTheFile) {
    put({new_, old_});
    const auto now = ring();
    give(responder, *now);
    initiator.local.job_key = old_.get();
    agree();
    put({new_});
    begin();
    EXPECT_EQ(refusal(responder, initiator.hello(), EKEYREJECTED), not_in_file(*old_, *new_));
    // By who began with it, it is still taken: that job goes on.
    put({old_});
    const auto before = ring();
    put({new_});
    give(responder, *before);
    agree();
    // And what begins with it now does not.
    EXPECT_EQ(KeyRing::read(*test::crypto().kex, file_, KeyReaders::owner, id(*old_)).error().line,
              "job key file " + file_.string() + " has no key " + id(*old_) +
                  ", with which this job began: it was revoked, or this node's file was not brought up to date "
                  "(cryptmpi key install)");
}

TEST_F(Rotation, AJobGoesOnWithTheKeyThatItBeganWith) {
    put({new_, old_});
    EXPECT_EQ(id(ring(id(*old_))->own()), id(*old_));
    EXPECT_EQ(id(ring()->own()), id(*new_));
}

TEST_F(Rotation, AFileThatCannotBeReadAnyMoreHasNoKeys) {
    put({new_, old_});
    const auto now = ring();
    give(responder, *now);
    initiator.local.job_key = old_.get();
    std::filesystem::permissions(file_, std::filesystem::perms::others_read, std::filesystem::perm_options::add);
    begin();
    EXPECT_EQ(refusal(responder, initiator.hello(), EKEYREJECTED), not_in_file(*old_, *new_));
    EXPECT_EQ(now->all().size(), 1U);
    std::filesystem::permissions(file_, std::filesystem::perms::owner_read);
    agree();
    EXPECT_EQ(now->all().size(), 2U);
}

TEST_F(Rotation, AHelloThatNamesAnotherKeyThanItIsSealedWithDoesNotOpen) {
    put({new_, old_});
    const auto now = ring();
    give(initiator, *now);
    give(responder, *now);
    begin();
    Hello hello = initiator.hello();
    const KeyId other = id_of(*test::crypto().kex, *old_).value();
    std::copy(other.begin(), other.end(), hello.begin() + 8);
    EXPECT_EQ(refusal(responder, hello, EKEYREJECTED), kDoesNotOpen);
}

TEST_F(Handshake, NeedsAModuleWithAes256) {
    cryptmpi_aead only_128 = *test::crypto().aead;
    only_128.suites = 1U << CRYPTMPI_AES_128_GCM;
    initiator.local.hello_aead = &only_128;
    const auto done = start(initiator.local, Role::initiator, initiator.self, initiator.state);
    ASSERT_FALSE(done.has_value());
    EXPECT_EQ(done.error().code, ENOTSUP);
    EXPECT_EQ(done.error().line, "handshake: the crypto module of the key agreement has no AES-256-GCM");
    EXPECT_TRUE(test::all_zero(&initiator.state, sizeof initiator.state));
}

TEST_F(Handshake, AFailingModuleEndsIt) {
    cryptmpi_kex broken = *test::crypto().kex;
    broken.sha256 = [](std::uint8_t*, const iovec*, std::size_t) -> int { return CRYPTMPI_FAILED; };
    initiator.local.crypto.kex = &broken;
    const auto done = start(initiator.local, Role::initiator, initiator.self, initiator.state);
    ASSERT_FALSE(done.has_value());
    EXPECT_EQ(done.error().line, "handshake: the crypto module's SHA-256 failed");
    EXPECT_TRUE(test::all_zero(&initiator.state, sizeof initiator.state));
}

}  // namespace
}  // namespace cryptmpi::keys
