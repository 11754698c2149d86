// Internet addresses, and what the kernel says of a socket's own.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <optional>
#include <string>

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

}  // namespace cryptmpi::channel
