// A message of the MPI layer: sealed at one rank, opened at another (or at every other one); whole, or announced and in
// segments (seal/segments.hpp).
//
// Wire format (docs/protocol.md): header (8) | ciphertext (length) | tag (16).
//   header: little endian; number of the message in its lane (bits 0..47), epoch (bits 48..62), form (bit 63)
//   nonce:  the epoch's base xor (lane, 4 bytes big endian | number, 8 bytes big endian); associated data: the header
//
// A flow is one sender's messages to one receiver, or to all of one communicator, of one kind; its secret comes from
// all that both know of it, so a record moved between flows does not open. A lane is what keeps its order inside a flow
// (for point-to-point messages the tag): each counts its own messages, so no two messages share a nonce, and the
// receiver tells from the number whether one was lost, repeated or moved (seal/arrivals.hpp).
//
// Epochs are the leaves of a puncturable secret: the sender has none of those before its own, the receiver only those
// that it may still be asked to open.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>

#include "base/endian.hpp"
#include "base/result.hpp"
#include "base/secret.hpp"
#include "seal/constants.hpp"
#include "seal/key_schedule.hpp"
#include "seal/puncturable.hpp"
#include "seal/segments.hpp"

namespace cryptmpi::seal {

inline constexpr std::size_t kMessageHeaderSize = 8;
inline constexpr std::size_t kMessageOverhead = kMessageHeaderSize + kTagSize;
inline constexpr std::size_t kAnnouncedWire = kMessageOverhead + kAnnouncementSize;
inline constexpr std::uint64_t kMostMessages = std::uint64_t{1} << 48;  // of one lane
inline constexpr std::uint32_t kMostEpochs = 1U << 15;                  // of one flow

enum class Form : std::uint8_t {
    whole = 0,     // the payload is the message
    announced = 1  // the payload says how the message comes
};

struct MessageHeader {
    std::uint64_t number;  // in the lane, from 0
    std::uint32_t epoch;
    Form form;
};

inline constexpr unsigned kEpochShift = 48;
inline constexpr unsigned kFormShift = 63;

/// Not authenticated until the message is opened.
inline MessageHeader parse_message_header(const std::uint8_t header[kMessageHeaderSize]) {
    const std::uint64_t word = load_little(header);
    return {word & (kMostMessages - 1), static_cast<std::uint32_t>(word >> kEpochShift) & (kMostEpochs - 1),
            static_cast<Form>(word >> kFormShift)};
}

/// Is it to be opened as an announcement? A wrong answer, by somebody who changed the header, does not open.
inline bool announces(const std::uint8_t* wire, std::size_t size) {
    return size >= kMessageHeaderSize && parse_message_header(wire).form == Form::announced;
}

/// What counts towards the limits of a key: an empty message as one byte, so that a receiver that has opened as many
/// bytes as a key can have has opened all of its messages.
struct KeyUse {
    std::uint64_t pieces = 0;  // messages, announcements, segments
    std::uint64_t bytes = 0;

    bool has_room(std::uint64_t more_pieces, std::uint64_t size, const Limits& limits) const {
        if (pieces == 0) return true;
        return pieces + more_pieces <= limits.records && bytes <= limits.bytes &&
               std::max<std::uint64_t>(size, 1) <= limits.bytes - bytes;
    }
    /// Nothing more can have come under this key.
    bool is_full(const Limits& limits) const { return pieces >= limits.records || bytes >= limits.bytes; }
    void add(std::uint64_t more_pieces, std::uint64_t size) {
        pieces += more_pieces;
        bytes += std::max<std::uint64_t>(size, 1);
    }
};

/// Totals, for the report.
struct MessageCounters {
    std::uint64_t messages = 0;
    std::uint64_t bytes = 0;  // of plaintext
    std::uint64_t rekeys = 0;
};

/// The sender's end of a flow. Used by one thread at a time.
class MessageSealer {
public:
    MessageSealer(const Crypto& crypto, const std::uint8_t secret[kSecretSize])
        : MessageSealer(crypto, secret, limits_of(crypto)) {}
    MessageSealer(const Crypto& crypto, const std::uint8_t secret[kSecretSize], Limits limits);
    MessageSealer(const MessageSealer&) = delete;
    MessageSealer& operator=(const MessageSealer&) = delete;

    /// Seals the concatenation of `in` (`size` bytes) as message `number` of `lane`, kMessageOverhead + size bytes at
    /// `out`. The caller counts: no lane has one number twice. Errors: EOVERFLOW at the end of all epochs or numbers;
    /// EIO when the module failed.
    Result<void> seal(std::uint32_t lane, std::uint64_t number, std::span<const iovec> in, std::size_t size,
                      std::uint8_t* out);
    /// Seals the announcement of message `number`, kAnnouncedWire bytes at `out`, and gives what seals its segments.
    Result<Segments> announce(std::uint32_t lane, std::uint64_t number, const Announcement& announcement,
                              std::uint8_t* out);

    const MessageCounters& counters() const { return counters_; }

private:
    /// The key for one more message of so many bytes in so many pieces.
    Result<void> make_room(std::uint64_t size, std::uint64_t pieces);
    Result<void> seal_piece(std::uint32_t lane, const MessageHeader& header, std::span<const iovec> in,
                            std::size_t size, std::uint8_t* out);

    Crypto crypto_;
    Puncturable epochs_;  // those to come
    Limits limits_;
    std::shared_ptr<RecordKey> key_;
    std::uint32_t epoch_ = 0;
    KeyUse use_;                 // in this epoch
    std::int64_t began_ns_ = 0;  // this epoch's first message
    MessageCounters counters_;
};

/// Whether messages of a flow are opened in the order in which they were sealed. Where they are, an epoch before the
/// latest one is forgotten; where they need not be, one is kept until nothing more can have come in it.
enum class Opening : std::uint8_t { any_order, in_order };

/// The receiver's end of a flow. Used by one thread at a time.
class MessageOpener {
public:
    MessageOpener(const Crypto& crypto, const std::uint8_t secret[kSecretSize], Opening opening = Opening::any_order)
        : MessageOpener(crypto, secret, opening, limits_of(crypto)) {}
    MessageOpener(const Crypto& crypto, const std::uint8_t secret[kSecretSize], Opening opening, Limits limits);
    MessageOpener(const MessageOpener&) = delete;
    MessageOpener& operator=(const MessageOpener&) = delete;

    /// Opens the message of `wire_size` bytes at `wire` that came in `lane` into `out`, whose lengths sum to its
    /// plaintext's. Errors (EBADMSG): shorter than any message, does not open; `out` then holds zeros.
    Result<MessageHeader> open(std::uint32_t lane, const std::uint8_t* wire, std::size_t wire_size,
                               std::span<const iovec> out);
    /// The same for a message of the form `announced`: gives what opens its segments.
    Result<Segments> open_announcement(std::uint32_t lane, const std::uint8_t* wire, std::size_t wire_size);
    /// How long the user's message is that these bytes announce, or whole are, and that is yet to be opened: nothing
    /// counts, and nothing advances.
    Result<std::uint64_t> peek(std::uint32_t lane, const std::uint8_t wire[kAnnouncedWire]);

    const MessageCounters& counters() const { return counters_; }

private:
    Result<Announcement> read(const RecordKey& key, std::uint32_t lane, const MessageHeader& header,
                              const std::uint8_t wire[kAnnouncedWire]);
    /// An epoch of which a message has opened.
    struct Opened {
        std::unique_ptr<Secret<kSecretSize>> secret;  // null where nothing more can come
        KeyUse use;
    };
    /// One whose key is at hand, perhaps only because somebody claims it.
    struct Epoch {
        std::shared_ptr<RecordKey> key;
        std::uint32_t number = 0;
        Opened* opened = nullptr;
    };
    Result<Epoch*> epoch(std::uint32_t number);
    Result<Epoch> derive(std::uint32_t number);
    /// A message of so many pieces and bytes has opened. Only now anything advances.
    Result<void> note(Epoch& epoch, std::uint64_t pieces, std::uint64_t size);
    Result<void> begin(Epoch& epoch);
    Result<void> open_piece(const RecordKey& key, std::uint32_t lane, const MessageHeader& header,
                            const std::uint8_t* wire, std::size_t wire_size, std::span<const iovec> out);

    Crypto crypto_;
    Opening opening_;
    Limits limits_;
    Puncturable tree_;  // epochs of which no message has opened
    std::map<std::uint32_t, Opened> opened_;
    std::array<Epoch, 2> epochs_;  // the latest used first: messages of neighbouring epochs can come in any order
    MessageCounters counters_;
};

}  // namespace cryptmpi::seal
