// Messages of the fabric layer as toy_crypto opens them: those of members who hold the job's key and say what they
// like, in the number that is due or in another; and those of strangers.
#pragma once

#include <cstring>
#include <map>
#include <span>
#include <tuple>

#include "fabric/flows.hpp"
#include "reader.hpp"

namespace cryptmpi::fuzz {

inline constexpr std::uint8_t kMembers = 3;

/// What toy_crypto draws for a member is its share.
inline std::uint8_t draw_of(std::uint8_t member) {
    return static_cast<std::uint8_t>(0x40 + member % kMembers);
}

inline fabric::Share share_of(std::uint8_t member) {
    fabric::Share share;
    share.fill(draw_of(member));
    return share;
}

class Members {
public:
    /// `slip`: 0 for a message that is in order, else it has another number or does not open.
    Bytes seal(std::uint8_t member, fabric::Kind kind, std::uint64_t tag, std::uint8_t slip,
               std::span<const std::uint8_t> plain) {
        const auto share = share_of(member);
        std::uint64_t& next = next_[{member % kMembers, kind, kind == fabric::Kind::tagged ? tag : 0}];
        Bytes wire(fabric::kOverhead + plain.size(), 0);
        std::memcpy(wire.data(), share.data(), share.size());
        store_little((next + slip / 2U) & (fabric::kMostMessages - 1), wire.data() + share.size());
        if (!plain.empty()) std::memcpy(wire.data() + fabric::kPrefixSize, plain.data(), plain.size());
        if (slip % 2 != 0) wire.back() = 1;
        if (slip == 0) ++next;
        return wire;
    }

private:
    std::map<std::tuple<int, fabric::Kind, std::uint64_t>, std::uint64_t> next_;
};

inline void append(Bytes& bytes, std::uint64_t number) {
    std::uint8_t text[sizeof number];
    store_little(number, text);
    bytes.insert(bytes.end(), text, text + sizeof text);
}

}  // namespace cryptmpi::fuzz
