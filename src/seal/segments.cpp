#include "seal/segments.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "base/pieces.hpp"
#include "seal/nonce_ledger.hpp"
#include "seal/own_process.hpp"

namespace cryptmpi::seal {
namespace {

constexpr unsigned kPositionShift = 48;

template <class Number>
void put(Number value, std::uint8_t* out) {
    for (std::size_t i = 0; i < sizeof value; ++i) out[i] = static_cast<std::uint8_t>(value >> (8 * i));
}

template <class Number>
Number get(const std::uint8_t* in) {
    Number value = 0;
    for (std::size_t i = 0; i < sizeof value; ++i) value |= static_cast<Number>(Number{in[i]} << (8 * i));
    return value;
}

std::uint64_t segments_of(const Announcement& announcement) {
    if (announcement.length <= announcement.first) return 1;
    const std::uint64_t rest = announcement.length - announcement.first;
    return 1 + rest / announcement.segment + (rest % announcement.segment != 0 ? 1 : 0);
}

}  // namespace

void write_announcement(const Announcement& announcement, std::uint8_t out[kAnnouncementSize]) {
    put(announcement.length, out);
    put(announcement.first, out + 8);
    put(announcement.segment, out + 12);
    put(announcement.mark, out + 16);
    out[20] = announcement.synchronous ? 1 : 0;
}

// protocol: M18
Result<Announcement> read_announcement(const std::uint8_t in[kAnnouncementSize]) {
    const Announcement announcement{get<std::uint64_t>(in), get<std::uint32_t>(in + 8), get<std::uint32_t>(in + 12),
                                    get<std::uint32_t>(in + 16), in[20] == 1};
    if (announcement.length == 0 || announcement.first == 0 || announcement.segment == 0 ||
        segments_of(announcement) > kMostSegments || in[20] > 1) {
        return fail(EBADMSG, "announces a message that cannot be");
    }
    return announcement;
}

Segments::Segments(const cryptmpi_aead& aead, std::shared_ptr<const RecordKey> key, std::uint32_t lane,
                   std::uint64_t number, const std::uint8_t header[8], const Announcement& announcement)
    : aead_(&aead),
      key_(std::move(key)),
      lane_(lane),
      number_(number),
      announcement_(announcement),
      count_(static_cast<std::uint32_t>(segments_of(announcement))) {
    std::memcpy(header_, header, sizeof header_);
}

std::size_t Segments::size(std::uint32_t position) const {
    const std::uint64_t before = offset(position);
    const std::uint64_t left = announcement_.length - before;
    const std::uint64_t most = position == 0 ? announcement_.first : announcement_.segment;
    return static_cast<std::size_t>(std::min(left, most));
}

// protocol: M19
void Segments::associate(std::uint32_t position, std::uint8_t out[kAssociatedSize]) const {
    std::memcpy(out, header_, sizeof header_);
    put(announcement_.length, out + 8);
    put(position + 1, out + 16);
    out[20] = position + 1 == count_ ? 1 : 0;
}

std::uint64_t Segments::counter(std::uint32_t position) const {
    return (std::uint64_t{position} + 1) << kPositionShift | number_;
}

Result<void> Segments::seal(std::uint32_t position, const void* in, std::uint8_t* out, std::size_t thread) const {
    if (!owns_keys()) return forked();
    std::uint8_t associated[kAssociatedSize];
    associate(position, associated);
    std::uint8_t nonce[kNonceRoom];
    key_->nonce(lane_, counter(position), nonce);
    note_nonce(*key_, lane_, counter(position));
    const std::size_t bytes = size(position);
    const iovec all = piece(in, bytes);
    if (aead_->seal(key_->context_of(thread), nonce, associated, sizeof associated, &all, 1, out, out + bytes) !=
        CRYPTMPI_OK) {
        wipe(out, bytes + kSegmentOverhead);
        return fail(EIO, "the crypto module failed to seal a segment");
    }
    return {};
}

Result<void> Segments::open(std::uint32_t position, const std::uint8_t* wire, std::size_t wire_size, void* out,
                            std::size_t thread) const {
    const std::size_t bytes = size(position);
    if (wire_size != bytes + kSegmentOverhead) {
        wipe(out, bytes);
        return fail(EBADMSG, "has a segment of the wrong size: cut, or not ours");
    }
    if (!owns_keys()) {
        wipe(out, bytes);
        return forked();
    }
    std::uint8_t associated[kAssociatedSize];
    associate(position, associated);
    std::uint8_t nonce[kNonceRoom];
    key_->nonce(lane_, counter(position), nonce);
    const iovec piece{out, bytes};
    const int status = aead_->open(key_->context_of(thread), nonce, associated, sizeof associated, wire, bytes, &piece,
                                   1, wire + bytes);
    if (status == CRYPTMPI_FORGED) {
        return fail(EBADMSG, "has a segment that does not open: altered, moved, or not ours");
    }
    if (status != CRYPTMPI_OK) return fail(EIO, "the crypto module failed to open a segment");
    return {};
}

}  // namespace cryptmpi::seal
