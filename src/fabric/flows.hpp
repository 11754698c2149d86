// What a process says through a fabric's door (UCX, libfabric), sealed: who its peers are, and one flow for each of
// them, direction and kind of message. The doors (ucx/, libfabric/) stand over this; it knows neither MPI nor them.
//
// Wire format (docs/protocol.md, The fabric layer): sender's share (32) | header (8) | ciphertext | tag (16).
//   header: little endian; number of the message (bits 0..47), epoch of the key (bits 48..62), 0 (bit 63)
//   nonce:  the epoch's base xor (tag of the envelope, 8 bytes big endian | low half of the number, 4 bytes big endian)
//   associated data: share, header, and what the door binds besides
//
// A long tagged message goes in segments, so that the first travel while others are sealed, and are opened while others
// travel: share (32) | header (8), bit 63 one | number among long messages (8) | for each segment: ciphertext | tag
// (16).
//   nonce:  the base of an epoch of long messages xor (segment's number, 4 bytes big endian, highest bit: it is the
//   last
//           one | number among long messages, 8 bytes big endian)
//   associated data: share, header, number; of the last segment, too, the tag of the envelope, 8 bytes little endian
//
// The share says whose message it is, so that a receiver needs no round of messages, and need never have seen the
// sender's address. Nobody without the job key can make a message that opens under any share.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/endian.hpp"
#include "base/result.hpp"
#include "base/secret.hpp"
#include "base/traffic.hpp"
#include "engine/workers.hpp"
#include "fabric/posted.hpp"
#include "keys/key_ring.hpp"
#include "seal/constants.hpp"
#include "seal/key_schedule.hpp"

namespace cryptmpi::fabric {

inline constexpr std::size_t kShareSize = 32;
inline constexpr std::size_t kProofSize = 16;
inline constexpr std::size_t kPrefixSize = kShareSize + 8;              // what is before the ciphertext
inline constexpr std::size_t kOverhead = kPrefixSize + seal::kTagSize;  // of every message, whatever it is
inline constexpr std::size_t kLongestWhole = std::size_t{64} << 10;     // a longer message may go in segments
inline constexpr std::size_t kSegment = std::size_t{16} << 10;          // of plaintext, all but the last one
inline constexpr std::size_t kLongPrefixSize = kPrefixSize + 8;         // of a message in segments
inline constexpr std::uint64_t kMostMessages = std::uint64_t{1} << 48;  // of one lane
inline constexpr std::uint32_t kMostEpochs = 1U << 15;                  // of one flow
inline constexpr std::uint64_t kMostEarly = 4096;  // how far a number may be ahead of a missing one

/// How many segments a message of `size` bytes goes in.
constexpr std::size_t segments_in(std::size_t size) {
    return (size + kSegment - 1) / kSegment;
}
/// How long a message of `size` bytes is on the wire where long ones go in segments. No two sizes give the same.
constexpr std::size_t wire_size_of(std::size_t size) {
    if (size <= kLongestWhole) return size + kOverhead;
    return kLongPrefixSize + size + segments_in(size) * seal::kTagSize;
}
/// Has one of that size on the wire gone in segments?
constexpr bool is_long(std::size_t wire_size) {
    return wire_size > kLongestWhole + kOverhead;
}
/// The size of such a message. Nothing: none has that size on the wire.
constexpr std::optional<std::size_t> size_of(std::size_t wire_size) {
    if (wire_size < kOverhead) return std::nullopt;
    if (!is_long(wire_size)) return wire_size - kOverhead;
    const std::size_t segments =
        (wire_size - kLongPrefixSize + kSegment + seal::kTagSize - 1) / (kSegment + seal::kTagSize);
    const std::size_t size = wire_size - kLongPrefixSize - segments * seal::kTagSize;
    return wire_size_of(size) == wire_size ? std::optional(size) : std::nullopt;
}

/// An X25519 public key, fresh for each Party: its name towards its peers.
using Share = std::array<std::uint8_t, kShareSize>;

/// What has flows of its own. The order of `tagged` messages is that of their lanes (one sender, one tag) and of the
/// posting of receives; each of the others is counted by its flow, comes once, and is missed when it does not come.
/// `segments` has the keys of tagged messages that go in segments; their order is that of all tagged ones.
enum class Kind : std::uint8_t { tagged, active, message, segments };
inline constexpr std::size_t kKinds = 4;

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
    /// `is_written_by_network`: others than this process may write into what has come, or is about to go, as by a
    /// forged packet to a buffer that a network card may write into. A module may read twice what it opens, and may
    /// read back what it has sealed, to authenticate it: it must get the same bytes.
    static Result<Job> join(const seal::Crypto& crypto, const keys::JobKey& job_key, std::string_view job_id,
                            bool is_written_by_network = false);
    /// A peer may have any key of the ring, which outlives this: what it sends opens under its own.
    static Result<Job> join(const seal::Crypto& crypto, keys::KeyRing& ring, std::string_view job_id,
                            bool is_written_by_network = false);
    /// The threads that seal and open the segments of a message together, of Crypto's number. They outlive this.
    void share_work(engine::Workers& workers) { workers_ = &workers; }

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
    engine::Workers* workers_ = nullptr;
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
/// Has anything of it opened?
bool has_spoken(const Peer& peer);

/// A long message that is being sealed: its first segments, while the program has to leave all of its bytes as they
/// are. No segment is ever sealed twice.
class LongSend {
public:
    /// Its prefix, and the segments that are sealed.
    std::size_t ready() const { return ready_; }

private:
    friend class Party;
    Peer* to_ = nullptr;
    std::uint64_t tag_ = 0;
    std::uint64_t number_ = 0;
    std::uint32_t epoch_ = 0;
    std::size_t size_ = 0;
    std::uint32_t segments_ = 0;  // that are sealed
    std::size_t ready_ = 0;
    std::unique_ptr<seal::RecordKey> key_;  // once its flow has come to a later epoch
};

/// A long message that is being opened: its first segments.
class LongReceive {
private:
    friend class Party;
    std::uint32_t segments_ = 0;                             // that have opened
    std::array<std::uint8_t, kLongPrefixSize> prefix_ = {};  // under which they did: all others must, too
};

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
    /// The same where the prefix of the message came. Whose it was that says, if it is a peer's whom we know: nobody
    /// becomes one by what has not opened.
    Result<void> cut_off(Posted& posted, std::uint64_t tag, const std::uint8_t* wire, std::size_t wire_size);
    /// A message of Kind::message was cut off: its flow does not miss it.
    Result<void> cut_off(const std::uint8_t* wire, std::size_t wire_size);

    /// A tagged message of more than kLongestWhole bytes takes its numbers, as by `seal`. Its prefix goes to `wire`,
    /// which has room for wire_size_of(size) bytes, and all of its segments later.
    Result<LongSend> begin_long(Peer& to, std::uint64_t tag, std::size_t size, std::uint8_t* wire);
    /// Seals as many more segments as make at least the first `end` bytes of the wire, or more where several threads
    /// share the work. `in`: all of the message.
    Result<void> seal_long(LongSend& message, std::size_t end, std::span<const iovec> in, std::uint8_t* wire);

    /// Opens the segments that have come whole, and that others follow, where they are enough for all threads, of a
    /// message of which the first `come` bytes are in `wire`, which nobody else writes. `out`: room for all of the
    /// message, or more. What opens is authentic, but not yet that it belongs here. Errors as of `open`.
    Result<void> open_long(LongReceive& message, const std::uint8_t* wire, std::size_t come,
                           std::span<const iovec> out);
    /// Opens the rest: all of the message has come to `posted`. As `open`.
    Result<Peer*> end_long(LongReceive& message, Posted& posted, std::uint64_t tag, const std::uint8_t* wire,
                           std::size_t wire_size, std::span<const iovec> out);

    /// Opens a message of another kind.
    Result<Peer*> open(const Envelope& envelope, const std::uint8_t* wire, std::size_t wire_size,
                       std::span<const iovec> out);
    /// Which message of its flow that one was, from 0.
    std::uint64_t last_number() const;

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
