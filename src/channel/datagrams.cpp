#include "channel/datagrams.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <optional>

#include "channel/real.hpp"

namespace cryptmpi::channel {
namespace {

constexpr std::uint32_t kLoopback = 1;  // its index, in every network namespace: the kernel insists
constexpr std::uint32_t kAccept = 0xffffffff;
constexpr int kMappedBits = 96;  // ::ffff:0:0/96 are IPv4's addresses

constexpr sock_filter load(std::uint16_t size, std::uint32_t from) {
    return BPF_STMT(static_cast<std::uint16_t>(BPF_LD | BPF_ABS | size), from);
}

constexpr sock_filter load_of_packet(int what) {
    return load(BPF_W, static_cast<std::uint32_t>(SKF_AD_OFF + what));
}

constexpr sock_filter load_of_header(std::uint16_t size, int at) {
    return load(size, static_cast<std::uint32_t>(SKF_NET_OFF + at));
}

constexpr sock_filter answer(std::uint32_t value) {
    return BPF_STMT(BPF_RET | BPF_K, value);
}

/// Conditions that must all hold.
class Conditions {
public:
    /// What was loaded, under the mask, has this value.
    void add(sock_filter loaded, std::uint32_t mask, std::uint32_t value) {
        code_.push_back(loaded);
        code_.push_back(BPF_STMT(BPF_ALU | BPF_AND | BPF_K, mask));
        code_.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value & mask, 0, 0));
    }

    /// Lets a packet in that meets all of them; any other goes on to what follows.
    void accept_in(std::vector<sock_filter>& filter) {
        code_.push_back(answer(kAccept));
        for (std::size_t i = 0; i < code_.size(); ++i) {
            if (BPF_CLASS(code_[i].code) == BPF_JMP) code_[i].jf = static_cast<std::uint8_t>(code_.size() - i - 1);
        }
        filter.insert(filter.end(), code_.begin(), code_.end());
    }

private:
    std::vector<sock_filter> code_;
};

std::uint32_t word_of(const std::uint8_t* bytes) {
    return std::uint32_t{bytes[0]} << 24U | std::uint32_t{bytes[1]} << 16U | std::uint32_t{bytes[2]} << 8U | bytes[3];
}

/// The first `bits` of a word.
constexpr std::uint32_t mask_of(int bits) {
    if (bits <= 0) return 0;
    return bits >= 32 ? ~std::uint32_t{0} : ~(~std::uint32_t{0} >> static_cast<unsigned>(bits));
}

void add_sender(std::vector<sock_filter>& filter, const config::PlaintextPeer& peer, std::uint32_t version) {
    constexpr int kSenderOfIpv4 = 12;
    constexpr int kSenderOfIpv6 = 8;
    Conditions conditions;
    conditions.add(load_of_header(BPF_B, 0), 0xf0, version << 4U);
    if (version == 4) {
        conditions.add(load_of_header(BPF_W, kSenderOfIpv4), mask_of(peer.prefix_bits - kMappedBits),
                       word_of(peer.address + 12));
    } else {
        for (int word = 0; word < 4; ++word) {
            conditions.add(load_of_header(BPF_W, kSenderOfIpv6 + 4 * word), mask_of(peer.prefix_bits - 32 * word),
                           word_of(peer.address + 4 * word));
        }
    }
    // Offsets without a base are into what the socket gets: UDP's header, which begins with the sender's port.
    if (peer.port) conditions.add(load(BPF_H, 0), 0xffff, *peer.port);
    conditions.accept_in(filter);
}

/// Are all IPv4 addresses, some, or none of them meant?
bool means_ipv4(const config::PlaintextPeer& peer) {
    constexpr std::uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    for (int word = 0; word < 3; ++word) {
        const std::uint32_t mask = mask_of(peer.prefix_bits - 32 * word);
        if (((word_of(peer.address + 4 * word) ^ word_of(kMapped + 4 * word)) & mask) != 0) return false;
    }
    return true;
}

bool is_there(int fd, const std::vector<sock_filter>& filter) {
    int locked = 0;
    socklen_t size = sizeof locked;
    if (real::getsockopt(fd, SOL_SOCKET, SO_LOCK_FILTER, &locked, &size) != 0 || locked == 0) return false;
    std::vector<sock_filter> found(BPF_MAXINSNS);
    auto count = static_cast<socklen_t>(found.size());  // of instructions
    if (real::getsockopt(fd, SOL_SOCKET, SO_GET_FILTER, found.data(), &count) != 0) return false;
    return count == filter.size() && std::memcmp(found.data(), filter.data(), count * sizeof(sock_filter)) == 0;
}

/// What came in before the filter was there.
void empty(int fd) {
    constexpr int kErrors = 16;  // that others' ICMP messages have left; each read takes one
    int errors = 0;
    const int off = 0;
    (void)real::setsockopt(fd, IPPROTO_IP, IP_RECVERR, &off, sizeof off);
    (void)real::setsockopt(fd, IPPROTO_IPV6, IPV6_RECVERR, &off, sizeof off);
    char byte = 0;
    while (real::recv_now(fd, &byte, sizeof byte) >= 0 || (errno != EAGAIN && ++errors < kErrors)) {
    }
}

}  // namespace

std::vector<sock_filter> datagram_filter(std::span<const config::PlaintextPeer> allowed) {
    std::vector<sock_filter> filter;
    Conditions inside;
    inside.add(load_of_packet(SKF_AD_IFINDEX), ~std::uint32_t{0}, kLoopback);
    inside.accept_in(filter);
    for (const auto& peer : allowed) {
        if (means_ipv4(peer)) add_sender(filter, peer, 4);
        if (!means_ipv4(peer) || peer.prefix_bits < kMappedBits) add_sender(filter, peer, 6);
    }
    filter.push_back(answer(0));
    return filter;
}

bool keep_strangers_out(int fd, std::span<const config::PlaintextPeer> allowed) {
    std::vector<sock_filter> filter = datagram_filter(allowed);
    // A process of the job before this one, which had the same settings, has put it there.
    if (is_there(fd, filter)) return true;
    const sock_fprog program{static_cast<std::uint16_t>(filter.size()), filter.data()};
    const int on = 1;
    if (filter.size() > BPF_MAXINSNS) {
        errno = E2BIG;
        return false;
    }
    if (real::setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) != 0) return false;
    if (real::setsockopt(fd, SOL_SOCKET, SO_LOCK_FILTER, &on, sizeof on) != 0) return false;
    empty(fd);
    return true;
}

bool lets_errors_in(int level, int option) {
    return (level == IPPROTO_IP && option == IP_RECVERR) || (level == IPPROTO_IPV6 && option == IPV6_RECVERR);
}

bool gives_a_route(int level, int option) {
    return (level == IPPROTO_IP && option == IP_OPTIONS) ||
           (level == IPPROTO_IPV6 && (option == IPV6_RTHDR || option == IPV6_2292PKTOPTIONS));
}

bool names_a_way(const msghdr& message) {
    if (message.msg_control == nullptr) return false;
    for (cmsghdr* control = CMSG_FIRSTHDR(&message); control != nullptr;
         control = CMSG_NXTHDR(const_cast<msghdr*>(&message), control)) {
        const auto is = [&](int level, int type, std::size_t size) {
            return control->cmsg_level == level && control->cmsg_type == type && control->cmsg_len >= CMSG_LEN(size);
        };
        if (is(IPPROTO_IP, IP_RETOPTS, 0) || is(IPPROTO_IPV6, IPV6_RTHDR, 0) || is(IPPROTO_IPV6, IPV6_2292RTHDR, 0))
            return true;
        std::uint32_t interface = 0;
        if (is(IPPROTO_IP, IP_PKTINFO, sizeof(in_pktinfo)))
            std::memcpy(&interface, CMSG_DATA(control) + offsetof(in_pktinfo, ipi_ifindex), sizeof interface);
        if (is(IPPROTO_IPV6, IPV6_PKTINFO, sizeof(in6_pktinfo)) ||
            is(IPPROTO_IPV6, IPV6_2292PKTINFO, sizeof(in6_pktinfo)))
            std::memcpy(&interface, CMSG_DATA(control) + offsetof(in6_pktinfo, ipi6_ifindex), sizeof interface);
        if (interface != 0 && interface != kLoopback) return true;
    }
    return false;
}

}  // namespace cryptmpi::channel
