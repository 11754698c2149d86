#include "seal/message.hpp"

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "seal/nonce_ledger.hpp"
#include "seal/own_process.hpp"

namespace cryptmpi::seal {
namespace {

void write_header(const MessageHeader& header, std::uint8_t out[kMessageHeaderSize]) {
    store_little(header.number | std::uint64_t{header.epoch} << kEpochShift |
                     static_cast<std::uint64_t>(header.form) << kFormShift,
                 out);
}

/// Each epoch's secret comes from the flow's, not from the epoch before: a message of an old epoch may be received
/// late.
Result<RecordKey> epoch_key(const Crypto& crypto, const std::uint8_t secret[kSecretSize], std::uint32_t epoch) {
    std::string label = "mpi epoch";
    for (unsigned byte = 0; byte < 2; ++byte) label.push_back(static_cast<char>(epoch >> (8 * byte)));
    Secret<kSecretSize> own;
    if (auto done = expand(*crypto.kex, secret, label, own.data(), kSecretSize); !done) {
        return tl::unexpected(std::move(done.error()));
    }
    return RecordKey::derive(crypto, own.data());
}

void wipe_pieces(std::span<const iovec> pieces) {
    for (const iovec& piece : pieces) wipe(piece.iov_base, piece.iov_len);
}

}  // namespace

MessageSealer::MessageSealer(const Crypto& crypto, const std::uint8_t secret[kSecretSize], Limits limits)
    : crypto_(crypto), limits_(limits) {
    std::memcpy(secret_->data(), secret, kSecretSize);
    claim_keys();
}

Result<void> MessageSealer::make_room(std::uint64_t size, std::uint64_t pieces) {
    const bool full =
        pieces_ != 0 && (pieces_ + pieces > limits_.records || bytes_ > limits_.bytes || size > limits_.bytes - bytes_);
    if (key_ && !full) [[likely]] {
        return {};
    }
    if (full && epoch_ + 1 == kMostEpochs) {
        return fail(EOVERFLOW, "a flow of messages came to the end of its keys: end the job and start it anew");
    }
    const std::uint32_t next = full ? epoch_ + 1 : epoch_;
    auto key = epoch_key(crypto_, secret_->data(), next);
    if (!key) return tl::unexpected(std::move(key.error()));
    if (full) ++counters_.rekeys;
    key_ = std::make_shared<RecordKey>(std::move(*key));
    epoch_ = next;
    pieces_ = 0;
    bytes_ = 0;
    return {};
}

Result<void> MessageSealer::seal_piece(std::uint32_t lane, const MessageHeader& header, std::span<const iovec> in,
                                       std::size_t size, std::uint8_t* out) {
    if (!owns_keys()) [[unlikely]] {
        return forked();
    }
    write_header(header, out);
    std::uint8_t nonce[kNonceRoom];
    key_->nonce(lane, header.number, nonce);
    note_nonce(*key_, lane, header.number);
    if (crypto_.aead->seal(key_->context(), nonce, out, kMessageHeaderSize, in.data(), in.size(),
                           out + kMessageHeaderSize, out + kMessageHeaderSize + size) != CRYPTMPI_OK) {
        wipe(out, kMessageOverhead + size);
        return fail(EIO, "the crypto module failed to seal a message");
    }
    return {};
}

Result<void> MessageSealer::seal(std::uint32_t lane, std::uint64_t number, std::span<const iovec> in, std::size_t size,
                                 std::uint8_t* out) {
    if (number >= kMostMessages) return fail(EOVERFLOW, "a lane of messages came to the end of its numbers");
    if (auto done = make_room(size, 1); !done) return done;
    ++pieces_;
    bytes_ += size;
    if (auto done = seal_piece(lane, {number, epoch_, Form::whole}, in, size, out); !done) return done;
    ++counters_.messages;
    counters_.bytes += size;
    return {};
}

Result<Segments> MessageSealer::announce(std::uint32_t lane, std::uint64_t number, const Announcement& announcement,
                                         std::uint8_t* out) {
    std::uint8_t payload[kAnnouncementSize];
    write_announcement(announcement, payload);
    if (auto valid = read_announcement(payload); !valid) return tl::unexpected(std::move(valid.error()));
    if (number >= kMostMessages) return fail(EOVERFLOW, "a lane of messages came to the end of its numbers");
    const std::uint64_t segments = (announcement.length - 1) / announcement.segment + 1;
    if (auto done = make_room(announcement.length, segments + 1); !done) return tl::unexpected(std::move(done.error()));
    if (auto done = key_->share_among_threads(); !done) return tl::unexpected(std::move(done.error()));
    pieces_ += segments + 1;
    bytes_ += announcement.length;
    const iovec in{payload, sizeof payload};
    if (auto done = seal_piece(lane, {number, epoch_, Form::announced}, {&in, 1}, sizeof payload, out); !done) {
        return tl::unexpected(std::move(done.error()));
    }
    ++counters_.messages;
    counters_.bytes += announcement.length;
    return Segments(*crypto_.aead, key_, lane, number, out, announcement);
}

MessageOpener::MessageOpener(const Crypto& crypto, const std::uint8_t secret[kSecretSize]) : crypto_(crypto) {
    std::memcpy(secret_->data(), secret, kSecretSize);
    claim_keys();
}

Result<std::shared_ptr<RecordKey>*> MessageOpener::key_of(std::uint32_t epoch) {
    if (epochs_[0].key && epochs_[0].number == epoch) [[likely]] {
        return &epochs_[0].key;
    }
    std::swap(epochs_[0], epochs_[1]);
    if (epochs_[0].key && epochs_[0].number == epoch) return &epochs_[0].key;
    auto key = epoch_key(crypto_, secret_->data(), epoch);
    if (!key) return tl::unexpected(std::move(key.error()));
    epochs_[0].key = std::make_shared<RecordKey>(std::move(*key));
    epochs_[0].number = epoch;
    return &epochs_[0].key;
}

Result<void> MessageOpener::open_piece(const RecordKey& key, std::uint32_t lane, const MessageHeader& header,
                                       const std::uint8_t* wire, std::size_t wire_size, std::span<const iovec> out) {
    if (!owns_keys()) [[unlikely]] {
        wipe_pieces(out);
        return forked();  // and a wiped secret is one that anybody knows
    }
    std::uint8_t nonce[kNonceRoom];
    key.nonce(lane, header.number, nonce);
    const std::size_t size = wire_size - kMessageOverhead;
    const int status = crypto_.aead->open(key.context(), nonce, wire, kMessageHeaderSize, wire + kMessageHeaderSize,
                                          size, out.data(), out.size(), wire + kMessageHeaderSize + size);
    if (status == CRYPTMPI_FORGED) return fail(EBADMSG, "the message does not open: altered, moved, or not ours");
    if (status != CRYPTMPI_OK) return fail(EIO, "the crypto module failed to open a message");
    return {};
}

Result<MessageHeader> MessageOpener::open(std::uint32_t lane, const std::uint8_t* wire, std::size_t wire_size,
                                          std::span<const iovec> out) {
    if (wire_size < kMessageOverhead) {
        wipe_pieces(out);
        return fail(EBADMSG, "the message is shorter than any sealed one");
    }
    const MessageHeader header = parse_message_header(wire);
    if (header.form != Form::whole) {
        wipe_pieces(out);
        return fail(EBADMSG, "the message is the announcement of another, where none can be");
    }
    auto key = key_of(header.epoch);
    if (!key) {
        wipe_pieces(out);
        return tl::unexpected(std::move(key.error()));
    }
    if (auto done = open_piece(***key, lane, header, wire, wire_size, out); !done) {
        return tl::unexpected(std::move(done.error()));
    }
    ++counters_.messages;
    counters_.bytes += wire_size - kMessageOverhead;
    return header;
}

Result<Segments> MessageOpener::open_announcement(std::uint32_t lane, const std::uint8_t* wire, std::size_t wire_size) {
    if (wire_size != kAnnouncedWire) return fail(EBADMSG, "the message does not open: altered, or not ours");
    const MessageHeader header = parse_message_header(wire);
    auto key = key_of(header.epoch);
    if (!key) return tl::unexpected(std::move(key.error()));
    std::uint8_t payload[kAnnouncementSize];
    const iovec out{payload, sizeof payload};
    if (auto done = open_piece(***key, lane, header, wire, wire_size, {&out, 1}); !done) {
        return tl::unexpected(std::move(done.error()));
    }
    auto announcement = read_announcement(payload);
    if (!announcement) return tl::unexpected(std::move(announcement.error()));
    if (auto done = (*key)->get()->share_among_threads(); !done) return tl::unexpected(std::move(done.error()));
    ++counters_.messages;
    counters_.bytes += announcement->length;
    return Segments(*crypto_.aead, **key, lane, header.number, wire, *announcement);
}

}  // namespace cryptmpi::seal
