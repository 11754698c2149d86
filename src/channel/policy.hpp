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
    std::uint32_t scope = 0;  // the interface of a link-local address; 0 for others, as the kernel has it

    /// nullopt for other families.
    static std::optional<Address> from(const sockaddr* address, socklen_t size);
    /// Where the kernel sends a datagram that was given this address, or none. Without a family, that is an address of
    /// IPv4 to sockets of IPv4, and none to the others. nullopt: nowhere.
    static std::optional<Address> of_datagram(int fd, const sockaddr* to, socklen_t size);
    static std::optional<Address> local_of(int fd);
    static std::optional<Address> peer_of(int fd);
    static Address from_ipv4(const void* four_bytes);

    bool ipv4() const;
    bool link_local() const;  // fe80::/10
    bool multicast() const;
    bool unspecified() const;                    // 0.0.0.0 and ::
    bool loopback() const;                       // 127/8 and ::1
    bool same_host(const Address& other) const;  // whatever the ports and scopes
    std::string host() const;                    // "10.0.0.2", "[fd00::2]"
    std::string text() const;                    // "10.0.0.2:4242", "[fd00::2]:4242"
};

/// SO_DOMAIN, SO_TYPE or SO_PROTOCOL of a socket; -1: it is none.
int option_of(int fd, int option);
bool is_internet_socket(int fd);

/// `leave_out`: whoever connected has closed already, and the kernel does not say who it was.
enum class Verdict { seal, native, plaintext, leave_out };

class Policy {
public:
    Policy(const config::Settings& settings, const config::Environment& environment);

    /// The verdict on the socket's connection, which is there. `why` is filled for plaintext: what the report says.
    Verdict decide(int fd, const Address& peer, std::string& why, bool accepted = false) const;
    /// The verdict where the connection leaves the node.
    Verdict decide_outside(const Address& peer, std::string& why) const;
    /// Before the connection is there: whether its verdict may be another than decide_outside's.
    bool may_differ_inside(const Address& peer) const;

    /// The line for a socket whose family, type or protocol is none of those that are known to stay inside the node, to
    /// be sealed, or to be kept from others; nullopt if it may be.
    static std::optional<std::string> refuse_socket(int family, int type, int protocol);

private:
    const config::Settings& settings_;
    std::vector<Address> launcher_;  // where an unsealed launcher of this node waits for its ranks
};

}  // namespace cryptmpi::channel
