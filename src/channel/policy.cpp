#include "channel/policy.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstring>

#include "channel/inside.hpp"
#include "channel/real.hpp"

namespace cryptmpi::channel {

namespace {

constexpr int kMultipathTcp = 262;  // IPPROTO_MPTCP, which older headers lack

constexpr socklen_t kLeastIpv6 =
    offsetof(sockaddr_in6, sin6_scope_id);  // RFC 2133 had no more, and the kernel takes it

constexpr std::uint8_t kMappedPrefix[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

bool is_mapped(const std::uint8_t (&bytes)[16]) {
    return std::memcmp(bytes, kMappedPrefix, sizeof kMappedPrefix) == 0;
}

/// "...tcp4://127.0.0.1:49043", "host:port": the addresses that launchers leave in their ranks' environment.
std::optional<Address> endpoint_in(std::string_view text) {
    if (const auto scheme = text.rfind("://"); scheme != std::string_view::npos) text.remove_prefix(scheme + 3);
    const auto colon = text.rfind(':');
    if (colon == std::string_view::npos) return std::nullopt;
    Address address;
    std::memcpy(address.bytes, kMappedPrefix, sizeof kMappedPrefix);
    const std::string host(text.substr(0, colon));
    if (inet_pton(AF_INET, host.c_str(), address.bytes + 12) != 1) return std::nullopt;
    const auto port = text.substr(colon + 1);
    const auto parsed = std::from_chars(port.data(), port.data() + port.size(), address.port);
    if (parsed.ec != std::errc()) return std::nullopt;
    return address;
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
    return host() + ":" + std::to_string(port);
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

Policy::Policy(const config::Settings& settings, const config::Environment& environment) : settings_(settings) {
    // A launcher that runs under the library too seals its connections; one that does not is met inside the node only.
    if (environment("CRYPTMPI_INTERNAL_SEALED_LAUNCHER")) return;
    for (const char* name : {"PMIX_SERVER_URI41", "PMIX_SERVER_URI4", "PMIX_SERVER_URI3", "PMIX_SERVER_URI21",
                             "PMIX_SERVER_URI2", "PMI_PORT"}) {
        const auto value = environment(name);
        if (!value) continue;
        if (const auto address = endpoint_in(*value)) launcher_.push_back(*address);
    }
}

bool Policy::may_differ_inside(const Address& peer) const {
    const bool matters = !settings_.loopback_sealed() || !launcher_.empty();
    return matters && (peer.loopback() || may_be_owned(peer, interfaces()));
}

Verdict Policy::decide_outside(const Address& peer, std::string& why) const {
    if (!settings_.plaintext_allowed(peer.bytes, peer.port)) return Verdict::seal;
    why = "plaintext_peers allows " + peer.host();
    return Verdict::plaintext;
}

Verdict Policy::decide(int fd, const Address& peer, std::string& why, bool accepted) const {
    const Place place = may_differ_inside(peer) ? place_of(fd, peer, accepted) : Place::outside;
    const bool inside = place == Place::inside;
    if (inside && !settings_.loopback_sealed()) return Verdict::native;
    const bool launcher = inside && std::any_of(launcher_.begin(), launcher_.end(), [&](const Address& known) {
                              return known.port == peer.port && known.same_host(peer);
                          });
    if (const Verdict outside = decide_outside(peer, why); outside != Verdict::seal) return outside;
    if (place == Place::unknown && !settings_.loopback_sealed()) return Verdict::leave_out;
    if (!launcher) return Verdict::seal;
    why = "the launcher on this node runs without cryptmpi (start the job with cryptmpi run)";
    return Verdict::plaintext;
}

std::optional<std::string> Policy::refuse_socket(int family, int type, int protocol) {
    constexpr int kInside[] = {AF_UNSPEC, AF_UNIX, AF_NETLINK, AF_ALG};  // which talk to nobody but this node
    constexpr int kStreams[] = {IPPROTO_IP, IPPROTO_TCP, kMultipathTcp};
    constexpr int kDatagrams[] = {IPPROTO_IP, IPPROTO_UDP, IPPROTO_UDPLITE, IPPROTO_ICMP, IPPROTO_ICMPV6};
    const auto among = [](auto& list, int one) {
        return std::find(std::begin(list), std::end(list), one) != std::end(list);
    };
    if (among(kInside, family)) return std::nullopt;
    const int kind = type & 0xf;
    const bool internet = family == AF_INET || family == AF_INET6;
    if (internet && kind == SOCK_STREAM && among(kStreams, protocol)) return std::nullopt;
    if (internet && kind == SOCK_DGRAM && among(kDatagrams, protocol)) return std::nullopt;
    return "sockets of family " + std::to_string(family) + ", type " + std::to_string(kind) + ", protocol " +
           std::to_string(protocol) +
           " are refused: they carry data past the sealed TCP streams; set the MPI's transport to tcp";
}

}  // namespace cryptmpi::channel
