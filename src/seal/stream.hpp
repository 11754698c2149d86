// A stream of records, one direction: sealed in order at one end, opened in order at the other.
//
// Wire format of a record (docs/protocol.md): header (4) | ciphertext (length) | tag (16).
//   header: little endian, length of the plaintext in the low 24 bits, RecordType in the high 8 bits
//   nonce:  the epoch's base xor the record's counter; associated data: the header
// The counter is never sent: a record that was dropped, repeated, moved or reflected does not open.
//
// Tests lower the limits of a key.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <span>

#include "base/result.hpp"
#include "seal/constants.hpp"
#include "seal/key_schedule.hpp"

namespace cryptmpi::seal {

/// Where a direction stands. Plain bytes without pointers: processes that share a socket (fork, exec) share it in
/// memory, so that a counter can never be used twice. Whoever uses it holds the direction's lock.
struct DirectionState {
    std::uint8_t secret[kSecretSize];
    std::uint64_t counter;  // of the next record, in this epoch
    std::uint64_t bytes;    // of plaintext, in this epoch
    std::uint32_t epoch;
    std::uint8_t closed;  // the type of the close or reset record that has been sealed or opened
    std::uint8_t failed;  // a record did not open: nothing opens after it
};

/// Totals since the object was made, for the report.
struct StreamCounters {
    std::uint64_t records = 0;
    std::uint64_t bytes = 0;  // of plaintext
    std::uint64_t rekeys = 0;
};

struct RecordHeader {
    RecordType type;
    std::uint32_t size;  // of the plaintext
};

/// Errors (EBADMSG): unknown type, length over kMaxPlaintext, a control record that carries bytes.
Result<RecordHeader> parse_header(const std::uint8_t header[kHeaderSize]);

/// This process's cipher for the direction's current epoch.
class EpochKey {
public:
    /// Derives anew when the epoch moved, perhaps by another process; else one compare.
    Result<void> refresh(const Crypto& crypto, const DirectionState& state) {
        if (epoch_ == state.epoch) [[likely]] {
            return {};
        }
        return derive(crypto, state);
    }
    const RecordKey& operator*() const { return key_; }
    void forget();

private:
    static constexpr std::uint64_t kNone = ~std::uint64_t{0};  // no epoch has this number

    Result<void> derive(const Crypto& crypto, const DirectionState& state);

    RecordKey key_;
    std::uint64_t epoch_ = kNone;
};

class StreamSealer {
public:
    StreamSealer(const Crypto& crypto, DirectionState& state) : StreamSealer(crypto, state, limits_of(crypto.suite)) {}
    /// The rekey record counts among an epoch's records.
    StreamSealer(const Crypto& crypto, DirectionState& state, Limits limits);

    /// Seals `size` bytes (at most kMaxPlaintext), the concatenation of `in`, as one data record at `out`. When the
    /// epoch's limit is reached a rekey record goes before it. Returns the bytes written, at most size + 2 *
    /// kRecordOverhead. Errors: EPIPE after the close record; EIO when the module failed, then and ever after.
    Result<std::size_t> seal(std::span<const iovec> in, std::size_t size, std::uint8_t* out);

    /// Seals an empty confirm, close or reset record; at most 2 * kRecordOverhead bytes. A confirm can only be the
    /// first record of its direction. The close and the reset record wipe the direction's secret.
    Result<std::size_t> seal_control(RecordType type, std::uint8_t* out);

    const StreamCounters& counters() const { return counters_; }

private:
    Result<std::size_t> seal_next(RecordType type, std::span<const iovec> in, std::size_t size, std::uint8_t* out);
    Result<void> seal_one(RecordType type, std::span<const iovec> in, std::size_t size, std::uint8_t* out);
    tl::unexpected<Error> give_up(Error error);

    Crypto crypto_;
    DirectionState* state_;
    Limits limits_;
    EpochKey key_;
    StreamCounters counters_;
};

class StreamOpener {
public:
    StreamOpener(const Crypto& crypto, DirectionState& state) : StreamOpener(crypto, state, limits_of(crypto.suite)) {}
    StreamOpener(const Crypto& crypto, DirectionState& state, Limits limits);

    /// Opens one whole record of kRecordOverhead + header.size bytes at `record` into `out`, whose lengths sum to the
    /// plaintext's. Returns its type. Errors (EBADMSG): the record does not open, a record after the close record, a
    /// key used past its limit. After an error `out` holds zeros and nothing opens any more.
    Result<RecordType> open(const std::uint8_t* record, std::span<const iovec> out);

    /// A close or reset record has been opened: the end of the stream is authentic.
    bool closed() const { return state_->closed != 0; }
    bool reset() const { return state_->closed == static_cast<std::uint8_t>(RecordType::reset); }
    const StreamCounters& counters() const { return counters_; }

private:
    tl::unexpected<Error> refuse(std::span<const iovec> out, std::string line);

    Crypto crypto_;
    DirectionState* state_;
    Limits limits_;
    EpochKey key_;
    StreamCounters counters_;
};

}  // namespace cryptmpi::seal
