#include "keys/agreement.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/pieces.hpp"
#include "base/secret_memory.hpp"
#include "keys/key_transport.hpp"
#include "keys/tree.hpp"
#include "seal/key_schedule.hpp"
#include "seal/stream.hpp"

namespace cryptmpi::keys {
namespace {

constexpr std::string_view kContextLabel = "mpi layer";
constexpr std::string_view kTranscriptLabel = "mpi transcript";
constexpr std::string_view kSecretLabel = "mpi job";
constexpr std::string_view kConfirmLabel = "mpi confirm";

constexpr std::size_t kNumberSize = 4;
constexpr std::size_t kNodeAt = kNumberSize;
constexpr std::size_t kShareAt = kNodeAt + std::tuple_size_v<NodeId>;
constexpr std::size_t kEntrySize = kShareAt + std::tuple_size_v<Share>;

/// What goes down the tree beside the table: the drawn secret, then the terms.
constexpr std::size_t kDrawnSize = 32;
using Spread = Secret<kDrawnSize + std::tuple_size_v<Terms>>;

using Number = std::array<std::uint8_t, kNumberSize>;
using Hash = std::array<std::uint8_t, 32>;

/// Little endian, as every number of the protocol.
Number number(int value) {
    const auto bits = static_cast<std::uint32_t>(value);
    return {static_cast<std::uint8_t>(bits), static_cast<std::uint8_t>(bits >> 8),
            static_cast<std::uint8_t>(bits >> 16), static_cast<std::uint8_t>(bits >> 24)};
}

bool is_size_of_hello(std::size_t size, Role sender) {
    return size == hello_size(sender, false, false) || size == hello_size(sender, true, false) ||
           size == hello_size(sender, false, true) || size == hello_size(sender, true, true);
}

/// Both sides know how many records there are, each a message of its own, so no rekey record may come between. They are
/// few.
seal::Crypto without_rekeys(seal::Crypto crypto) {
    crypto.lowered = seal::kUnlimited;
    crypto.age = {};
    return crypto;
}

std::string text(const Run& run) {
    return run.count == 1 ? rank_text(run.first) : fmt::format("ranks {} to {}", run.first, run.first + run.count - 1);
}

/// The members by rank, as they travel: rank, node, share. Shares are no secrets, but with a rank's private key they
/// give some: they are wiped.
class Table {
public:
    explicit Table(int ranks) : bytes_(kEntrySize * static_cast<std::size_t>(ranks)) {}
    Table(const Table&) = delete;
    Table& operator=(const Table&) = delete;
    ~Table() { wipe(bytes_.data(), bytes_.size()); }

    void swap(Table& other) { bytes_.swap(other.bytes_); }

    // protocol: A11
    void enter(int rank, const NodeId& node, const Share& share) {
        const auto entry = of({rank, 1});
        std::ranges::copy(number(rank), entry.begin());
        std::ranges::copy(node, entry.begin() + kNodeAt);
        std::ranges::copy(share, entry.begin() + kShareAt);
    }
    std::span<std::uint8_t> of(const Run& run) {
        return std::span(bytes_).subspan(kEntrySize * static_cast<std::size_t>(run.first),
                                         kEntrySize * static_cast<std::size_t>(run.count));
    }
    std::span<std::uint8_t> all() { return bytes_; }
    /// Whether each entry of `run` is its rank's.
    bool in_order(const Run& run) {
        for (int rank = run.first; rank < run.first + run.count; ++rank) {
            if (!std::ranges::equal(number(rank), of({rank, 1}).first(kNumberSize))) {
                return false;
            }
        }
        return true;
    }
    std::vector<NodeId> nodes() const { return parts<NodeId>(kNodeAt); }
    std::vector<Share> shares() const { return parts<Share>(kShareAt); }
    /// Is each share one, and another's nowhere?
    bool shares_differ() const {
        std::vector<Share> sorted = shares();
        std::ranges::sort(sorted);
        const bool differ = sorted.front() != Share{} && std::ranges::adjacent_find(sorted) == sorted.end();
        wipe(sorted.data(), sorted.size() * sizeof(Share));
        return differ;
    }

private:
    template <class Part>
    std::vector<Part> parts(std::size_t at) const {
        std::vector<Part> parts(bytes_.size() / kEntrySize);
        for (std::size_t rank = 0; rank < parts.size(); ++rank) {
            std::memcpy(parts[rank].data(), bytes_.data() + kEntrySize * rank + at, parts[rank].size());
        }
        return parts;
    }

    std::vector<std::uint8_t> bytes_;
};

/// One edge of the tree, seen from one end: its handshake, then a sealed stream in each direction.
class Edge {
public:
    Edge(const Local& local, const Identity& self, int rank, int ranks, int peer, Peers& peers)
        : local_(local),
          self_(self),
          role_(rank > peer ? Role::initiator : Role::responder),
          peer_(peer),
          peers_(peers),
          context_(context(ranks, std::max(rank, peer), std::min(rank, peer))),
          name_(rank_text(peer)),
          sealer_(without_rekeys(local.crypto), sending_),
          opener_(without_rekeys(local.crypto), receiving_) {
        local_.check_addresses = false;
        local_.context = context_;
        local_.peer = name_;
        self_.local = {};
        self_.remote = {};
    }
    ~Edge() {
        abandon(handshake_);
        wipe(&sending_, sizeof sending_);
        wipe(&receiving_, sizeof receiving_);
    }
    Edge(const Edge&) = delete;
    Edge& operator=(const Edge&) = delete;

    int peer() const { return peer_; }
    const std::string& name() const { return name_; }
    /// Empty before the streams are open, and where members are not required.
    std::string member() const { return handshake_.peer_member; }

    Result<void> begin() { return start(local_, role_, self_, handshake_); }

    Result<void> send_hello() {
        std::array<std::uint8_t, kLargestHelloSize> room;
        const auto hello = std::span(room).first(local_.hello_size(role_));
        if (auto done = write_hello(local_, handshake_, hello); !done) {
            return done;
        }
        return peers_.send(peer_, hello);
    }

    // protocol: A24, A25
    Result<void> receive_hello() {
        // Where only one side requires members, or uses ML-KEM, its hello is longer; either can say so.
        std::array<std::uint8_t, kLargestHelloSize> room;
        const auto size = peers_.receive_up_to(peer_, room);
        if (!size) {
            return tl::unexpected(size.error());
        }
        // protocol: W2
        if (announces_transport(std::span(room).first(*size))) {
            return fail(EPROTO, name_ +
                                    " distributes keys in another way: give all ranks the same setting "
                                    "key_distribution");
        }
        if (!is_size_of_hello(*size, other(role_))) {
            return wrong_size(peer_, *size, local_.hello_size(other(role_)));
        }
        return read_hello(local_, handshake_, std::span(room).first(*size));
    }

    Result<void> open_streams() {
        if (auto done = finish(local_, handshake_, sending_, receiving_); !done) {
            return done;
        }
        const char* const node = handshake_.peer.node;
        name_ += " on node " + std::string(node, ::strnlen(node, kNodeNameSize));
        if (local_.members != nullptr) name_ += std::string(" (member ") + handshake_.peer_member + ")";
        local_.peer = name_;
        return {};
    }

    Result<void> send_confirm() {
        std::array<std::uint8_t, 2 * seal::kRecordOverhead> record;
        const auto size = sealer_.seal_control(seal::RecordType::confirm, record.data());
        if (!size) {
            return tl::unexpected(size.error());
        }
        return peers_.send(peer_, {record.data(), *size});
    }

    Result<void> receive_confirm() { return receive_record(seal::RecordType::confirm, {}); }

    // protocol: A5, A6
    /// As records of the largest size, one a message, and a last one with the rest; of nothing, an empty one.
    Result<void> send(std::span<const std::uint8_t> plain) {
        do {
            const std::size_t part = std::min(plain.size(), seal::kMaxPlaintext);
            if (auto done = send_record(plain.first(part)); !done) {
                return done;
            }
            plain = plain.subspan(part);
        } while (!plain.empty());
        return {};
    }

    Result<void> receive(std::span<std::uint8_t> plain) {
        do {
            const std::size_t part = std::min(plain.size(), seal::kMaxPlaintext);
            if (auto done = receive_record(seal::RecordType::data, plain.first(part)); !done) {
                return done;
            }
            plain = plain.subspan(part);
        } while (!plain.empty());
        return {};
    }

private:
    using Context = std::array<std::uint8_t, kContextLabel.size() + 3 * kNumberSize>;

    // protocol: A3
    /// A hello of one edge opens on no other, nor on a connection.
    static Context context(int ranks, int child, int parent) {
        Context made;
        auto at = std::ranges::copy(kContextLabel, made.begin()).out;
        for (const int value : {ranks, child, parent}) {
            at = std::ranges::copy(number(value), at).out;
        }
        return made;
    }

    Result<void> send_record(std::span<const std::uint8_t> plain) {
        std::vector<std::uint8_t> record(plain.size() + 2 * seal::kRecordOverhead);
        const iovec in = piece(plain.data(), plain.size());
        const auto size = sealer_.seal({&in, 1}, plain.size(), record.data());
        if (!size) {
            return tl::unexpected(size.error());
        }
        return peers_.send(peer_, {record.data(), *size});
    }

    // protocol: A14
    Result<void> receive_record(seal::RecordType due, std::span<std::uint8_t> plain) {
        std::vector<std::uint8_t> record(plain.size() + seal::kRecordOverhead);
        if (auto done = peers_.receive(peer_, record); !done) {
            return done;
        }
        const iovec out = {plain.data(), plain.size()};
        const auto type = opener_.open(record.data(), {&out, 1});
        if (!type) {
            return fail(type.error().code, "what " + name_ + " sent is refused: " + type.error().line);
        }
        // protocol: A15
        if (*type != due) {
            return fail(EPROTO, name_ + " sent a record of another type than was due");
        }
        return {};
    }

    Local local_;
    Identity self_;
    Role role_;
    int peer_;
    Peers& peers_;
    Context context_;
    std::string name_;
    HandshakeState handshake_{};
    seal::DirectionState sending_{};
    seal::DirectionState receiving_{};
    seal::StreamSealer sealer_;
    seal::StreamOpener opener_;
};

/// One rank's part.
class Agreement {
public:
    Agreement(const Local& local, int rank, int ranks, const NodeId& node, const Identity& self, const Terms& terms,
              Peers& peers)
        : local_(local), rank_(rank), ranks_(ranks), subtree_(subtree_of(rank, ranks)), node_(node), table_(ranks) {
        std::ranges::copy(self.job, job_.begin());
        std::ranges::copy(terms, root_terms().begin());
        if (rank != 0) {
            parent_.emplace(local, self, rank, ranks, parent_of(rank), peers);
        }
        for (const int child : children_of(rank, ranks)) {
            children_.emplace_back(local, self, rank, ranks, child, peers);
        }
    }

    // protocol: A23
    /// From the root down: a rank with another key than the rest is refused by its parent before it can refuse its
    /// children, so that the one line which people read is about the right rank.
    Result<void> join() {
        if (auto done = draw_share(); !done) {
            return done;
        }
        if (parent_) {
            if (auto done = join_parent(); !done) {
                return done;
            }
        }
        return each_largest_first([](Edge& child) { return join_child(child); });
    }

    Result<void> gather() {
        if (auto done = each_smallest_first([&](Edge& child) { return gather_from(child); }); !done) {
            return done;
        }
        if (!parent_) {
            return {};
        }
        if (auto done = parent_->send_confirm(); !done) {
            return done;
        }
        return parent_->send(table_.of(subtree_));
    }

    Result<void> spread() {
        if (auto done = parent_ ? spread_from_parent() : draw_secret(); !done) {
            return done;
        }
        // protocol: A18
        if (!table_.shares_differ()) {
            return fail(EPROTO, "agreement: two ranks have the same key share, or one has none: a forged table");
        }
        return each_largest_first([&](Edge& child) { return spread_to(child); });
    }

    Result<void> confirm() {
        if (auto done = derive(); !done) {
            return done;
        }
        if (auto done = each_smallest_first([&](Edge& child) { return confirm_of(child); }); !done) {
            return done;
        }
        return parent_ ? parent_->send(confirmation_.bytes) : Result<void>();
    }

    // protocol: A22
    Result<void> go() {
        if (parent_) {
            if (auto done = parent_->receive({}); !done) {
                return done;
            }
        }
        return each_largest_first([](Edge& child) { return child.send({}); });
    }

    void hand_out(Agreed& out) const {
        std::ranges::copy(secret_.bytes, out.secret.bytes);
        out.nodes = table_.nodes();
        out.shares = table_.shares();
        std::ranges::copy(private_key_.bytes, out.private_key.bytes);
        std::ranges::copy(root_terms(), out.terms.begin());
        out.members.clear();
        if (parent_) out.members.insert(parent_->member());
        for (const Edge& child : children_) out.members.insert(child.member());
        out.members.erase("");
    }

private:
    std::span<std::uint8_t> drawn() { return std::span(spread_.bytes).first(kDrawnSize); }
    std::span<std::uint8_t> root_terms() { return std::span(spread_.bytes).subspan(kDrawnSize); }
    std::span<const std::uint8_t> root_terms() const { return std::span(spread_.bytes).subspan(kDrawnSize); }

    template <class Iterator, class Part>
    static Result<void> each(Iterator child, Iterator end, const Part& part) {
        for (; child != end; ++child) {
            if (auto done = part(*child); !done) {
                return done;
            }
        }
        return {};
    }
    /// Upwards: the smallest subtree is the first to be ready.
    template <class Part>
    Result<void> each_smallest_first(const Part& part) {
        return each(children_.begin(), children_.end(), part);
    }
    /// Downwards: the largest subtree has the longest way to go.
    template <class Part>
    Result<void> each_largest_first(const Part& part) {
        return each(children_.rbegin(), children_.rend(), part);
    }

    // protocol: A10
    Result<void> draw_share() {
        Share share;
        const cryptmpi_kex& kex = *local_.crypto.kex;
        if (kex.random(private_key_.data(), private_key_.size()) != CRYPTMPI_OK ||
            kex.x25519_public(share.data(), private_key_.data()) != CRYPTMPI_OK) {
            return fail(EIO, "agreement: the crypto module's random generator or X25519 failed");
        }
        table_.enter(rank_, node_, share);
        return {};
    }

    Result<void> join_parent() {
        if (auto done = parent_->begin(); !done) {
            return done;
        }
        if (auto done = parent_->send_hello(); !done) {
            return done;
        }
        if (auto done = parent_->receive_hello(); !done) {
            return done;
        }
        return parent_->open_streams();
    }

    static Result<void> join_child(Edge& child) {
        if (auto done = child.begin(); !done) {
            return done;
        }
        if (auto done = child.receive_hello(); !done) {
            return done;
        }
        if (auto done = child.send_hello(); !done) {
            return done;
        }
        return child.open_streams();
    }

    Result<void> gather_from(Edge& child) {
        const Run below = subtree_of(child.peer(), ranks_);
        if (auto done = child.receive_confirm(); !done) {
            return done;
        }
        if (auto done = child.receive(table_.of(below)); !done) {
            return done;
        }
        // protocol: A16
        if (!table_.in_order(below)) {
            return fail(EPROTO, child.name() + " sent a table of other members than " + text(below) + " in order");
        }
        return {};
    }

    Result<void> draw_secret() {
        if (local_.crypto.kex->random(drawn().data(), drawn().size()) != CRYPTMPI_OK) {
            return fail(EIO, "agreement: the crypto module's random generator failed");
        }
        return {};
    }

    Result<void> spread_from_parent() {
        if (auto done = parent_->receive(spread_.bytes); !done) {
            return done;
        }
        Table whole(ranks_);
        if (auto done = parent_->receive(whole.all()); !done) {
            return done;
        }
        // protocol: A17
        const Run everybody = {0, ranks_};
        if (!whole.in_order(everybody)) {
            return fail(EPROTO,
                        parent_->name() + " sent a table of other members than " + text(everybody) + " in order");
        }
        if (!std::ranges::equal(whole.of(subtree_), table_.of(subtree_))) {
            return fail(EPROTO,
                        parent_->name() + " sent a table that changes the node or the share of " + text(subtree_));
        }
        table_.swap(whole);
        return {};
    }

    Result<void> spread_to(Edge& child) {
        if (auto done = child.send(spread_.bytes); !done) {
            return done;
        }
        return child.send(table_.all());
    }

    // protocol: A12
    /// Hash of all that must be the same everywhere.
    Result<Hash> transcript() {
        const Number count = number(ranks_);
        const std::uint8_t kind[] = {kProtocolVersion, static_cast<std::uint8_t>(local_.crypto.suite)};
        const iovec in[] = {piece(kTranscriptLabel.data(), kTranscriptLabel.size()),
                            piece(kind, sizeof kind),
                            piece(job_.data(), job_.size()),
                            piece(count.data(), count.size()),
                            piece(table_.all().data(), table_.all().size()),
                            piece(root_terms().data(), root_terms().size())};
        Hash hash;
        if (local_.crypto.kex->sha256(hash.data(), in, std::size(in)) != CRYPTMPI_OK) {
            return fail(EIO, "agreement: the crypto module's SHA-256 failed");
        }
        return hash;
    }

    /// Ranks that disagree about anything in the transcript get secrets that have nothing in common.
    Result<void> derive() {
        const auto hash = transcript();
        if (!hash) {
            return tl::unexpected(hash.error());
        }
        const std::string_view bytes(reinterpret_cast<const char*>(hash->data()), hash->size());
        const auto expand = [&](std::string_view label, Secret<32>& to) {
            return seal::expand(*local_.crypto.kex, drawn().data(), std::string(label).append(bytes), to.data(),
                                to.size());
        };
        if (auto done = expand(kSecretLabel, secret_); !done) {
            return done;
        }
        return expand(kConfirmLabel, confirmation_);
    }

    Result<void> confirm_of(Edge& child) {
        Secret<32> theirs;
        if (auto done = child.receive(theirs.bytes); !done) {
            return done;
        }
        // protocol: A19
        if (!std::ranges::equal(theirs.bytes, confirmation_.bytes)) {
            return fail(EPROTO,
                        child.name() + " confirms another secret, other terms or another table of the job than ours");
        }
        return {};
    }

    const Local& local_;
    int rank_;
    int ranks_;
    Run subtree_;
    NodeId node_;
    Hash job_{};
    Table table_;
    Secret<32> private_key_;
    std::optional<Edge> parent_;
    std::list<Edge, SecretAllocator<Edge>> children_;  // the smallest subtree first
    Spread spread_;                                    // by the root
    Secret<32> secret_;
    Secret<32> confirmation_;
};

// protocol: A21
Result<void> run(Agreement& agreement) {
    for (const auto pass :
         {&Agreement::join, &Agreement::gather, &Agreement::spread, &Agreement::confirm, &Agreement::go}) {
        if (auto done = (agreement.*pass)(); !done) {
            return done;
        }
    }
    return {};
}

// protocol: A13
void empty(Agreed& out) {
    wipe(out.secret.data(), out.secret.size());
    wipe(out.private_key.data(), out.private_key.size());
    out.nodes.clear();
    out.shares.clear();
    out.terms = {};
}

}  // namespace

Result<void> agree(const Local& local, int rank, int ranks, const NodeId& node, const Identity& self,
                   const Terms& terms, Peers& peers, Agreed& out) {
    empty(out);
    if (ranks < 1 || ranks > kMaxRanks || rank < 0 || rank >= ranks) {
        return fail(EINVAL,
                    fmt::format("agreement: a job of {} ranks was asked for; it can have 1 to {}", ranks, kMaxRanks));
    }
    // It can last for as long as a rank is late.
    const auto agreement =
        std::allocate_shared<Agreement>(SecretAllocator<Agreement>(), local, rank, ranks, node, self, terms, peers);
    auto done = run(*agreement);
    if (done) {
        agreement->hand_out(out);
    }
    return done;
}

}  // namespace cryptmpi::keys
