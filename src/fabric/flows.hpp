// What a process says through a fabric's door (UCX, libfabric), sealed: who its peers are, and one flow for each of
// them, direction and kind of message. The doors (ucx/, libfabric/) stand over this; it knows neither MPI nor them.
//
// Wire format (docs/protocol.md, The fabric layer): sender's share (32) | header (8) | ciphertext | tag (16).
//   header: little endian; number of the message (bits 0..47), epoch of the key (bits 48..62), 0 (bit 63)
//   nonce:  the epoch's base xor (tag of the envelope, 8 bytes big endian | low half of the number, 4 bytes big endian)
//   associated data: share, header, and what the door binds besides
//
// The share says whose message it is, so that a receiver needs no round of messages, and need never have seen the
// sender's address. Nobody without the job key can make a message that opens under any share.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/endian.hpp"
#include "base/result.hpp"
#include "base/secret.hpp"
#include "base/traffic.hpp"
#include "fabric/posted.hpp"
#include "keys/key_ring.hpp"
#include "seal/constants.hpp"
#include "seal/key_schedule.hpp"

namespace cryptmpi::fabric {

inline constexpr std::size_t kShareSize = 32;
inline constexpr std::size_t kProofSize = 16;
inline constexpr std::size_t kPrefixSize = kShareSize + 8;              // what is before the ciphertext
inline constexpr std::size_t kOverhead = kPrefixSize + seal::kTagSize;  // of every message, whatever it is
inline constexpr std::uint64_t kMostMessages = std::uint64_t{1} << 48;  // of one lane
inline constexpr std::uint32_t kMostEpochs = 1U << 15;                  // of one flow
inline constexpr std::uint64_t kMostEarly = 4096;  // how far a number may be ahead of a missing one

/// An X25519 public key, fresh for each Party: its name towards its peers.
using Share = std::array<std::uint8_t, kShareSize>;

/// What has flows of its own. The order of `tagged` messages is that of their lanes (one sender, one tag) and of the
/// posting of receives; each of the others is counted by its flow, comes once, and is missed when it does not come.
enum class Kind : std::uint8_t { tagged, active, message };
inline constexpr std::size_t kKinds = 3;

/// What the network sees of a message, and what is bound to it.
struct Envelope {
    Kind kind;
    std::uint64_t tag = 0;                     // or the number of an active message's handler
    std::span<const std::uint8_t> bound = {};  // header, immediate data, flags: at most kMostBound bytes
};
inline constexpr std::size_t kMostBound = 256;

/// What all parties of a process have from the job: made once, outlives them.
class Job {
public:
    /// `is_written_by_network`: others than this process may write into what has come, as by a forged packet to a
    /// buffer that a network card may write into. A module may read twice what it opens, and must get the same bytes.
    static Result<Job> join(const seal::Crypto& crypto, const keys::JobKey& job_key, std::string_view job_id,
                            bool is_written_by_network = false);
    /// A peer may have any key of the ring, which outlives this: what it sends opens under its own.
    static Result<Job> join(const seal::Crypto& crypto, keys::KeyRing& ring, std::string_view job_id,
                            bool is_written_by_network = false);

private:
    friend class Party;
    using JobSecret = std::unique_ptr<Secret<seal::kSecretSize>>;
    Result<JobSecret> secret_of(const keys::JobKey& job_key) const;
    /// Those of the other keys that a peer may have.
    Result<std::vector<JobSecret>> others() const;

    seal::Crypto crypto_;
    std::string label_;
    keys::KeyRing* ring_ = nullptr;
    JobSecret secret_;
    bool is_written_by_network_ = false;
};

/// Totals of a party, for the report.
struct Counters {
    std::uint64_t peers = 0;
    struct Direction {
        std::uint64_t messages = 0;
        std::uint64_t bytes = 0;  // of plaintext
    };
    std::array<Direction, kKinds> sent = {}, received = {};
    std::uint64_t rekeys = 0;
};

struct ShareHash {
    std::size_t operator()(const Share& share) const { return load_little(share.data()); }
};

class Peer;  // of one party: who holds a share. Lives as long as the party.
const Share& share_of(const Peer& peer);

/// A local address (a UCX worker, a libfabric endpoint) with a key pair of its own. Used by one thread at a time.
class Party {
public:
    /// Errors (EIO): the crypto module failed.
    static Result<std::unique_ptr<Party>> make(const Job& job);
    Party(const Party&) = delete;
    Party& operator=(const Party&) = delete;
    ~Party();

    /// What its address carries.
    const Share& share() const;
    /// Shows that an address, with the share that it carries, is one of the job's: kProofSize bytes. Where there is
    /// room for them; without it an altered address only leads astray.
    Result<void> prove(std::span<const std::uint8_t> address, const Share& share, std::uint8_t proof[kProofSize]) const;
    Result<bool> proves(std::span<const std::uint8_t> address, const Share& share,
                        const std::uint8_t proof[kProofSize]) const;

    /// Whom to send to. Errors (EPROTO): the share is none.
    Result<Peer*> meet(const Share& share);

    /// Seals the concatenation of `in` (`size` bytes): kOverhead + size bytes at `out`. What is sealed takes its
    /// number: it must be sent, and before anything that is sealed later for this peer. (A door that is told "again"
    /// keeps it for that.) Errors: EOVERFLOW at the end of all keys or numbers; EIO when the module failed; EPERM in a
    /// forked child.
    Result<void> seal(Peer& to, const Envelope& envelope, std::span<const iovec> in, std::size_t size,
                      std::uint8_t* out);

    /// A tagged receive takes its place in the order: in the same order in which the network gets them. It keeps it
    /// until it is opened at, cut off, or withdrawn (Posted::withdraw: cancelled, failed).
    void post(Posted& posted, const Wanted& wanted);

    /// Opens the tagged message of `wire_size` bytes that came to `posted` with `tag` into `out`, whose lengths sum to
    /// wire_size - kOverhead. Gives its sender. Errors (EBADMSG): does not open, or is not the one that is due here, or
    /// not what was wanted here: it was altered, replayed, lost, moved; `out` then holds zeros and the job has to end.
    Result<Peer*> open(Posted& posted, std::uint64_t tag, std::span<const std::uint8_t> bound, const std::uint8_t* wire,
                       std::size_t wire_size, std::span<const iovec> out);
    /// A tagged message was cut off at `posted`, which was too small: nothing of it can be authentic, and whose it was
    /// may not be known.
    Result<void> cut_off(Posted& posted, std::uint64_t tag);
    /// The same where the prefix of the message came, which says whose it was.
    Result<void> cut_off(Posted& posted, std::uint64_t tag, const std::uint8_t* wire, std::size_t wire_size);

    /// Opens a message of another kind.
    Result<Peer*> open(const Envelope& envelope, const std::uint8_t* wire, std::size_t wire_size,
                       std::span<const iovec> out);

    /// At the end, when everything has come: is any message missing that later ones of its flow have overtaken?
    Result<void> expect_none_missing() const;

    Counters counters() const;
    /// From now on what it seals and opens is counted there, too.
    void watch(const TrafficCounter& counter);

private:
    struct State;
    explicit Party(std::unique_ptr<State> state);
    std::unique_ptr<State> state_;
};

}  // namespace cryptmpi::fabric
