// What a party has of its job and of its peers: for the files that seal and open its messages, and nobody else.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fabric/flows.hpp"
#include "fabric/lanes.hpp"
#include "fabric/window.hpp"
#include "seal/arrivals.hpp"

namespace cryptmpi::fabric {

using seal::RecordKey;
using FlowSecret = std::unique_ptr<Secret<seal::kSecretSize>>;

inline constexpr std::size_t kKeySize = 32;
inline constexpr unsigned kEpochShift = 48;
inline constexpr std::size_t kOfEachThread = 4;  // segments

inline std::size_t place_of(Kind kind) {
    return static_cast<std::size_t>(kind);
}

/// Each epoch's secret comes from the flow's, not from the epoch before: messages of an old one may come late.
Result<RecordKey> epoch_key(const seal::Crypto& crypto, const FlowSecret& secret, std::uint32_t epoch);

/// Of a message, in its nonce.
struct Place {
    std::uint32_t lane;
    std::uint64_t counter;
};

/// A ciphertext with its tag behind it, and what it opens under.
struct Ciphertext {
    Place place;
    std::span<const std::uint8_t> bound;
    const std::uint8_t* at;
    std::size_t size;
};

/// long_messages.cpp
struct ArrivedSegments;

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
inline Result<void> opened_by(int status) {
    if (status == CRYPTMPI_FORGED) return fail(EBADMSG, "does not open: altered, moved, or not ours");
    if (status != CRYPTMPI_OK) return fail(EIO, "the crypto module failed to open a message");
    return {};
}

inline Result<void> misled() {
    return fail(EBADMSG, "came to a receive for another sender or tag");
}

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

}  // namespace cryptmpi::fabric
