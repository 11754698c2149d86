// The papers' ways of key distribution: every rank comes to one key or stops with one line; and what an active attacker
// can do to them, which is why they are called safe against passive attackers only.
#include "keys/key_transport.hpp"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "keys/interchange.hpp"
#include "keys/network.hpp"
#include "seal/support.hpp"

namespace cryptmpi::keys {
namespace {

namespace fs = std::filesystem;
using test::Bytes;
using test::Message;
using test::Network;

const cryptmpi_rsa& rsa() {
    static const auto openssl = test::loaded(aead::load(CRYPTMPI_MODULE_FOLDER, "openssl"));
    return *openssl.rsa;
}

/// Made once: they take their time.
RsaPair& pair_of_node(int node) {
    static std::map<int, RsaPair> pairs;
    auto found = pairs.find(node);
    if (found == pairs.end()) found = pairs.emplace(node, RsaPair::generate(rsa()).value()).first;
    return found->second;
}

std::string node_name(int node) {
    return "node" + std::to_string(node);
}

struct Rank {
    TransportLocal local;
    Result<std::unique_ptr<JobKey>> key = fail(ETIMEDOUT, "took no part");

    bool in_silence() const { return !key && key.error().code == ETIMEDOUT; }
    Bytes bytes() const { return Bytes((*key)->data(), (*key)->data() + (*key)->size()); }
};

class Transported : public ::testing::Test {
protected:
    Transported() {
        std::string name = (fs::temp_directory_path() / "transport.XXXXXX").string();
        folder = ::mkdtemp(name.data());
    }
    ~Transported() override { fs::remove_all(folder); }

    /// Two ranks a node.
    void make(Transport way, int count) {
        network = std::make_unique<Network>(count);
        ranks.clear();
        ranks.resize(static_cast<std::size_t>(count));
        std::string list = "# nodes\n\n";
        std::set<int> nodes;
        for (int rank = 0; rank < count; ++rank) {
            auto& local = ranks[static_cast<std::size_t>(rank)].local;
            local.way = way;
            local.kex = test::crypto().kex;
            local.rsa = &rsa();
            local.job.fill(0x4a);
            if (way == Transport::rsa_oaep) continue;
            const int node = rank / 2;
            local.node = node_name(node);
            local.key_file = folder / (local.node + ".key");
            local.list = folder / "list";
            if (!nodes.insert(node).second) continue;
            list += interchange_line(local.node, pair_of_node(node).modulus()) + "\n";
            fs::remove(local.key_file);
            ASSERT_TRUE(pair_of_node(node).write(local.key_file));
        }
        std::ofstream(folder / "list") << list;
        ::chmod((folder / "list").c_str(), 0644);
    }
    void run() {
        network->run([this](int rank) -> Network::Member {
            return [this, rank](Peers& peers) {
                auto& one = (*this)[rank];
                one.key = transport_key(one.local, rank, count(), peers);
            };
        });
    }
    int count() const { return static_cast<int>(ranks.size()); }
    Rank& operator[](int rank) { return ranks[static_cast<std::size_t>(rank)]; }

    void expect_one_key() {
        for (int rank = 0; rank < count(); ++rank) {
            ASSERT_TRUE((*this)[rank].key) << rank << ": " << (*this)[rank].key.error().line;
            EXPECT_EQ((*this)[rank].bytes(), (*this)[0].bytes());
        }
    }
    /// The one rank that says something, and what.
    void expect_line_of(int rank, const std::string& words) {
        for (int other = 0; other < count(); ++other) {
            if (other == rank) continue;
            EXPECT_TRUE((*this)[other].key || (*this)[other].in_silence()) << other;
        }
        ASSERT_FALSE((*this)[rank].key);
        const std::string line = (*this)[rank].key.error().line;
        EXPECT_NE(line.find(words), std::string::npos) << line;
        EXPECT_EQ(line.find('\n'), std::string::npos) << line;
    }
    /// Does `change` to the first message number `number` between two ranks.
    void attack(int from, int to, int number, const std::function<void(Bytes&)>& change) {
        network->attacker = [=](Message message) {
            if (message.from == from && message.to == to && message.number == number) change(message.bytes);
            return std::vector{message};
        };
    }

    fs::path folder;
    std::unique_ptr<Network> network;
    std::deque<Rank> ranks;
};

// protocol: W7
TEST_F(Transported, AllRanksComeToOneKey) {
    for (const Transport way : {Transport::rsa_oaep, Transport::interchange}) {
        for (const int count : {1, 2, way == Transport::rsa_oaep ? 3 : 6}) {
            make(way, count);
            run();
            expect_one_key();
        }
    }
}

TEST_F(Transported, WhatTravelsIsAsLongAsThePageSays) {
    make(Transport::interchange, 6);
    run();
    std::size_t bytes = 0;
    for (const Message& message : network->sent()) bytes += message.bytes.size();
    // The subtrees of ranks 1 to 5 have 1, 2, 1, 2 and 1 ranks.
    EXPECT_EQ(bytes, 5 * kHelloSize + 7 * (kNodeNameSize + kModulusSize));
}

TEST_F(Transported, EachJobHasAnotherKeyAndNothingOfItTravels) {
    make(Transport::interchange, 2);
    run();
    expect_one_key();
    const Bytes first = (*this)[0].bytes();
    for (const Message& message : network->sent()) {
        EXPECT_EQ(std::search(message.bytes.begin(), message.bytes.end(), first.begin(), first.end()),
                  message.bytes.end());
    }
    make(Transport::interchange, 2);
    run();
    EXPECT_NE((*this)[0].bytes(), first);
}

// protocol: W6
TEST_F(Transported, AWrappedKeyThatWasAlteredOrIsAnotherRanksDoesNotOpen) {
    for (const Transport way : {Transport::rsa_oaep, Transport::interchange}) {
        make(way, 3);
        attack(0, 2, 0, [](Bytes& bytes) { bytes[17] ^= 1; });
        run();
        expect_line_of(2, "the wrapped key that came by rank 0 does not open");
        EXPECT_EQ((*this)[2].key.error().code, EKEYREJECTED);
    }
}

// protocol: W4
TEST_F(Transported, AWrappedKeyOpensForItsRankOnly) {
    make(Transport::interchange, 4);
    // Ranks 2 and 3 are on one node, with one key: still 3's is no key for 2.
    attack(0, 2, 0, [](Bytes& bytes) {
        ASSERT_EQ(bytes.size(), 2 * kModulusSize);
        std::swap_ranges(bytes.begin(), bytes.begin() + kModulusSize, bytes.begin() + kModulusSize);
    });
    run();
    expect_line_of(2, "does not open");
}

// protocol: W1, W2
TEST_F(Transported, RanksThatDoNotGoTheSameWaySaySo) {
    make(Transport::interchange, 2);
    (*this)[1].local.way = Transport::rsa_oaep;
    run();
    expect_line_of(0, "rank 1 has another way: give all ranks the same setting key_distribution");

    make(Transport::interchange, 2);
    (*this)[1].local.suite = aead::Suite::aes_128_gcm;
    run();
    expect_line_of(0, "rank 1 seals with another cipher");

    make(Transport::interchange, 2);
    (*this)[1].local.job.fill(0x4b);
    run();
    expect_line_of(0, "rank 1 belongs to another job");
}

// protocol: W2
TEST_F(Transported, ARankOfTheAgreementSaysSo) {
    for (const bool parent_agrees : {true, false}) {
        make(Transport::interchange, 2);
        Result<void> agreed;
        network->run([&](int rank) -> Network::Member {
            return [&, rank](Peers& peers) {
                if ((rank == 0) != parent_agrees) {
                    (*this)[rank].key = transport_key((*this)[rank].local, rank, 2, peers);
                    return;
                }
                JobKey key;
                const Local local{test::crypto(), test::crypto().aead, &key};
                Agreed out;
                agreed = agree(local, rank, 2, {}, {}, {}, peers, out);
            };
        });
        ASSERT_FALSE(agreed);
        if (parent_agrees) {
            EXPECT_EQ(agreed.error().line,
                      "rank 1 distributes keys in another way: give all ranks the same setting key_distribution");
        } else {
            expect_line_of(0, "rank 1 does not distribute keys in this way");
        }
    }
}

// protocol: W5
TEST_F(Transported, ANodeWithoutAKeyInTheListIsNamed) {
    make(Transport::interchange, 4);
    std::ofstream(folder / "list") << interchange_line("node0", pair_of_node(0).modulus()) << "\n";
    run();
    expect_line_of(0, "rank 2 is on node node1, of which " + (folder / "list").string() + " has no key");
}

TEST_F(Transported, AnotherNodesPrivateKeyOpensNothing) {
    make(Transport::interchange, 4);
    fs::remove(folder / "node1.key");
    ASSERT_TRUE(pair_of_node(0).write(folder / "node1.key"));
    (*this)[3].local.key_file = folder / "node1.right.key";
    ASSERT_TRUE(pair_of_node(1).write(folder / "node1.right.key"));
    run();
    expect_line_of(2, "the public key of node node1 in rank 0's interchange_keys does not belong to " +
                          (folder / "node1.key").string());
}

TEST_F(Transported, WhatIsNoPublicKeyIsRefused) {
    make(Transport::rsa_oaep, 2);
    attack(1, 0, 1, [](Bytes& bytes) { std::fill(bytes.begin(), bytes.end(), 0); });
    run();
    expect_line_of(0, "no key can be wrapped for rank 1");
}

/// What "safe against passive attackers only" means: who replaces a public key on its way has the key, and nobody sees
/// it. C20 says so of its own protocol.
TEST_F(Transported, AnActiveAttackerWhoReplacesAPublicKeyHasTheKey) {
    make(Transport::rsa_oaep, 2);
    RsaPair own = RsaPair::generate(rsa()).value();
    Bytes stolen(32), theirs;
    const auto label_of = [](const TransportLocal& local) {
        Bytes label = {'m',
                       'p',
                       'i',
                       ' ',
                       'w',
                       'r',
                       'a',
                       'p',
                       'p',
                       'e',
                       'd',
                       static_cast<std::uint8_t>(local.suite),
                       static_cast<std::uint8_t>(local.way),
                       2,
                       0,
                       0,
                       0,
                       1,
                       0,
                       0,
                       0};
        label.insert(label.end(), local.job.begin(), local.job.end());
        return label;
    };
    const Bytes label = label_of((*this)[1].local);
    network->attacker = [&](Message message) {
        if (message.from == 1 && message.number == 1) {
            theirs = message.bytes;
            message.bytes.assign(own.modulus().begin(), own.modulus().end());
        }
        if (message.from == 0) {
            EXPECT_EQ(rsa().unwrap(stolen.data(), 32, own.key(), label.data(), label.size(), message.bytes.data(),
                                   kModulusSize),
                      CRYPTMPI_OK);
            EXPECT_EQ(rsa().wrap(message.bytes.data(), theirs.data(), kModulusSize, label.data(), label.size(),
                                 stolen.data(), 32),
                      CRYPTMPI_OK);
        }
        return std::vector{message};
    };
    run();
    expect_one_key();
    EXPECT_FALSE(test::all_zero(stolen.data(), 32));
}

// protocol: W3
TEST_F(Transported, PrivateKeyFilesAreForTheirOwner) {
    const auto why = [&](const fs::path& file) {
        const auto read = RsaPair::read(rsa(), file, KeyReaders::owner);
        return read ? std::string() : read.error().line;
    };
    const fs::path file = folder / "a.key";
    EXPECT_NE(why(file).find("is missing: make one with `cryptmpi keygen --interchange`"), std::string::npos);
    ASSERT_TRUE(pair_of_node(0).write(file));
    EXPECT_EQ(why(file), "");
    EXPECT_EQ(RsaPair::read(rsa(), file, KeyReaders::owner)->modulus(), pair_of_node(0).modulus());
    EXPECT_FALSE(pair_of_node(0).write(file));
    ::chmod(file.c_str(), 0644);
    EXPECT_NE(why(file).find("is open to others (mode 0644)"), std::string::npos);
    std::ofstream(file) << "nothing";
    ::chmod(file.c_str(), 0600);
    EXPECT_NE(why(file).find("is no RSA private key in PEM"), std::string::npos);
}

TEST_F(Transported, AListNamesTheLineThatIsWrong) {
    const std::string good = interchange_line("a", pair_of_node(0).modulus());
    const auto why = [](const std::string& text) {
        const auto list = InterchangeList::parse(text);
        return list ? std::string() : list.error().line;
    };
    EXPECT_EQ(why("# none\n\n" + good + "\n"), "");
    EXPECT_EQ(*InterchangeList::parse(good)->find("a"), pair_of_node(0).modulus());
    EXPECT_EQ(InterchangeList::parse(good)->find("b"), nullptr);
    EXPECT_EQ(why(good + "\n" + good), "line 2 has a host that an earlier line has");
    for (const std::string& bad : {std::string("a"), good.substr(0, good.size() - 1), good + "0", good + " more",
                                   good.substr(0, good.size() - 1) + "g", "a rsa-2048 " + good.substr(11),
                                   "a rsa-3072 " + std::string(768, '0')}) {
        EXPECT_NE(why("#\n" + bad).find("line 2 is not HOST rsa-3072 "), std::string::npos) << bad;
    }
    std::ofstream(folder / "list") << good;
    ::chmod((folder / "list").c_str(), 0666);
    EXPECT_NE(InterchangeList::read(folder / "list").error().line.find("nobody else may write"), std::string::npos);
}

}  // namespace
}  // namespace cryptmpi::keys
