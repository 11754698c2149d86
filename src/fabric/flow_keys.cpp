// The keys of flows: of a job, of each pair of parties, of each flow, of each epoch; and what shows that an address is
// of the job.
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>

#include "base/pieces.hpp"
#include "fabric/party_state.hpp"
#include "seal/own_process.hpp"

namespace cryptmpi::fabric {
namespace {

constexpr std::size_t kHash = 32;
constexpr std::string_view kLabels[kKinds] = {"fabric tagged", "fabric active", "fabric message", "fabric segments"};

void append(std::string& text, const Share& share) {
    text.append(reinterpret_cast<const char*>(share.data()), share.size());
}

}  // namespace

// protocol: F2
Result<RecordKey> epoch_key(const seal::Crypto& crypto, const FlowSecret& secret, std::uint32_t epoch) {
    std::string label = "fabric epoch";
    for (unsigned byte = 0; byte < 2; ++byte) label.push_back(static_cast<char>(epoch >> (8 * byte)));
    Secret<seal::kSecretSize> own;
    if (auto done = seal::expand(*crypto.kex, secret->data(), label, own.data(), seal::kSecretSize); !done) {
        return tl::unexpected(std::move(done.error()));
    }
    return RecordKey::derive(crypto, own.data());
}

Result<Job> Job::join(const seal::Crypto& crypto, const keys::JobKey& job_key, std::string_view job_id,
                      bool is_written_by_network) {
    std::uint8_t hash[kHash];
    const iovec id = piece(job_id.data(), job_id.size());
    if (crypto.kex->sha256(hash, &id, 1) != CRYPTMPI_OK) return fail(EIO, "the crypto module's SHA-256 failed");
    std::string label = "fabric";
    label.push_back(static_cast<char>(crypto.suite));
    label.append(reinterpret_cast<const char*>(hash), sizeof hash);
    Job job;
    job.crypto_ = crypto;
    job.is_written_by_network_ = is_written_by_network;
    job.label_ = std::move(label);
    auto secret = job.secret_of(job_key);
    if (!secret) return tl::unexpected(std::move(secret.error()));
    job.secret_ = std::move(*secret);
    seal::claim_keys();
    return job;
}

Result<Job> Job::join(const seal::Crypto& crypto, keys::KeyRing& ring, std::string_view job_id,
                      bool is_written_by_network) {
    auto job = join(crypto, ring.own(), job_id, is_written_by_network);
    if (job) job->ring_ = &ring;
    return job;
}

Result<Job::JobSecret> Job::secret_of(const keys::JobKey& job_key) const {
    auto secret = std::make_unique<Secret<seal::kSecretSize>>();
    auto done = seal::expand(*crypto_.kex, job_key.data(), label_, secret->data(), seal::kSecretSize);
    if (!done) return tl::unexpected(std::move(done.error()));
    return secret;
}

Result<std::vector<Job::JobSecret>> Job::others() const {
    std::vector<JobSecret> secrets;
    if (ring_ == nullptr) return secrets;
    for (const auto* key : ring_->all()) {
        if (key == &ring_->own()) continue;
        auto secret = secret_of(*key);
        if (!secret) return tl::unexpected(std::move(secret.error()));
        secrets.push_back(std::move(*secret));
    }
    return secrets;
}

// protocol: F1
Result<std::unique_ptr<Party>> Party::make(const Job& job) {
    auto state = std::make_unique<State>(job);
    const cryptmpi_kex& kex = *state->crypto.kex;
    if (kex.random(state->private_key->data(), kKeySize) != CRYPTMPI_OK ||
        kex.x25519_public(state->share.data(), state->private_key->data()) != CRYPTMPI_OK) {
        return fail(EIO, "the crypto module failed to make a key pair");
    }
    return std::unique_ptr<Party>(new Party(std::move(state)));
}

Result<void> Party::State::prove(const FlowSecret& of_job, std::span<const std::uint8_t> address, const Share& of,
                                 std::uint8_t proof[kProofSize]) const {
    constexpr std::string_view kUse = "address";
    const iovec in[] = {piece(kUse.data(), kUse.size()), piece(of.data(), of.size()),
                        piece(address.data(), address.size())};
    std::uint8_t whole[kHash];
    if (crypto.kex->hmac_sha256(whole, of_job->data(), kKeySize, in, std::size(in)) != CRYPTMPI_OK) {
        return fail(EIO, "the crypto module's HMAC-SHA-256 failed");
    }
    std::memcpy(proof, whole, kProofSize);
    return {};
}

Result<bool> Party::State::proves(const FlowSecret& of_job, std::span<const std::uint8_t> address, const Share& of,
                                  const std::uint8_t proof[kProofSize]) const {
    std::uint8_t right[kProofSize];
    if (auto done = prove(of_job, address, of, right); !done) return tl::unexpected(std::move(done.error()));
    unsigned differences = 0;
    for (std::size_t i = 0; i < kProofSize; ++i) differences |= static_cast<unsigned>(right[i] ^ proof[i]);
    return differences == 0;
}

Result<void> Party::prove(std::span<const std::uint8_t> address, const Share& share,
                          std::uint8_t proof[kProofSize]) const {
    return state_->prove(state_->job.secret_, address, share, proof);
}

Result<bool> Party::proves(std::span<const std::uint8_t> address, const Share& share,
                           const std::uint8_t proof[kProofSize]) const {
    auto right = state_->proves(state_->job.secret_, address, share, proof);
    if (!right || *right) return right;
    auto others = state_->job.others();
    if (!others) return tl::unexpected(std::move(others.error()));
    for (const auto& of_job : *others) {
        right = state_->proves(of_job, address, share, proof);
        if (!right || *right) return right;
    }
    return false;
}

Result<FlowSecret> Party::State::pair_secret(const Share& its_share, const FlowSecret& of_job) const {
    if (!seal::owns_keys()) return seal::forked();
    Secret<kKeySize> shared;
    if (crypto.kex->x25519_shared(shared.data(), private_key->data(), its_share.data()) != CRYPTMPI_OK) {
        return fail(EPROTO, "the share of a peer is none: altered, or not ours");
    }
    constexpr std::string_view kUse = "pair";
    const iovec in[] = {piece(kUse.data(), kUse.size()), piece(shared.data(), kKeySize)};
    auto secret = std::make_unique<Secret<seal::kSecretSize>>();
    if (crypto.kex->hmac_sha256(secret->data(), of_job->data(), kKeySize, in, std::size(in)) != CRYPTMPI_OK) {
        return fail(EIO, "the crypto module's HMAC-SHA-256 failed");
    }
    return secret;
}

Result<std::unique_ptr<Peer>> Party::State::make_peer(const Share& its_share) const {
    auto secret = pair_secret(its_share, job.secret_);
    if (!secret) return tl::unexpected(std::move(secret.error()));
    auto peer = std::make_unique<Peer>(its_share);
    peer->secret = std::move(*secret);
    return peer;
}

// protocol: F6
Result<FlowSecret> Party::State::flow_secret(const FlowSecret& of_pair, Kind kind, const Share& sender,
                                             const Share& receiver) const {
    std::string label(kLabels[place_of(kind)]);
    label.push_back('\0');
    append(label, sender);
    append(label, receiver);
    auto secret = std::make_unique<Secret<seal::kSecretSize>>();
    if (auto done = seal::expand(*crypto.kex, of_pair->data(), label, secret->data(), seal::kSecretSize); !done) {
        return tl::unexpected(std::move(done.error()));
    }
    return secret;
}

Result<Peer*> Party::meet(const Share& share) {
    const auto known = state_->peers.find(share);
    if (known != state_->peers.end()) return known->second.get();
    auto made = state_->make_peer(share);
    if (!made) return tl::unexpected(std::move(made.error()));
    Peer* const peer = made->get();
    state_->remember(std::move(*made));
    return peer;
}

}  // namespace cryptmpi::fabric
