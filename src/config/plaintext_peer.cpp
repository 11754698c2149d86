#include "config/plaintext_peer.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace cryptmpi::config {
namespace {

std::optional<int> number_up_to(int highest, std::string_view digits) {
    int value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool is_number = error == std::errc{} && end == digits.data() + digits.size();
    return is_number && value >= 0 && value <= highest ? std::optional(value) : std::nullopt;
}

/// "10.0.0.0/24:5000", "[fd00::]/64:5000" or "fd00::1" in its parts.
struct PeerText {
    std::string host;
    bool is_ipv6 = false;
    std::string_view rest;  // from the "/" or the ":" before the port on
};

std::optional<PeerText> split_peer(std::string_view text) {
    if (text.starts_with('[')) {
        const auto bracket = text.find(']');
        if (bracket == std::string_view::npos) return std::nullopt;
        return PeerText{std::string(text.substr(1, bracket - 1)), true, text.substr(bracket + 1)};
    }
    const bool is_ipv6 = std::count(text.begin(), text.end(), ':') > 1;  // without brackets: no port possible
    const auto end = std::min(is_ipv6 ? text.find('/') : text.find_first_of("/:"), text.size());
    return PeerText{std::string(text.substr(0, end)), is_ipv6, text.substr(end)};
}

bool read_host(const PeerText& text, PlaintextPeer& peer) {
    if (text.is_ipv6) return inet_pton(AF_INET6, text.host.c_str(), peer.address) == 1;
    peer.address[10] = peer.address[11] = 0xff;
    return inet_pton(AF_INET, text.host.c_str(), peer.address + 12) == 1;
}

bool read_prefix(PeerText& text, PlaintextPeer& peer) {
    peer.prefix_bits = 128;
    if (!text.rest.starts_with('/')) return true;
    const auto colon = std::min(text.rest.find(':'), text.rest.size());
    const auto bits = number_up_to(text.is_ipv6 ? 128 : 32, text.rest.substr(1, colon - 1));
    if (!bits) return false;
    peer.prefix_bits = text.is_ipv6 ? *bits : *bits + 96;
    text.rest.remove_prefix(colon);
    return true;
}

bool read_port(PeerText& text, PlaintextPeer& peer) {
    if (text.rest.empty()) return true;
    if (!text.rest.starts_with(':')) return false;
    const auto port = number_up_to(65535, text.rest.substr(1));
    if (!port || *port == 0) return false;
    peer.port = static_cast<std::uint16_t>(*port);
    return true;
}

}  // namespace

bool PlaintextPeer::matches(const std::uint8_t (&peer)[16], std::uint16_t peer_port) const {
    if (port && *port != peer_port) return false;
    const auto whole = static_cast<std::size_t>(prefix_bits / 8);
    if (std::memcmp(peer, address, whole) != 0) return false;
    const int rest = prefix_bits % 8;
    return rest == 0 || ((peer[whole] ^ address[whole]) >> (8 - rest)) == 0;
}

Result<PlaintextPeer> parse_plaintext_peer(std::string_view text) {
    PlaintextPeer peer{};
    peer.text = text;
    auto parts = split_peer(text);
    if (parts && read_host(*parts, peer) && read_prefix(*parts, peer) && read_port(*parts, peer)) return peer;
    return fail(EINVAL, '"' + std::string(text) +
                            "\" is not an address; allowed: 10.0.0.7, 10.0.0.0/24, [fd00::1], [fd00::]/64, each "
                            "with an optional :port");
}

}  // namespace cryptmpi::config
