// The addresses with which nothing is sealed, because the user says so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace cryptmpi::config {

/// One entry of plaintext_peers: "10.0.0.7", "10.0.0.0/24", "[fd00::]/64", each with an optional ":port".
struct PlaintextPeer {
    std::uint8_t address[16];  // IPv4 as IPv4-mapped
    int prefix_bits;           // of 128
    std::optional<std::uint16_t> port;
    std::string text;  // as the user wrote it

    bool matches(const std::uint8_t (&peer)[16], std::uint16_t peer_port) const;
};
Result<PlaintextPeer> parse_plaintext_peer(std::string_view text);

}  // namespace cryptmpi::config
