#include "seal/message.hpp"

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

#include "base/pieces.hpp"
#include "seal/nonce_ledger.hpp"
#include "seal/own_process.hpp"

namespace cryptmpi::seal {
namespace {

void write_header(const MessageHeader& header, std::uint8_t out[kMessageHeaderSize]) {
    store_little(header.number | std::uint64_t{header.epoch} << kEpochShift |
                     static_cast<std::uint64_t>(header.form) << kFormShift,
                 out);
}

// protocol: M8
/// The first epoch is one step from the flow's secret, since most flows have no other; the rest are sixteen. In the
/// order of epochs.
Path path_of(std::uint32_t epoch) {
    constexpr unsigned kEpochBits = 15;
    static_assert(kMostEpochs == 1U << kEpochBits);
    if (epoch == 0) return {0, 1};
    return {std::uint64_t{1} << 63 | std::uint64_t{epoch} << (63 - kEpochBits), 1 + kEpochBits};
}

/// Of an epoch that is over: in the words of any other message that does not open.
tl::unexpected<Error> does_not_open() {
    return fail(EBADMSG, "the message does not open: altered, moved, or not ours");
}

/// An announcement's, and its segments'.
std::uint64_t pieces_of(const Announcement& announcement) {
    return (announcement.length - 1) / announcement.segment + 2;
}

}  // namespace

MessageSealer::MessageSealer(const Crypto& crypto, const std::uint8_t secret[kSecretSize], Limits limits)
    : crypto_(crypto), epochs_(*crypto.kex, secret), limits_(limits) {
    claim_keys();
}

// protocol: M11
Result<void> MessageSealer::make_room(std::uint64_t size, std::uint64_t pieces) {
    // Half of a flow's keys are for its limits: one that is slow and long does not end by growing old.
    const bool old = use_.pieces != 0 && epoch_ < kMostEpochs / 2 && crypto_.age.is_past(began_ns_);
    const bool full = old || !use_.has_room(pieces, size, limits_);
    if (key_ && !full) [[likely]] {
        return {};
    }
    if (full && epoch_ + 1 == kMostEpochs) {
        return fail(EOVERFLOW, "a flow of messages came to the end of its keys: end the job and start it anew");
    }
    const std::uint32_t next = full ? epoch_ + 1 : epoch_;
    Secret<kSecretSize> secret;
    if (auto done = epochs_.derive(path_of(next), secret); !done) return done;
    key_.reset();
    epoch_ = next;
    use_ = {};
    if (crypto_.age.counts()) began_ns_ = crypto_.age.now_ns();
    if (full) {
        ++counters_.rekeys;
        crypto_.watched.rekey();
    }
    auto key = RecordKey::derive(crypto_, secret.data());
    if (!key) return tl::unexpected(std::move(key.error()));
    key_ = std::make_shared<RecordKey>(std::move(*key));
    return {};
}

// protocol: M1
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
    use_.add(1, size);
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
    const std::uint64_t pieces = pieces_of(announcement);
    if (auto done = make_room(announcement.length, pieces); !done) return tl::unexpected(std::move(done.error()));
    if (auto done = key_->share_among_threads(); !done) return tl::unexpected(std::move(done.error()));
    use_.add(pieces, announcement.length);
    const iovec in{payload, sizeof payload};
    if (auto done = seal_piece(lane, {number, epoch_, Form::announced}, {&in, 1}, sizeof payload, out); !done) {
        return tl::unexpected(std::move(done.error()));
    }
    ++counters_.messages;
    counters_.bytes += announcement.length;
    return Segments(*crypto_.aead, key_, lane, number, out, announcement);
}

MessageOpener::MessageOpener(const Crypto& crypto, const std::uint8_t secret[kSecretSize], Opening opening,
                             Limits limits)
    : crypto_(crypto), opening_(opening), limits_(limits), tree_(*crypto.kex, secret) {
    claim_keys();
}

Result<MessageOpener::Epoch*> MessageOpener::epoch(std::uint32_t number) {
    if (epochs_[0].key && epochs_[0].number == number) [[likely]] {
        return &epochs_[0];
    }
    std::swap(epochs_[0], epochs_[1]);
    if (epochs_[0].key && epochs_[0].number == number) return &epochs_[0];
    auto made = derive(number);
    if (!made) return tl::unexpected(std::move(made.error()));
    epochs_[0] = std::move(*made);
    return &epochs_[0];
}

// protocol: M14
/// Whatever epoch a header claims, the work is bounded, and no secret is erased for it.
Result<MessageOpener::Epoch> MessageOpener::derive(std::uint32_t number) {
    Secret<kSecretSize> secret;
    const auto known = opened_.find(number);
    Opened* const opened = known == opened_.end() ? nullptr : &known->second;
    if (opened != nullptr) {
        if (!opened->secret) return does_not_open();
        std::memcpy(secret.data(), opened->secret->data(), kSecretSize);
    } else if (auto done = tree_.peek(path_of(number), secret); !done) {
        if (done.error().code == EEXIST) return does_not_open();
        return tl::unexpected(std::move(done.error()));
    }
    auto key = RecordKey::derive(crypto_, secret.data());
    if (!key) return tl::unexpected(std::move(key.error()));
    return Epoch{std::make_shared<RecordKey>(std::move(*key)), number, opened};
}

// protocol: M12
Result<void> MessageOpener::begin(Epoch& epoch) {
    if (opening_ == Opening::in_order) {
        opened_.clear();
        epochs_[1] = {};
    }
    Opened& opened = opened_[epoch.number];
    opened.secret = std::make_unique<Secret<kSecretSize>>();
    epoch.opened = &opened;
    auto done = tree_.derive(path_of(epoch.number), *opened.secret);
    if (!done) {  // zeros are a secret that anybody knows
        opened_.erase(epoch.number);
        epoch = {};
        return done;
    }
    if (opening_ == Opening::in_order) tree_.leave_behind_before(path_of(epoch.number));
    return {};
}

// protocol: M13
Result<void> MessageOpener::note(Epoch& epoch, std::uint64_t pieces, std::uint64_t size) {
    if (epoch.opened == nullptr) [[unlikely]] {
        if (auto done = begin(epoch); !done) return done;
    }
    epoch.opened->use.add(pieces, size);
    if (epoch.opened->use.is_full(limits_)) [[unlikely]] {
        epoch.opened->secret.reset();
        epoch = {};
    }
    return {};
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
    if (status == CRYPTMPI_FORGED) return does_not_open();
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
    auto at = epoch(header.epoch);
    if (!at) {
        wipe_pieces(out);
        return tl::unexpected(std::move(at.error()));
    }
    if (auto done = open_piece(*(*at)->key, lane, header, wire, wire_size, out); !done) {
        return tl::unexpected(std::move(done.error()));
    }
    if (auto done = note(**at, 1, wire_size - kMessageOverhead); !done) {
        wipe_pieces(out);
        return tl::unexpected(std::move(done.error()));
    }
    ++counters_.messages;
    counters_.bytes += wire_size - kMessageOverhead;
    return header;
}

Result<Announcement> MessageOpener::read(const RecordKey& key, std::uint32_t lane, const MessageHeader& header,
                                         const std::uint8_t wire[kAnnouncedWire]) {
    std::uint8_t payload[kAnnouncementSize];
    const iovec out{payload, sizeof payload};
    if (auto done = open_piece(key, lane, header, wire, kAnnouncedWire, {&out, 1}); !done) {
        return tl::unexpected(std::move(done.error()));
    }
    return read_announcement(payload);
}

Result<std::uint64_t> MessageOpener::peek(std::uint32_t lane, const std::uint8_t wire[kAnnouncedWire]) {
    const MessageHeader header = parse_message_header(wire);
    auto at = epoch(header.epoch);
    if (!at) return tl::unexpected(std::move(at.error()));
    if (header.form == Form::whole) {
        std::uint8_t message[kAnnouncementSize];
        const iovec out{message, sizeof message};
        auto done = open_piece(*(*at)->key, lane, header, wire, kAnnouncedWire, {&out, 1});
        if (!done) return tl::unexpected(std::move(done.error()));
        return kAnnouncementSize;
    }
    auto announcement = read(*(*at)->key, lane, header, wire);
    if (!announcement) return tl::unexpected(std::move(announcement.error()));
    return announcement->length;
}

Result<Segments> MessageOpener::open_announcement(std::uint32_t lane, const std::uint8_t* wire, std::size_t wire_size) {
    if (wire_size != kAnnouncedWire) return fail(EBADMSG, "the message does not open: altered, or not ours");
    const MessageHeader header = parse_message_header(wire);
    auto at = epoch(header.epoch);
    if (!at) return tl::unexpected(std::move(at.error()));
    const std::shared_ptr<RecordKey> key = (*at)->key;
    auto announcement = read(*key, lane, header, wire);
    if (!announcement) return tl::unexpected(std::move(announcement.error()));
    if (auto done = key->share_among_threads(); !done) return tl::unexpected(std::move(done.error()));
    if (auto done = note(**at, pieces_of(*announcement), announcement->length); !done) {
        return tl::unexpected(std::move(done.error()));
    }
    ++counters_.messages;
    counters_.bytes += announcement->length;
    return Segments(*crypto_.aead, key, lane, header.number, wire, *announcement);
}

}  // namespace cryptmpi::seal
