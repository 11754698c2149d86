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

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>

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
    std::uint8_t closed;    // the type of the close or reset record that has been sealed or opened
    std::uint8_t failed;    // a record did not open: nothing opens after it
    std::int64_t began_ns;  // when this epoch's first record was sealed, by KeyAge's clock, where that counts
};

/// Totals since the object was made, for the report.
struct StreamCounters {
    std::uint64_t records = 0;
    std::uint64_t bytes = 0;    // of plaintext
    std::uint64_t padding = 0;  // of these bytes, those that are no data
    std::uint64_t rekeys = 0;
};

struct RecordHeader {
    RecordType type;
    std::uint32_t size;  // of the plaintext
};

/// Nothing where no such record is sealed; parse_header says why.
// HOT PATH
inline std::optional<RecordHeader> read_header(const std::uint8_t header[kHeaderSize]) {
    const std::uint32_t size = header[0] | std::uint32_t{header[1]} << 8 | std::uint32_t{header[2]} << 16;
    const auto type = static_cast<RecordType>(header[3]);
    if (type == RecordType::data) [[likely]] {
        return size <= kMaxPlaintext ? std::optional(RecordHeader{type, size}) : std::nullopt;
    }
    const bool is_padded = type == RecordType::padded && size > kLengthSize && size <= kMaxPlaintext;
    const bool is_control = type >= RecordType::confirm && type <= RecordType::reset && size == 0;
    return is_padded || is_control ? std::optional(RecordHeader{type, size}) : std::nullopt;
}

/// Errors (EBADMSG): unknown type, length over kMaxPlaintext, a control record that carries bytes, a padded one that
/// has no room for data.
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

/// One of several records that are sealed together: `size` bytes, the concatenation of `in`, to size + kRecordOverhead
/// bytes at `out`.
struct ToSeal {
    std::span<const iovec> in;
    std::size_t size;
    std::uint8_t* out;
};

/// One of several data records that are opened together: whole, of kRecordOverhead + `size` bytes.
struct ToOpen {
    const std::uint8_t* record;
    std::size_t size;
    std::span<const iovec> out;
};

class StreamSealer {
public:
    StreamSealer(const Crypto& crypto, DirectionState& state) : StreamSealer(crypto, state, limits_of(crypto)) {}
    /// The rekey record counts among an epoch's records.
    StreamSealer(const Crypto& crypto, DirectionState& state, Limits limits);

    /// Seals `size` bytes (at most kMaxPlaintext), the concatenation of `in`, as one data record at `out`. When the
    /// epoch's limit is reached, or its key is too old, a rekey record goes before it. Returns the bytes written, at
    /// most size + 2 * kRecordOverhead. Errors: EPIPE after the close record; EIO when the module failed, then and ever
    /// after.
    Result<std::size_t> seal(std::span<const iovec> in, std::size_t size, std::uint8_t* out);

    /// The same as a padded record: `size` bytes (not 0) and zeros up to `room` bytes, at most kMaxPlaintext -
    /// kLengthSize. Returns the bytes written, at most room + kLengthSize + 2 * kRecordOverhead.
    Result<std::size_t> seal_padded(std::span<const iovec> in, std::size_t size, std::size_t room, std::uint8_t* out);
    /// Pieces that such a record may be put together from.
    static constexpr std::size_t kMostPaddedPieces = 64;

    /// Seals several data records by several threads: share(count, work) has to call work(i, thread) once for each i
    /// below `count`, on any threads, of which no two have one number at the same time, all below Crypto::threads; it
    /// returns what was done. Returns how many records these were, from the first on: no more than this key may seal,
    /// perhaps none, and then there is no call; seal() goes on from there, and has the errors. Errors: EIO, as seal().
    template <class Share>
    Result<std::size_t> seal_several(std::span<const ToSeal> records, const Share& share);

    /// Seals an empty confirm, close or reset record; at most 2 * kRecordOverhead bytes. A confirm can only be the
    /// first record of its direction. The close and the reset record wipe the direction's secret.
    Result<std::size_t> seal_control(RecordType type, std::uint8_t* out);

    const StreamCounters& counters() const { return counters_; }

private:
    Result<std::size_t> seal_next(RecordType type, std::span<const iovec> in, std::size_t size, std::uint8_t* out);
    Result<void> seal_one(RecordType type, std::span<const iovec> in, std::size_t size, std::uint8_t* out);
    /// Has the key sealed for so long as it may?
    bool is_old() const { return state_->counter != 0 && crypto_.age.is_past(state_->began_ns); }
    void note_beginning() {
        if (state_->counter == 0 && crypto_.age.counts()) state_->began_ns = crypto_.age.now_ns();
    }
    /// Takes the numbers of as many of the records as come next; theirs are the last ones before the state's.
    std::size_t take_numbers(std::span<const ToSeal> records);
    bool seal_as(std::uint64_t counter, void* context, const ToSeal& record) const;
    void note_sealed(std::span<const ToSeal> records);
    tl::unexpected<Error> give_up(Error error);
    tl::unexpected<Error> give_up();

    Crypto crypto_;
    DirectionState* state_;
    Limits limits_;
    EpochKey key_;
    StreamCounters counters_;
};

class StreamOpener {
public:
    StreamOpener(const Crypto& crypto, DirectionState& state) : StreamOpener(crypto, state, limits_of(crypto)) {}
    StreamOpener(const Crypto& crypto, DirectionState& state, Limits limits);

    /// Opens one whole record of kRecordOverhead + header.size bytes at `record` into `out`, whose lengths sum to the
    /// plaintext's. Returns its type. Errors (EBADMSG): the record does not open, a record after the close record, a
    /// key used past its limit. After an error `out` holds zeros and nothing opens any more.
    Result<RecordType> open(const std::uint8_t* record, std::span<const iovec> out);

    /// The same of a padded record, whose plaintext goes to `out`, as long as its header says. Returns how many bytes
    /// at its beginning are data. Errors (EBADMSG), besides: its length cannot be, or its padding is not zeros.
    Result<std::size_t> open_padded(const std::uint8_t* record, std::span<std::uint8_t> out);

    /// Opens several data records by several threads, as StreamSealer::seal_several seals them: perhaps none, and then
    /// open() goes on. After an error the first `opened` of them are there, and of the others there are zeros.
    template <class Share>
    Result<void> open_several(std::span<const ToOpen> records, std::size_t& opened, const Share& share);

    /// A close or reset record has been opened: the end of the stream is authentic.
    bool closed() const { return state_->closed != 0; }
    bool reset() const { return state_->closed == static_cast<std::uint8_t>(RecordType::reset); }
    const StreamCounters& counters() const { return counters_; }

private:
    /// How many of the records may come next under this key.
    std::size_t may_follow(std::span<const ToOpen> records);
    bool open_as(std::uint64_t counter, void* context, const ToOpen& record) const;
    void note_opened(std::size_t size);
    /// What a record that has opened means for its direction, whatever its bytes are.
    Result<void> act_on(RecordType type);
    /// Counts those before the first that failed, and refuses that one and all after it.
    Result<void> settle(std::span<const ToOpen> records, std::size_t opened);
    tl::unexpected<Error> does_not_open(std::span<const iovec> out);
    tl::unexpected<Error> refuse(std::span<const iovec> out, std::string line);

    Crypto crypto_;
    DirectionState* state_;
    Limits limits_;
    EpochKey key_;
    StreamCounters counters_;
};

template <class Share>
Result<std::size_t> StreamSealer::seal_several(std::span<const ToSeal> records, const Share& share) {
    const std::size_t count = take_numbers(records);
    if (count == 0) return count;
    const std::uint64_t first = state_->counter - count;
    std::atomic<bool> good{true};
    {
        BriefContexts contexts(*key_);
        share(count, [&](std::size_t i, std::size_t thread) {
            const ToSeal& record = records[i];
            void* const context = contexts.of(thread);
            if (context == nullptr || !seal_as(first + i, context, record)) {
                good.store(false, std::memory_order_relaxed);
            }
            return record.size;
        });
    }
    if (!good.load(std::memory_order_relaxed)) return give_up();
    note_sealed(records.first(count));
    return count;
}

template <class Share>
Result<void> StreamOpener::open_several(std::span<const ToOpen> records, std::size_t& opened, const Share& share) {
    opened = 0;
    const std::size_t count = may_follow(records);
    if (count == 0) return {};
    const std::uint64_t first = state_->counter;
    std::atomic<std::size_t> bad{count};  // the first
    {
        BriefContexts contexts(*key_);
        share(count, [&](std::size_t i, std::size_t thread) {
            const ToOpen& record = records[i];
            void* const context = contexts.of(thread);
            if (context == nullptr || !open_as(first + i, context, record)) {
                std::size_t before = bad.load(std::memory_order_relaxed);
                while (i < before && !bad.compare_exchange_weak(before, i, std::memory_order_relaxed)) {
                }
            }
            return record.size;
        });
    }
    opened = bad.load(std::memory_order_relaxed);
    return settle(records.first(count), opened);
}

}  // namespace cryptmpi::seal
