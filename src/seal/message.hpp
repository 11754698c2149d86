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
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "base/endian.hpp"
#include "base/result.hpp"
#include "base/secret.hpp"
#include "seal/constants.hpp"
#include "seal/key_schedule.hpp"
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
        : MessageSealer(crypto, secret, limits_of(crypto.suite)) {}
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
    std::unique_ptr<Secret<kSecretSize>> secret_ = std::make_unique<Secret<kSecretSize>>();
    Limits limits_;
    std::shared_ptr<RecordKey> key_;
    std::uint32_t epoch_ = 0;
    std::uint64_t pieces_ = 0;  // in this epoch
    std::uint64_t bytes_ = 0;
    MessageCounters counters_;
};

/// The receiver's end of a flow. Used by one thread at a time.
class MessageOpener {
public:
    MessageOpener(const Crypto& crypto, const std::uint8_t secret[kSecretSize]);
    MessageOpener(const MessageOpener&) = delete;
    MessageOpener& operator=(const MessageOpener&) = delete;

    /// Opens the message of `wire_size` bytes at `wire` that came in `lane` into `out`, whose lengths sum to its
    /// plaintext's. Errors (EBADMSG): shorter than any message, does not open; `out` then holds zeros.
    Result<MessageHeader> open(std::uint32_t lane, const std::uint8_t* wire, std::size_t wire_size,
                               std::span<const iovec> out);
    /// The same for a message of the form `announced`: gives what opens its segments.
    Result<Segments> open_announcement(std::uint32_t lane, const std::uint8_t* wire, std::size_t wire_size);

    const MessageCounters& counters() const { return counters_; }

private:
    struct Epoch {
        std::shared_ptr<RecordKey> key;
        std::uint32_t number = 0;
    };
    Result<std::shared_ptr<RecordKey>*> key_of(std::uint32_t epoch);
    Result<void> open_piece(const RecordKey& key, std::uint32_t lane, const MessageHeader& header,
                            const std::uint8_t* wire, std::size_t wire_size, std::span<const iovec> out);

    Crypto crypto_;
    std::unique_ptr<Secret<kSecretSize>> secret_ = std::make_unique<Secret<kSecretSize>>();
    std::array<Epoch, 2> epochs_;  // the latest used first: messages of neighbouring epochs can come in any order
    MessageCounters counters_;
};

}  // namespace cryptmpi::seal
