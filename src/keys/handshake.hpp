// The handshake of one connection: Noise_NNpsk0_25519_AESGCM_SHA256 (noiseprotocol.org, revision 34), keyed by the job
// key.
//
//   initiator (connect)                                            responder (accept)
//     hello 1: prefix | e | sealed Identity   ------------------->
//              <-------------------   hello 2: prefix | e | sealed Identity
//     confirm: the first record of the stream  ------------------>
//
// The prefix (magic, protocol version, message number, suite, conduct, the job key's id) of both sides is in the Noise
// prologue. A side that gets a prefix it does not agree with refuses: there is no negotiation, so there is nothing to
// downgrade. Of job keys the initiator uses its own, and the responder whichever of those that it holds. The responder
// hands nothing to its caller, and sends nothing, before the confirm record opened: a replayed hello 1 gets no further.
// A handshake that is not a connection's says so by its context, which ends the prologue.
//
// Where keys are exchanged by ML-KEM-768, too (Noise_NNhfs+psk0_25519+MLKEM768_AESGCM_SHA256, Noise's extension for
// hybrid forward secrecy), byte 7 of both prefixes says so. Hello 1 then has the initiator's encapsulation key, sealed,
// behind its share, and hello 2 a ciphertext under it; what that holds is mixed into the secrets beside X25519's.
//
// Where members are required, byte 7 of both prefixes says so, and each sealed payload also has the sender's Ed25519
// public key and a signature over its role, the handshake's hash and its identity. Who is in the list of members is
// taken, and nobody else, whoever holds the job key.
//
// Plain bytes in and out: no socket here. The state has no pointers, so that it can live in memory shared by processes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "aead/suite.hpp"
#include "base/result.hpp"
#include "keys/job_key.hpp"
#include "keys/key_ring.hpp"
#include "keys/membership.hpp"
#include "keys/noise.hpp"
#include "seal/key_schedule.hpp"
#include "seal/stream.hpp"

namespace cryptmpi::keys {

inline constexpr std::uint8_t kProtocolVersion = 2;
// "CMPI" | version | message number (1, 2) | suite | conduct, and kMembers | the job key's id
inline constexpr std::size_t kPrefixSize = 8 + kKeyIdSize;
inline constexpr std::size_t kNodeNameSize = 64;

// A rank's conduct, in its hellos of the agreement: ranks that differ end the job.
inline constexpr std::uint8_t kSealsAll = 1;   // messages inside its node are sealed, too
inline constexpr std::uint8_t kOpenRoads = 2;  // what comes from other nodes may come by other ways than sealed sockets

inline constexpr std::uint8_t kMembers = 0x80;  // beside the conduct: both sides prove which member they are
inline constexpr std::uint8_t kHybrid = 0x40;   // beside the conduct: X25519 and ML-KEM-768

/// An IPv6 or IPv4-mapped address and a port, network byte order.
struct Endpoint {
    std::uint8_t address[16];
    std::uint8_t port[2];
};

/// What each side says of itself inside the handshake, sealed. `local` and `remote` are the connection's ends as this
/// side sees them.
struct Identity {
    std::uint8_t job[32];  // SHA-256 of the job's id
    Endpoint local;
    Endpoint remote;
    char node[kNodeNameSize];  // host name, padded with zeros
    std::uint8_t process[4];   // pid, little endian
};
inline constexpr std::size_t kIdentitySize = 32 + 18 + 18 + 64 + 4;
static_assert(sizeof(Identity) == kIdentitySize);

/// What a member adds to the payload: public key, signature.
inline constexpr std::size_t kProofSize = sizeof(MemberPublicKey) + sizeof(Signature);

enum class Role : std::uint8_t { initiator = 1, responder = 2 };

inline constexpr std::size_t kHelloSize = kPrefixSize + 32 + kIdentitySize + 16;
inline constexpr std::size_t kMemberHelloSize = kHelloSize + kProofSize;

/// What ML-KEM adds to a hello: the encapsulation key in hello 1, the ciphertext in hello 2, each with a tag.
inline constexpr std::size_t kem_part_size(Role sender) {
    const std::size_t sent = sender == Role::initiator ? CRYPTMPI_KEM_PUBLIC_SIZE : CRYPTMPI_KEM_CIPHERTEXT_SIZE;
    return sent + CRYPTMPI_TAG_SIZE;
}
inline constexpr std::size_t kLargestHelloSize = kMemberHelloSize + kem_part_size(Role::initiator);

inline constexpr std::size_t hello_size(Role sender, bool members, bool hybrid) {
    return (members ? kMemberHelloSize : kHelloSize) + (hybrid ? kem_part_size(sender) : 0);
}
/// The bytes of the hello that begins so, by what it says of itself; `beginning` has a prefix at least.
inline std::size_t hello_size(const std::uint8_t* beginning) {
    const Role sender = beginning[5] == static_cast<std::uint8_t>(Role::initiator) ? Role::initiator : Role::responder;
    return hello_size(sender, (beginning[7] & kMembers) != 0, (beginning[7] & kHybrid) != 0);
}

constexpr Role other(Role role) {
    return role == Role::initiator ? Role::responder : Role::initiator;
}

/// What one end brings to a handshake. All connections of a process share one.
struct Local {
    seal::Crypto crypto;                        // the suite both must use
    const cryptmpi_aead* hello_aead = nullptr;  // seals the hellos, with AES-256-GCM whatever the suite is
    const JobKey* job_key = nullptr;            // of what this end begins
    bool check_addresses = true;                // refuse a peer that sees other addresses on this connection than we do
    /// What this end does beyond the protocol that the other must do, too (kSealsAll, kOpenRoads); 0 on a connection.
    std::uint8_t conduct = 0;
    /// What the handshake is for, which both sides must say alike; empty: a connection.
    std::span<const std::uint8_t> context = {};
    std::string_view peer = "the peer";   // what the error lines call the other side
    KeyRing* ring = nullptr;              // whose own key `job_key` is; without it no other is taken from a peer
    const Membership* members = nullptr;  // members are required; null: none is taken
    const cryptmpi_kem* kem = nullptr;    // keys are exchanged by it, too; null: by X25519 alone

    /// Of the hellos that `sender` writes; this end writes one and takes the other.
    std::size_t hello_size(Role sender) const { return keys::hello_size(sender, members != nullptr, kem != nullptr); }
};

/// The Noise symmetric state, and what is still needed; wiped by finish(), abandon() and on error.
struct HandshakeState {
    noise::SymmetricState symmetric;
    std::uint8_t ephemeral_private[32];
    std::uint8_t ephemeral_public[32];
    std::uint8_t key_id[kKeyIdSize];                            // of the job key, once it is known which
    std::uint8_t shared[32];                                    // of the two ephemerals, once the peer's is known
    std::uint8_t kem_private[CRYPTMPI_KEM_SEED_SIZE];           // the initiator's
    std::uint8_t kem_ciphertext[CRYPTMPI_KEM_CIPHERTEXT_SIZE];  // the responder's, until it is sent
    std::uint8_t kem_shared[CRYPTMPI_KEM_SHARED_SIZE];          // what that holds
    Identity self;
    Identity peer;
    char peer_member[kMemberNameSize + 1];  // the name in our list; empty: members are not required
    Role role;
    std::uint8_t step;  // messages done: 0, 1, 2; 3 when finished
};

/// Starts a handshake with a fresh ephemeral key. Error (ENOTSUP): hello_aead has no AES-256-GCM.
Result<void> start(const Local& local, Role role, const Identity& self, HandshakeState& state);

/// The hello that this role sends next (initiator: step 0; responder: step 1), of local.hello_size(role) bytes.
Result<void> write_hello(const Local& local, HandshakeState& state, std::span<std::uint8_t> out);

/// Checks the peer's hello, whose beginning suffices (kHelloSize) where it is not of our size. One line each, naming
/// what to mend: not CryptMPI (on a connection: names plaintext_peers), other version, other cipher suite, a job key
/// that this end has not, altered, all-zero share, own hello reflected, other job, other addresses (names
/// check_addresses), members required on one side alone (names require_members), another key exchange (names
/// key_exchange), an encapsulation key that is none, a member that is not listed, a signature that is not this
/// handshake's. Codes: EPROTO; EKEYREJECTED for a hello that does not open; EACCES for a member that is not
/// taken. The lines name the peer only as `local.peer` does.
Result<void> read_hello(const Local& local, HandshakeState& state, std::span<const std::uint8_t> in);

/// Noise's Split(): the two directions' first secrets, counters at zero. Wipes the handshake's own, leaving `self`,
/// `peer`, `peer_member` and `role`.
Result<void> finish(const Local& local, HandshakeState& state, seal::DirectionState& send,
                    seal::DirectionState& receive);

/// Wipes everything.
void abandon(HandshakeState& state) noexcept;

}  // namespace cryptmpi::keys
