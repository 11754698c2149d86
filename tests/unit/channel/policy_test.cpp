// Which sockets and devices may be opened where only sealed TCP is to leave the node.
#include "channel/policy.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "base/network_devices.hpp"

namespace cryptmpi::channel {
namespace {

constexpr int kSmc = 256;

TEST(Policy, AllowsTcpDatagramsAndWhatStaysInside) {
    for (const int family : {AF_INET, AF_INET6}) {
        EXPECT_EQ(Policy::refuse_socket(family, SOCK_STREAM, 0), std::nullopt);
        EXPECT_EQ(Policy::refuse_socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP), std::nullopt);
        EXPECT_EQ(Policy::refuse_socket(family, SOCK_DGRAM, 0), std::nullopt);
        EXPECT_EQ(Policy::refuse_socket(family, SOCK_DGRAM | SOCK_CLOEXEC, IPPROTO_UDP), std::nullopt);
    }
    EXPECT_EQ(Policy::refuse_socket(AF_UNIX, SOCK_SEQPACKET, 0), std::nullopt);
    EXPECT_EQ(Policy::refuse_socket(AF_NETLINK, SOCK_RAW, 0), std::nullopt);
}

TEST(Policy, RefusesEveryFamilyThatIsNotNamed) {
    for (int family = 0; family < 64; ++family) {
        const bool named = family == AF_UNSPEC || family == AF_UNIX || family == AF_INET || family == AF_INET6 ||
                           family == AF_NETLINK || family == AF_ALG;
        EXPECT_EQ(Policy::refuse_socket(family, SOCK_STREAM, 0).has_value(), !named) << "family " << family;
    }
}

TEST(Policy, RefusesOtherTransportsOfTheInternet) {
    EXPECT_TRUE(Policy::refuse_socket(AF_INET, SOCK_RAW, IPPROTO_TCP));
    EXPECT_TRUE(Policy::refuse_socket(AF_INET, SOCK_STREAM, IPPROTO_SCTP));
    EXPECT_TRUE(Policy::refuse_socket(AF_INET, SOCK_SEQPACKET, IPPROTO_SCTP));
    EXPECT_TRUE(Policy::refuse_socket(AF_INET, SOCK_STREAM, kSmc));
    EXPECT_TRUE(Policy::refuse_socket(AF_INET, SOCK_DCCP, IPPROTO_DCCP));
}

TEST(Policy, KnowsDevicesThatLeadToOtherNodes) {
    for (const char* device : {"/dev/infiniband/uverbs0", "/dev/hfi1_0", "/dev/cxi0", "/dev/kgni0", "/dev/bxi0",
                               "/dev/vfio/12", "/dev/uio0", "/dev/nvidia-caps-imex-channels/channel0", "/dev/net/tun",
                               "/dev/tap12", "/dev/vhost-net", "/dev/vhost-vsock", "/dev/ppp"}) {
        EXPECT_TRUE(is_network_device(device)) << device;
    }
    for (const char* device : {"/dev/null", "/dev/shm/x", "/dev/urandom", "/dev/nvidia0", "/dev/knem", "/dev/xpmem",
                               "/dev/dax0.0", "/dev/tape/by-id/x", "/dev/tape0"}) {
        EXPECT_FALSE(is_network_device(device)) << device;
    }
}

sockaddr_in6 at_ipv6(const char* host) {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(4242);
    inet_pton(AF_INET6, host, &address.sin6_addr);
    return address;
}

TEST(Address, OfIpv6MayBeWithoutItsScope) {
    const sockaddr_in6 in6 = at_ipv6("fd00::2");
    const auto* given = reinterpret_cast<const sockaddr*>(&in6);
    EXPECT_EQ(Address::from(given, sizeof in6)->text(), "[fd00::2]:4242");
    EXPECT_EQ(Address::from(given, 24)->text(), "[fd00::2]:4242");
    EXPECT_EQ(Address::from(given, 23), std::nullopt);
}

std::string to(int fd, const void* address, socklen_t size) {
    const auto found = Address::of_datagram(fd, static_cast<const sockaddr*>(address), size);
    return found ? found->text() : "nowhere";
}

TEST(Address, OfDatagramsIsWhereTheKernelSendsThem) {
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_port = htons(4242);
    inet_pton(AF_INET, "127.0.0.1", &in.sin_addr);
    const int fd = ::socket(AF_INET, SOCK_DGRAM, 0);
    EXPECT_EQ(to(fd, nullptr, 0), "nowhere");
    ASSERT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&in), sizeof in), 0);
    EXPECT_EQ(to(fd, nullptr, 0), "127.0.0.1:4242");
    EXPECT_EQ(to(fd, &in, 0), "127.0.0.1:4242") << "a name of no length is none";
    inet_pton(AF_INET, "127.0.0.2", &in.sin_addr);
    EXPECT_EQ(to(fd, &in, sizeof in), "127.0.0.2:4242");
    in.sin_family = AF_UNSPEC;
    EXPECT_EQ(to(fd, &in, sizeof in), "127.0.0.2:4242") << "without a family, it is one of IPv4";
    EXPECT_EQ(to(fd, &in, 1), "nowhere");
    ::close(fd);
}

TEST(Address, WithoutAFamilyIsNoneToASocketOfIpv6) {
    sockaddr_in6 in6 = at_ipv6("::ffff:127.0.0.1");
    const int fd = ::socket(AF_INET6, SOCK_DGRAM, 0);
    if (fd < 0) GTEST_SKIP() << "no IPv6 here";
    ASSERT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&in6), sizeof in6), 0);
    inet_pton(AF_INET6, "fd00::2", &in6.sin6_addr);
    EXPECT_EQ(to(fd, &in6, sizeof in6), "[fd00::2]:4242");
    in6.sin6_family = AF_UNSPEC;
    EXPECT_EQ(to(fd, &in6, sizeof in6), "127.0.0.1:4242");
    ::close(fd);
}

}  // namespace
}  // namespace cryptmpi::channel
