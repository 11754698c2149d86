#include "keys/agreement.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <set>

#include "keys/members.hpp"
#include "keys/network.hpp"
#include "seal/support.hpp"

namespace cryptmpi::keys {
namespace {

using test::Bytes;
using test::Message;
using test::Network;

constexpr aead::Suite kSuite = aead::Suite::aes_256_gcm;

template <std::size_t N>
bool same(const std::uint8_t (&a)[N], const std::uint8_t (&b)[N]) {
    return std::memcmp(a, b, N) == 0;
}

std::shared_ptr<JobKey> fresh_key() {
    auto key = std::make_shared<JobKey>();
    const Bytes bytes = test::random_bytes(kJobKeySize);
    std::memcpy(key->data(), bytes.data(), kJobKeySize);
    return key;
}

/// What one rank brings, and how it went.
struct Rank {
    std::shared_ptr<JobKey> key;
    Local local;
    NodeId node{};
    Identity self{};
    Terms terms{};
    Result<void> done;
    Agreed agreed;

    Rank(int rank, std::shared_ptr<JobKey> job_key)
        : key(std::move(job_key)), local{test::crypto(kSuite), test::crypto().aead, key.get(), true} {
        node.fill(static_cast<std::uint8_t>(rank / 2));  // two ranks a node
        std::memset(self.job, 0x4a, sizeof self.job);
        std::strcpy(self.node, ("n" + std::to_string(rank / 2)).c_str());
        self.process[0] = static_cast<std::uint8_t>(rank);
        terms.fill(static_cast<std::uint8_t>(0x70 + rank));  // of these the root's count
        // What stood in the result before must not pass for one.
        std::memset(agreed.secret.data(), 0xee, agreed.secret.size());
        std::memset(agreed.private_key.data(), 0xee, agreed.private_key.size());
        agreed.nodes.resize(7);
        agreed.shares.resize(7);
        agreed.terms.fill(0xee);
    }
    void took_no_part() {
        done = fail(ETIMEDOUT, "took no part");
        wipe(agreed.secret.data(), agreed.secret.size());
        wipe(agreed.private_key.data(), agreed.private_key.size());
        agreed.nodes.clear();
        agreed.shares.clear();
        agreed.terms = {};
    }
    bool failed_in_silence() const { return !done && done.error().code == ETIMEDOUT; }
    bool empty() const {
        return test::all_zero(agreed.secret.data(), agreed.secret.size()) && agreed.nodes.empty() &&
               test::all_zero(agreed.private_key.data(), agreed.private_key.size()) && agreed.shares.empty() &&
               agreed.terms == Terms{};
    }
};

/// All ranks of a job, on two nodes or more, with one key unless a test changes that.
struct Job {
    explicit Job(int count, const std::shared_ptr<JobKey>& key = fresh_key()) : network(count) {
        for (int rank = 0; rank < count; ++rank) {
            ranks.emplace_back(rank, key);
        }
    }
    int count() const { return static_cast<int>(ranks.size()); }
    Rank& operator[](int rank) { return ranks[static_cast<std::size_t>(rank)]; }

    Job& run() {
        network.run([this](int rank) -> Network::Member {
            if (const auto by_hand = others.find(rank); by_hand != others.end()) {
                return by_hand->second;
            }
            return [this, rank](Peers& peers) {
                Rank& one = (*this)[rank];
                one.done = agree(one.local, rank, count(), one.node, one.self, one.terms, peers, one.agreed);
            };
        });
        return *this;
    }
    /// The ranks that know what is wrong; the others only wait in vain.
    std::map<int, std::string> complaints() const {
        std::map<int, std::string> lines;
        for (int rank = 0; rank < count(); ++rank) {
            const Rank& one = ranks[static_cast<std::size_t>(rank)];
            if (!one.done && !one.failed_in_silence()) {
                lines[rank] = one.done.error().line;
            }
        }
        return lines;
    }
    std::set<int> succeeded() const {
        std::set<int> who;
        for (int rank = 0; rank < count(); ++rank) {
            if (ranks[static_cast<std::size_t>(rank)].done) {
                who.insert(rank);
            }
        }
        return who;
    }

    Network network;
    std::deque<Rank> ranks;
    std::map<int, Network::Member> others;  // ranks that do something else than agree()
};

/// What holds whatever was done: a rank that failed has nothing, and ranks that succeeded have the same.
void expect_no_rift(Job& job) {
    const Rank* first = nullptr;
    for (Rank& one : job.ranks) {
        if (!one.done) {
            EXPECT_TRUE(one.empty());
            EXPECT_EQ(one.done.error().line.find('\n'), std::string::npos);
            continue;
        }
        first = first == nullptr ? &one : first;
        EXPECT_TRUE(same(one.agreed.secret.bytes, first->agreed.secret.bytes));
        EXPECT_EQ(one.agreed.nodes, first->agreed.nodes);
        EXPECT_EQ(one.agreed.shares, first->agreed.shares);
        EXPECT_EQ(one.agreed.terms, first->agreed.terms);
    }
}

void expect_nobody(Job& job) {
    expect_no_rift(job);
    EXPECT_TRUE(job.succeeded().empty());
}

void expect_everybody(Job& job) {
    expect_no_rift(job);
    for (int rank = 0; rank < job.count(); ++rank) {
        ASSERT_TRUE(job[rank].done) << rank << ": " << job[rank].done.error().line;
        ASSERT_EQ(job[rank].agreed.nodes.size(), job.ranks.size());
        EXPECT_EQ(job[0].agreed.nodes[static_cast<std::size_t>(rank)], job[rank].node);
        ASSERT_EQ(job[rank].agreed.shares.size(), job.ranks.size());
        Share own;
        EXPECT_EQ(test::crypto().kex->x25519_public(own.data(), job[rank].agreed.private_key.data()), CRYPTMPI_OK);
        EXPECT_EQ(job[0].agreed.shares[static_cast<std::size_t>(rank)], own);
    }
    EXPECT_FALSE(test::all_zero(job[0].agreed.secret.data(), 32));
    EXPECT_EQ(job[0].agreed.terms, job[0].terms);
}

/// With up to 1,900 ranks, every edge carries four messages each way; the last one down says that all have confirmed.
bool is_go(const Message& message) {
    return message.from < message.to && message.number == 3;
}

/// After something was done to `message`, which is noticed by the rank that got it: before "go" everybody has
/// confirmed, so nobody succeeds alone; afterwards a rank can only fail for itself and its subtree.
void expect_stopped_at(Job& job, const Message& message) {
    SCOPED_TRACE("message " + std::to_string(message.number) + " from " + std::to_string(message.from) + " to " +
                 std::to_string(message.to));
    expect_no_rift(job);
    EXPECT_FALSE(job[message.to].done);
    if (!is_go(message)) {
        EXPECT_TRUE(job.succeeded().empty());
    }
}

bool same_place(const Message& a, const Message& b) {
    return a.from == b.from && a.to == b.to && a.number == b.number;
}

/// An attacker who does something to one message and leaves the others alone.
Network::Attacker at(const Message& place, const std::function<std::vector<Message>(Message)>& attack) {
    return [=](const Message& message) { return same_place(message, place) ? attack(message) : std::vector{message}; };
}

/// The messages of a job of `count` ranks that nobody disturbs.
std::vector<Message> undisturbed(int count, const std::shared_ptr<JobKey>& key = fresh_key()) {
    Job job(count, key);
    expect_everybody(job.run());
    return job.network.sent();
}

TEST(Agreement, AllRanksComeToOneSecretAndOneTable) {
    for (const int count : {1, 2, 3, 4, 5, 8, 13, 33}) {
        for (const aead::Suite suite : test::suites()) {
            Job job(count);
            for (Rank& one : job.ranks) {
                one.local.crypto = test::crypto(suite);
            }
            expect_everybody(job.run());
        }
    }
}

TEST(Agreement, WorksWhereASendWaitsForItsReceive) {
    for (const int count : {2, 3, 4, 5, 8, 13, 33}) {
        Job job(count);
        job.network.rendezvous = true;
        expect_everybody(job.run());
    }
}

TEST(Agreement, ARankAloneSendsNothing) {
    Job job(1);
    expect_everybody(job.run());
    EXPECT_TRUE(job.network.sent().empty());
}

// protocol: A10
TEST(Agreement, EveryJobHasItsOwnSecret) {
    for (const int count : {1, 2, 5}) {
        const auto key = fresh_key();
        Job first(count, key);
        Job second(count, key);
        expect_everybody(first.run());
        expect_everybody(second.run());
        EXPECT_FALSE(same(first[0].agreed.secret.bytes, second[0].agreed.secret.bytes));
    }
}

// protocol: A4
TEST(Agreement, AddressesDoNotMatter) {
    Job job(3);
    for (Rank& one : job.ranks) {
        const Bytes somewhere = test::random_bytes(sizeof(Endpoint));
        std::memcpy(&one.self.local, somewhere.data(), sizeof(Endpoint));
    }
    expect_everybody(job.run());
}

TEST(Agreement, ItsLongestPathGrowsWithTheLogarithmOfTheRanks) {
    int before = 0;
    for (int doublings = 1; doublings <= 6; ++doublings) {
        Job job(1 << doublings);
        expect_everybody(job.run());
        const int path = job.network.longest_path();
        // A doubling adds one edge to the longest path: four messages up, four down, each sent and received.
        EXPECT_LE(path - before, 16) << job.count() << " ranks";
        before = path;
    }
}

TEST(Agreement, ANumberOfRanksThatCannotBeIsRefused) {
    struct NoPeers : Peers {
        Result<void> send(int, std::span<const std::uint8_t>) override { return fail(EIO, "sent"); }
        Result<std::size_t> receive_up_to(int, std::span<std::uint8_t>) override { return fail(EIO, "received"); }
    } peers;
    for (const auto& [rank, count] : std::map<int, int>{{0, 0}, {1, 1}, {-1, 4}, {4, 4}, {2, kMaxRanks + 1}}) {
        Rank one(0, fresh_key());
        const auto done = agree(one.local, rank, count, one.node, one.self, one.terms, peers, one.agreed);
        ASSERT_FALSE(done.has_value());
        EXPECT_EQ(done.error().code, EINVAL);
        EXPECT_TRUE(one.empty());
    }
}

TEST(Agreement, AFailingModuleLeavesNothing) {
    const cryptmpi_kex good = *test::crypto().kex;
    cryptmpi_kex no_random = good;
    no_random.random = [](std::uint8_t*, std::size_t) -> int { return CRYPTMPI_FAILED; };
    cryptmpi_kex no_hash = good;
    no_hash.sha256 = [](std::uint8_t*, const iovec*, std::size_t) -> int { return CRYPTMPI_FAILED; };
    cryptmpi_kex no_hmac = good;
    no_hmac.hmac_sha256 = [](std::uint8_t*, const std::uint8_t*, std::size_t, const iovec*, std::size_t) -> int {
        return CRYPTMPI_FAILED;
    };
    for (const cryptmpi_kex* broken : {&no_random, &no_hash, &no_hmac}) {
        for (const int count : {1, 3}) {
            Job job(count);
            job[0].local.crypto.kex = broken;
            expect_nobody(job.run());
            EXPECT_EQ(job.complaints().size(), 1U);
            EXPECT_NE(job.complaints()[0].find("the crypto module's"), std::string::npos);
        }
    }
}

// One rank that does not belong: a leaf, an inner rank, and the root, which the others are measured by. In a tree of
// eight ranks, 0 is the parent of 4, 2 and 1, and 6 of 7. Its parent names it, and nobody else complains.
struct Stranger {
    int rank;
    int complains;
    std::string named;
};
const Stranger kStrangers[] = {{7, 6, "rank 7"}, {4, 0, "rank 4"}, {0, 0, "rank 4"}};

void expect_named(const Stranger& stranger, Job& job, const std::string& line) {
    expect_nobody(job.run());
    const std::map<int, std::string> expected = {{stranger.complains, stranger.named + line}};
    EXPECT_EQ(job.complaints(), expected);
}

// protocol: A23
TEST(Agreement, ARankWithAnotherJobKeyIsNamed) {
    for (const Stranger& stranger : kStrangers) {
        Job job(8);
        job[stranger.rank].key = fresh_key();
        job[stranger.rank].local.job_key = job[stranger.rank].key.get();
        const auto text = [](const JobKey& key) { return key_id_text(id_of(*test::crypto().kex, key).value()); };
        const Rank& parent = job[stranger.complains];
        const Rank& child = job[stranger.rank == 0 ? 4 : stranger.rank];
        expect_named(stranger, job,
                     " has job key " + text(*child.key) + ", which is not in our key file (we began with " +
                         text(*parent.key) + "): give every node the same key file (cryptmpi key list, key install)");
    }
}

TEST(Agreement, RanksThatBeganBeforeAndAfterAChangeOfKeysAgree) {
    std::string name = (std::filesystem::temp_directory_path() / "cryptmpi-ring-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    const auto file = std::filesystem::path(name) / "job.key";
    ASSERT_TRUE(write_job_key(file, *test::crypto().kex, false).has_value());
    const auto before = KeyRing::read(*test::crypto().kex, file, KeyReaders::owner, "");
    JobKeys keys;
    keys.push_back(draw_job_key(*test::crypto().kex).value());
    keys.push_back(read_job_key(file).value());
    ASSERT_TRUE(write_job_keys(file, keys, true).has_value());
    const auto after = KeyRing::read(*test::crypto().kex, file, KeyReaders::owner, "");
    Job job(8);
    for (std::size_t rank = 0; rank < job.ranks.size(); ++rank) {
        KeyRing& ring = rank % 3 == 0 ? **before : **after;
        job.ranks[rank].local.job_key = &ring.own();
        job.ranks[rank].local.ring = &ring;
    }
    expect_everybody(job.run());
    std::filesystem::remove_all(name);
}

TEST(Agreement, ARankWithAnotherSuiteIsNamed) {
    for (const Stranger& stranger : kStrangers) {
        Job job(8);
        job[stranger.rank].local.crypto.suite = aead::Suite::aes_128_gcm;
        expect_named(stranger, job,
                     stranger.rank == 0
                         ? " seals with AES-256-GCM, we with AES-128-GCM: give every node the same setting cipher"
                         : " seals with AES-128-GCM, we with AES-256-GCM: give every node the same setting cipher");
    }
}

// protocol: A2
TEST(Agreement, ARankThatSealsLessThanOthersIsNamed) {
    for (const Stranger& stranger : kStrangers) {
        for (const auto conduct : {kSealsAll, kOpenRoads}) {
            Job job(8);
            for (Rank& one : job.ranks) {
                one.local.conduct = kSealsAll | kOpenRoads;
            }
            job[stranger.rank].local.conduct = conduct;
            expect_nobody(job.run());
            ASSERT_EQ(job.complaints().size(), 1U);
            const std::string line = job.complaints()[stranger.complains];
            EXPECT_TRUE(line.starts_with(stranger.named + " seals ")) << line;
            EXPECT_NE(line.find("scope, network, seal_sockets"), std::string::npos) << line;
        }
    }
}

/// A job whose ranks are members, each with a key of its own, listed by all.
struct MemberJob {
    explicit MemberJob(int count) : job(count) {
        for (int rank = 0; rank < count; ++rank) folder.make(name(rank));
        for (int rank = 0; rank < count; ++rank) use(rank, name(rank));
    }
    static std::string name(int rank) { return "m" + std::to_string(rank); }
    void use(int rank, const std::string& member) {
        memberships.push_back(folder.of(member));
        job[rank].local.members = memberships.back().get();
    }

    test::MemberFolder folder;
    std::vector<std::unique_ptr<Membership>> memberships;
    Job job;
};

// protocol: H15
TEST(Agreement, RanksLearnWhichMembersTheirEdgesEndAt) {
    MemberJob members(6);
    expect_everybody(members.job.run());
    EXPECT_EQ(members.job[0].agreed.members, (std::set<std::string>{"m1", "m2", "m4"}));
    EXPECT_EQ(members.job[4].agreed.members, (std::set<std::string>{"m0", "m5"}));
    EXPECT_EQ(members.job[3].agreed.members, (std::set<std::string>{"m2"}));
}

// protocol: H18
TEST(Agreement, ARankThatIsNoMemberIsNamed) {
    for (const Stranger& stranger : kStrangers) {
        MemberJob members(8);
        members.job[stranger.rank].local.members = nullptr;
        expect_named(stranger, members.job,
                     stranger.rank == 0
                         ? " requires members, and require_members is off here: set require_members = true here, too, "
                           "with a member key (cryptmpi keygen --member)"
                         : " does not prove which member it is, and require_members is on here: set "
                           "require_members = true where it runs, too");
    }
}

// protocol: H17
TEST(Agreement, ARankOfAMemberThatIsNotListedIsNamed) {
    MemberJob members(4);
    members.folder.revoke("m3");
    expect_nobody(members.job.run());
    ASSERT_EQ(members.job.complaints().size(), 1U);
    const std::string line = members.job.complaints()[2];
    EXPECT_TRUE(line.starts_with("rank 3 is no member that we take: ")) << line;
}

TEST(Agreement, EveryFlippedByteIsNoticedAmongMembersToo) {
    MemberJob quiet(2);
    expect_everybody(quiet.job.run());
    for (const Message& message : quiet.job.network.sent()) {
        if (message.number != 0) continue;
        ASSERT_EQ(message.bytes.size(), kMemberHelloSize);
        for (std::size_t byte = 0; byte < message.bytes.size(); ++byte) {
            Job job(2);
            for (int rank = 0; rank < 2; ++rank) job[rank].local.members = quiet.job[rank].local.members;
            job.network.attacker = at(message, [&](Message altered) {
                altered.bytes[byte] ^= 1;
                return std::vector{altered};
            });
            expect_stopped_at(job.run(), message);
        }
    }
}

const cryptmpi_kem* kem() {
    static const auto module = test::loaded(aead::load_kem(CRYPTMPI_MODULE_FOLDER));
    return module.kem;
}

void make_hybrid(Job& job, int ranks) {
    for (int rank = 0; rank < ranks; ++rank) job[rank].local.kem = kem();
}

// protocol: A25
TEST(Agreement, EveryEdgeHasMlKemWhereItIsAskedFor) {
    Job job(6);
    make_hybrid(job, 6);
    expect_everybody(job.run());
    int hellos = 0;
    for (const Message& message : job.network.sent()) {
        if (message.number != 0) continue;
        EXPECT_EQ(message.bytes.size(),
                  hello_size(message.from > message.to ? Role::initiator : Role::responder, false, true));
        ++hellos;
    }
    EXPECT_EQ(hellos, 10);
}

// protocol: H20, A25
TEST(Agreement, ARankThatExchangesKeysInAnotherWayIsNamed) {
    for (const Stranger& stranger : kStrangers) {
        Job job(8);
        make_hybrid(job, 8);
        job[stranger.rank].local.kem = nullptr;
        expect_named(stranger, job,
                     stranger.rank == 0 ? " exchanges keys by x25519-mlkem768, we by x25519: give every node the same "
                                          "setting key_exchange"
                                        : " exchanges keys by x25519, we by x25519-mlkem768: give every node the same "
                                          "setting key_exchange");
    }
}

TEST(Agreement, EveryTenthFlippedByteIsNoticedWithMlKemToo) {
    Job quiet(2);
    make_hybrid(quiet, 2);
    expect_everybody(quiet.run());
    for (const Message& message : quiet.network.sent()) {
        if (message.number != 0) continue;
        for (std::size_t byte = 0; byte < message.bytes.size(); byte += 10) {
            Job job(2);
            make_hybrid(job, 2);
            job.network.attacker = at(message, [&](Message altered) {
                altered.bytes[byte] ^= 1;
                return std::vector{altered};
            });
            expect_stopped_at(job.run(), message);
        }
    }
}

// protocol: A2
TEST(Agreement, ConductIsPartOfWhatIsAuthenticated) {
    // Who makes ranks that differ look alike on the way: the hellos do not open.
    Job job(2);
    job[1].local.conduct = kSealsAll;
    job.network.attacker = [](Message message) {
        if (message.number == 0) message.bytes[7] = message.to == 1 ? kSealsAll : 0;
        return std::vector{message};
    };
    expect_nobody(job.run());
    ASSERT_EQ(job.complaints().size(), 1U);
    EXPECT_NE(job.complaints()[0].find("does not open"), std::string::npos) << job.complaints()[0];
}

TEST(Agreement, ARankOfAnotherJobIsNamed) {
    for (const Stranger& stranger : kStrangers) {
        Job job(8);
        job[stranger.rank].self.job[31] ^= 1;
        expect_named(stranger, job, " holds our job key but belongs to another job (its job id differs)");
    }
}

TEST(Agreement, ARankOfAnotherVersionIsNamed) {
    Job job(8);
    job.network.attacker = at({7, 6, 0, {}}, [](Message hello) {
        hello.bytes[4] = 1;
        return std::vector{hello};
    });
    expect_named(kStrangers[0], job,
                 " speaks protocol version 1, we speak 2: install the same CryptMPI release on every node");
}

TEST(Agreement, ARankThatSpeaksSomethingElseIsNamed) {
    Job job(8);
    job.network.attacker = at({7, 6, 0, {}}, [](Message hello) {
        hello.bytes[0] = 'c';
        return std::vector{hello};
    });
    expect_named(kStrangers[0], job,
                 " does not speak CryptMPI (its first bytes are no hello): start it under cryptmpi too");
}

TEST(Agreement, ARankThatIsNotThereStopsAll) {
    for (const int absent : {7, 4, 0}) {
        Job job(8);
        job.others[absent] = [](Peers&) {};
        job[absent].took_no_part();
        expect_nobody(job.run());
        const int neighbour = absent == 7 ? 6 : absent == 4 ? 0 : 4;
        EXPECT_EQ(job[neighbour].done.error().line, "rank " + std::to_string(absent) + " did not answer");
    }
}

// protocol: A13, A14
TEST(Agreement, EveryFlippedByteIsNoticed) {
    for (const int count : {2, 3}) {
        for (const Message& place : undisturbed(count)) {
            for (std::size_t byte = 0; byte < place.bytes.size(); ++byte) {
                Job job(count);
                job.network.attacker = at(place, [&](Message message) {
                    message.bytes[byte] ^= static_cast<std::uint8_t>(1U << byte % 8);
                    return std::vector{message};
                });
                expect_stopped_at(job.run(), place);
                EXPECT_EQ(job.complaints().count(place.to), 1U) << "byte " << byte;
            }
        }
    }
}

// protocol: A22
TEST(Agreement, EveryDroppedMessageIsNoticed) {
    for (const Message& place : undisturbed(5)) {
        Job job(5);
        job.network.attacker = at(place, [](const Message&) { return std::vector<Message>{}; });
        expect_stopped_at(job.run(), place);
    }
}

TEST(Agreement, ARepeatedMessageIsNoticedOrNeverRead) {
    for (const Message& place : undisturbed(5)) {
        Job job(5);
        job.network.attacker = at(place, [](const Message& message) { return std::vector{message, message}; });
        job.run();
        if (place.number == 3) {  // the last on its way
            expect_everybody(job);
        } else {
            expect_stopped_at(job, {place.from, place.to, place.number + 1, {}});
        }
    }
}

TEST(Agreement, AMessageOfAnEarlierRunIsNoticed) {
    const auto key = fresh_key();
    for (const Message& old : undisturbed(5, key)) {
        Job job(5, key);
        job.network.attacker = at(old, [&](const Message&) { return std::vector{old}; });
        job.run();
        if (old.from > old.to && old.number == 0) {
            // A hello 1 of the same rank of the same job: its parent answers, and the rank cannot use the answer.
            expect_nobody(job);
            EXPECT_TRUE(job.complaints().contains(old.from));
        } else {
            expect_stopped_at(job, old);
        }
    }
}

TEST(Agreement, WhoReplaysARankGetsNoFurtherThanItsHello) {
    const auto key = fresh_key();
    const std::vector<Message> recorded = undisturbed(4, key);
    for (int replayed = 1; replayed < 4; ++replayed) {
        Job job(4, key);
        job.others[replayed] = [&](Peers& peers) {
            for (const Message& message : recorded) {
                if (message.from == replayed) {
                    EXPECT_TRUE(peers.send(message.to, message.bytes).has_value());
                }
            }
        };
        job[replayed].took_no_part();
        expect_nobody(job.run());
        const int parent = replayed & (replayed - 1);
        const std::string node = job[replayed].self.node;
        EXPECT_EQ(job[parent].done.error().line,
                  "what rank " + std::to_string(replayed) + " on node " + node +
                      " sent is refused: record 0 of epoch 0 does not open: altered, dropped, repeated or moved on the "
                      "way");
    }
}

TEST(Agreement, AReflectedMessageIsNoticed) {
    for (const Message& place : undisturbed(4)) {
        Job job(4);
        bool reflected = false;
        job.network.attacker = at(place, [&](Message message) {
            for (const Message& earlier : job.network.sent()) {
                if (earlier.from == message.to && earlier.to == message.from) {
                    message.bytes = earlier.bytes;
                    reflected = true;
                }
            }
            return std::vector{message};
        });
        job.run();
        if (reflected) {
            expect_stopped_at(job, place);
        } else {
            EXPECT_EQ(place.number, 0);  // hello 1 comes before anything that could be sent back
            expect_everybody(job);
        }
    }
}

/// Whatever is on its way at `a` arrives at `b`, and the reverse.
Network::Attacker exchange(const Message& a, const Message& b) {
    return [a, b, held = std::vector<Message>()](const Message& message) mutable {
        if (!same_place(message, a) && !same_place(message, b)) {
            return std::vector{message};
        }
        held.push_back(message);
        if (held.size() < 2) {
            return std::vector<Message>{};
        }
        std::swap(held[0].bytes, held[1].bytes);
        return held;
    };
}

TEST(Agreement, MessagesExchangedBetweenEdgesAreNoticed) {
    const std::vector<Message> places = undisturbed(4);
    for (const Message& a : places) {
        for (const Message& b : places) {
            const bool other_edge = std::pair(a.from, a.to) < std::pair(b.from, b.to);
            if (!other_edge || a.number != b.number || a.bytes.size() != b.bytes.size()) {
                continue;
            }
            Job job(4);
            job.network.attacker = exchange(a, b);
            job.run();
            expect_stopped_at(job, a);
            expect_stopped_at(job, b);
        }
    }
}

// protocol: A3
TEST(Agreement, WholeEdgesExchangedAreNoticed) {
    Job job(3);
    job.network.attacker = [](Message message) {
        const auto exchanged = [](int rank) { return rank == 0 ? 0 : 3 - rank; };
        message.from = exchanged(message.from);
        message.to = exchanged(message.to);
        return std::vector{message};
    };
    expect_nobody(job.run());
    EXPECT_EQ(
        job.complaints()[0],
        "rank 2's hello does not open: it was altered on the way, or the peer does not have the job key that it names");
}

// protocol: A3
TEST(Agreement, ARankThatCountsOtherRanksIsNoticed) {
    Job job(3);
    job.others[1] = [&](Peers& peers) {
        Rank& one = job[1];
        one.done = agree(one.local, 1, 2, one.node, one.self, one.terms, peers, one.agreed);
    };
    expect_nobody(job.run());
    EXPECT_EQ(
        job.complaints()[0],
        "rank 1's hello does not open: it was altered on the way, or the peer does not have the job key that it names");
}

TEST(Agreement, MessagesExchangedBetweenJobsAreNoticed) {
    const auto key = fresh_key();
    Job other_job(4, key);
    for (Rank& one : other_job.ranks) {
        one.self.job[0] ^= 1;
    }
    expect_everybody(other_job.run());
    for (const Message& theirs : other_job.network.sent()) {
        Job job(4, key);
        job.network.attacker = at(theirs, [&](const Message&) { return std::vector{theirs}; });
        expect_stopped_at(job.run(), theirs);
    }
}

/// One end of one edge, as docs/protocol.md has it: an implementation of its own, that can also do what no honest rank
/// does.
class ByHand {
public:
    ByHand(Rank& rank, int ranks, int self, int peer, Peers& peers) : rank_(rank), peer_(peer), peers_(peers) {
        const std::string label = "mpi layer";
        context_.assign(label.begin(), label.end());
        for (const int number : {ranks, std::max(self, peer), std::min(self, peer)}) {
            append_number(context_, number);
        }
        role_ = self > peer ? Role::initiator : Role::responder;
        local_ = rank.local;
        local_.check_addresses = false;
        local_.context = context_;
    }

    bool shake_hands() {
        return must(start(local_, role_, rank_.self, state_)) && exchange_hellos() &&
               must(finish(local_, state_, sending_, receiving_));
    }
    void send_confirm() { must(peers_.send(peer_, test::seal_control(sealer_, seal::RecordType::confirm))); }
    void receive_confirm() {
        const Bytes record = receive_record(0);
        EXPECT_TRUE(test::open_record(opener_, record).is(seal::RecordType::confirm));
    }
    void send(const Bytes& plain) { must(peers_.send(peer_, test::seal_data(sealer_, plain))); }
    Bytes receive(std::size_t size) {
        const Bytes record = receive_record(size);
        return test::open_record(opener_, record).plain;
    }

    static void append_number(Bytes& to, int number) {
        for (int shift = 0; shift < 32; shift += 8) {
            to.push_back(static_cast<std::uint8_t>(static_cast<unsigned>(number) >> shift));
        }
    }

private:
    static bool must(const Result<void>& done) {
        EXPECT_TRUE(done) << done.error().line;
        return done.has_value();
    }

    bool exchange_hellos() {
        return role_ == Role::initiator ? say_hello() && hear_hello() : hear_hello() && say_hello();
    }
    bool say_hello() {
        std::array<std::uint8_t, kHelloSize> hello{};
        return must(write_hello(local_, state_, hello)) && must(peers_.send(peer_, hello));
    }
    bool hear_hello() {
        std::array<std::uint8_t, kHelloSize> hello{};
        return must(peers_.receive(peer_, hello)) && must(read_hello(local_, state_, hello));
    }
    Bytes receive_record(std::size_t size) {
        Bytes record(size + 20);
        must(peers_.receive(peer_, record));
        return record;
    }

    Rank& rank_;
    Role role_{};
    Local local_{};
    int peer_;
    Peers& peers_;
    Bytes context_;
    HandshakeState state_{};
    seal::DirectionState sending_{};
    seal::DirectionState receiving_{};
    seal::StreamSealer sealer_{test::crypto(kSuite), sending_};
    seal::StreamOpener opener_{test::crypto(kSuite), receiving_};
};

constexpr std::size_t kEntry = 4 + 32 + 32;  // rank, node, share

/// For ranks that are played by hand, and have no private key.
Share share_of(int rank) {
    Share share{};
    share[0] = 9;
    share[1] = static_cast<std::uint8_t>(rank);
    share[2] = static_cast<std::uint8_t>(rank >> 8);
    return share;
}

Bytes entry(int rank, const NodeId& node, const Share& share) {
    Bytes bytes;
    ByHand::append_number(bytes, rank);
    bytes.insert(bytes.end(), node.begin(), node.end());
    bytes.insert(bytes.end(), share.begin(), share.end());
    return bytes;
}

Bytes entry(int rank, const NodeId& node) {
    return entry(rank, node, share_of(rank));
}

/// What rank 1 said of itself, in an entry.
Share share_in(const Bytes& entry) {
    Share share;
    std::copy_n(entry.begin() + 36, share.size(), share.begin());
    return share;
}

Bytes table_of(const std::vector<NodeId>& nodes, const std::map<int, Share>& shares = {}) {
    Bytes table;
    for (std::size_t rank = 0; rank < nodes.size(); ++rank) {
        const auto known = shares.find(static_cast<int>(rank));
        const Share share = known == shares.end() ? share_of(static_cast<int>(rank)) : known->second;
        const Bytes one = entry(static_cast<int>(rank), nodes[rank], share);
        table.insert(table.end(), one.begin(), one.end());
    }
    return table;
}

Bytes joined(std::initializer_list<Bytes> parts) {
    Bytes all;
    for (const Bytes& part : parts) {
        all.insert(all.end(), part.begin(), part.end());
    }
    return all;
}

Bytes bytes_of(const std::string& text) {
    return {text.begin(), text.end()};
}

constexpr std::size_t kSpread = 32 + 16;  // the drawn secret and the terms

/// Expand(drawn secret, label | transcript, 32). `spread`: drawn secret and terms.
Bytes derive(const std::string& label, const Bytes& spread, const Identity& self, const Bytes& table) {
    Bytes count;
    ByHand::append_number(count, static_cast<int>(table.size() / kEntry));
    const Bytes drawn(spread.begin(), spread.begin() + 32);
    const Bytes terms(spread.begin() + 32, spread.end());
    Bytes hashed = joined({bytes_of("mpi transcript"), {2, 2}, Bytes(self.job, self.job + 32), count, table, terms});
    Bytes transcript(32);
    iovec in = {hashed.data(), hashed.size()};
    EXPECT_EQ(test::crypto().kex->sha256(transcript.data(), &in, 1), CRYPTMPI_OK);
    Bytes info = joined({bytes_of("cryptmpi 1 " + label), transcript, {1}});
    in = {info.data(), info.size()};
    Bytes derived(32);
    EXPECT_EQ(test::crypto().kex->hmac_sha256(derived.data(), drawn.data(), drawn.size(), &in, 1), CRYPTMPI_OK);
    return derived;
}

Bytes secret_of(const Rank& one) {
    return Bytes(one.agreed.secret.bytes, one.agreed.secret.bytes + 32);
}

/// A job of two whose rank 1 is played by `child`.
void play_child(Job& job, const std::function<void(ByHand&)>& child) {
    job.others[1] = [&](Peers& peers) {
        ByHand edge(job[1], 2, 1, 0, peers);
        if (edge.shake_hands()) {
            child(edge);
        }
    };
    job.run();
}

// protocol: A11, A12
TEST(Agreement, AChildThatFollowsTheDescriptionAgrees) {
    Job job(2);
    Bytes secret;
    play_child(job, [&](ByHand& edge) {
        edge.send_confirm();
        edge.send(entry(1, job[1].node));
        const Bytes spread = edge.receive(kSpread);
        const Bytes table = edge.receive(2 * kEntry);
        EXPECT_EQ(table, table_of({job[0].node, job[1].node}, {{0, share_in(table)}}));
        edge.send(derive("mpi confirm", spread, job[1].self, table));
        EXPECT_TRUE(edge.receive(0).empty());
        secret = derive("mpi job", spread, job[1].self, table);
    });
    ASSERT_TRUE(job[0].done) << job[0].done.error().line;
    EXPECT_EQ(secret_of(job[0]), secret);
    EXPECT_EQ(job[0].agreed.shares[1], share_of(1));
}

// protocol: A18
TEST(Agreement, AChildWithTheShareOfAnotherOrNoneIsRefused) {
    for (const bool none : {false, true}) {
        Job job(3);
        job.others[1] = [&](Peers& peers) {
            ByHand edge(job[1], 3, 1, 0, peers);
            ASSERT_TRUE(edge.shake_hands());
            edge.send_confirm();
            edge.send(entry(1, job[1].node, none ? Share{} : share_of(2)));
        };
        job.others[2] = [&](Peers& peers) {
            ByHand edge(job[2], 3, 2, 0, peers);
            ASSERT_TRUE(edge.shake_hands());
            edge.send_confirm();
            edge.send(entry(2, job[2].node));
        };
        job.run();
        EXPECT_EQ(job[0].done.error().line,
                  "agreement: two ranks have the same key share, or one has none: a forged table");
        EXPECT_TRUE(job[0].empty());
    }
}

// protocol: A16
TEST(Agreement, AChildThatSpeaksForAnotherRankIsNamed) {
    Job job(2);
    play_child(job, [&](ByHand& edge) {
        edge.send_confirm();
        edge.send(entry(0, job[1].node));
    });
    EXPECT_EQ(job[0].done.error().line, "rank 1 on node n0 sent a table of other members than rank 1 in order");
    EXPECT_TRUE(job[0].empty());
}

// protocol: A19
TEST(Agreement, AChildThatConfirmsSomethingElseIsNamed) {
    Job job(2);
    play_child(job, [&](ByHand& edge) {
        edge.send_confirm();
        edge.send(entry(1, job[1].node));
        const Bytes spread = edge.receive(kSpread);
        Bytes table = edge.receive(2 * kEntry);
        table[4] ^= 1;  // as if it had been told of another node of rank 0
        edge.send(derive("mpi confirm", spread, job[1].self, table));
    });
    EXPECT_EQ(job[0].done.error().line,
              "rank 1 on node n0 confirms another secret, other terms or another table of the job than ours");
    EXPECT_TRUE(job[0].empty());
}

// protocol: A19
TEST(Agreement, AChildThatConfirmsOtherTermsIsNamed) {
    Job job(2);
    play_child(job, [&](ByHand& edge) {
        edge.send_confirm();
        edge.send(entry(1, job[1].node));
        Bytes spread = edge.receive(kSpread);
        const Bytes table = edge.receive(2 * kEntry);
        EXPECT_TRUE(std::equal(job[0].terms.begin(), job[0].terms.end(), spread.begin() + 32));
        spread[32] ^= 1;
        edge.send(derive("mpi confirm", spread, job[1].self, table));
    });
    EXPECT_EQ(job[0].done.error().line,
              "rank 1 on node n0 confirms another secret, other terms or another table of the job than ours");
    EXPECT_TRUE(job[0].empty());
}

// protocol: A15
TEST(Agreement, AChildThatDoesNotConfirmItsHandshakeIsNamed) {
    Job job(2);
    play_child(job, [](ByHand& edge) { edge.send({}); });
    EXPECT_EQ(job[0].done.error().line, "rank 1 on node n0 sent a record of another type than was due");
}

/// The first so many of what goes from one rank to the other in a job of two, and no more.
void expect_last_words(const Job& job, int from, std::size_t messages) {
    EXPECT_EQ(std::count_if(job.network.sent().begin(), job.network.sent().end(),
                            [&](const Message& message) { return message.from == from; }),
              messages);
}

/// The table that a root makes of the share of rank 1.
using TableOf = std::function<Bytes(const Share& share)>;

/// A job of two whose rank 0 is played by hand: it spreads `spread` and a table, and returns what rank 1 confirmed.
Bytes play_root(Job& job, const Bytes& spread, const TableOf& table, bool go) {
    Bytes confirmed;
    job.others[0] = [&](Peers& peers) {
        ByHand edge(job[0], 2, 0, 1, peers);
        if (!edge.shake_hands()) {
            return;
        }
        edge.receive_confirm();
        const Bytes said = edge.receive(kEntry);
        EXPECT_EQ(said, entry(1, job[1].node, share_in(said)));
        edge.send(spread);
        edge.send(table(share_in(said)));
        if (go) {
            confirmed = edge.receive(32);
            edge.send({});
        }
    };
    job.run();
    return confirmed;
}

// protocol: A11, A12
TEST(Agreement, ARootThatFollowsTheDescriptionIsBelieved) {
    Job job(2);
    const Bytes spread = test::random_bytes(kSpread);
    Bytes table;
    const auto honest = [&](const Share& share) { return table = table_of({job[0].node, job[1].node}, {{1, share}}); };
    const Bytes confirmed = play_root(job, spread, honest, true);
    EXPECT_EQ(confirmed, derive("mpi confirm", spread, job[0].self, table));
    ASSERT_TRUE(job[1].done) << job[1].done.error().line;
    EXPECT_EQ(secret_of(job[1]), derive("mpi job", spread, job[0].self, table));
    EXPECT_EQ(job[1].agreed.shares[0], share_of(0));
}

// protocol: A12
TEST(Agreement, AnotherTableGivesAnotherSecretAndAnotherConfirmation) {
    NodeId moved{};
    moved[31] = 1;
    for (const std::size_t changed : {0, 1}) {  // the node, the share
        Job job(2);
        const Bytes spread = test::random_bytes(kSpread);
        Bytes table;
        const auto other = [&](const Share& share) {
            table = table_of({job[0].node, job[1].node}, {{1, share}});
            return changed == 0 ? table_of({moved, job[1].node}, {{1, share}})
                                : table_of({job[0].node, job[1].node}, {{0, share_of(7)}, {1, share}});
        };
        EXPECT_NE(play_root(job, spread, other, true), derive("mpi confirm", spread, job[0].self, table));
        EXPECT_NE(secret_of(job[1]), derive("mpi job", spread, job[0].self, table));
    }
}

// protocol: A17
TEST(Agreement, ATableThatChangesWhatARankSaidOfItselfIsRefused) {
    NodeId moved{};
    moved[31] = 1;
    for (const std::size_t changed : {0, 1}) {  // the node, the share
        Job job(2);
        const auto other = [&](const Share& share) {
            return changed == 0 ? table_of({job[0].node, moved}, {{1, share}}) : table_of({job[0].node, job[1].node});
        };
        play_root(job, test::random_bytes(kSpread), other, false);
        EXPECT_EQ(job[1].done.error().line,
                  "rank 0 on node n0 sent a table that changes the node or the share of rank 1");
        EXPECT_TRUE(job[1].empty());
    }
}

// protocol: A21
TEST(Agreement, ARankThatFailedSaysNothingMore) {
    Job hello(2);
    hello.network.attacker = at({1, 0, 0, {}}, [](Message message) {
        message.bytes[191] ^= 1;
        return std::vector{message};
    });
    hello.run();
    expect_last_words(hello, 0, 0);

    Job table(2);
    play_child(table, [&](ByHand& edge) {
        edge.send_confirm();
        edge.send(entry(0, table[1].node));
    });
    expect_last_words(table, 0, 1);  // its hello

    Job confirmation(2);
    play_child(confirmation, [&](ByHand& edge) {
        edge.send_confirm();
        edge.send(entry(1, confirmation[1].node));
        edge.receive(kSpread);
        edge.receive(2 * kEntry);
        edge.send(Bytes(32));
    });
    expect_last_words(confirmation, 0, 3);  // and the drawn secret and the table, but no "go"

    Job spread(2);
    play_root(
        spread, test::random_bytes(kSpread), [&](const Share&) { return Bytes(2 * kEntry); }, false);
    expect_last_words(spread, 1, 3);  // its hello, confirm record and table, but no confirmation
}

// protocol: A18
TEST(Agreement, ARootWithTheShareOfAnotherOrNoneIsRefused) {
    for (const bool none : {false, true}) {
        Job job(2);
        const auto other = [&](const Share& share) {
            return table_of({job[0].node, job[1].node}, {{0, none ? Share{} : share}, {1, share}});
        };
        play_root(job, test::random_bytes(kSpread), other, false);
        EXPECT_EQ(job[1].done.error().line,
                  "agreement: two ranks have the same key share, or one has none: a forged table");
        EXPECT_TRUE(job[1].empty());
    }
}

// protocol: A17
TEST(Agreement, ATableOutOfOrderIsRefused) {
    Job job(2);
    const auto turned = [&](const Share& share) {
        return joined({entry(1, job[1].node, share), entry(0, job[0].node)});
    };
    play_root(job, test::random_bytes(kSpread), turned, false);
    EXPECT_EQ(job[1].done.error().line, "rank 0 on node n0 sent a table of other members than ranks 0 to 1 in order");
    EXPECT_TRUE(job[1].empty());
}

// protocol: A5, A6
TEST(Agreement, ATableLongerThanARecordComesInSeveral) {
    constexpr int kRanks = 2048;
    Job job(2);  // its threads stand for the last rank, a leaf, and for that rank's parent
    const std::vector<NodeId> nodes(kRanks, job[0].node);
    Bytes table;
    const Bytes spread = test::random_bytes(kSpread);
    const auto renamed = [](Peers& peers) {
        struct Renamed : Peers {
            Peers& inner;
            explicit Renamed(Peers& within) : inner(within) {}
            Result<void> send(int rank, std::span<const std::uint8_t> message) override {
                return inner.send(rank == kRanks - 1 ? 1 : 0, message);
            }
            Result<std::size_t> receive_up_to(int rank, std::span<std::uint8_t> room) override {
                return inner.receive_up_to(rank == kRanks - 1 ? 1 : 0, room);
            }
        };
        return Renamed(peers);
    };
    job.others[1] = [&](Peers& peers) {
        auto outside = renamed(peers);
        Rank& one = job[1];
        one.done = agree(one.local, kRanks - 1, kRanks, one.node, one.self, one.terms, outside, one.agreed);
    };
    job.others[0] = [&](Peers& peers) {
        auto outside = renamed(peers);
        ByHand edge(job[0], kRanks, kRanks - 2, kRanks - 1, outside);
        if (!edge.shake_hands()) {
            return;
        }
        edge.receive_confirm();
        const Bytes said = edge.receive(kEntry);
        EXPECT_EQ(said, entry(kRanks - 1, job[1].node, share_in(said)));
        table = table_of(nodes, {{kRanks - 1, share_in(said)}});
        edge.send(spread);
        edge.send({table.begin(), table.begin() + 131072});
        edge.send({table.begin() + 131072, table.end()});
        EXPECT_EQ(edge.receive(32), derive("mpi confirm", spread, job[0].self, table));
        edge.send({});
    };
    job.run();
    ASSERT_TRUE(job[1].done) << job[1].done.error().line;
    EXPECT_EQ(job[1].agreed.nodes, nodes);
    EXPECT_EQ(secret_of(job[1]), derive("mpi job", spread, job[0].self, table));
}

TEST(Patience, WhoeverIsNextToAMissingRankGivesUpFirst) {
    const std::chrono::milliseconds first(100);
    for (int rank = 1; rank < 64; ++rank) {
        const int parent = rank & (rank - 1);
        EXPECT_EQ(patience_for(parent, rank, first), first) << rank;
        // The parent may be waiting for another child, or for its own parent.
        EXPECT_GE(patience_for(rank, parent, first), 2 * first) << rank;
        if (parent != 0) {
            const int grandparent = parent & (parent - 1);
            EXPECT_GE(patience_for(rank, parent, first), patience_for(parent, grandparent, first) + first) << rank;
        }
    }
}

}  // namespace
}  // namespace cryptmpi::keys
