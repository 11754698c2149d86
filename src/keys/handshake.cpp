#include "keys/handshake.hpp"

#include <arpa/inet.h>
#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/pieces.hpp"
#include "base/secret.hpp"

namespace cryptmpi::keys {
namespace {

using namespace noise;

constexpr std::size_t kShareAt = kPrefixSize;
constexpr std::size_t kShareSize = 32;
constexpr std::size_t kKemPartAt = kShareAt + kShareSize;  // the payload's place without it
constexpr char kNoiseName[] = "Noise_NNpsk0_25519_AESGCM_SHA256";
constexpr char kHybridNoiseName[] = "Noise_NNhfs+psk0_25519+MLKEM768_AESGCM_SHA256";
static_assert(sizeof(kNoiseName) - 1 == kHash && sizeof(kHybridNoiseName) - 1 > kHash,
              "a name of 32 bytes is the first hash as it stands, a longer one is hashed (Noise, section 5.2)");

enum PrefixByte : std::size_t { magic = 0, version = 4, message = 5, suite = 6, conduct = 7, key_id = 8 };

using Prefix = std::array<std::uint8_t, kPrefixSize>;

/// The identity and, where members are required, the proof.
using Payload = std::array<std::uint8_t, kIdentitySize + kProofSize>;
constexpr std::size_t kMemberAt = kIdentitySize;
constexpr std::size_t kSignatureAt = kMemberAt + sizeof(MemberPublicKey);

std::size_t payload_at(const Local& local, Role sender) {
    return kKemPartAt + (local.kem != nullptr ? kem_part_size(sender) : 0);
}

std::size_t payload_size(const Local& local) {
    return kIdentitySize + (local.members != nullptr ? kProofSize : 0);
}

/// Both sides' prefixes are known as soon as it is known which job key it is: there is nothing to negotiate.
Prefix prefix_of(Role sender, const Local& local, const HandshakeState& state) {
    Prefix prefix = {'C',
                     'M',
                     'P',
                     'I',
                     kProtocolVersion,
                     static_cast<std::uint8_t>(sender),
                     static_cast<std::uint8_t>(local.crypto.suite),
                     static_cast<std::uint8_t>(local.conduct | (local.members != nullptr ? kMembers : 0) |
                                               (local.kem != nullptr ? kHybrid : 0))};
    std::copy_n(state.key_id, kKeyIdSize, prefix.begin() + key_id);
    return prefix;
}

std::string text(const Endpoint& end) {
    static constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    char address[INET6_ADDRSTRLEN] = "?";
    const unsigned port = end.port[0] * 256U + end.port[1];
    if (std::memcmp(end.address, kMapped, sizeof kMapped) == 0) {
        inet_ntop(AF_INET, end.address + sizeof kMapped, address, sizeof address);
        return fmt::format("{}:{}", address, port);
    }
    inet_ntop(AF_INET6, end.address, address, sizeof address);
    return fmt::format("[{}]:{}", address, port);
}

bool same(const Endpoint& a, const Endpoint& b) {
    return std::memcmp(&a, &b, sizeof a) == 0;
}

std::string suite_text(unsigned number) {
    const auto known = aead::suite_by_number(number);
    return known ? std::string(aead::name(*known)) : fmt::format("an unknown suite (number {})", number);
}

/// Where a peer can be excused from encryption, the line that asks for it says how.
std::string mend_of_plaintext(const Local& local) {
    const bool connection = local.context.empty();
    return connection ? "start it under cryptmpi too, with the same --layer, or allow the address in the setting "
                        "plaintext_peers"
                      : "start it under cryptmpi too";
}

// protocol: A2
/// What a rank of the MPI layer does otherwise than we.
std::string other_conduct(const std::string& peer, unsigned theirs, unsigned ours) {
    const auto seals = [](unsigned conduct) { return (conduct & kSealsAll) != 0 ? "all messages" : "between nodes"; };
    const auto roads = [](unsigned conduct) { return (conduct & kOpenRoads) != 0 ? "open" : "closed"; };
    return peer + " seals " + seals(theirs) + ", with other roads than sealed sockets " + roads(theirs) + ", we " +
           seals(ours) + ", with them " + roads(ours) +
           ": give every node the same settings scope, network, seal_sockets and plaintext_peers";
}

std::string one_side_requires_members(const Local& local) {
    const std::string peer(local.peer);
    return local.members != nullptr ? peer +
                                          " does not prove which member it is, and require_members is on here: set "
                                          "require_members = true where it runs, too"
                                    : peer +
                                          " requires members, and require_members is off here: set require_members = "
                                          "true here, too, with a member key (cryptmpi keygen --member)";
}

std::string other_key_exchange(const Local& local) {
    const bool hybrid = local.kem != nullptr;
    return std::string(local.peer) + " exchanges keys by " + (hybrid ? "x25519" : "x25519-mlkem768") + ", we by " +
           (hybrid ? "x25519-mlkem768" : "x25519") + ": give every node the same setting key_exchange";
}

// protocol: H4, H7
/// That it is a hello of this protocol, and the one that is due.
Result<void> check_form(const Local& local, const HandshakeState& state, const Prefix& expected,
                        const std::uint8_t* in) {
    const std::string peer(local.peer);
    if (!std::equal(expected.begin() + magic, expected.begin() + version, in + magic)) {
        return fail(EPROTO,
                    peer + " does not speak CryptMPI (its first bytes are no hello): " + mend_of_plaintext(local));
    }
    if (in[version] != kProtocolVersion) {
        return fail(
            EPROTO,
            fmt::format("{} speaks protocol version {}, we speak {}: install the same CryptMPI release on every node",
                        peer, in[version], kProtocolVersion));
    }
    // protocol: H8
    if (std::equal(in + kShareAt, in + kShareAt + kShareSize, state.ephemeral_public)) {
        return fail(EPROTO, peer + " sent our own hello back: something on the way reflects what we send");
    }
    if (in[message] != expected[message]) {
        return fail(EPROTO, fmt::format("{} sent hello {} where hello {} was due: both ends take the same role, or "
                                        "something on the way mixes connections up",
                                        peer, in[message], expected[message]));
    }
    return {};
}

/// That the peer's settings are ours, as far as a prefix says them.
Result<void> check_terms(const Local& local, const Prefix& expected, const std::uint8_t* in) {
    const std::string peer(local.peer);
    if (in[suite] != expected[suite]) {
        return fail(EPROTO, peer + " seals with " + suite_text(in[suite]) + ", we with " +
                                std::string(aead::name(local.crypto.suite)) +
                                ": give every node the same setting cipher");
    }
    // protocol: H18
    if (((in[conduct] ^ expected[conduct]) & kMembers) != 0) {
        return fail(EPROTO, one_side_requires_members(local));
    }
    // protocol: H20
    if (((in[conduct] ^ expected[conduct]) & kHybrid) != 0) {
        return fail(EPROTO, other_key_exchange(local));
    }
    if (in[conduct] != expected[conduct]) {
        return fail(EPROTO, local.context.empty()
                                ? peer + "'s hello has a reserved byte set: altered on the way"
                                : other_conduct(peer, in[conduct] & ~unsigned{kMembers | kHybrid}, local.conduct));
    }
    return {};
}

/// What can be said of a hello before any cryptography.
Result<void> check_prefix(const Local& local, const HandshakeState& state, const std::uint8_t* in) {
    const Prefix expected = prefix_of(other(state.role), local, state);
    if (auto done = check_form(local, state, expected, in); !done) return done;
    if (auto done = check_terms(local, expected, in); !done) return done;
    const std::string peer(local.peer);
    const bool same_key = std::equal(expected.begin() + key_id, expected.end(), in + key_id);
    if (state.role == Role::initiator && !same_key) {
        return fail(EPROTO, peer + " answers under another job key than the one that we named: altered on the way");
    }
    const std::span share(in + kShareAt, kShareSize);
    if (std::all_of(share.begin(), share.end(), [](std::uint8_t byte) { return byte == 0; })) {
        return fail(EPROTO, peer + "'s key share is all zeros: a forged hello");
    }
    return {};
}

// protocol: H8
/// Diffie-Hellman of the two ephemerals.
Result<void> agree(const Local& local, HandshakeState& state, const std::uint8_t share[32]) {
    if (local.crypto.kex->x25519_shared(state.shared, state.ephemeral_private, share) != CRYPTMPI_OK) {
        return fail(EPROTO, std::string(local.peer) + "'s key share gives an all-zero secret: a forged hello");
    }
    return {};
}

// protocol: H10, H11, A4
Result<void> check_identity(const Local& local, const HandshakeState& state) {
    const std::string peer(local.peer);
    if (std::memcmp(state.peer.job, state.self.job, sizeof state.self.job) != 0) {
        return fail(EPROTO, peer + " holds our job key but belongs to another job (its job id differs)");
    }
    if (local.check_addresses &&
        !(same(state.self.local, state.peer.remote) && same(state.self.remote, state.peer.local))) {
        return fail(EPROTO, peer + " sees this connection as " + text(state.peer.local) + " to " +
                                text(state.peer.remote) + ", we as " + text(state.self.remote) + " to " +
                                text(state.self.local) +
                                ": behind address translation turn the setting check_addresses off");
    }
    return {};
}

// protocol: H16
/// What a member signs in its hello. The hash has the prologue and every share and payload before this one; the other
/// hello, another handshake, and another identity give another text.
std::string signed_text(Role signer, const std::uint8_t hash[kHash], const Payload& payload) {
    std::string text(1, static_cast<char>(signer));
    text.append(reinterpret_cast<const char*>(hash), kHash);
    text.append(reinterpret_cast<const char*>(payload.data()), kSignatureAt);
    return text;
}

// protocol: H15
Result<Payload> payload_of(const Local& local, const HandshakeState& state) {
    Payload payload{};
    std::memcpy(payload.data(), &state.self, kIdentitySize);
    if (local.members == nullptr) return payload;
    const MemberKey& own = local.members->own();
    std::ranges::copy(own.public_key(), payload.begin() + kMemberAt);
    const auto signature = own.sign(Purpose::handshake, signed_text(state.role, state.symmetric.hash, payload));
    if (!signature) return tl::unexpected<Error>(signature.error());
    std::ranges::copy(*signature, payload.begin() + kSignatureAt);
    return payload;
}

// protocol: H17
/// `hash`: the handshake's when the peer signed.
Result<void> check_member(const Local& local, const std::uint8_t hash[kHash], const Payload& payload,
                          HandshakeState& state) {
    if (local.members == nullptr) return {};
    MemberPublicKey key;
    Signature signature;
    std::copy_n(payload.begin() + kMemberAt, key.size(), key.begin());
    std::copy_n(payload.begin() + kSignatureAt, signature.size(), signature.begin());
    const std::string peer(local.peer);
    const auto name = local.members->name_of(key);
    if (!name) {
        return fail(name.error().code, peer + " is no member that we take: " + name.error().line +
                                           ": add the line there if it shall be one, under its name");
    }
    if (!verify(*local.crypto.kex, key, Purpose::handshake, signed_text(other(state.role), hash, payload), signature)) {
        return fail(EACCES, peer + " says that it is member " + *name +
                                ", and its signature is not that member's for this handshake: somebody without " +
                                *name + "'s member key poses as it");
    }
    std::copy(name->begin(), name->end(), state.peer_member);
    return {};
}

// protocol: H3
/// What both sides know before the first byte: what they speak, and what for.
Result<void> mix_prologue(const Local& local, HandshakeState& state) {
    std::vector<std::uint8_t> prologue;
    for (const Role role : {Role::initiator, Role::responder}) {
        const Prefix prefix = prefix_of(role, local, state);
        prologue.insert(prologue.end(), prefix.begin(), prefix.end());
    }
    prologue.insert(prologue.end(), local.context.begin(), local.context.end());
    return mix_hash(*local.crypto.kex, state.symmetric, prologue.data(), prologue.size());
}

/// The prologue names the job key, so that both are mixed in at the same time.
Result<void> use_job_key(const Local& local, const JobKey& key, HandshakeState& state) {
    const auto id = id_of(*local.crypto.kex, key);
    if (!id) return tl::unexpected<Error>(id.error());
    std::copy(id->begin(), id->end(), state.key_id);
    if (auto done = mix_prologue(local, state); !done) return done;
    return mix_key_and_hash(*local.crypto.kex, state.symmetric, key.data(), kJobKeySize);  // the token "psk"
}

// protocol: H19
/// The first hash and chaining key are the protocol's name.
Result<void> name_the_protocol(const Local& local, HandshakeState& state) {
    std::memcpy(state.symmetric.hash, kNoiseName, kHash);
    if (local.kem != nullptr) {
        const iovec name = piece(kHybridNoiseName, sizeof(kHybridNoiseName) - 1);
        const int status = local.crypto.kex->sha256(state.symmetric.hash, &name, 1);
        if (auto done = primitive(status, "SHA-256"); !done) return done;
    }
    std::memcpy(state.symmetric.chaining_key, state.symmetric.hash, kHash);
    return {};
}

Result<void> do_start(const Local& local, HandshakeState& state) {
    const cryptmpi_kex& kex = *local.crypto.kex;
    if ((local.hello_aead->suites >> CRYPTMPI_AES_256_GCM & 1U) == 0) {
        return fail(ENOTSUP, "handshake: the crypto module of the key agreement has no AES-256-GCM");
    }
    if (auto done = primitive(kex.random(state.ephemeral_private, 32), "random generator"); !done) {
        return done;
    }
    if (auto done = primitive(kex.x25519_public(state.ephemeral_public, state.ephemeral_private), "X25519"); !done) {
        return done;
    }
    const bool draws = local.kem != nullptr && state.role == Role::initiator;
    if (draws && kex.random(state.kem_private, sizeof state.kem_private) != CRYPTMPI_OK) {
        return primitive(CRYPTMPI_FAILED, "random generator");
    }
    if (auto done = name_the_protocol(local, state); !done) return done;

    // The responder learns by hello 1 which job key it is.
    return state.role == Role::initiator ? use_job_key(local, *local.job_key, state) : Result<void>();
}

/// Where there is a choice of keys, the file to mend.
std::string key_file_of(const Local& local) {
    return local.ring == nullptr ? "our key file" : local.ring->file().string();
}

// protocol: H14
/// The responder's job key is the one that the peer names.
Result<void> take_job_key(const Local& local, HandshakeState& state, const std::uint8_t* in) {
    KeyId named;
    std::copy_n(in + key_id, kKeyIdSize, named.begin());
    const auto own = id_of(*local.crypto.kex, *local.job_key);
    if (!own) return tl::unexpected<Error>(own.error());
    const JobKey* found = named == *own ? local.job_key : local.ring != nullptr ? local.ring->find(named) : nullptr;
    if (found == nullptr) {
        return fail(EKEYREJECTED, std::string(local.peer) + " has job key " + key_id_text(named) +
                                      ", which is not in " + key_file_of(local) + " (we began with " +
                                      key_id_text(*own) +
                                      "): give every node the same key file (cryptmpi key list, key install)");
    }
    return use_job_key(local, *found, state);
}

using KemKey = std::array<std::uint8_t, CRYPTMPI_KEM_PUBLIC_SIZE>;

// protocol: H19
/// The tokens "e1" (the initiator's) and "ekem1" (the responder's) of Noise's extension for hybrid forward secrecy.
Result<void> write_kem_part(const Local& local, HandshakeState& state, std::uint8_t* out) {
    if (state.role == Role::initiator) {
        KemKey key;
        if (auto done = primitive(local.kem->public_key(key.data(), state.kem_private), "ML-KEM"); !done) return done;
        return encrypt_and_hash(*local.crypto.kex, *local.hello_aead, state.symmetric, key, out);
    }
    if (auto done = encrypt_and_hash(*local.crypto.kex, *local.hello_aead, state.symmetric, state.kem_ciphertext, out);
        !done)
        return done;
    return mix_key(*local.crypto.kex, state.symmetric, state.kem_shared, sizeof state.kem_shared);
}

/// A responder gets the peer's key, which is used once the peer has shown the job key.
Result<void> read_kem_part(const Local& local, HandshakeState& state, const std::uint8_t* in, KemKey& key) {
    if (state.role == Role::responder)
        return decrypt_and_hash(*local.crypto.kex, *local.hello_aead, state.symmetric, in, key, local.peer);
    std::array<std::uint8_t, CRYPTMPI_KEM_CIPHERTEXT_SIZE> ciphertext;
    if (auto done = decrypt_and_hash(*local.crypto.kex, *local.hello_aead, state.symmetric, in, ciphertext, local.peer);
        !done)
        return done;
    // A ciphertext of another key gives a secret of its own (implicit rejection), and the payload does not open.
    Secret<CRYPTMPI_KEM_SHARED_SIZE> shared;
    const int status = local.kem->decapsulate(shared.data(), state.kem_private, ciphertext.data());
    if (auto done = primitive(status, "ML-KEM"); !done) return done;
    return mix_key(*local.crypto.kex, state.symmetric, shared.data(), shared.size());
}

// protocol: H21
Result<void> encapsulate(const Local& local, HandshakeState& state, const KemKey& key) {
    Secret<CRYPTMPI_KEM_COINS_SIZE> coins;
    if (auto done = primitive(local.crypto.kex->random(coins.data(), coins.size()), "random generator"); !done) {
        return done;
    }
    const int status = local.kem->encapsulate(state.kem_ciphertext, state.kem_shared, key.data(), coins.data());
    if (status == CRYPTMPI_FORGED) {
        return fail(EPROTO, std::string(local.peer) + "'s encapsulation key is none of ML-KEM-768: a forged hello");
    }
    return primitive(status, "ML-KEM");
}

// protocol: H2
Result<void> do_write(const Local& local, HandshakeState& state, std::uint8_t* out) {
    const cryptmpi_kex& kex = *local.crypto.kex;
    const Prefix prefix = prefix_of(state.role, local, state);
    std::copy(prefix.begin(), prefix.end(), out);
    std::memcpy(out + kShareAt, state.ephemeral_public, 32);
    if (auto done = mix_share(kex, state.symmetric, state.ephemeral_public); !done) {
        return done;
    }
    if (state.role == Role::responder) {
        if (auto done = mix_key(kex, state.symmetric, state.shared, 32); !done) {
            return done;
        }
    }
    if (local.kem != nullptr) {
        if (auto done = write_kem_part(local, state, out + kKemPartAt); !done) {
            return done;
        }
    }
    const auto payload = payload_of(local, state);
    if (!payload) return tl::unexpected<Error>(payload.error());
    return encrypt_and_hash(*local.crypto.kex, *local.hello_aead, state.symmetric,
                            std::span(*payload).first(payload_size(local)), out + payload_at(local, state.role));
}

Result<void> check_size(const Local& local, const HandshakeState& state, std::span<const std::uint8_t> hello) {
    const std::size_t due = local.hello_size(other(state.role));
    if (hello.size() == due) return {};
    return fail(EPROTO, fmt::format("{}'s hello has {} bytes where {} were due: altered on the way", local.peer,
                                    hello.size(), due));
}

/// What precedes the payload: the share, and where ML-KEM is used its part.
Result<void> read_keys(const Local& local, HandshakeState& state, const std::uint8_t* in, KemKey& encapsulation_key) {
    const cryptmpi_kex& kex = *local.crypto.kex;
    if (auto done = mix_share(kex, state.symmetric, in + kShareAt); !done) return done;
    if (state.role == Role::initiator) {
        if (auto done = agree(local, state, in + kShareAt); !done) return done;
        if (auto done = mix_key(kex, state.symmetric, state.shared, 32); !done) return done;
    }
    return local.kem == nullptr ? Result<void>() : read_kem_part(local, state, in + kKemPartAt, encapsulation_key);
}

/// The responder spends a multiplication, and an encapsulation, only on a peer that has shown the job key.
Result<void> answer_keys(const Local& local, HandshakeState& state, const std::uint8_t* in, const KemKey& key) {
    if (state.role == Role::initiator) return {};
    if (auto done = agree(local, state, in + kShareAt); !done) return done;
    return local.kem == nullptr ? Result<void>() : encapsulate(local, state, key);
}

// protocol: H2
Result<void> do_read(const Local& local, HandshakeState& state, std::span<const std::uint8_t> hello) {
    const std::uint8_t* const in = hello.data();
    if (auto done = check_prefix(local, state, in); !done) return done;
    if (auto done = check_size(local, state, hello); !done) return done;
    if (state.role == Role::responder) {
        if (auto done = take_job_key(local, state, in); !done) return done;
    }
    KemKey encapsulation_key;
    if (auto done = read_keys(local, state, in, encapsulation_key); !done) return done;
    Payload payload{};
    std::uint8_t signed_hash[kHash];
    std::memcpy(signed_hash, state.symmetric.hash, kHash);
    const std::span due = std::span(payload).first(payload_size(local));
    if (auto done = decrypt_and_hash(*local.crypto.kex, *local.hello_aead, state.symmetric,
                                     in + payload_at(local, other(state.role)), due, local.peer);
        !done)
        return done;
    std::memcpy(&state.peer, payload.data(), kIdentitySize);
    if (auto done = answer_keys(local, state, in, encapsulation_key); !done) return done;
    if (auto done = check_identity(local, state); !done) return done;
    return check_member(local, signed_hash, payload, state);
}

Result<void> wrong_step() {
    return fail(EINVAL, "handshake: a step out of order");
}

// protocol: H6
/// Whatever fails ends the handshake.
Result<void> step(HandshakeState& state, Result<void> done) {
    if (done) {
        ++state.step;
    } else {
        abandon(state);
    }
    return done;
}

void begin(seal::DirectionState& direction, const std::uint8_t secret[seal::kSecretSize]) {
    direction = {};
    std::memcpy(direction.secret, secret, seal::kSecretSize);
}

}  // namespace

Result<void> start(const Local& local, Role role, const Identity& self, HandshakeState& state) {
    abandon(state);
    state.role = role;
    state.self = self;
    auto done = do_start(local, state);
    if (!done) {
        abandon(state);
    }
    return done;
}

Result<void> write_hello(const Local& local, HandshakeState& state, std::span<std::uint8_t> out) {
    const bool turn =
        (state.role == Role::initiator && state.step == 0) || (state.role == Role::responder && state.step == 1);
    if (!turn || out.size() != local.hello_size(state.role)) return wrong_step();
    return step(state, do_write(local, state, out.data()));
}

Result<void> read_hello(const Local& local, HandshakeState& state, std::span<const std::uint8_t> in) {
    const bool turn =
        (state.role == Role::initiator && state.step == 1) || (state.role == Role::responder && state.step == 0);
    if (!turn || in.size() < kHelloSize) return wrong_step();
    return step(state, do_read(local, state, in));
}

// protocol: H5
Result<void> finish(const Local& local, HandshakeState& state, seal::DirectionState& send,
                    seal::DirectionState& receive) {
    if (state.step != 2) {
        return wrong_step();
    }
    Secret<2 * kHash> split;
    if (auto done = hkdf(*local.crypto.kex, state.symmetric.chaining_key, nullptr, 0, split.data(), 2); !done) {
        abandon(state);
        return done;
    }
    const bool initiator = state.role == Role::initiator;
    begin(initiator ? send : receive, split.data());
    begin(initiator ? receive : send, split.data() + kHash);

    const Identity self = state.self;
    const Identity peer = state.peer;
    const auto peer_member = std::to_array(state.peer_member);
    const Role role = state.role;
    abandon(state);
    state.self = self;
    state.peer = peer;
    std::ranges::copy(peer_member, state.peer_member);
    state.role = role;
    state.step = 3;
    return {};
}

void abandon(HandshakeState& state) noexcept {
    wipe(&state, sizeof state);
}

}  // namespace cryptmpi::keys
