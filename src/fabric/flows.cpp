#include "fabric/flows.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/endian.hpp"
#include "fabric/lanes.hpp"
#include "fabric/slice.hpp"
#include "fabric/window.hpp"
#include "seal/arrivals.hpp"
#include "seal/nonce_ledger.hpp"
#include "seal/own_process.hpp"

namespace cryptmpi::fabric {
namespace {

using seal::RecordKey;
using FlowSecret = std::unique_ptr<Secret<seal::kSecretSize>>;

constexpr std::size_t kHash = 32;
constexpr std::size_t kKeySize = 32;
constexpr unsigned kEpochShift = 48;
constexpr std::uint64_t kInSegments = std::uint64_t{1} << 63;
constexpr std::uint64_t kNoted = 0xffff;  // segments of a message have that many numbers in the ledger of nonces
constexpr std::size_t kOnWire = kSegment + seal::kTagSize;  // of all segments but the last one
constexpr std::size_t kOfEachThread = 4;                    // segments
constexpr std::uint32_t kLastSegment = std::uint32_t{1} << 31;
constexpr std::string_view kLabels[kKinds] = {"fabric tagged", "fabric active", "fabric message", "fabric segments"};

std::size_t place_of(Kind kind) {
    return static_cast<std::size_t>(kind);
}

void append(std::string& text, const Share& share) {
    text.append(reinterpret_cast<const char*>(share.data()), share.size());
}

// protocol: F2
/// Each epoch's secret comes from the flow's, not from the epoch before: messages of an old one may come late.
Result<RecordKey> epoch_key(const seal::Crypto& crypto, const FlowSecret& secret, std::uint32_t epoch) {
    std::string label = "fabric epoch";
    for (unsigned byte = 0; byte < 2; ++byte) label.push_back(static_cast<char>(epoch >> (8 * byte)));
    Secret<seal::kSecretSize> own;
    if (auto done = seal::expand(*crypto.kex, secret->data(), label, own.data(), seal::kSecretSize); !done) {
        return tl::unexpected(std::move(done.error()));
    }
    return RecordKey::derive(crypto, own.data());
}

/// A nonce of 12 bytes has room for the whole tag and half of the number; an epoch has fewer messages than that half,
/// long ones among them.
struct Place {
    std::uint32_t lane;
    std::uint64_t counter;
};
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

/// A ciphertext with its tag behind it, and what it opens under.
struct Ciphertext {
    Place place;
    std::span<const std::uint8_t> bound;
    const std::uint8_t* at;
    std::size_t size;
};

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

struct Sending {
    FlowSecret secret;
    RecordKey key;
    std::uint32_t epoch = 0;
    std::uint64_t messages = 0;  // of this epoch
    std::uint64_t bytes = 0;
    std::uint64_t next = 0;      // where the flow counts
    Lanes<std::uint64_t> lanes;  // where each tag does

    std::uint64_t& next_of(std::uint64_t tag) {
        return lanes.wake(tag, [](std::uint64_t, std::uint64_t sent) { return sent; }).first;
    }
};

struct Receiving {
    struct Epoch {
        std::uint32_t number = 0;
        RecordKey key;
    };
    FlowSecret secret;
    std::array<Epoch, 2> epochs;  // the latest used first
    Window window{kMostEarly};
    Lanes<seal::Arrivals> lanes;
};

/// Says whether a ciphertext opened.
Result<void> opened_by(int status) {
    if (status == CRYPTMPI_FORGED) return fail(EBADMSG, "does not open: altered, moved, or not ours");
    if (status != CRYPTMPI_OK) return fail(EIO, "the crypto module failed to open a message");
    return {};
}

auto lost() {
    return fail(EBADMSG, "was sent after others that did not come: lost on the way, or out of order");
}
Result<void> misled() {
    return fail(EBADMSG, "came to a receive for another sender or tag");
}
auto repeated() {
    return fail(EBADMSG, "came before: it was replayed");
}

}  // namespace

class Peer {
public:
    explicit Peer(const Share& its_share) : share(its_share) {}

    Share share;
    FlowSecret secret;        // of the pair, under our own job key: what we send
    FlowSecret of_its_own;    // under the job key that it has, where that is another: what it sends
    bool has_spoken = false;  // something of it has opened, so that its job key is known
    std::array<std::unique_ptr<Sending>, kKinds> sending;
    std::array<std::unique_ptr<Receiving>, kKinds> receiving;
};

const Share& share_of(const Peer& peer) {
    return peer.share;
}

bool has_spoken(const Peer& peer) {
    return peer.has_spoken;
}

Result<Job> Job::join(const seal::Crypto& crypto, const keys::JobKey& job_key, std::string_view job_id,
                      bool is_written_by_network) {
    std::uint8_t hash[kHash];
    const iovec id = piece(job_id.data(), job_id.size());
    if (crypto.kex->sha256(hash, &id, 1) != CRYPTMPI_OK) return fail(EIO, "the crypto module's SHA-256 failed");
    std::string label = "fabric";
    label.push_back(static_cast<char>(crypto.suite));
    label.append(reinterpret_cast<const char*>(hash), sizeof hash);
    Job job;
    job.crypto_ = crypto;
    job.is_written_by_network_ = is_written_by_network;
    job.label_ = std::move(label);
    auto secret = job.secret_of(job_key);
    if (!secret) return tl::unexpected(std::move(secret.error()));
    job.secret_ = std::move(*secret);
    seal::claim_keys();
    return job;
}

Result<Job> Job::join(const seal::Crypto& crypto, keys::KeyRing& ring, std::string_view job_id,
                      bool is_written_by_network) {
    auto job = join(crypto, ring.own(), job_id, is_written_by_network);
    if (job) job->ring_ = &ring;
    return job;
}

Result<Job::JobSecret> Job::secret_of(const keys::JobKey& job_key) const {
    auto secret = std::make_unique<Secret<seal::kSecretSize>>();
    auto done = seal::expand(*crypto_.kex, job_key.data(), label_, secret->data(), seal::kSecretSize);
    if (!done) return tl::unexpected(std::move(done.error()));
    return secret;
}

Result<std::vector<Job::JobSecret>> Job::others() const {
    std::vector<JobSecret> secrets;
    if (ring_ == nullptr) return secrets;
    for (const auto* key : ring_->all()) {
        if (key == &ring_->own()) continue;
        auto secret = secret_of(*key);
        if (!secret) return tl::unexpected(std::move(secret.error()));
        secrets.push_back(std::move(*secret));
    }
    return secrets;
}

struct Party::State {
    explicit State(const Job& its_job)
        : job(its_job), crypto(its_job.crypto_), workers(its_job.workers_ != nullptr ? *its_job.workers_ : alone) {}

    Result<void> prove(const FlowSecret& of_job, std::span<const std::uint8_t> address, const Share& of,
                       std::uint8_t proof[kProofSize]) const;
    Result<bool> proves(const FlowSecret& of_job, std::span<const std::uint8_t> address, const Share& of,
                        const std::uint8_t proof[kProofSize]) const;
    Result<std::unique_ptr<Peer>> make_peer(const Share& its_share) const;
    Result<FlowSecret> pair_secret(const Share& its_share, const FlowSecret& of_job) const;
    Result<FlowSecret> flow_secret(const FlowSecret& of_pair, Kind kind, const Share& sender,
                                   const Share& receiver) const;
    Result<Sending*> sending_to(Peer& peer, Kind kind) const;
    Result<Receiving*> receiving_from(Peer& peer, Kind kind) const;
    /// For records with so many bytes in all, which one key seals.
    Result<void> make_room(Sending& flow, std::uint64_t records, std::uint64_t size);
    Result<RecordKey*> key_of(Receiving& flow, std::uint32_t epoch) const;
    /// With contexts for all threads.
    Result<const RecordKey*> shared_key_of(Receiving& flow, std::uint32_t epoch) const;
    /// Of the epoch in which the message began, with contexts for all threads.
    Result<const RecordKey*> key_of(LongSend& message) const;

    /// Whose message it is; not authenticated until it has opened. `fresh` is a peer that is not known yet.
    Result<Peer*> sender_of(const std::uint8_t* wire, std::unique_ptr<Peer>& fresh);
    /// The same of what will not be opened; null: it is of nobody whom we know.
    Peer* known_sender_of(const std::uint8_t* wire, std::size_t wire_size) const;
    void remember(std::unique_ptr<Peer> fresh) {
        if (!fresh) return;
        ++counters.peers;
        watched.connection();
        const Share its_share = fresh->share;
        peers.emplace(its_share, std::move(fresh));
    }

    /// Where nobody else writes.
    std::uint8_t* own_room(std::size_t size) {
        if (own_wire.size() < size) own_wire.resize(size);
        return own_wire.data();
    }

    struct Decrypted {
        Peer* from;
        Receiving* flow;
        std::uint64_t number;
        std::unique_ptr<Peer> fresh;
    };
    Result<Decrypted> decrypt(const Envelope& envelope, const std::uint8_t* wire, std::size_t wire_size,
                              std::span<const iovec> out);
    seal::Arrivals& lane_of(Receiving& flow, const Peer* from, std::uint64_t tag) const;
    /// Opens what `from` sent under that epoch of that flow of its.
    Result<void> open_from(Peer& from, Receiving& flow, Kind kind, std::uint32_t epoch, const Ciphertext& sealed,
                           std::span<const iovec> out) const;
    int open_with(const RecordKey& key, const Ciphertext& sealed, std::span<const iovec> out,
                  std::size_t thread = 0) const;
    Result<int> open_with_others(Peer& from, Kind kind, std::uint32_t epoch, const Ciphertext& sealed,
                                 std::span<const iovec> out) const;
    /// How many segments are sealed together, or opened: enough that each thread has some.
    std::size_t together() const { return workers.ready() == 1 ? 1 : workers.ready() * kOfEachThread; }
    /// Seals so many segments of a message, from `first` on.
    Result<void> seal_segments(const LongSend& message, const RecordKey& key, std::uint32_t first, std::uint32_t count,
                               std::span<const iovec> in, std::uint8_t* wire);
    /// Opens what has come (ArrivedSegments) behind the first `done` segments, and counts it there.
    Result<Peer*> open_segments(const std::uint8_t* prefix, std::uint32_t& done, std::optional<std::uint64_t> tag,
                                const std::uint8_t* wire, std::size_t end, std::span<const iovec> out);
    Result<void> open_together(const RecordKey& key, const ArrivedSegments& come, std::uint32_t first,
                               std::uint32_t count) const;
    Result<void> check_order(const Posted& posted, const Decrypted& message, std::uint64_t tag) const;
    Result<void> check_order_among(const Posted& posted, const Decrypted& message, std::uint64_t tag) const;
    Result<Peer*> accept(Kind kind, Decrypted message, std::size_t size);

    const Job& job;
    const seal::Crypto crypto;
    engine::Workers alone;
    engine::Workers& workers;
    FlowSecret private_key = std::make_unique<Secret<kKeySize>>();
    Share share{};
    std::unordered_map<Share, std::unique_ptr<Peer>, ShareHash> peers;
    Peer* last = nullptr;                // that a message came from
    std::uint64_t last_number = 0;       // of a message that its flow counts
    std::vector<std::uint8_t> own_wire;  // what is being sealed or opened, where others may write into the wire
    PostedList posted;
    struct CutOff {
        std::uint64_t place;
        const Peer* from;  // null: from anybody
    };
    std::unordered_map<std::uint64_t, std::vector<CutOff>> cut_offs;  // by tag
    std::uint64_t cut_off_of_anybody = 0;  // so many untagged messages, that are not missed of whomever they were
    Counters counters;
    TrafficCounter watched;
};

Party::Party(std::unique_ptr<State> state) : state_(std::move(state)) {}
Party::~Party() = default;

// protocol: F1
Result<std::unique_ptr<Party>> Party::make(const Job& job) {
    auto state = std::make_unique<State>(job);
    const cryptmpi_kex& kex = *state->crypto.kex;
    if (kex.random(state->private_key->data(), kKeySize) != CRYPTMPI_OK ||
        kex.x25519_public(state->share.data(), state->private_key->data()) != CRYPTMPI_OK) {
        return fail(EIO, "the crypto module failed to make a key pair");
    }
    return std::unique_ptr<Party>(new Party(std::move(state)));
}

const Share& Party::share() const {
    return state_->share;
}

Result<void> Party::State::prove(const FlowSecret& of_job, std::span<const std::uint8_t> address, const Share& of,
                                 std::uint8_t proof[kProofSize]) const {
    constexpr std::string_view kUse = "address";
    const iovec in[] = {piece(kUse.data(), kUse.size()), piece(of.data(), of.size()),
                        piece(address.data(), address.size())};
    std::uint8_t whole[kHash];
    if (crypto.kex->hmac_sha256(whole, of_job->data(), kKeySize, in, std::size(in)) != CRYPTMPI_OK) {
        return fail(EIO, "the crypto module's HMAC-SHA-256 failed");
    }
    std::memcpy(proof, whole, kProofSize);
    return {};
}

Result<bool> Party::State::proves(const FlowSecret& of_job, std::span<const std::uint8_t> address, const Share& of,
                                  const std::uint8_t proof[kProofSize]) const {
    std::uint8_t right[kProofSize];
    if (auto done = prove(of_job, address, of, right); !done) return tl::unexpected(std::move(done.error()));
    unsigned differences = 0;
    for (std::size_t i = 0; i < kProofSize; ++i) differences |= static_cast<unsigned>(right[i] ^ proof[i]);
    return differences == 0;
}

Result<void> Party::prove(std::span<const std::uint8_t> address, const Share& share,
                          std::uint8_t proof[kProofSize]) const {
    return state_->prove(state_->job.secret_, address, share, proof);
}

Result<bool> Party::proves(std::span<const std::uint8_t> address, const Share& share,
                           const std::uint8_t proof[kProofSize]) const {
    auto right = state_->proves(state_->job.secret_, address, share, proof);
    if (!right || *right) return right;
    auto others = state_->job.others();
    if (!others) return tl::unexpected(std::move(others.error()));
    for (const auto& of_job : *others) {
        right = state_->proves(of_job, address, share, proof);
        if (!right || *right) return right;
    }
    return false;
}

Result<FlowSecret> Party::State::pair_secret(const Share& its_share, const FlowSecret& of_job) const {
    if (!seal::owns_keys()) return seal::forked();
    Secret<kKeySize> shared;
    if (crypto.kex->x25519_shared(shared.data(), private_key->data(), its_share.data()) != CRYPTMPI_OK) {
        return fail(EPROTO, "the share of a peer is none: altered, or not ours");
    }
    constexpr std::string_view kUse = "pair";
    const iovec in[] = {piece(kUse.data(), kUse.size()), piece(shared.data(), kKeySize)};
    auto secret = std::make_unique<Secret<seal::kSecretSize>>();
    if (crypto.kex->hmac_sha256(secret->data(), of_job->data(), kKeySize, in, std::size(in)) != CRYPTMPI_OK) {
        return fail(EIO, "the crypto module's HMAC-SHA-256 failed");
    }
    return secret;
}

Result<std::unique_ptr<Peer>> Party::State::make_peer(const Share& its_share) const {
    auto secret = pair_secret(its_share, job.secret_);
    if (!secret) return tl::unexpected(std::move(secret.error()));
    auto peer = std::make_unique<Peer>(its_share);
    peer->secret = std::move(*secret);
    return peer;
}

// protocol: F6
Result<FlowSecret> Party::State::flow_secret(const FlowSecret& of_pair, Kind kind, const Share& sender,
                                             const Share& receiver) const {
    std::string label(kLabels[place_of(kind)]);
    label.push_back('\0');
    append(label, sender);
    append(label, receiver);
    auto secret = std::make_unique<Secret<seal::kSecretSize>>();
    if (auto done = seal::expand(*crypto.kex, of_pair->data(), label, secret->data(), seal::kSecretSize); !done) {
        return tl::unexpected(std::move(done.error()));
    }
    return secret;
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

Result<Peer*> Party::meet(const Share& share) {
    const auto known = state_->peers.find(share);
    if (known != state_->peers.end()) return known->second.get();
    auto made = state_->make_peer(share);
    if (!made) return tl::unexpected(std::move(made.error()));
    Peer* const peer = made->get();
    state_->remember(std::move(*made));
    return peer;
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
    std::vector<seal::Arrivals::Holder> holders;
    posted.each([&](const Posted& one) {
        if (!one.wanted().takes(message.from, tag)) return;
        holders.push_back({one.place(), one.wanted().names_lane && !one.may_be_cancelled()});
    });
    using Verdict = seal::Arrivals::Verdict;
    switch (lane_of(*message.flow, message.from, tag).take(message.number, at.place(), holders)) {
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
