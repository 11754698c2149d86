#include "keys/flow_secrets.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>

#include "seal/key_schedule.hpp"

namespace cryptmpi::keys {
namespace {

constexpr std::string_view kPairs = "mpi pairs";
constexpr std::string_view kGroups = "mpi groups";
constexpr std::string_view kPair = "mpi pair";
constexpr std::string_view kGroup = "mpi group";
constexpr unsigned kIdBits = 61;  // of a communicator's id: two of a million have the same with 2 in 10 millions

void append(std::string& to, int rank) {
    for (unsigned byte = 0; byte < 4; ++byte) to.push_back(static_cast<char>(rank >> (8 * byte)));
}

/// `more` bits, `length` of them, after a path.
seal::Path longer(const seal::Path& path, std::uint64_t more, unsigned length) {
    return {path.bits | more << (64 - path.length - length), path.length + length};
}

}  // namespace

Result<std::unique_ptr<GroupSecret>> GroupSecret::of_drawn(const cryptmpi_kex& kex, const Secret<32>& drawn,
                                                           const CommunicatorId& id, std::size_t members) {
    Secret<32> own;
    std::string label(kGroup);
    label.append(reinterpret_cast<const char*>(id.data()), id.size());
    if (auto done = seal::expand(kex, drawn.data(), label, own.data(), own.size()); !done) {
        return tl::unexpected(std::move(done.error()));
    }
    return std::make_unique<GroupSecret>(kex, own, members);
}

GroupSecret::GroupSecret(const cryptmpi_kex& kex, const Secret<32>& secret, std::size_t members)
    : bits_(std::max(1U, static_cast<unsigned>(std::bit_width(members - 1)))), senders_(kex, secret.data()) {}

Result<void> GroupSecret::take(int sender, Secret<32>& out) {
    const std::lock_guard hold(lock_);
    return senders_.derive(longer({}, static_cast<std::uint64_t>(sender), bits_), out);
}

FlowSecrets::FlowSecrets(const cryptmpi_kex& kex, int self, const CommunicatorId& world, Agreed& agreed)
    : kex_(kex), self_(self), world_(world), shares_(std::move(agreed.shares)), to_meet_(shares_.size() - 1) {
    met_.resize(shares_.size());
    std::memcpy(private_key_->data(), agreed.private_key.data(), private_key_->size());
    wipe(agreed.private_key.data(), agreed.private_key.size());
    if (to_meet_ == 0) private_key_.reset();
}

FlowSecrets::~FlowSecrets() {
    wipe(shares_.data(), shares_.size() * sizeof(Share));
}

Result<std::unique_ptr<FlowSecrets>> FlowSecrets::make(const cryptmpi_kex& kex, int self, const CommunicatorId& world,
                                                       Agreed& agreed) {
    std::unique_ptr<FlowSecrets> made(new FlowSecrets(kex, self, world, agreed));
    Secret<32> groups;
    const auto split = [&](std::string_view label, Secret<32>& to) {
        return seal::expand(kex, agreed.secret.data(), label, to.data(), to.size());
    };
    auto done = split(kPairs, *made->pairs_);
    if (done) done = split(kGroups, groups);
    wipe(agreed.secret.data(), agreed.secret.size());
    if (!done) return tl::unexpected(std::move(done.error()));
    made->groups_ = std::make_unique<seal::Puncturable>(kex, groups.data());
    return made;
}

// protocol: M8
/// MPI_COMM_WORLD's is short: many ranks meet on it, and on no other.
seal::Path FlowSecrets::path_of(const CommunicatorId& id) const {
    if (id == world_) return {0, 1};
    std::uint64_t first = 0;
    for (unsigned byte = 0; byte < 8; ++byte) first = first << 8 | id[byte];
    return longer({std::uint64_t{1} << 63, 1}, first >> (64 - kIdBits), kIdBits);
}

/// The secret of this rank and the peer, which then nobody can make from what this rank keeps.
Result<void> FlowSecrets::meet(int peer, Secret<32>& out) {
    Share& share = shares_[static_cast<std::size_t>(peer)];
    if (share == Share{}) return fail(EEXIST, "key schedule: a rank was met for a second time");
    Secret<32> shared;
    // protocol: M9
    if (kex_.x25519_shared(shared.data(), private_key_->data(), share.data()) != CRYPTMPI_OK) {
        return fail(EPROTO, fmt::format("rank {}'s key share gives no secret: a forged one", peer));
    }
    Secret<32> extracted;
    const iovec in{shared.data(), shared.size()};
    if (kex_.hmac_sha256(extracted.data(), pairs_->data(), pairs_->size(), &in, 1) != CRYPTMPI_OK) {
        return fail(EIO, "key schedule: the crypto module's HMAC-SHA-256 failed");
    }
    std::string label(kPair);
    append(label, std::min(self_, peer));
    append(label, std::max(self_, peer));
    if (auto done = seal::expand(kex_, extracted.data(), label, out.data(), out.size()); !done) return done;
    wipe(share.data(), share.size());
    if (--to_meet_ == 0) private_key_.reset();
    return {};
}

/// What a rank sends itself nobody else needs to open.
Result<void> FlowSecrets::draw(Secret<32>& out) const {
    if (kex_.random(out.data(), out.size()) == CRYPTMPI_OK) return {};
    return fail(EIO, "key schedule: the crypto module's random generator failed");
}

Result<seal::Puncturable*> FlowSecrets::pair(int peer) {
    auto& secrets = met_[static_cast<std::size_t>(peer)];
    if (!secrets) {
        Secret<32> secret;
        auto done = peer == self_ ? draw(secret) : meet(peer, secret);
        if (!done) return tl::unexpected(std::move(done.error()));
        secrets = std::make_unique<seal::Puncturable>(kex_, secret.data());
    }
    return secrets.get();
}

Result<void> FlowSecrets::take(int sender, int receiver, Use use, const CommunicatorId& id, Secret<32>& out) {
    const int peer = sender == self_ ? receiver : sender;
    const bool ours = sender == self_ || receiver == self_;
    if (!ours || peer < 0 || static_cast<std::size_t>(peer) >= shares_.size()) {
        return fail(EINVAL, "key schedule: a flow was asked for that is none of this rank's");
    }
    const std::lock_guard hold(lock_);
    auto secrets = pair(peer);
    if (!secrets) return tl::unexpected(std::move(secrets.error()));
    const unsigned upwards = sender < receiver ? 0 : 1;
    return (*secrets)->derive(longer(path_of(id), static_cast<unsigned>(use) << 1 | upwards, 2), out);
}

Result<std::unique_ptr<GroupSecret>> FlowSecrets::of_all(const CommunicatorId& id) {
    const std::lock_guard hold(lock_);
    Secret<32> secret;
    if (auto done = groups_->derive(path_of(id), secret); !done) return tl::unexpected(std::move(done.error()));
    return std::make_unique<GroupSecret>(kex_, secret, shares_.size());
}

}  // namespace cryptmpi::keys
