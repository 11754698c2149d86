#include "keys/key_transport.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "base/printable.hpp"
#include "base/secret.hpp"
#include "keys/handshake.hpp"
#include "keys/interchange.hpp"
#include "keys/tree.hpp"
#include "seal/key_schedule.hpp"

namespace cryptmpi::keys {
namespace {

constexpr std::string_view kMagic = "CMPI";
constexpr std::uint8_t kAnnouncement = 3;  // after the two hellos
constexpr std::string_view kWrapLabel = "mpi wrapped";
constexpr std::string_view kKeyLabel = "mpi transport";
constexpr std::size_t kMostOfMessage = std::size_t{1} << 20;

// Where an announcement has what; the rest is zeros.
constexpr std::size_t kVersionAt = kMagic.size();
constexpr std::size_t kNumberAt = kVersionAt + 1;
constexpr std::size_t kSuiteAt = kNumberAt + 1;
constexpr std::size_t kWayAt = kSuiteAt + 1;
constexpr std::size_t kRanksAt = kWayAt + 1;
constexpr std::size_t kRankAt = kRanksAt + 4;
constexpr std::size_t kJobAt = kRankAt + 4;

/// As large as a hello, so that a rank whose way is the agreement gets what it waits for, and can say what it is.
using Announcement = std::array<std::uint8_t, kHelloSize>;
static_assert(kJobAt + 32 <= kHelloSize);

std::string_view name_of(Transport way) {
    return way == Transport::rsa_oaep ? "rsa-oaep" : "interchange";
}

void put_number(int value, std::uint8_t* at) {
    for (int i = 0; i < 4; ++i) at[i] = static_cast<std::uint8_t>(static_cast<std::uint32_t>(value) >> (8 * i));
}

/// In messages of the largest size, and a last one with the rest.
Result<void> send_all(Peers& peers, int rank, std::span<const std::uint8_t> bytes) {
    for (; !bytes.empty(); bytes = bytes.subspan(std::min(bytes.size(), kMostOfMessage))) {
        if (auto done = peers.send(rank, bytes.first(std::min(bytes.size(), kMostOfMessage))); !done) return done;
    }
    return {};
}

Result<void> receive_all(Peers& peers, int rank, std::span<std::uint8_t> bytes) {
    for (; !bytes.empty(); bytes = bytes.subspan(std::min(bytes.size(), kMostOfMessage))) {
        if (auto done = peers.receive(rank, bytes.first(std::min(bytes.size(), kMostOfMessage))); !done) return done;
    }
    return {};
}

/// One rank's part.
class KeyTransport {
public:
    KeyTransport(const TransportLocal& local, int rank, int ranks, Peers& peers)
        : local_(local),
          rank_(rank),
          ranks_(ranks),
          peers_(peers),
          subtree_(subtree_of(rank, ranks)),
          claim_size_(local.way == Transport::rsa_oaep ? kModulusSize : kNodeNameSize),
          claims_(claim_size_ * static_cast<std::size_t>(subtree_.count)),
          wrapped_(kModulusSize * static_cast<std::size_t>(subtree_.count)) {}

    Result<std::unique_ptr<JobKey>> run() {
        for (const auto step : {&KeyTransport::announce, &KeyTransport::prepare, &KeyTransport::gather,
                                &KeyTransport::wrap_or_unwrap, &KeyTransport::scatter}) {
            if (auto done = (this->*step)(); !done) return tl::unexpected<Error>(done.error());
        }
        return derive();
    }

private:
    std::span<std::uint8_t> claim_of(int rank, int count = 1) {
        return std::span(claims_).subspan(claim_size_ * static_cast<std::size_t>(rank - rank_),
                                          claim_size_ * static_cast<std::size_t>(count));
    }
    std::span<std::uint8_t> wrapped_of(int rank, int count = 1) {
        return std::span(wrapped_).subspan(kModulusSize * static_cast<std::size_t>(rank - rank_),
                                           kModulusSize * static_cast<std::size_t>(count));
    }
    std::string setting() const { return "key_distribution = " + std::string(name_of(local_.way)) + ": "; }

    // protocol: W1
    Announcement announcement_of(int rank) const {
        Announcement made{};
        std::copy(kMagic.begin(), kMagic.end(), made.begin());
        made[kVersionAt] = kProtocolVersion;
        made[kNumberAt] = kAnnouncement;
        made[kSuiteAt] = static_cast<std::uint8_t>(local_.suite);
        made[kWayAt] = static_cast<std::uint8_t>(local_.way);
        put_number(ranks_, made.data() + kRanksAt);
        put_number(rank, made.data() + kRankAt);
        std::copy(local_.job.begin(), local_.job.end(), made.begin() + kJobAt);
        return made;
    }

    /// At once, before a key is made: it is what the parent waits for.
    Result<void> announce() {
        return rank_ == 0 ? Result<void>() : peers_.send(parent_of(rank_), announcement_of(rank_));
    }

    Result<void> prepare() {
        if (local_.way == Transport::rsa_oaep) {
            if (rank_ == 0) return {};  // it wraps nothing for itself
            return take_pair(RsaPair::generate(*local_.rsa));
        }
        if (local_.node.size() > kNodeNameSize)
            return fail(EINVAL, fmt::format("{}this node's name has more than {} characters: {}", setting(),
                                            kNodeNameSize, local_.node));
        std::copy(local_.node.begin(), local_.node.end(), claim_of(rank_).begin());
        if (rank_ != 0) return take_pair(RsaPair::read(*local_.rsa, local_.key_file, local_.readers));
        auto list = InterchangeList::read(local_.list);
        if (!list) return tl::unexpected<Error>(list.error());
        list_ = std::move(*list);
        return {};
    }

    Result<void> take_pair(Result<RsaPair> made) {
        if (!made) return tl::unexpected<Error>(made.error());
        pair_.emplace(std::move(*made));
        if (local_.way == Transport::rsa_oaep) std::ranges::copy(pair_->modulus(), claim_of(rank_).begin());
        return {};
    }

    // protocol: W2
    /// They say it in clear, so this stops mistakes and no attacker.
    Result<void> check(int child, const Announcement& theirs) const {
        const Announcement expected = announcement_of(child);
        if (theirs == expected) return {};
        const std::string who = rank_text(child);
        if (!announces_transport(theirs)) {
            return fail(EPROTO, setting() + who +
                                    " does not distribute keys in this way: give all ranks the same "
                                    "setting key_distribution");
        }
        if (theirs[kWayAt] != expected[kWayAt])
            return fail(EPROTO, setting() + who + " has another way: give all ranks the same setting key_distribution");
        if (theirs[kSuiteAt] != expected[kSuiteAt])
            return fail(EPROTO, setting() + who + " seals with another cipher: give all ranks the same setting cipher");
        return fail(EPROTO, setting() + who + " belongs to another job, or has another version of cryptmpi");
    }

    Result<void> gather() {
        for (const int child : children_of(rank_, ranks_)) {
            Announcement theirs;
            if (auto done = peers_.receive(child, theirs); !done) return done;
            if (auto done = check(child, theirs); !done) return done;
            if (auto done = receive_all(peers_, child, claim_of(child, subtree_of(child, ranks_).count)); !done)
                return done;
        }
        return rank_ == 0 ? Result<void>() : send_all(peers_, parent_of(rank_), claims_);
    }

    // protocol: W4
    /// A wrapped key opens for its rank, job and way, and no other.
    std::vector<std::uint8_t> label_of(int rank) const {
        std::vector<std::uint8_t> label(kWrapLabel.begin(), kWrapLabel.end());
        const auto announced = announcement_of(rank);
        label.insert(label.end(), announced.begin() + kSuiteAt, announced.begin() + kJobAt + 32);
        return label;
    }

    Result<void> wrap_or_unwrap() {
        if (rank_ != 0) return unwrap();
        if (local_.kex->random(drawn_.data(), drawn_.size()) != CRYPTMPI_OK)
            return fail(EIO, setting() + "the crypto module's random generator failed");
        for (int rank = 1; rank < ranks_; ++rank) {
            if (auto done = wrap(rank); !done) return done;
        }
        return {};
    }

    Result<void> wrap(int rank) {
        const auto claim = claim_of(rank);
        const std::uint8_t* modulus = claim.data();
        if (local_.way == Transport::interchange) {
            const auto* const name = reinterpret_cast<const char*>(claim.data());
            const std::string node(name, ::strnlen(name, kNodeNameSize));
            const Modulus* const found = list_.find(node);
            // protocol: W5
            if (found == nullptr)
                return fail(ENOKEY, setting() + rank_text(rank) + " is on node " + shown(node) + ", of which " +
                                        local_.list.string() +
                                        " has no key: run cryptmpi keygen --interchange there, and add its line");
            modulus = found->data();
        }
        const auto label = label_of(rank);
        if (local_.rsa->wrap(wrapped_of(rank).data(), modulus, kModulusSize, label.data(), label.size(), drawn_.data(),
                             drawn_.size()) != CRYPTMPI_OK)
            return fail(EPROTO, setting() + "no key can be wrapped for " + rank_text(rank) +
                                    ": what it sent is no RSA key of 3072 bits");
        return {};
    }

    // protocol: W6
    Result<void> unwrap() {
        const int parent = parent_of(rank_);
        if (auto done = receive_all(peers_, parent, wrapped_); !done) return done;
        const auto label = label_of(rank_);
        const int status = local_.rsa->unwrap(drawn_.data(), drawn_.size(), pair_->key(), label.data(), label.size(),
                                              wrapped_of(rank_).data(), kModulusSize);
        pair_.reset();
        if (status == CRYPTMPI_OK) return {};
        return fail(EKEYREJECTED,
                    setting() + "the wrapped key that came by " + rank_text(parent) + " does not open: " +
                        (local_.way == Transport::interchange
                             ? "it was altered on the way, or the public key of node " + local_.node +
                                   " in rank 0's interchange_keys does not belong to " + local_.key_file.string()
                             : std::string("it was altered on the way")));
    }

    Result<void> scatter() {
        const auto children = children_of(rank_, ranks_);
        for (auto child = children.rbegin(); child != children.rend(); ++child) {
            if (auto done = send_all(peers_, *child, wrapped_of(*child, subtree_of(*child, ranks_).count)); !done)
                return done;
        }
        return {};
    }

    // protocol: W7
    Result<std::unique_ptr<JobKey>> derive() {
        auto key = std::make_unique<JobKey>();
        std::string label(kKeyLabel);
        const auto announced = announcement_of(0);
        label.append(announced.begin() + kSuiteAt, announced.begin() + kJobAt + 32);
        if (auto done = seal::expand(*local_.kex, drawn_.data(), label, key->data(), key->size()); !done)
            return tl::unexpected<Error>(done.error());
        return key;
    }

    /// What a line may show of a name that somebody has sent.
    static std::string shown(const std::string& name) { return name.empty() ? "(no name)" : printable(name); }

    const TransportLocal& local_;
    int rank_;
    int ranks_;
    Peers& peers_;
    Run subtree_;
    std::size_t claim_size_;
    std::vector<std::uint8_t> claims_;
    std::vector<std::uint8_t> wrapped_;
    std::optional<RsaPair> pair_;
    InterchangeList list_;
    Secret<32> drawn_;
};

}  // namespace

bool announces_transport(std::span<const std::uint8_t> message) {
    return message.size() == kHelloSize && std::equal(kMagic.begin(), kMagic.end(), message.begin()) &&
           message[kVersionAt] == kProtocolVersion && message[kNumberAt] == kAnnouncement;
}

Result<std::unique_ptr<JobKey>> transport_key(const TransportLocal& local, int rank, int ranks, Peers& peers) {
    if (local.rsa == nullptr) return fail(ENOTSUP, "key_distribution: no crypto module with RSA-OAEP was given");
    if (ranks < 1 || ranks > kMaxRanks || rank < 0 || rank >= ranks)
        return fail(EINVAL, fmt::format("key_distribution: a job of {} ranks was asked for", ranks));
    return KeyTransport(local, rank, ranks, peers).run();
}

}  // namespace cryptmpi::keys
