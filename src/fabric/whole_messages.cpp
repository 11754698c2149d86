// Messages that are sealed and opened as a whole, their numbers and their order.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "base/endian.hpp"
#include "base/pieces.hpp"
#include "fabric/party_state.hpp"
#include "seal/nonce_ledger.hpp"
#include "seal/own_process.hpp"

namespace cryptmpi::fabric {
namespace {

/// A nonce of 12 bytes has room for the whole tag and half of the number; an epoch has fewer messages than that half,
/// long ones among them.
Place place_in_nonce(std::uint64_t tag, std::uint64_t number) {
    return {static_cast<std::uint32_t>(tag >> 32), tag << 32 | (number & 0xffffffffU)};
}

// protocol: F5
/// Share and header as they are on the wire, and what the door binds.
class AssociatedData {
public:
    AssociatedData(const std::uint8_t* prefix, std::span<const std::uint8_t> bound)
        : at_(prefix), size_(kPrefixSize + bound.size()) {
        if (bound.empty()) return;
        std::memcpy(own_, prefix, kPrefixSize);
        std::memcpy(own_ + kPrefixSize, bound.data(), bound.size());
        at_ = own_;
    }
    AssociatedData(const AssociatedData&) = delete;
    AssociatedData& operator=(const AssociatedData&) = delete;
    const std::uint8_t* data() const { return at_; }
    std::size_t size() const { return size_; }

private:
    const std::uint8_t* at_;
    std::size_t size_;
    std::uint8_t own_[kPrefixSize + kMostBound];
};

auto lost() {
    return fail(EBADMSG, "was sent after others that did not come: lost on the way, or out of order");
}
auto repeated() {
    return fail(EBADMSG, "came before: it was replayed");
}

}  // namespace

const Share& share_of(const Peer& peer) {
    return peer.share;
}

bool has_spoken(const Peer& peer) {
    return peer.has_spoken;
}

Party::Party(std::unique_ptr<State> state) : state_(std::move(state)) {}
Party::~Party() = default;

const Share& Party::share() const {
    return state_->share;
}

Result<Sending*> Party::State::sending_to(Peer& peer, Kind kind) const {
    auto& flow = peer.sending[place_of(kind)];
    if (flow) [[likely]] {
        return flow.get();
    }
    auto secret = flow_secret(peer.secret, kind, share, peer.share);
    if (!secret) return tl::unexpected(std::move(secret.error()));
    flow = std::make_unique<Sending>();
    flow->secret = std::move(*secret);
    return flow.get();
}

Result<Receiving*> Party::State::receiving_from(Peer& peer, Kind kind) const {
    auto& flow = peer.receiving[place_of(kind)];
    if (flow) [[likely]] {
        return flow.get();
    }
    auto secret = flow_secret(peer.of_its_own ? peer.of_its_own : peer.secret, kind, peer.share, share);
    if (!secret) return tl::unexpected(std::move(secret.error()));
    flow = std::make_unique<Receiving>();
    flow->secret = std::move(*secret);
    return flow.get();
}

// protocol: F3
Result<void> Party::State::make_room(Sending& flow, std::uint64_t records, std::uint64_t size) {
    const seal::Limits limits = seal::limits_of(crypto);
    const auto passes = [](std::uint64_t had, std::uint64_t more, std::uint64_t limit) {
        return had > limit || more > limit - had;
    };
    const bool full = flow.messages != 0 &&
                      (passes(flow.messages, records, limits.records) || passes(flow.bytes, size, limits.bytes));
    if (flow.key && !full) [[likely]] {
        return {};
    }
    if (full && flow.epoch + 1 == kMostEpochs) {
        return fail(EOVERFLOW, "a flow of messages came to the end of its keys: end the job and start it anew");
    }
    const std::uint32_t next = full ? flow.epoch + 1 : flow.epoch;
    auto key = epoch_key(crypto, flow.secret, next);
    if (!key) return tl::unexpected(std::move(key.error()));
    if (full) {
        ++counters.rekeys;
        watched.rekey();
    }
    flow.key = std::move(*key);
    flow.epoch = next;
    flow.messages = 0;
    flow.bytes = 0;
    return {};
}

// HOT PATH
Result<void> Party::seal(Peer& to, const Envelope& envelope, std::span<const iovec> in, std::size_t size,
                         std::uint8_t* out) {
    if (!seal::owns_keys()) [[unlikely]] {
        return seal::forked();
    }
    if (envelope.bound.size() > kMostBound) return fail(EMSGSIZE, "more is to be bound to a message than can be");
    auto found = state_->sending_to(to, envelope.kind);
    if (!found) return tl::unexpected(std::move(found.error()));
    Sending& flow = **found;
    if (auto done = state_->make_room(flow, 1, size); !done) return done;
    std::uint64_t& next = envelope.kind == Kind::tagged ? flow.next_of(envelope.tag) : flow.next;
    if (next >= kMostMessages) return fail(EOVERFLOW, "a lane of messages came to the end of its numbers");
    const std::uint64_t number = next++;
    ++flow.messages;
    flow.bytes += size;

    std::uint8_t* const wire = state_->job.is_written_by_network_ ? state_->own_room(kOverhead + size) : out;
    std::memcpy(wire, state_->share.data(), kShareSize);
    store_little(number | std::uint64_t{flow.epoch} << kEpochShift, wire + kShareSize);
    const AssociatedData bound(wire, envelope.bound);
    const Place place = place_in_nonce(envelope.tag, number);
    std::uint8_t nonce[seal::kNonceRoom];
    flow.key.nonce(place.lane, place.counter, nonce);
    seal::note_nonce(flow.key, place.lane, number, envelope.tag << 32);
    if (state_->crypto.aead->seal(flow.key.context(), nonce, bound.data(), bound.size(), in.data(), in.size(),
                                  wire + kPrefixSize, wire + kPrefixSize + size) != CRYPTMPI_OK) {
        wipe(wire, kOverhead + size);
        return fail(EIO, "the crypto module failed to seal a message");
    }
    if (wire != out) std::memcpy(out, wire, kOverhead + size);
    auto& sent = state_->counters.sent[place_of(envelope.kind)];
    ++sent.messages;
    sent.bytes += size;
    state_->watched.sealed(1, size);
    return {};
}

void Party::post(Posted& posted, const Wanted& wanted) {
    state_->posted.add(posted, wanted);
}

Result<Peer*> Party::State::sender_of(const std::uint8_t* wire, std::unique_ptr<Peer>& fresh) {
    if (last != nullptr && std::memcmp(last->share.data(), wire, kShareSize) == 0) [[likely]] {
        return last;
    }
    Share its_share;
    std::memcpy(its_share.data(), wire, kShareSize);
    const auto known = peers.find(its_share);
    if (known != peers.end()) return known->second.get();
    auto made = make_peer(its_share);
    if (!made) return tl::unexpected(std::move(made.error()));
    fresh = std::move(*made);
    return fresh.get();
}

Peer* Party::State::known_sender_of(const std::uint8_t* wire, std::size_t wire_size) const {
    if (wire_size < kShareSize) return nullptr;
    Share its_share;
    std::memcpy(its_share.data(), wire, kShareSize);
    const auto known = peers.find(its_share);
    return known == peers.end() ? nullptr : known->second.get();
}

Result<RecordKey*> Party::State::key_of(Receiving& flow, std::uint32_t epoch) const {
    auto& epochs = flow.epochs;
    if (epochs[0].key && epochs[0].number == epoch) [[likely]] {
        return &epochs[0].key;
    }
    std::swap(epochs[0], epochs[1]);
    if (epochs[0].key && epochs[0].number == epoch) return &epochs[0].key;
    auto key = epoch_key(crypto, flow.secret, epoch);
    if (!key) return tl::unexpected(std::move(key.error()));
    epochs[0] = {epoch, std::move(*key)};
    return &epochs[0].key;
}

Result<const RecordKey*> Party::State::shared_key_of(Receiving& flow, std::uint32_t epoch) const {
    auto key = key_of(flow, epoch);
    if (!key) return tl::unexpected(std::move(key.error()));
    if (auto done = (*key)->share_among_threads(); !done) return tl::unexpected(std::move(done.error()));
    return *key;
}

// HOT PATH
Result<Party::State::Decrypted> Party::State::decrypt(const Envelope& envelope, const std::uint8_t* wire,
                                                      std::size_t wire_size, std::span<const iovec> out) {
    // protocol: F16
    const auto refuse = [&](auto error) {
        wipe_pieces(out);
        return tl::unexpected<Error>(std::move(error));
    };
    if (!seal::owns_keys()) [[unlikely]] {
        return refuse(seal::forked().value());
    }
    if (wire_size < kOverhead || envelope.bound.size() > kMostBound) {
        return refuse(Error{"is shorter than any sealed one: it was sent without CryptMPI, or altered", EBADMSG});
    }
    if (job.is_written_by_network_) {
        wire = static_cast<const std::uint8_t*>(std::memcpy(own_room(wire_size), wire, wire_size));
    }
    Decrypted message{};
    auto sender = sender_of(wire, message.fresh);
    if (!sender) return refuse(std::move(sender.error()));
    message.from = *sender;
    auto flow = receiving_from(*message.from, envelope.kind);
    if (!flow) return refuse(std::move(flow.error()));
    message.flow = *flow;
    const std::uint64_t header = load_little(wire + kShareSize);
    message.number = header & (kMostMessages - 1);
    const AssociatedData bound(wire, envelope.bound);
    const Ciphertext sealed = {place_in_nonce(envelope.tag, message.number),
                               {bound.data(), bound.size()},
                               wire + kPrefixSize,
                               wire_size - kOverhead};
    // The last bit of a message that is in no segments is 0: an epoch that no sender has derives a key that no sender
    // has.
    auto done =
        open_from(*message.from, **flow, envelope.kind, static_cast<std::uint32_t>(header >> kEpochShift), sealed, out);
    if (!done) return refuse(std::move(done.error()));
    return message;
}

/// HOT PATH
Result<void> Party::State::open_from(Peer& from, Receiving& flow, Kind kind, std::uint32_t epoch,
                                     const Ciphertext& sealed, std::span<const iovec> out) const {
    auto key = key_of(flow, epoch);
    if (!key) return tl::unexpected(std::move(key.error()));
    int status = open_with(**key, sealed, out);
    if (status == CRYPTMPI_FORGED && !from.has_spoken) [[unlikely]] {
        auto tried = open_with_others(from, kind, epoch, sealed, out);
        if (!tried) return tl::unexpected(std::move(tried.error()));
        status = *tried;
    }
    if (auto opened = opened_by(status); !opened) return opened;
    from.has_spoken = true;
    return {};
}

int Party::State::open_with(const RecordKey& key, const Ciphertext& sealed, std::span<const iovec> out,
                            std::size_t thread) const {
    std::uint8_t nonce[seal::kNonceRoom];
    key.nonce(sealed.place.lane, sealed.place.counter, nonce);
    return crypto.aead->open(key.context_of(thread), nonce, sealed.bound.data(), sealed.bound.size(), sealed.at,
                             sealed.size, out.data(), out.size(), sealed.at + sealed.size);
}

// protocol: F17
/// The first message of a peer that has another of the job keys that we take: the key that opens it stays its own.
Result<int> Party::State::open_with_others(Peer& peer, Kind kind, std::uint32_t epoch, const Ciphertext& sealed,
                                           std::span<const iovec> out) const {
    auto others = job.others();
    if (!others) return tl::unexpected(std::move(others.error()));
    for (const auto& of_job : *others) {
        auto of_pair = pair_secret(peer.share, of_job);
        if (!of_pair) return tl::unexpected(std::move(of_pair.error()));
        auto of_flow = flow_secret(*of_pair, kind, peer.share, share);
        if (!of_flow) return tl::unexpected(std::move(of_flow.error()));
        auto key = epoch_key(crypto, *of_flow, epoch);
        if (!key) return tl::unexpected(std::move(key.error()));
        const int status = open_with(*key, sealed, out);
        if (status == CRYPTMPI_FORGED) continue;
        if (status != CRYPTMPI_OK) return status;
        peer.of_its_own = std::move(*of_pair);
        // Flows of other kinds may be there already, though nothing of them has opened.
        for (std::size_t place = 0; place < kKinds; ++place) {
            if (!peer.receiving[place]) continue;
            auto secret = flow_secret(peer.of_its_own, static_cast<Kind>(place), peer.share, share);
            if (!secret) return tl::unexpected(std::move(secret.error()));
            peer.receiving[place]->secret = std::move(*secret);
            peer.receiving[place]->epochs = {};
        }
        return status;
    }
    return CRYPTMPI_FORGED;
}

/// HOT PATH as long as receives end in the order of their posting.
Result<void> Party::State::check_order(const Posted& at, const Decrypted& message, std::uint64_t tag) const {
    seal::Arrivals& lane = lane_of(*message.flow, message.from, tag);
    if (!posted.has_before(at) && lane.follows(message.number, at.place())) [[likely]] {
        lane.follow(at.place());
        return {};
    }
    return check_order_among(at, message, tag);
}

Result<void> Party::State::check_order_among(const Posted& at, const Decrypted& message, std::uint64_t tag) const {
    seal::Arrivals::Holders holders;
    posted.each([&](const Posted& one) {
        if (!one.wanted().takes(message.from, tag)) return;
        holders.push_back({one.place(), one.wanted().names_lane && !one.may_be_cancelled()});
    });
    using Verdict = seal::Arrivals::Verdict;
    switch (lane_of(*message.flow, message.from, tag).take(message.number, at.place(), std::move(holders))) {
        case Verdict::fits:
            return {};
        case Verdict::repeated:
            return repeated();
        case Verdict::out_of_order:
            return fail(EBADMSG, "came to another receive than it was sent for: out of order");
        case Verdict::lost:
        case Verdict::after_failure:
            break;
    }
    return lost();
}

Result<Peer*> Party::State::accept(Kind kind, Decrypted message, std::size_t size) {
    auto& received = counters.received[place_of(kind)];
    ++received.messages;
    received.bytes += size;
    watched.opened(1, size);
    remember(std::move(message.fresh));
    last = message.from;
    return message.from;
}

// protocol: F13
Result<Peer*> Party::open(Posted& posted, std::uint64_t tag, std::span<const std::uint8_t> bound,
                          const std::uint8_t* wire, std::size_t wire_size, std::span<const iovec> out) {
    auto message = state_->decrypt({Kind::tagged, tag, bound}, wire, wire_size, out);
    posted.withdraw();
    if (!message) return tl::unexpected(std::move(message.error()));
    // The network matches by a source that nobody has authenticated.
    const bool wanted = posted.wanted().takes(message->from, tag);
    if (auto done = wanted ? state_->check_order(posted, *message, tag) : misled(); !done) {
        wipe_pieces(out);
        return tl::unexpected(std::move(done.error()));
    }
    return state_->accept(Kind::tagged, std::move(*message), wire_size - kOverhead);
}

Result<void> Party::cut_off(Posted& posted, std::uint64_t tag) {
    posted.withdraw();
    for (const auto& [share, peer] : state_->peers) {
        if (posted.wanted().from != nullptr && posted.wanted().from != peer.get()) continue;
        auto& flow = peer->receiving[place_of(Kind::tagged)];
        seal::Arrivals* const lane = flow ? flow->lanes.find(tag) : nullptr;
        if (lane != nullptr) lane->cut_off(posted.place());
    }
    state_->cut_offs[tag].push_back({posted.place(), posted.wanted().from});
    return {};
}

Result<void> Party::cut_off(Posted& posted, std::uint64_t tag, const std::uint8_t* wire, std::size_t wire_size) {
    // The share is not authentic: it may say which of the known peers it was, and makes nobody one.
    Peer* const from = state_->known_sender_of(wire, wire_size);
    if (from == nullptr || !posted.wanted().takes(from, tag)) return cut_off(posted, tag);
    posted.withdraw();
    auto flow = state_->receiving_from(*from, Kind::tagged);
    if (!flow) return tl::unexpected(std::move(flow.error()));
    state_->lane_of(**flow, from, tag).cut_off(posted.place());
    return {};
}

Result<void> Party::cut_off(const std::uint8_t* wire, std::size_t wire_size) {
    Peer* const from = state_->known_sender_of(wire, wire_size);
    if (from != nullptr) {
        auto flow = state_->receiving_from(*from, Kind::message);
        if (!flow) return tl::unexpected(std::move(flow.error()));
        (*flow)->window.excuse();
        return {};
    }
    ++state_->cut_off_of_anybody;
    return {};
}

/// The lane of a message that has opened. What was cut off before its first may have been of it.
seal::Arrivals& Party::State::lane_of(Receiving& flow, const Peer* from, std::uint64_t tag) const {
    const auto [lane, is_new] = flow.lanes.wake(tag, [this](std::uint64_t, const seal::Arrivals& other) {
        return other.rests() && other.last_posted() < posted.first_place() ? other.count() : 0;
    });
    if (!is_new || cut_offs.empty()) [[likely]] {
        return lane;
    }
    const auto cut = cut_offs.find(tag);
    for (std::size_t i = 0; cut != cut_offs.end() && i < cut->second.size(); ++i) {
        const auto& [place, of] = cut->second[i];
        if (of == nullptr || of == from) lane.cut_off(place);
    }
    return lane;
}

Result<Peer*> Party::open(const Envelope& envelope, const std::uint8_t* wire, std::size_t wire_size,
                          std::span<const iovec> out) {
    auto message = state_->decrypt(envelope, wire, wire_size, out);
    if (!message) return tl::unexpected(std::move(message.error()));
    std::uint64_t none = 0;
    std::uint64_t& excuses = envelope.kind == Kind::message ? state_->cut_off_of_anybody : none;
    switch (message->flow->window.take(message->number, excuses)) {
        case Window::Verdict::fits:
            state_->last_number = message->number;
            return state_->accept(envelope.kind, std::move(*message), wire_size - kOverhead);
        case Window::Verdict::repeated:
            wipe_pieces(out);
            return repeated();
        case Window::Verdict::lost:
            break;
    }
    wipe_pieces(out);
    return lost();
}

std::uint64_t Party::last_number() const {
    return state_->last_number;
}

// protocol: F15
Result<void> Party::expect_none_missing() const {
    std::array<std::uint64_t, kKinds> missing{};
    for (const auto& [share, peer] : state_->peers) {
        for (std::size_t kind = 0; kind < kKinds; ++kind) {
            const auto& flow = peer->receiving[kind];
            if (flow) missing[kind] += flow->window.missing();
        }
    }
    auto& untagged = missing[place_of(Kind::message)];
    untagged -= std::min(untagged, state_->cut_off_of_anybody);
    if (std::all_of(missing.begin(), missing.end(), [](std::uint64_t count) { return count == 0; })) return {};
    return fail(EBADMSG, "a message that was overtaken by others never came: it was lost on the way");
}

void Party::watch(const TrafficCounter& counter) {
    state_->watched = counter;
}

Counters Party::counters() const {
    return state_->counters;
}

}  // namespace cryptmpi::fabric
