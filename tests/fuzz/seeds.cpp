// Seeds for the fuzzers of conversations, into the corpus that the command line names: what the ranks of a job, or the
// ends of a connection, get when all goes well, with toy_crypto, whose random bytes a fuzzer's own rank draws, too.
//
//   fuzz_seeds tests/fuzz/corpus
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iostream>

#include "fabric/ucx/blob.hpp"
#include "keys/network.hpp"
#include "report/attestation.hpp"
#include "report/job_report.hpp"
#include "report/noted_hosts.hpp"
#include "report/part.hpp"
#include "report/parts_folder.hpp"
#include "scratch.hpp"
#include "seal/message.hpp"
#include "toy_crypto.hpp"
#include "toy_members.hpp"
#include "toy_transport.hpp"

using namespace cryptmpi;
using Bytes = std::vector<std::uint8_t>;

namespace {

constexpr std::uint8_t kFuzzersDraw = 0x11;

class Corpus {
public:
    explicit Corpus(std::filesystem::path folder) : folder_(std::move(folder)) {}
    void add(const std::string& fuzzer, const std::string& name, const Bytes& bytes) const {
        std::filesystem::create_directories(folder_ / fuzzer);
        std::ofstream stream(folder_ / fuzzer / name, std::ios::binary);
        stream.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    }

private:
    std::filesystem::path folder_;
};

/// Hands on what `peers` gets, and keeps it.
class Recorder : public keys::Peers {
public:
    Recorder(keys::Peers& peers, Bytes& kept) : peers_(peers), kept_(kept) {}
    Result<void> send(int rank, std::span<const std::uint8_t> message) override { return peers_.send(rank, message); }
    Result<std::size_t> receive_up_to(int rank, std::span<std::uint8_t> room) override {
        auto size = peers_.receive_up_to(rank, room);
        if (size) kept_.insert(kept_.end(), room.begin(), room.begin() + static_cast<std::ptrdiff_t>(*size));
        return size;
    }

private:
    keys::Peers& peers_;
    Bytes& kept_;
};

/// What `recorded` gets in a job of so many ranks, in which the others draw otherwise.
template <class Part>
Bytes record(int ranks, int recorded, const Part& part) {
    Bytes kept;
    test::Network network(ranks);
    network.run([&](int rank) {
        return [&, rank](keys::Peers& peers) {
            fuzz::toy_draw = rank == recorded ? kFuzzersDraw : static_cast<std::uint8_t>(0x30 + rank);
            Bytes nobodys;
            Recorder recorder(peers, rank == recorded ? kept : nobodys);
            fuzz::require(part(rank, recorder));
        };
    });
    return kept;
}

void agreements(const Corpus& corpus) {
    struct Job {
        int ranks, rank;
        bool hybrid;
    };
    for (const Job job : {Job{2, 0, false},
                          {2, 1, false},
                          {4, 2, false},
                          {8, 0, false},
                          {8, 4, false},
                          {8, 7, false},
                          {2, 0, true},
                          {2, 1, true}}) {
        const keys::JobKey job_key;
        Bytes seed = {static_cast<std::uint8_t>((job.ranks - 1) | (job.hybrid ? 0x80 : 0)),
                      static_cast<std::uint8_t>(job.rank)};
        const Bytes got = record(job.ranks, job.rank, [&](int rank, keys::Peers& peers) {
            keys::Local local{fuzz::toy_crypto(), fuzz::toy_crypto().aead, &job_key};
            local.kem = job.hybrid ? fuzz::toy_kem() : nullptr;
            keys::NodeId node;
            node.fill(0x33);
            keys::Agreed agreed;
            return keys::agree(local, rank, job.ranks, node, keys::Identity{}, keys::Terms{}, peers, agreed)
                .has_value();
        });
        seed.insert(seed.end(), got.begin(), got.end());
        corpus.add("agreement",
                   std::string(job.hybrid ? "hybrid_" : "") + "ranks" + std::to_string(job.ranks) + "_rank" +
                       std::to_string(job.rank),
                   seed);
    }
}

void transports(const Corpus& corpus) {
    for (const auto way : {keys::Transport::rsa_oaep, keys::Transport::interchange}) {
        for (const auto& [ranks, recorded] : {std::pair{2, 0}, {2, 1}, {4, 2}, {8, 0}}) {
            const bool interchange = way == keys::Transport::interchange;
            Bytes seed = {static_cast<std::uint8_t>((ranks - 1) | (interchange ? 0x80 : 0)),
                          static_cast<std::uint8_t>(recorded)};
            const Bytes got = record(ranks, recorded, [&, ranks = ranks](int rank, keys::Peers& peers) {
                return keys::transport_key(fuzz::toy_transport(way), rank, ranks, peers).has_value();
            });
            seed.insert(seed.end(), got.begin(), got.end());
            corpus.add("key_transport",
                       std::string(interchange ? "interchange" : "rsa_oaep") + "_ranks" + std::to_string(ranks) +
                           "_rank" + std::to_string(recorded),
                       seed);
        }
    }
}

/// The hello that `role` sends to the fuzzer's side.
Bytes hello_of(keys::Role role, const keys::Local& local) {
    keys::HandshakeState ours{}, theirs{};
    const auto start = [&](keys::HandshakeState& state, keys::Role as, std::uint8_t draw) {
        fuzz::toy_draw = draw;
        fuzz::require(keys::start(local, as, keys::Identity{}, state).has_value());
    };
    const auto write = [&](keys::HandshakeState& state, keys::Role as, std::uint8_t draw) {
        fuzz::toy_draw = draw;
        Bytes hello(local.hello_size(as));
        fuzz::require(keys::write_hello(local, state, hello).has_value());
        return hello;
    };
    if (role == keys::Role::initiator) {
        start(ours, role, 0x30);
        return write(ours, role, 0x30);
    }
    start(theirs, keys::Role::initiator, kFuzzersDraw);
    const Bytes first = write(theirs, keys::Role::initiator, kFuzzersDraw);
    start(ours, role, 0x30);
    fuzz::require(keys::read_hello(local, ours, first).has_value());
    return write(ours, role, 0x30);
}

void hellos(const Corpus& corpus) {
    const keys::JobKey job_key;
    for (const bool hybrid : {false, true}) {
        for (const keys::Role role : {keys::Role::initiator, keys::Role::responder}) {
            keys::Local local{fuzz::toy_crypto(), fuzz::toy_crypto().aead, &job_key};
            local.kem = hybrid ? fuzz::toy_kem() : nullptr;
            local.members = &fuzz::toy_members();
            const bool to_initiator = role == keys::Role::responder;
            Bytes seed = {static_cast<std::uint8_t>(8 | 2 | (hybrid ? 4 : 0) | (to_initiator ? 1 : 0))};
            const Bytes hello = hello_of(role, local);
            seed.insert(seed.end(), hello.begin(), hello.end());
            const std::string name = std::string(hybrid ? "hybrid_" : "") + "member" + (to_initiator ? "1" : "0");
            corpus.add("hello", name, seed);
            if (hybrid) continue;
            Bytes other = seed;
            other[other.size() - CRYPTMPI_TAG_SIZE - 1] = 1;  // the signature's last byte
            corpus.add("hello", name + "_unsigned", other);
            std::fill_n(other.end() - CRYPTMPI_TAG_SIZE - keys::kProofSize, 32, std::uint8_t{0x55});
            corpus.add("hello", name + "_unlisted", other);
        }
    }
}

void blobs(const Corpus& corpus) {
    const keys::JobKey job_key;
    fuzz::toy_draw = kFuzzersDraw;
    const auto job = fabric::Job::join(fuzz::toy_crypto(), job_key, "job");
    const auto party = fabric::Party::make(*job);
    for (const std::size_t size : {std::size_t{1}, std::size_t{100}}) {
        const Bytes address(size, 0x61);
        Bytes blob(fabric::ucx::kBlobPrefix + size);
        fuzz::require(fabric::ucx::write_blob(**party, address, blob.data()).has_value());
        corpus.add("fabric_blob", "address" + std::to_string(size), blob);
        blob[fabric::ucx::kBlobProofAt] ^= 1;
        corpus.add("fabric_blob", "forged" + std::to_string(size), blob);
    }
}

/// What happens at a door, step by step, as its fuzzer reads it.
class Steps {
public:
    Steps& step(std::initializer_list<unsigned> bytes) {
        for (const unsigned byte : bytes) bytes_.push_back(static_cast<std::uint8_t>(byte));
        return *this;
    }
    Steps& number(unsigned number, unsigned bytes) {
        for (unsigned i = 0; i < bytes; ++i) bytes_.push_back(static_cast<std::uint8_t>(number >> (8 * i)));
        return *this;
    }
    /// How many, then as many.
    Steps& text(std::uint8_t count) {
        bytes_.push_back(count);
        bytes_.insert(bytes_.end(), count, std::uint8_t{0x61});
        return *this;
    }
    const Bytes& bytes() const { return bytes_; }

private:
    Bytes bytes_;
};

void ucx_door(const Corpus& corpus) {
    const auto add = [&](const std::string& name, const Steps& steps) { corpus.add("ucx_door", name, steps.bytes()); };
    const auto operate = [](Steps& to, unsigned kind, unsigned size) {
        to.step({0, 0, kind, 0}).number(64, 3).number(size, 3);
    };
    const auto answer = [](Steps& to, unsigned id, unsigned size) { to.step({2, 0, 0, id, 1}).number(size, 2); };
    Steps asked;
    operate(asked, 0, 100);
    operate(asked, 2, 100);
    operate(asked, 4, 0);
    operate(asked, 6, 0);
    asked.step({6, 0});
    answer(asked, 1, 0);
    answer(asked, 2, 100);
    answer(asked, 3, 8);
    answer(asked, 4, 8);
    add("asked", asked);
    Steps dropped;
    operate(dropped, 2, 100);
    dropped.step({7, 0});
    answer(dropped, 1, 100);
    add("dropped", dropped);
    const auto request = [](Steps& to, unsigned kind, unsigned region, unsigned size, unsigned way,
                            std::uint8_t bytes) {
        to.step({1, 1, 0, kind, region}).number(64, 3).number(size, 3).step({way}).text(bytes);
    };
    Steps served;
    request(served, 2, 0, 9, 3, 12);
    request(served, 1, 0, 100, 0, 0);
    request(served, 3, 0, 8, 0, 8);
    request(served, 8, 0, 4, 0, 16);
    request(served, 2, 3, 100'000, 0, 0);
    request(served, 1, 2, 100, 0, 0);
    request(served, 2, 1, 8, 0, 8);
    request(served, 1, 200, 8, 0, 0);
    add("served", served);
    Steps messages;
    messages.step({4, 1, 0, 0}).number(4, 2).text(20).step({4, 1, 0, 1}).number(0, 2).text(7);
    messages.step({4, 2, 0, 4}).number(0x8000, 2).text(30);
    add("messages", messages);
    const auto part = [](Steps& to, unsigned number) { to.step({5, 1, 0, 0, 7, number}).number(116, 2).step({0}); };
    Steps parts;
    part(parts, 1);
    part(parts, 0);
    part(parts, 0);
    add("parts", parts);
    add("strangers", Steps().step({3, 1, 0, 0}).text(90));
    add("forged", Steps().step({4, 1, 1, 0}).number(4, 2).text(20));
}

void libfabric_door(const Corpus& corpus) {
    const auto add = [&](const std::string& name, const Steps& steps) {
        corpus.add("libfabric_door", name, steps.bytes());
    };
    constexpr unsigned kOtherwise = 132;  // the other form of what happens
    const auto message = [](Steps& to, unsigned told = 0) { to.step({5, 0, 0, 0, 0, told}).text(20); };
    const auto note = [](Steps& to, unsigned what, unsigned id, unsigned key, unsigned size, unsigned bytes) {
        to.step({7, 0, 0, what, id, key}).number(0, 2).number(size, 3).number(bytes, 2);
    };
    const auto piece = [](Steps& to, unsigned id, unsigned size) { to.step({8, 0, 0, id, 1}).number(size, 3); };
    Steps received;
    received.step({0, 0, 0}).number(100, 2);
    message(received);
    message(received);
    received.step({1, 0, 0}).number(0, 2).step({kOtherwise + 1, 0, 0}).number(0, 2);
    received.step({2, 0, 0}).number(100, 2);
    add("received", received);
    Steps forged;
    message(forged, 0x80 | 60);
    forged.step({kOtherwise + 1, 0, 0}).number(0, 2).step({2, 0, 0}).number(100, 2);
    add("forged_length", forged);
    Steps several;
    several.step({10, 0, 0}).number(301, 2);
    for (int i = 0; i < 3; ++i) several.step({kOtherwise + 5, 0, 0, 0, 0, 0}).text(20);
    add("several", several);
    Steps reached;
    reached.step({3, 0, 0}).number(100, 3);
    piece(reached, 2, 100);
    reached.step({kOtherwise + 3, 0, 0}).number(100, 3);
    note(reached, 4, 3, 0, 1, 0);
    reached.step({kOtherwise + 3, 0, 0}).number(100'000, 3);
    note(reached, 3, 1, 4, 65'536, 0);
    note(reached, 4, 4, 0, 1, 0);
    add("reached", reached);
    Steps served;
    note(served, 1, 9, 0, 100, 0);
    note(served, 2, 3, 0, 8, 8);
    note(served, 2, 4, 0, 50'000, 0);
    piece(served, 2, 50'000);
    note(served, 1, 9, 2, 100, 0);
    note(served, 2, 5, 1, 8, 8);
    add("served", served);
    Steps nothing;
    note(nothing, 2, 3, 0, 0, 0);
    add("write_of_nothing", nothing);
    Steps large;
    large.step({kOtherwise, 0, 0}).number(60'000, 2).step({6, 0, 0, 0, 7}).number(50'000, 3).step({0});
    piece(large, 2, 50'000);
    large.step({4, 0, 1}).number(200'000, 3);
    note(large, 3, 1, 3, 65'536, 0);
    note(large, 4, 3, 0, 1, 0);
    add("large", large);
    add("strangers", Steps().step({9, 0, 128}).text(100).step({9, 0, 0}).text(100));
}

/// As message_opener_fuzz takes it: what comes, its lane, its size, its bytes.
void come(Bytes& seed, std::uint8_t what, const Bytes& wire) {
    for (const std::size_t byte : {std::size_t{what}, std::size_t{3}, wire.size() & 0xff, wire.size() >> 8})
        seed.push_back(static_cast<std::uint8_t>(byte));
    seed.insert(seed.end(), wire.begin(), wire.end());
}

/// Large messages, announced and in segments.
void segments(const Corpus& corpus) {
    const Bytes secret(seal::kSecretSize, 7), plain(300, 0x78);
    for (const bool is_forged : {false, true}) {
        seal::MessageSealer sealer(fuzz::toy_crypto(), secret.data());
        Bytes seed;
        for (std::uint64_t number = 0; number < 2; ++number) {
            Bytes announced(seal::kAnnouncedWire);
            const auto segments = sealer.announce(3, number, {250, 100, 70, 9}, announced.data());
            fuzz::require(segments.has_value());
            come(seed, 1, announced);
            for (std::uint32_t i = 0; i < segments->count(); ++i) {
                Bytes wire(segments->size(i) + seal::kSegmentOverhead);
                fuzz::require(segments->seal(i, plain.data(), wire.data()).has_value());
                if (is_forged && i == 1) wire.back() ^= 1;
                come(seed, 2, wire);
            }
        }
        corpus.add("message_opener", is_forged ? "forged_segment" : "announced", seed);
    }
}

Bytes with_choice(std::uint8_t choice, const std::string& text) {
    Bytes seed = {choice};
    seed.insert(seed.end(), text.begin(), text.end());
    return seed;
}

void reports(const Corpus& corpus) {
    const fuzz::Scratch scratch;
    const auto file = scratch.file("report.json");
    const report::Sign sign = [](std::string_view) -> Result<std::string> { return "s"; };
    report::Part part;
    part.job_id = "job";
    part.layer = part.library = "channel";
    part.role = "rank";
    part.rank = 0;
    part.ranks = 1;
    part.node = "node0";
    part.pid = 1;
    part.began = 1'700'000'000;
    part.mpi_initialized = true;
    part.program = "/usr/bin/true";
    part.settings = {"scope = \"all\""};
    part.suite = "AES-256-GCM";
    part.module = "openssl 3.0";
    part.handshake_module = "libsodium 1.0";
    part.padding = "none";
    part.profile = {"/etc/profile.json", "ab", "other processor"};
    part.sealed_connections = 1;
    part.sealed_bytes_sent = part.sealed_records_sent = 7;
    part.not_sealed = {{"loopback", 1, 2, false}};
    part.refused_roads = {"UDP to 10.0.0.7:4242"};
    part.errors = {"cryptmpi: <fuzz> \x1b[31m"};
    part.peer_members = {"alice"};
    fuzz::require(report::write_part(file, part, sign).has_value());
    for (const auto& [name, text] : report::raw_parts(file)) corpus.add("report", "part", with_choice(0, text));
    fuzz::require(report::note_host(file, "node0", "job", sign).has_value());
    for (const auto& [name, text] : report::raw_parts(file)) {
        if (name.ends_with(".host")) corpus.add("report", "note", with_choice(3, text));
    }
    fuzz::require(report::finish_job(file, {"job", 1}, sign, sign).has_value());
    std::ifstream stream(file, std::ios::binary);
    const std::string merged{std::istreambuf_iterator<char>(stream), {}};
    corpus.add("report", "merged", with_choice(1, merged));
    report::Attested what{nlohmann::ordered_json::parse(merged), true, "SEALED", {}};
    what.canary = {{"held", true},
                   {"made", 1'700'000'000},
                   {"layer", "channel"},
                   {"suite", "AES-256-GCM"},
                   {"nodes", {"node0", "<fuzz>"}},
                   {"plain", {{"canaries", 1}, {"bytes", 2}, {"payload", 3}}}};
    auto attestation = report::Attestation::of(what, {"alice", "node0"}, 1'700'000'000);
    attestation.add({std::string(64, 'a'), std::string(128, 'b')});
    corpus.add("report", "attestation", with_choice(2, attestation.text()));
    corpus.add("report", "page", with_choice(4, std::string(64, '\0') + "job\x1b"));
}

}  // namespace

int main(int count, char** words) {
    if (count != 2) {
        std::cerr << "usage: fuzz_seeds FOLDER\n";
        return 2;
    }
    const Corpus corpus(words[1]);
    agreements(corpus);
    transports(corpus);
    hellos(corpus);
    blobs(corpus);
    ucx_door(corpus);
    libfabric_door(corpus);
    segments(corpus);
    reports(corpus);
    return 0;
}
