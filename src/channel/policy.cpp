#include "channel/policy.hpp"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "channel/inside.hpp"
#include "config/internal_variables.hpp"

namespace cryptmpi::channel {

namespace {

constexpr int kMultipathTcp = 262;  // IPPROTO_MPTCP, which older headers lack

/// "...tcp4://127.0.0.1:49043", "host:port": the addresses that launchers leave in their ranks' environment.
std::optional<Address> endpoint_in(std::string_view text) {
    if (const auto scheme = text.rfind("://"); scheme != std::string_view::npos) text.remove_prefix(scheme + 3);
    const auto colon = text.rfind(':');
    if (colon == std::string_view::npos) return std::nullopt;
    in_addr ipv4{};
    const std::string host(text.substr(0, colon));
    if (inet_pton(AF_INET, host.c_str(), &ipv4) != 1) return std::nullopt;
    Address address = Address::from_ipv4(&ipv4);
    const auto port = text.substr(colon + 1);
    const auto parsed = std::from_chars(port.data(), port.data() + port.size(), address.port);
    if (parsed.ec != std::errc()) return std::nullopt;
    return address;
}

}  // namespace

Policy::Policy(const config::Settings& settings, const config::Environment& environment) : settings_(settings) {
    // A launcher that runs under the library too seals its connections; one that does not is met inside the node only.
    if (environment(config::kSealedLauncherVariable)) return;
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
    return fmt::format(
        "sockets of family {}, type {}, protocol {} are refused: they carry data past the sealed TCP streams; set the "
        "MPI's transport to tcp",
        family, kind, protocol);
}

}  // namespace cryptmpi::channel
