// Messages that go in segments: the first travel while others are sealed, and are opened while others travel.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/endian.hpp"
#include "base/pieces.hpp"
#include "fabric/party_state.hpp"
#include "fabric/slice.hpp"
#include "seal/nonce_ledger.hpp"
#include "seal/own_process.hpp"

namespace cryptmpi::fabric {
namespace {

constexpr std::uint64_t kInSegments = std::uint64_t{1} << 63;
constexpr std::uint64_t kNoted = 0xffff;  // segments of a message have that many numbers in the ledger of nonces
constexpr std::size_t kOnWire = kSegment + seal::kTagSize;  // of all segments but the last one
constexpr std::uint32_t kLastSegment = std::uint32_t{1} << 31;

/// What is bound to a segment; `prefix`: that of its message.
class BoundToSegment {
public:
    BoundToSegment(const std::uint8_t* prefix, std::uint64_t tag, bool is_last)
        : size_(is_last ? sizeof own_ : kLongPrefixSize) {
        std::memcpy(own_, prefix, kLongPrefixSize);
        store_little(tag, own_ + kLongPrefixSize);
    }
    std::span<const std::uint8_t> span() const { return {own_, size_}; }

private:
    std::size_t size_;
    std::uint8_t own_[kLongPrefixSize + sizeof(std::uint64_t)];
};

Place place_of_segment(std::uint32_t segment, bool is_last, std::uint64_t number) {
    return {segment | (is_last ? kLastSegment : 0), number};
}

/// What the prefix of a long message says; not authentic before a segment has opened.
struct Beginning {
    std::uint32_t epoch;
    std::uint64_t number;
};
Result<Beginning> read_beginning(const std::uint8_t* prefix) {
    const std::uint64_t header = load_little(prefix + kShareSize);
    const std::uint64_t number = load_little(prefix + kPrefixSize);
    if ((header & kInSegments) == 0 || number >= kMostMessages)
        return fail(EBADMSG, "is longer than any that is sealed whole");
    return Beginning{static_cast<std::uint32_t>((header & ~kInSegments) >> kEpochShift), number};
}

}  // namespace

/// Segments of a long message that have come: those in the first `end` bytes of its wire, which end with one. `tag`:
/// nothing, if none of them is the last one.
struct ArrivedSegments {
    const std::uint8_t* prefix;
    std::uint64_t number;
    std::optional<std::uint64_t> tag;
    const std::uint8_t* wire;
    std::size_t end;
    std::span<const iovec> out;

    /// How many there are from this one on.
    std::uint32_t count_from(std::uint32_t first) const {
        const std::size_t begin = kLongPrefixSize + first * kOnWire;
        return end > begin ? static_cast<std::uint32_t>((end - begin + kOnWire - 1) / kOnWire) : 0;
    }
    /// `open` gets a segment's ciphertext, and where its plaintext goes. Returns what that does.
    template <class Open>
    auto open_one(std::uint32_t segment, const Open& open) const {
        const std::size_t begin = kLongPrefixSize + segment * kOnWire;
        const std::size_t size = std::min(kOnWire, end - begin) - seal::kTagSize;
        const bool is_last = tag && begin + size + seal::kTagSize == end;
        const BoundToSegment bound(prefix, tag.value_or(0), is_last);
        const Ciphertext sealed = {place_of_segment(segment, is_last, number), bound.span(), wire + begin, size};
        return open(sealed, slice(out, std::size_t{segment} * kSegment, size));
    }
};

// protocol: F19
Result<LongSend> Party::begin_long(Peer& to, std::uint64_t tag, std::size_t size, std::uint8_t* wire) {
    if (!seal::owns_keys()) return seal::forked();
    if (size <= kLongestWhole) return fail(EINVAL, "a message that is sealed whole was to go in segments");
    const std::size_t segments = segments_in(size);
    if (segments >= kLastSegment) return fail(EMSGSIZE, "a message has more segments than can be numbered");
    // One that is longer than a lowered limit is alone under its key.
    const seal::Limits most = seal::limits_of(state_->crypto.suite);
    if (segments > most.records || size > most.bytes)
        return fail(EMSGSIZE, "a message is longer than all that a key of this cipher may seal: send it in several");
    auto lanes = state_->sending_to(to, Kind::tagged);
    if (!lanes) return tl::unexpected(std::move(lanes.error()));
    auto found = state_->sending_to(to, Kind::segments);
    if (!found) return tl::unexpected(std::move(found.error()));
    Sending& flow = **found;
    if (auto done = state_->make_room(flow, segments, size); !done) return tl::unexpected(std::move(done.error()));
    if (auto done = flow.key.share_among_threads(); !done) return tl::unexpected(std::move(done.error()));
    std::uint64_t& next = (*lanes)->next_of(tag);
    if (next >= kMostMessages || flow.next >= kMostMessages)
        return fail(EOVERFLOW, "a lane of messages came to the end of its numbers");
    LongSend message;
    message.to_ = &to;
    message.tag_ = tag;
    message.number_ = flow.next++;
    message.epoch_ = flow.epoch;
    message.size_ = size;
    message.ready_ = kLongPrefixSize;
    flow.messages += segments;
    flow.bytes += size;
    // Those that are sealed whole have half of their number in their nonce: under one key they must not be further
    // apart.
    ++(*lanes)->messages;
    std::memcpy(wire, state_->share.data(), kShareSize);
    store_little(next++ | std::uint64_t{flow.epoch} << kEpochShift | kInSegments, wire + kShareSize);
    store_little(message.number_, wire + kPrefixSize);
    auto& sent = state_->counters.sent[place_of(Kind::tagged)];
    ++sent.messages;
    sent.bytes += size;
    state_->watched.sealed(1, size);
    return message;
}

Result<const RecordKey*> Party::State::key_of(LongSend& message) const {
    auto found = sending_to(*message.to_, Kind::segments);
    if (!found) return tl::unexpected(std::move(found.error()));
    const Sending& flow = **found;
    if (message.epoch_ == flow.epoch) return &flow.key;
    if (!message.key_) {
        auto key = epoch_key(crypto, flow.secret, message.epoch_);
        if (!key) return tl::unexpected(std::move(key.error()));
        message.key_ = std::make_unique<RecordKey>(std::move(*key));
        if (auto done = message.key_->share_among_threads(); !done) return tl::unexpected(std::move(done.error()));
    }
    return message.key_.get();
}

// HOT PATH
Result<void> Party::seal_long(LongSend& message, std::size_t end, std::span<const iovec> in, std::uint8_t* wire) {
    if (!seal::owns_keys()) [[unlikely]] {
        return seal::forked();
    }
    auto key = state_->key_of(message);
    if (!key) return tl::unexpected(std::move(key.error()));
    const auto segments = static_cast<std::uint32_t>(segments_in(message.size_));
    if (message.ready_ >= end || message.segments_ == segments) return {};
    const std::size_t asked = (end - message.ready_ + kOnWire - 1) / kOnWire;
    const std::uint32_t first = message.segments_;
    const auto count =
        static_cast<std::uint32_t>(std::min<std::size_t>(std::max(asked, state_->together()), segments - first));
    if (auto done = state_->seal_segments(message, **key, first, count, in, wire); !done) return done;
    message.segments_ = first + count;
    const std::size_t sealed = std::min(std::size_t{message.segments_} * kSegment, message.size_);
    message.ready_ = kLongPrefixSize + sealed + message.segments_ * seal::kTagSize;
    return {};
}

// HOT PATH
Result<void> Party::State::seal_segments(const LongSend& message, const RecordKey& key, std::uint32_t first,
                                         std::uint32_t count, std::span<const iovec> in, std::uint8_t* wire) {
    for (std::uint32_t i = first; i < first + count; ++i)
        seal::note_nonce(key, 0, message.number_ | (i % kNoted + 1) << kEpochShift, i / kNoted);
    std::atomic<bool> failed{false};
    workers.run(count, [&](std::size_t piece, std::size_t thread) {
        const auto segment = first + static_cast<std::uint32_t>(piece);
        const bool is_last = segment + 1 == segments_in(message.size_);
        const std::size_t size = is_last ? message.size_ - std::size_t{segment} * kSegment : kSegment;
        const BoundToSegment bound(wire, message.tag_, is_last);
        const Place place = place_of_segment(segment, is_last, message.number_);
        std::uint8_t nonce[seal::kNonceRoom];
        key.nonce(place.lane, place.counter, nonce);
        const auto pieces = slice(in, std::size_t{segment} * kSegment, size);
        std::uint8_t* const out = wire + kLongPrefixSize + segment * kOnWire;
        if (crypto.aead->seal(key.context_of(thread), nonce, bound.span().data(), bound.span().size(), pieces.data(),
                              pieces.size(), out, out + size) != CRYPTMPI_OK) {
            wipe(out, size + seal::kTagSize);
            failed = true;
        }
        return size;
    });
    if (failed) return fail(EIO, "the crypto module failed to seal a message");
    return {};
}

// HOT PATH
Result<Peer*> Party::State::open_segments(const std::uint8_t* prefix, std::uint32_t& done,
                                          std::optional<std::uint64_t> tag, const std::uint8_t* wire, std::size_t end,
                                          std::span<const iovec> out) {
    if (!seal::owns_keys()) [[unlikely]] {
        return seal::forked();
    }
    std::unique_ptr<Peer> fresh;
    auto sender = sender_of(prefix, fresh);
    if (!sender) return sender;
    auto flow = receiving_from(**sender, Kind::segments);
    if (!flow) return tl::unexpected(std::move(flow.error()));
    const auto begun = read_beginning(prefix);
    if (!begun) return tl::unexpected(begun.error());
    const ArrivedSegments come{prefix, begun->number, tag, wire, end, out};
    const std::uint32_t count = come.count_from(done);
    // The first one of a peer tells which of the job keys it has.
    const std::uint32_t first_alone = (*sender)->has_spoken ? 0 : 1;
    if (count != 0 && first_alone != 0) {
        auto opened = come.open_one(done, [&](const Ciphertext& sealed, const std::vector<iovec>& places) {
            return open_from(**sender, **flow, Kind::segments, begun->epoch, sealed, places);
        });
        if (!opened) return tl::unexpected(std::move(opened.error()));
    }
    if (count > first_alone) {
        auto key = shared_key_of(**flow, begun->epoch);
        if (!key) return tl::unexpected(std::move(key.error()));
        auto opened = open_together(**key, come, done + first_alone, count - first_alone);
        if (!opened) return tl::unexpected(std::move(opened.error()));
    }
    done += count;
    const bool ended = count != 0;
    // Without its last segment a message may be cut off, and its tag is not authentic.
    if (tag && !ended) return fail(EBADMSG, "ends before what has come of it");
    remember(std::move(fresh));
    return last = *sender;
}

// HOT PATH
Result<void> Party::State::open_together(const RecordKey& key, const ArrivedSegments& come, std::uint32_t first,
                                         std::uint32_t count) const {
    std::atomic<int> status{CRYPTMPI_OK};
    workers.run(count, [&](std::size_t piece, std::size_t thread) {
        const int opened = come.open_one(first + static_cast<std::uint32_t>(piece),
                                         [&](const Ciphertext& sealed, const std::vector<iovec>& places) {
                                             return open_with(key, sealed, places, thread);
                                         });
        if (opened != CRYPTMPI_OK) status = opened;
        return kSegment;
    });
    return opened_by(status);
}

Result<void> Party::open_long(LongReceive& message, const std::uint8_t* wire, std::size_t come,
                              std::span<const iovec> out) {
    if (come <= kLongPrefixSize + (message.segments_ + state_->together()) * kOnWire) return {};
    // One byte more: what has come whole and is followed by something is not the last one.
    const std::size_t whole = (come - 1 - kLongPrefixSize) / kOnWire;
    if (message.segments_ == 0) std::memcpy(message.prefix_.data(), wire, kLongPrefixSize);
    auto opened = state_->open_segments(message.prefix_.data(), message.segments_, std::nullopt, wire,
                                        kLongPrefixSize + whole * kOnWire, out);
    if (!opened) {
        wipe_pieces(out);
        return tl::unexpected(std::move(opened.error()));
    }
    return {};
}

// protocol: F13, F19
Result<Peer*> Party::end_long(LongReceive& message, Posted& posted, std::uint64_t tag, const std::uint8_t* wire,
                              std::size_t wire_size, std::span<const iovec> out) {
    const auto refuse = [&](auto error) {
        wipe_pieces(out);
        return tl::unexpected<Error>(std::move(error));
    };
    const auto size = is_long(wire_size) ? size_of(wire_size) : std::nullopt;
    posted.withdraw();
    if (!size) return refuse(Error{"has a length that no sealed one has", EBADMSG});
    // The network may write the beginning anew after segments have opened.
    if (message.segments_ == 0) std::memcpy(message.prefix_.data(), wire, kLongPrefixSize);
    auto from = state_->open_segments(message.prefix_.data(), message.segments_, tag, wire, wire_size, out);
    if (!from) return refuse(std::move(from.error()));
    auto flow = state_->receiving_from(**from, Kind::tagged);
    if (!flow) return refuse(std::move(flow.error()));
    State::Decrypted whole{*from, *flow, load_little(message.prefix_.data() + kShareSize) & (kMostMessages - 1),
                           nullptr};
    const bool wanted = posted.wanted().takes(*from, tag);
    if (auto done = wanted ? state_->check_order(posted, whole, tag) : misled(); !done)
        return refuse(std::move(done.error()));
    return state_->accept(Kind::tagged, std::move(whole), *size);
}

}  // namespace cryptmpi::fabric
