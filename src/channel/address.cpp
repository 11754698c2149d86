#include "channel/address.hpp"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "channel/real.hpp"

namespace cryptmpi::channel {

namespace {

constexpr socklen_t kLeastIpv6 =
    offsetof(sockaddr_in6, sin6_scope_id);  // RFC 2133 had no more, and the kernel takes it

constexpr std::uint8_t kMappedPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool is_mapped(const std::uint8_t (&bytes)[16]) {
    return std::memcmp(bytes, kMappedPrefix, sizeof kMappedPrefix) == 0;
}

}  // namespace

std::optional<Address> Address::from(const sockaddr* address, socklen_t size) {
    Address result;
    if (address == nullptr || size < sizeof address->sa_family) return std::nullopt;
    if (address->sa_family == AF_INET && size >= sizeof(sockaddr_in)) {
        sockaddr_in in;
        std::memcpy(&in, address, sizeof in);
        result = from_ipv4(&in.sin_addr);
        result.port = ntohs(in.sin_port);
        return result;
    }
    if (address->sa_family == AF_INET6 && size >= kLeastIpv6) {
        sockaddr_in6 in6{};
        std::memcpy(&in6, address, std::min<std::size_t>(size, sizeof in6));
        std::memcpy(result.bytes, &in6.sin6_addr, 16);
        result.port = ntohs(in6.sin6_port);
        if (result.link_local()) result.scope = in6.sin6_scope_id;  // of others the kernel ignores it
        return result;
    }
    return std::nullopt;
}

std::optional<Address> Address::of_datagram(int fd, const sockaddr* to, socklen_t size) {
    if (to == nullptr || size == 0) return peer_of(fd);
    if (size < sizeof to->sa_family || to->sa_family != AF_UNSPEC) return from(to, size);
    if (option_of(fd, SO_DOMAIN) == AF_INET6) return peer_of(fd);
    sockaddr_in in;
    if (size < sizeof in) return std::nullopt;
    std::memcpy(&in, to, sizeof in);
    in.sin_family = AF_INET;
    return from(reinterpret_cast<const sockaddr*>(&in), sizeof in);
}

std::optional<Address> Address::local_of(int fd) {
    sockaddr_storage storage{};
    socklen_t size = sizeof storage;
    if (real::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return std::nullopt;
    return from(reinterpret_cast<sockaddr*>(&storage), size);
}

std::optional<Address> Address::peer_of(int fd) {
    sockaddr_storage storage{};
    socklen_t size = sizeof storage;
    if (real::getpeername(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) return std::nullopt;
    return from(reinterpret_cast<sockaddr*>(&storage), size);
}

Address Address::from_ipv4(const void* four_bytes) {
    Address result;
    std::memcpy(result.bytes, kMappedPrefix, sizeof kMappedPrefix);
    std::memcpy(result.bytes + 12, four_bytes, 4);
    return result;
}

bool Address::ipv4() const {
    return is_mapped(bytes);
}

bool Address::link_local() const {
    return bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
}

bool Address::multicast() const {
    return ipv4() ? (bytes[12] & 0xf0) == 0xe0 : bytes[0] == 0xff;
}

bool Address::unspecified() const {
    return std::all_of(bytes + (ipv4() ? 12 : 0), bytes + 16, [](auto b) { return b == 0; });
}

bool Address::loopback() const {
    if (ipv4()) return bytes[12] == 127;
    return bytes[15] == 1 && std::all_of(bytes, bytes + 15, [](auto b) { return b == 0; });
}

bool Address::same_host(const Address& other) const {
    return std::memcmp(bytes, other.bytes, sizeof bytes) == 0;
}

std::string Address::host() const {
    char buffer[INET6_ADDRSTRLEN] = {};
    if (is_mapped(bytes)) return inet_ntop(AF_INET, bytes + 12, buffer, sizeof buffer);
    return std::string("[") + inet_ntop(AF_INET6, bytes, buffer, sizeof buffer) + "]";
}

std::string Address::text() const {
    return fmt::format("{}:{}", host(), port);
}

int option_of(int fd, int option) {
    int value = 0;
    socklen_t size = sizeof value;
    return real::getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

bool is_internet_socket(int fd) {
    const int family = option_of(fd, SO_DOMAIN);
    return family == AF_INET || family == AF_INET6;
}

}  // namespace cryptmpi::channel
