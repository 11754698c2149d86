#include "config/plaintext_peer.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>

namespace cryptmpi::config {
namespace {

bool matches(const char* peer_text, const char* address, std::uint16_t port) {
    auto peer = parse_plaintext_peer(peer_text);
    if (!peer) ADD_FAILURE() << peer.error().line;
    std::uint8_t bytes[16] = {};
    if (inet_pton(AF_INET6, address, bytes) != 1) ADD_FAILURE() << address;
    return peer && peer->matches(bytes, port);
}

TEST(PlaintextPeers, MatchAddressesNetworksAndPorts) {
    EXPECT_TRUE(matches("10.0.0.7", "::ffff:10.0.0.7", 1));
    EXPECT_FALSE(matches("10.0.0.7", "::ffff:10.0.0.8", 1));
    EXPECT_TRUE(matches("10.0.0.0/22", "::ffff:10.0.3.255", 1));
    EXPECT_FALSE(matches("10.0.0.0/22", "::ffff:10.0.4.0", 1));
    EXPECT_TRUE(matches("10.0.0.7:80", "::ffff:10.0.0.7", 80));
    EXPECT_FALSE(matches("10.0.0.7:80", "::ffff:10.0.0.7", 81));
    EXPECT_TRUE(matches("[fd00::]/64:80", "fd00::1", 80));
    EXPECT_FALSE(matches("[fd00::]/64", "fd00:0:0:1::1", 80));
    EXPECT_TRUE(matches("fd00::1", "fd00::1", 80));
    EXPECT_TRUE(matches("0.0.0.0/0", "::ffff:1.2.3.4", 80));
    EXPECT_FALSE(matches("0.0.0.0/0", "fd00::1", 80));
}

TEST(PlaintextPeers, RefuseWhatIsNoAddress) {
    for (const char* text : {"", "node1", "10.0.0", "10.0.0.7/33", "10.0.0.7/", "10.0.0.7:0", "10.0.0.7:65536",
                             "10.0.0.7:", "[fd00::1", "[10.0.0.7]", "[fd00::]/129", "10.0.0.7x"}) {
        EXPECT_FALSE(parse_plaintext_peer(text)) << text;
    }
}

}  // namespace
}  // namespace cryptmpi::config
