#include "seal/stream.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <string>
#include <utility>

#include "base/endian.hpp"
#include "base/pieces.hpp"
#include "seal/nonce_ledger.hpp"

namespace cryptmpi::seal {
namespace {

void write_header(RecordType type, std::size_t size, std::uint8_t out[kHeaderSize]) {
    out[0] = static_cast<std::uint8_t>(size);
    out[1] = static_cast<std::uint8_t>(size >> 8);
    out[2] = static_cast<std::uint8_t>(size >> 16);
    out[3] = static_cast<std::uint8_t>(type);
}

/// Whether one more record has its place under this epoch's key. Only the rekey record may take the last place.
bool fits(const DirectionState& state, const Limits& limits, RecordType type, std::size_t size) {
    const std::uint64_t places = type == RecordType::rekey ? 1 : 2;
    return state.counter + places <= limits.records && state.bytes + size <= limits.bytes;
}

bool ends_direction(RecordType type) {
    return type == RecordType::close || type == RecordType::reset;
}

// protocol: R1
/// One record, under that number.
// HOT PATH
[[gnu::always_inline]] inline bool seal_record(const cryptmpi_aead& aead, const RecordKey& key, void* context,
                                               std::uint64_t counter, RecordType type, std::span<const iovec> in,
                                               std::size_t size, std::uint8_t* out) {
    std::uint8_t nonce[kNonceRoom];
    key.nonce(counter, nonce);
    write_header(type, size, out);
    std::uint8_t* const body = out + kHeaderSize;
    return aead.seal(context, nonce, out, kHeaderSize, in.data(), in.size(), body, body + size) == CRYPTMPI_OK;
}

// protocol: R1
/// The same, back. False: `out` holds zeros.
// HOT PATH
[[gnu::always_inline]] inline bool open_record(const cryptmpi_aead& aead, const RecordKey& key, void* context,
                                               std::uint64_t counter, const std::uint8_t* record, std::size_t size,
                                               std::span<const iovec> out) {
    std::uint8_t nonce[kNonceRoom];
    key.nonce(counter, nonce);
    const std::uint8_t* const body = record + kHeaderSize;
    return aead.open(context, nonce, record, kHeaderSize, body, size, out.data(), out.size(), body + size) ==
           CRYPTMPI_OK;
}

// protocol: R17, R18
/// How many bytes of an opened padded record are data; nothing where it is not as a sender makes it.
std::optional<std::size_t> data_in(std::span<const std::uint8_t> plain) {
    const std::size_t room = plain.size() - kLengthSize;
    const std::size_t size = load_little_32(plain.data() + room);
    if (size == 0 || size > room) return std::nullopt;
    const auto padding = plain.subspan(size, room - size);
    const bool zeros = std::all_of(padding.begin(), padding.end(), [](std::uint8_t byte) { return byte == 0; });
    return zeros ? std::optional(size) : std::nullopt;
}

bool is_first(const DirectionState& state) {
    return state.counter == 0 && state.epoch == 0;
}

// protocol: R4
/// The order matters if this process is killed on the way: the counter may go back to zero only when the old secret is
/// gone and no process takes its cached key for the current one.
Result<void> next_epoch(const cryptmpi_kex& kex, DirectionState& state) {
    if (auto done = ratchet(kex, state.secret); !done) {
        return done;
    }
    std::atomic_signal_fence(std::memory_order_seq_cst);
    ++state.epoch;
    std::atomic_signal_fence(std::memory_order_seq_cst);
    state.counter = 0;
    state.bytes = 0;
    return {};
}

}  // namespace

// protocol: R10, V1
Result<RecordHeader> parse_header(const std::uint8_t header[kHeaderSize]) {
    if (const auto good = read_header(header)) return *good;
    switch (static_cast<RecordType>(header[3])) {
        case RecordType::data:
            return fail(EBADMSG, fmt::format("a record's header says {} bytes, more than a record holds",
                                             header[0] | header[1] << 8 | header[2] << 16));
        case RecordType::padded:
            return fail(
                EBADMSG,
                fmt::format("a padded record's header says {} bytes: no room for data, or more than a record holds",
                            header[0] | header[1] << 8 | header[2] << 16));
        case RecordType::confirm:
        case RecordType::rekey:
        case RecordType::close:
        case RecordType::reset:
            return fail(EBADMSG, "a control record's header says that it carries bytes");
    }
    return fail(EBADMSG, fmt::format("a record's header has the unknown type {}", header[3]));
}

Result<void> EpochKey::derive(const Crypto& crypto, const DirectionState& state) {
    auto key = RecordKey::derive(crypto, state.secret);
    if (!key) {
        return tl::unexpected(std::move(key.error()));
    }
    key_ = std::move(*key);
    epoch_ = state.epoch;
    return {};
}

void EpochKey::forget() {
    key_ = RecordKey();
    epoch_ = kNone;
}

StreamSealer::StreamSealer(const Crypto& crypto, DirectionState& state, Limits limits)
    : crypto_(crypto), state_(&state), limits_(limits) {}

Result<std::size_t> StreamSealer::seal(std::span<const iovec> in, std::size_t size, std::uint8_t* out) {
    if (size > kMaxPlaintext || total(in) != size) [[unlikely]] {
        return fail(EINVAL,
                    fmt::format("seal: a record of {} bytes was asked for, from pieces of {}; a record holds {}", size,
                                total(in), kMaxPlaintext));
    }
    return seal_next(RecordType::data, in, size, out);
}

// protocol: R17
Result<std::size_t> StreamSealer::seal_padded(std::span<const iovec> in, std::size_t size, std::size_t room,
                                              std::uint8_t* out) {
    // Never written to; modules take what they seal as iovec does.
    static std::uint8_t zeros[kMaxPlaintext];
    const bool possible = size > 0 && size <= room && room <= kMaxPlaintext - kLengthSize && total(in) == size &&
                          in.size() <= kMostPaddedPieces;
    if (!possible) {
        return fail(EINVAL, fmt::format("seal: a padded record of {} bytes of data in {} cannot be", size, room));
    }
    std::uint8_t length[kLengthSize];
    store_little_32(static_cast<std::uint32_t>(size), length);
    std::array<iovec, kMostPaddedPieces + 2> pieces{};
    auto end = std::copy(in.begin(), in.end(), pieces.begin());
    if (room > size) *end++ = {zeros, room - size};
    *end++ = {length, kLengthSize};
    const auto count = static_cast<std::size_t>(end - pieces.begin());
    auto written = seal_next(RecordType::padded, {pieces.data(), count}, room + kLengthSize, out);
    if (written) counters_.padding += room + kLengthSize - size;
    return written;
}

Result<std::size_t> StreamSealer::seal_control(RecordType type, std::uint8_t* out) {
    const bool allowed = ends_direction(type) || (type == RecordType::confirm && is_first(*state_));
    if (!allowed) {
        return fail(EINVAL, "seal: no such control record here");
    }
    auto written = seal_next(type, {}, 0, out);
    if (written && ends_direction(type)) {
        state_->closed = static_cast<std::uint8_t>(type);
        wipe(state_->secret, kSecretSize);
        key_.forget();
    }
    return written;
}

Result<std::size_t> StreamSealer::seal_next(RecordType type, std::span<const iovec> in, std::size_t size,
                                            std::uint8_t* out) {
    // protocol: R7
    if (state_->closed != 0) [[unlikely]] {
        return fail(EPIPE, "seal: this direction has been closed");
    }
    if (state_->failed != 0) [[unlikely]] {
        return fail(EIO, "seal: this direction failed earlier");
    }
    std::size_t before = 0;
    // protocol: R5
    if (!fits(*state_, limits_, type, size) || is_old()) [[unlikely]] {
        if (limits_.records < 2 || limits_.bytes < size) {
            return fail(EINVAL, fmt::format("seal: the limits leave no room for a record of {} bytes", size));
        }
        if (auto done = seal_one(RecordType::rekey, {}, 0, out); !done) {
            return tl::unexpected(std::move(done.error()));
        }
        key_.forget();
        if (auto done = next_epoch(*crypto_.kex, *state_); !done) {
            return give_up(std::move(done.error()));
        }
        ++counters_.rekeys;
        crypto_.watched.rekey();
        before = kRecordOverhead;
    }
    if (auto done = seal_one(type, in, size, out + before); !done) [[unlikely]] {
        return tl::unexpected(std::move(done.error()));
    }
    return before + kRecordOverhead + size;
}

Result<void> StreamSealer::seal_one(RecordType type, std::span<const iovec> in, std::size_t size, std::uint8_t* out) {
    if (auto done = key_.refresh(crypto_, *state_); !done) [[unlikely]] {
        return give_up(std::move(done.error()));
    }
    note_beginning();
    // protocol: S2
    // Taken before it is used: whatever happens to this process now, nobody seals with it again.
    const std::uint64_t counter = state_->counter++;
    state_->bytes += size;
    note_nonce(*key_, 0, counter);
    if (!seal_record(*crypto_.aead, *key_, (*key_).context(), counter, type, in, size, out)) [[unlikely]] {
        return give_up();
    }
    ++counters_.records;
    counters_.bytes += size;
    crypto_.watched.sealed(1, size);
    return {};
}

bool StreamSealer::seal_as(std::uint64_t counter, void* context, const ToSeal& record) const {
    return seal_record(*crypto_.aead, *key_, context, counter, RecordType::data, record.in, record.size, record.out);
}

std::size_t StreamSealer::take_numbers(std::span<const ToSeal> records) {
    if (state_->closed != 0 || state_->failed != 0 || is_old() || !key_.refresh(crypto_, *state_)) return 0;
    note_beginning();
    std::size_t count = 0;
    for (const ToSeal& record : records) {
        const bool good = record.size <= kMaxPlaintext && total(record.in) == record.size;
        if (!good || !fits(*state_, limits_, RecordType::data, record.size)) break;
        // As in seal_one: whatever happens now, nobody seals with it again.
        note_nonce(*key_, 0, state_->counter);
        ++state_->counter;
        state_->bytes += record.size;
        ++count;
    }
    return count;
}

void StreamSealer::note_sealed(std::span<const ToSeal> records) {
    std::size_t bytes = 0;
    for (const ToSeal& record : records) bytes += record.size;
    counters_.records += records.size();
    counters_.bytes += bytes;
    crypto_.watched.sealed(records.size(), bytes);
}

tl::unexpected<Error> StreamSealer::give_up() {
    return give_up({"seal: the crypto module failed to encrypt a record", EIO});
}

tl::unexpected<Error> StreamSealer::give_up(Error error) {
    state_->failed = 1;
    wipe(state_->secret, kSecretSize);
    key_.forget();
    return tl::unexpected(std::move(error));
}

StreamOpener::StreamOpener(const Crypto& crypto, DirectionState& state, Limits limits)
    : crypto_(crypto), state_(&state), limits_(limits) {}

Result<RecordType> StreamOpener::open(const std::uint8_t* record, std::span<const iovec> out) {
    if (state_->failed != 0) [[unlikely]] {
        return refuse(out, "a record after one that did not open");
    }
    // protocol: R12
    if (state_->closed != 0) [[unlikely]] {
        return refuse(out, "a record after the close record");
    }
    const auto header = read_header(record);
    if (!header) [[unlikely]] {
        return refuse(out, std::move(parse_header(record).error().line));
    }
    const auto [type, size] = *header;
    if (total(out) != size) [[unlikely]] {
        return refuse(out, fmt::format("a record of {} bytes was to be opened into room for {}", size, total(out)));
    }
    // protocol: R6, R13
    if (!fits(*state_, limits_, type, size)) [[unlikely]] {
        return refuse(out, "a record past the limit of its key: the peer should have changed keys");
    }
    // protocol: R14
    if (type == RecordType::confirm && !is_first(*state_)) [[unlikely]] {
        return refuse(out, "a confirm record that is not the first record");
    }
    if (auto done = key_.refresh(crypto_, *state_); !done) [[unlikely]] {
        return refuse(out, std::move(done.error().line));
    }

    // protocol: R11
    if (!open_record(*crypto_.aead, *key_, (*key_).context(), state_->counter, record, size, out)) [[unlikely]] {
        return does_not_open(out);
    }
    note_opened(size);
    if (type == RecordType::data) [[likely]] {
        return type;
    }
    if (auto done = act_on(type); !done) return refuse(out, std::move(done.error().line));
    return type;
}

Result<void> StreamOpener::act_on(RecordType type) {
    if (type == RecordType::rekey) {
        key_.forget();
        if (auto done = next_epoch(*crypto_.kex, *state_); !done) return done;
        ++counters_.rekeys;
        crypto_.watched.rekey();
    } else if (ends_direction(type)) {
        state_->closed = static_cast<std::uint8_t>(type);
        wipe(state_->secret, kSecretSize);
        key_.forget();
    }
    return {};
}

Result<std::size_t> StreamOpener::open_padded(const std::uint8_t* record, std::span<std::uint8_t> out) {
    const iovec whole{out.data(), out.size()};
    const auto type = open(record, {&whole, 1});
    if (!type) return tl::unexpected<Error>(type.error());
    const auto size = *type == RecordType::padded ? data_in(out) : std::nullopt;
    if (!size) return refuse({&whole, 1}, "a padded record is not as a sender makes it: its length, or its padding");
    counters_.padding += out.size() - *size;
    return *size;
}

bool StreamOpener::open_as(std::uint64_t counter, void* context, const ToOpen& record) const {
    return open_record(*crypto_.aead, *key_, context, counter, record.record, record.size, record.out);
}

void StreamOpener::note_opened(std::size_t size) {
    ++state_->counter;
    state_->bytes += size;
    ++counters_.records;
    counters_.bytes += size;
    crypto_.watched.opened(1, size);
}

std::size_t StreamOpener::may_follow(std::span<const ToOpen> records) {
    if (state_->closed != 0 || state_->failed != 0 || !key_.refresh(crypto_, *state_)) return 0;
    DirectionState ahead{};
    ahead.counter = state_->counter;
    ahead.bytes = state_->bytes;
    std::size_t number = 0;
    for (const ToOpen& record : records) {
        const auto header = read_header(record.record);
        const bool good = header && header->type == RecordType::data && header->size == record.size &&
                          total(record.out) == record.size;
        if (!good || !fits(ahead, limits_, RecordType::data, record.size)) break;
        ++ahead.counter;
        ahead.bytes += record.size;
        ++number;
    }
    return number;
}

Result<void> StreamOpener::settle(std::span<const ToOpen> records, std::size_t opened) {
    for (const ToOpen& record : records.first(opened)) note_opened(record.size);
    if (opened == records.size()) return {};
    for (const ToOpen& record : records.subspan(opened + 1)) wipe_pieces(record.out);
    return does_not_open(records[opened].out);
}

tl::unexpected<Error> StreamOpener::does_not_open(std::span<const iovec> out) {
    return refuse(out,
                  fmt::format("record {} of epoch {} does not open: altered, dropped, repeated or moved on the way",
                              state_->counter, state_->epoch));
}

// protocol: R15
tl::unexpected<Error> StreamOpener::refuse(std::span<const iovec> out, std::string line) {
    wipe_pieces(out);
    state_->failed = 1;
    wipe(state_->secret, kSecretSize);
    key_.forget();
    return fail(EBADMSG, std::move(line));
}

}  // namespace cryptmpi::seal
