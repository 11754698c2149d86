// What comes through a fabric's door: receives are posted, messages of any form come to them, or are cut off, in any
// order, from any share, under either of two job keys.
//
// Input, again and again: what happens (1 byte) | slot of a receive, and a peer (1) | tag (1) | then by what happens:
//   a message that is composed:  number (1) | epoch (1) | tag of the cipher (1) | size of its plaintext (1)
//   arbitrary bytes as one:      how many (1) | the bytes
//   one in segments (what happens: 255): number (1) | epoch (1) | number among long ones (1) | size (1) | when
//   another's
//     beginning is written over its own (1) | how many times it is opened before its end (1) | how much less it has at
//     its end (2) | tags of the cipher of its segments (1 each)
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <set>
#include <tuple>
#include <vector>

#include "base/endian.hpp"
#include "fabric/flows.hpp"
#include "reader.hpp"
#include "scratch.hpp"
#include "toy_crypto.hpp"

using namespace cryptmpi;
using fabric::Kind;
using fuzz::Bytes;
using fuzz::Reader;
using fuzz::require;

namespace {

constexpr std::size_t kSlots = 6;
constexpr std::uint8_t kUntouched = 0xee;
constexpr std::uint8_t kBound[] = {1, 2, 3};

/// Few tags, that differ in both halves: the nonce has both.
std::uint64_t tag_of(std::uint8_t byte) {
    return byte % 4U | std::uint64_t{byte / 4U % 4U} << 40;
}

fabric::Share share_of(std::uint8_t number) {
    fabric::Share share;
    share.fill(static_cast<std::uint8_t>(0x40 + number % 4));
    return share;
}

class Receiver {
public:
    explicit Receiver(std::unique_ptr<fabric::Party> party) : party_(std::move(party)) {}

    void act(Reader& in) {
        const std::uint8_t what = in.byte();
        const std::uint8_t who = in.byte();
        const std::uint64_t tag = tag_of(in.byte());
        fabric::Posted& slot = slots_[who % kSlots];
        if (what == 0xff) {
            in_segments(slot, who, tag, in);
            return;
        }
        switch (what % 8) {
            case 0:
                post(slot, what, who, tag);
                break;
            case 1:
                tagged(slot, tag, composed(in, who));
                break;
            case 2:
                tagged(slot, tag, raw(in));
                break;
            case 3:
                other((what & 0x80) != 0 ? Kind::active : Kind::message, tag, composed(in, who));
                break;
            case 4:
                other((what & 0x80) != 0 ? Kind::active : Kind::message, tag, raw(in));
                break;
            case 5:
                cut_off(slot, tag, (what & 0x80) != 0 ? composed(in, who) : raw(in));
                break;
            case 6:
                if (slot.waits()) (void)party_->cut_off(slot, tag);
                break;
            default:
                if ((what & 0x80) != 0)
                    slot.withdraw();
                else
                    slot.ask_to_cancel();
        }
    }

    void end() const { (void)party_->expect_none_missing(); }

private:
    void post(fabric::Posted& slot, std::uint8_t what, std::uint8_t who, std::uint64_t tag) {
        fabric::Wanted wanted{.tag = tag};
        if ((what & 0x10) != 0) wanted.mask = 0xffffffff;
        if ((what & 0x20) != 0) {
            const auto peer = party_->meet(share_of(who / kSlots));
            require(peer.has_value());
            wanted.from = *peer;
        }
        wanted.names_lane = (what & 0x30) == 0x20;
        party_->post(slot, wanted);
    }

    static Bytes composed(Reader& in, std::uint8_t who) {
        const auto share = share_of(who / kSlots);
        const std::uint64_t number = in.byte(), epoch = in.byte();
        const std::uint8_t cipher_tag = in.byte(), size = in.byte();
        Bytes wire(fabric::kOverhead + size, 0);
        std::memcpy(wire.data(), share.data(), share.size());
        store_little(number | epoch << 48U, wire.data() + share.size());
        std::memset(wire.data() + fabric::kPrefixSize, 0x77, size);
        wire[wire.size() - seal::kTagSize] = cipher_tag;
        return wire;
    }
    static Bytes raw(Reader& in) { return in.bytes(in.byte()); }

    void tagged(fabric::Posted& slot, std::uint64_t tag, const Bytes& wire) {
        if (!slot.waits()) return;
        const fabric::Wanted wanted = slot.wanted();
        open(Kind::tagged, tag, wire, [&](std::span<const iovec> out) {
            auto from = party_->open(slot, tag, kBound, wire.data(), wire.size(), out);
            require(!slot.waits());
            require(!from || wanted.takes(*from, tag));
            return from;
        });
    }

    void other(Kind kind, std::uint64_t tag, const Bytes& wire) {
        const fabric::Envelope envelope{kind, tag, kBound};
        open(kind, tag, wire,
             [&](std::span<const iovec> out) { return party_->open(envelope, wire.data(), wire.size(), out); });
    }

    /// Opened as it comes, in parts.
    void in_segments(fabric::Posted& slot, std::uint8_t who, std::uint64_t tag, Reader& in) {
        constexpr std::size_t kOnWire = fabric::kSegment + seal::kTagSize;
        const std::uint64_t number = in.byte(), epoch = in.byte(), long_number = in.byte();
        const std::size_t size = fabric::kLongestWhole - 16 + 1000 * std::size_t{in.byte()};
        const std::uint8_t written_over = in.byte(), parts = in.byte();
        const std::size_t less = in.byte() + 256 * std::size_t{in.byte()};
        if (!slot.waits()) return;
        const auto share = share_of(who / kSlots);
        Bytes wire(fabric::wire_size_of(size), 0x77);
        std::memcpy(wire.data(), share.data(), share.size());
        store_little(number | (epoch | 0x8000) << 48U, wire.data() + share.size());
        store_little(long_number, wire.data() + fabric::kPrefixSize);
        for (std::size_t end = fabric::kLongPrefixSize + kOnWire; end < wire.size() + kOnWire; end += kOnWire) {
            std::uint8_t* const cipher_tag = wire.data() + std::min(end, wire.size()) - seal::kTagSize;
            std::memset(cipher_tag, 0, seal::kTagSize);
            *cipher_tag = in.byte();
        }
        Bytes plain(size, kUntouched);
        const iovec out{plain.data(), plain.size()};
        fabric::LongReceive message;
        const std::uint64_t before = party_->counters().received[0].messages;
        for (std::uint8_t part = 0; part < parts % 8; ++part) {
            if (part + 1 == written_over) wire[0] ^= 1;
            const auto opened = party_->open_long(message, wire.data(), (part + 1) * wire.size() / 8, {&out, 1});
            if (!opened) fuzz::require_one_line(opened.error().line);
            if (!opened) slot.withdraw();
            if (!opened) return;
        }
        const std::size_t come = wire.size() - std::min(less, wire.size());
        const auto from = party_->end_long(message, slot, tag, wire.data(), come, {&out, 1});
        require(!slot.waits());
        if (!from) {
            fuzz::require_one_line(from.error().line);
            for (const std::uint8_t byte : plain) require(byte == 0);
            return;
        }
        require(fabric::size_of(come).value_or(0) > fabric::kLongestWhole);
        require(opened_.emplace(Kind::tagged, fabric::share_of(**from), tag, number).second);
        require(party_->counters().received[0].messages == before + 1);
        ++messages_[0];
    }

    /// What does not open leaves zeros. What opens did so for the first time, and is of who its share names.
    template <class Open>
    void open(Kind kind, std::uint64_t tag, const Bytes& wire, const Open& open) {
        Bytes plain(wire.size() < fabric::kOverhead ? 8 : wire.size() - fabric::kOverhead, kUntouched);
        const std::size_t cut = plain.size() / 3;
        const iovec out[] = {{plain.data(), cut}, {plain.data() + cut, plain.size() - cut}};
        const auto from = open(out);
        if (!from) {
            fuzz::require_one_line(from.error().line);
            for (const std::uint8_t byte : plain) require(byte == 0);
            return;
        }
        require(wire.size() >= fabric::kOverhead);
        fabric::Share share;
        std::memcpy(share.data(), wire.data(), share.size());
        require(fabric::share_of(**from) == share);
        const std::uint64_t number = load_little(wire.data() + share.size()) & (fabric::kMostMessages - 1);
        // A flow of tagged messages counts for each tag, the others for all.
        require(opened_.emplace(kind, share, kind == Kind::tagged ? tag : 0, number).second);
        require(std::equal(plain.begin(), plain.end(), wire.begin() + fabric::kPrefixSize));
        const auto counted = party_->counters().received[static_cast<std::size_t>(kind)];
        require(counted.messages == ++messages_[static_cast<std::size_t>(kind)]);
    }

    void cut_off(fabric::Posted& slot, std::uint64_t tag, const Bytes& wire) {
        if (!slot.waits()) return;
        (void)party_->cut_off(slot, tag, wire.data(), wire.size());
        require(!slot.waits());
    }

    std::unique_ptr<fabric::Party> party_;
    std::array<fabric::Posted, kSlots> slots_;
    std::set<std::tuple<Kind, fabric::Share, std::uint64_t, std::uint64_t>> opened_;
    std::array<std::uint64_t, fabric::kKinds> messages_ = {};
};

keys::KeyRing& ring() {
    static const fuzz::Scratch scratch;
    static const auto made = [] {
        std::string lines;
        for (const char digit : {'1', '6'}) lines += "cryptmpi-job-key-1 " + std::string(64, digit) + "\n";
        return keys::KeyRing::read(*fuzz::toy_crypto().kex, scratch.write("job.key", lines), KeyReaders::owner, "");
    }();
    require(made.has_value());
    return **made;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    Reader in(data, size);
    const bool is_written_by_network = (in.byte() & 1) != 0;
    const auto job = fabric::Job::join(fuzz::toy_crypto(), ring(), "job", is_written_by_network);
    require(job.has_value());
    auto party = fabric::Party::make(*job);
    require(party.has_value());
    Receiver receiver(std::move(*party));
    while (!in.is_empty()) receiver.act(in);
    receiver.end();
    return 0;
}
