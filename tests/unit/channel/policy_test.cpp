// Which sockets and devices may be opened where only sealed TCP is to leave the node.
#include "channel/policy.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

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
                               "/dev/vfio/12", "/dev/uio0", "/dev/nvidia-caps-imex-channels/channel0"}) {
        EXPECT_TRUE(is_network_device(device)) << device;
    }
    for (const char* device :
         {"/dev/null", "/dev/shm/x", "/dev/urandom", "/dev/nvidia0", "/dev/knem", "/dev/xpmem", "/dev/dax0.0"}) {
        EXPECT_FALSE(is_network_device(device)) << device;
    }
}

}  // namespace
}  // namespace cryptmpi::channel
