// Which connections are sealed, which stay native, and which roads between nodes are closed.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "config/settings.hpp"

namespace cryptmpi::channel {

/// An internet address and port; IPv4 as IPv4-mapped IPv6.
struct Address {
    std::uint8_t bytes[16] = {};
    std::uint16_t port = 0;

    /// nullopt for other families.
    static std::optional<Address> from(const sockaddr* address, socklen_t size);
    static std::optional<Address> local_of(int fd);
    static std::optional<Address> peer_of(int fd);

    bool loopback() const;
    std::string host() const;  // "10.0.0.2", "[fd00::2]"
    std::string text() const;  // "10.0.0.2:4242", "[fd00::2]:4242"
};

enum class Verdict { seal, native, plaintext };

class Policy {
public:
    Policy(const config::Settings& settings, const config::Environment& environment);

    /// `why` is filled for plaintext: what the report says.
    Verdict decide(const Address& peer, std::string& why) const;

    /// Loopback or one of this node's own addresses: what is sent there does not leave the node.
    static bool on_this_node(const Address& address);

    /// The line for a socket() whose family or type would carry traffic past the streams that are sealed; nullopt if it
    /// may be.
    static std::optional<std::string> refuse_socket(int family, int type, int protocol);

    /// Devices that carry messages between nodes around TCP.
    static bool is_network_device(std::string_view path);

private:
    const config::Settings& settings_;
    std::vector<Address> launcher_;  // where an unsealed launcher of this node waits for its ranks
};

}  // namespace cryptmpi::channel
