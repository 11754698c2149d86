#include "channel/inside.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <netinet/tcp.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "channel/real.hpp"

namespace cryptmpi::channel {
namespace {

constexpr unsigned kLo = 1, kEth = 2, kDocker = 3;

Address at(const char* text, unsigned scope = 0, std::uint16_t port = 0) {
    sockaddr_in v4{};
    sockaddr_in6 v6{};
    if (inet_pton(AF_INET, text, &v4.sin_addr) == 1) {
        v4.sin_family = AF_INET;
        v4.sin_port = htons(port);
        return *Address::from(reinterpret_cast<sockaddr*>(&v4), sizeof v4);
    }
    EXPECT_EQ(inet_pton(AF_INET6, text, &v6.sin6_addr), 1) << text;
    v6.sin6_family = AF_INET6;
    v6.sin6_scope_id = scope;
    v6.sin6_port = htons(port);
    return *Address::from(reinterpret_cast<sockaddr*>(&v6), sizeof v6);
}

const std::vector<Interface> kNode = {
    {kLo, at("127.0.0.1")},
    {kLo, at("::1")},
    {kEth, at("10.77.0.1")},
    {kEth, at("fe80::1", kEth)},
    {kEth, at("fd00::1")},
    {kDocker, at("172.17.0.1")},
    {kDocker, at("fe80::d", kDocker)},
    {kDocker, at("169.254.1.1")},
};

TEST(Owned, AddressesOfTheNode) {
    for (const char* text : {"127.0.0.1", "127.9.9.9", "::1", "10.77.0.1", "172.17.0.1", "169.254.1.1", "fd00::1",
                             "::ffff:10.77.0.1", "::ffff:127.0.0.1"})
        EXPECT_TRUE(owned(at(text), kNode)) << text;
    for (const char* text :
         {"10.77.0.2", "126.0.0.1", "128.0.0.1", "fd00::2", "::2", "::ffff:10.77.0.2", "::10.77.0.1", "::127.0.0.1"})
        EXPECT_FALSE(owned(at(text), kNode)) << text;
}

TEST(Owned, LinkLocalOnItsOwnInterfaceOnly) {
    EXPECT_TRUE(owned(at("fe80::1", kEth), kNode));
    EXPECT_TRUE(owned(at("fe80::d", kDocker), kNode));
    EXPECT_FALSE(owned(at("fe80::d", kEth), kNode));
    EXPECT_FALSE(owned(at("fe80::1", kDocker), kNode));
    EXPECT_FALSE(owned(at("fe80::d"), kNode));
    EXPECT_FALSE(owned(at("fe80::2", kEth), kNode));
    EXPECT_FALSE(owned(at("febf::1", kEth), kNode));
}

TEST(Owned, NobodysAddresses) {
    for (const char* text : {"0.0.0.0", "::", "224.0.0.1", "239.1.2.3", "ff02::1", "255.255.255.255", "::ffff:0.0.0.0"})
        EXPECT_FALSE(owned(at(text), kNode)) << text;
}

TEST(Owned, NothingWithoutAList) {
    EXPECT_FALSE(owned(at("10.77.0.1"), {}));
    EXPECT_TRUE(owned(at("127.0.0.1"), {}));
}

TEST(Owned, ScopeOfAGlobalAddressIsNoScope) {
    // The kernel ignores it on the way in, and does not tell it to the other end.
    EXPECT_TRUE(owned(at("fd00::1", kDocker), kNode));
}

TEST(MayBeOwned, MoreThanIsOwned) {
    EXPECT_TRUE(may_be_owned(at("0.0.0.0"), kNode));
    EXPECT_TRUE(may_be_owned(at("fe80::d", kEth), kNode));
    EXPECT_TRUE(may_be_owned(at("fe80::1"), kNode));
    EXPECT_FALSE(may_be_owned(at("10.77.0.2"), kNode));
}

class FakeKernel : public Kernel {
public:
    Asked socket_between(const Address& local, const Address& remote, unsigned interface, Found& found) override {
        ++questions;
        if (mute) return Asked::unanswered;
        const auto one = sockets.find({local.text(), remote.text(), interface});
        if (one == sockets.end()) return Asked::none;
        found = one->second;
        return Asked::found;
    }
    std::vector<Interface> interfaces() override { return kNode; }
    bool routes_loopback() override { return routes; }

    void hold(const Address& local, const Address& remote, std::uint64_t inode, int state = TCP_ESTABLISHED,
              unsigned interface = 0, std::uint32_t user = 0, bool user_known = true) {
        sockets[{local.text(), remote.text(), interface}] = {inode, state, user, user_known};
    }

    std::map<std::tuple<std::string, std::string, unsigned>, Found> sockets;
    bool mute = false;
    bool routes = false;
    int questions = 0;
};

bool is_inside(FakeKernel& kernel, const End& end) {
    return place_of(kernel, end) == Place::inside;
}

bool is_inside(int fd, bool accepted) {
    return place_of(fd, *Address::peer_of(fd), accepted) == Place::inside;
}

struct Ends {
    End one, other;
};

Ends ends(FakeKernel& kernel, const Address& a, const Address& b, unsigned interface = 0) {
    kernel.hold(a, b, 11, TCP_ESTABLISHED, interface);
    kernel.hold(b, a, 22, TCP_ESTABLISHED, interface);
    return {{a, b, 11}, {b, a, 22}};
}

TEST(StaysInside, BothEndsInThisKernel) {
    for (const char* text : {"127.0.0.1", "10.77.0.1", "::1", "fd00::1", "::ffff:10.77.0.1"}) {
        FakeKernel kernel;
        const auto both = ends(kernel, at(text, 0, 1000), at(text, 0, 2000));
        EXPECT_TRUE(is_inside(kernel, both.one)) << text;
        EXPECT_TRUE(is_inside(kernel, both.other)) << text;
    }
}

TEST(StaysInside, LinkLocalByItsInterface) {
    FakeKernel kernel;
    const auto both = ends(kernel, at("fe80::1", kEth, 1000), at("fe80::1", kEth, 2000), kEth);
    EXPECT_TRUE(is_inside(kernel, both.one));
    EXPECT_TRUE(is_inside(kernel, both.other));
}

TEST(StaysInside, BoundToLoopbackAtOneEnd) {
    FakeKernel kernel;
    const Address a = at("10.77.0.1", 0, 1000), b = at("10.77.0.1", 0, 2000);
    kernel.hold(a, b, 11, TCP_ESTABLISHED, kLo);
    kernel.hold(b, a, 22);
    EXPECT_TRUE(is_inside(kernel, {a, b, 11, false, true}));
    EXPECT_TRUE(is_inside(kernel, {b, a, 22}));
}

TEST(StaysInside, NotForAnOwnAddressAlone) {
    // A stranger with a spoofed address; policy routing; translation.
    for (const char* text : {"10.77.0.1", "172.17.0.1", "127.0.0.1", "fd00::1", "::1"}) {
        FakeKernel kernel;
        const Address local = at(text, 0, 1000), peer = at(text, 0, 2000);
        kernel.hold(local, peer, 11);
        EXPECT_FALSE(is_inside(kernel, {local, peer, 11})) << text;
    }
}

TEST(StaysInside, NotForALinkLocalAddressOfAnotherInterface) {
    FakeKernel kernel;
    const auto both = ends(kernel, at("fe80::1", kEth, 1000), at("fe80::d", kEth, 2000), kEth);
    EXPECT_FALSE(is_inside(kernel, both.one));
    EXPECT_EQ(kernel.questions, 0);
}

TEST(StaysInside, NotForAProxyThatHasAnothersAddress) {
    FakeKernel kernel;
    const auto both = ends(kernel, at("10.77.0.1", 0, 1000), at("10.77.0.2", 0, 2000));
    EXPECT_FALSE(is_inside(kernel, both.one));
    EXPECT_FALSE(is_inside(kernel, both.other));
}

TEST(StaysInside, NotWhereTheKernelKnowsAnotherSocket) {
    // Of the same addresses in the namespace that answers.
    FakeKernel kernel;
    const auto both = ends(kernel, at("10.77.0.1", 0, 1000), at("10.77.0.1", 0, 2000));
    EXPECT_FALSE(is_inside(kernel, {both.one.local, both.one.remote, 33}));
}

TEST(StaysInside, NotForWhatIsLeftOfAnEarlierConnection) {
    FakeKernel kernel;
    const Address local = at("10.77.0.1", 0, 1000), peer = at("10.77.0.1", 0, 2000);
    kernel.hold(local, peer, 11);
    kernel.hold(peer, local, 0, TCP_TIME_WAIT);
    EXPECT_FALSE(is_inside(kernel, {local, peer, 11}));
    kernel.hold(local, peer, 11, TCP_CLOSE_WAIT);
    EXPECT_TRUE(is_inside(kernel, {local, peer, 11, true}));
}

TEST(StaysInside, NotWhatAnotherUserHasConnected) {
    constexpr std::uint32_t kUser = 1000, kOther = 1001, kRoot = 0;
    for (const char* text : {"127.0.0.1", "10.77.0.1", "::1"}) {
        FakeKernel kernel;
        const Address local = at(text, 0, 1000), peer = at(text, 0, 2000);
        kernel.hold(local, peer, 11, TCP_ESTABLISHED, 0, kUser);
        const End accepted{local, peer, 11, false, false, true, kUser};
        for (const std::uint32_t user : {kUser, kRoot, kOther}) {
            kernel.hold(peer, local, 22, TCP_ESTABLISHED, 0, user);
            EXPECT_EQ(is_inside(kernel, accepted), user != kOther) << text << " of " << user;
        }
    }
}

/// To another user's service; or he has made both ends of a connection like ours, which leaves the node.
TEST(StaysInside, ToAnotherUserFromLoopbackOnly) {
    constexpr std::uint32_t kUser = 1000, kOther = 1001, kRoot = 0;
    for (const char* text : {"127.0.0.1", "10.77.0.1", "::1"}) {
        FakeKernel kernel;
        const Address local = at(text, 0, 1000), peer = at(text, 0, 2000);
        kernel.hold(local, peer, 11, TCP_ESTABLISHED, 0, kUser);
        const End connected{local, peer, 11, false, false, false, kUser};
        for (const std::uint32_t user : {kUser, kRoot, kOther}) {
            kernel.hold(peer, local, 22, TCP_ESTABLISHED, 0, user);
            EXPECT_EQ(is_inside(kernel, connected), user != kOther || local.loopback()) << text << " of " << user;
        }
        kernel.routes = true;
        EXPECT_EQ(is_inside(kernel, connected), local.loopback() && !local.ipv4()) << text;
        End bound = connected;
        bound.bound = true;
        EXPECT_FALSE(is_inside(kernel, bound)) << text;
    }
}

TEST(StaysInside, NobodyKnowsWhoConnectedAndClosed) {
    constexpr std::uint32_t kUser = 1000, kOther = 1001, kRoot = 0;
    for (const char* text : {"127.0.0.1", "10.77.0.1", "::1"}) {
        FakeKernel kernel;
        const Address local = at(text, 0, 1000), peer = at(text, 0, 2000);
        kernel.hold(local, peer, 11, TCP_CLOSE_WAIT, 0, kUser);
        const End accepted{local, peer, 11, true, false, true, kUser};
        for (const std::uint32_t user : {kUser, kRoot, kOther}) {
            kernel.hold(peer, local, 0, TCP_FIN_WAIT2, 0, user, true);
            EXPECT_EQ(is_inside(kernel, accepted), user != kOther) << text << " of " << user;
            kernel.hold(peer, local, 0, TCP_FIN_WAIT2, 0, user, false);
            EXPECT_EQ(place_of(kernel, accepted), Place::unknown) << text << " of " << user;
        }
        // Nothing is left of the other end, or of both. Another address than loopback may be a stranger's then.
        const Place anybodys = accepted.local.loopback() ? Place::unknown : Place::outside;
        kernel.sockets.erase({peer.text(), local.text(), 0U});
        EXPECT_EQ(place_of(kernel, accepted), anybodys) << text;
        kernel.sockets.clear();
        End reset = accepted;
        reset.reset = true;
        EXPECT_EQ(place_of(kernel, reset), anybodys) << text;
    }
}

TEST(StaysInside, PeerThatCameAndWent) {
    FakeKernel kernel;
    const Address local = at("127.0.0.1", 0, 1000), peer = at("127.0.0.1", 0, 2000);
    EXPECT_TRUE(is_inside(kernel, {local, peer, 11, true}));
    EXPECT_FALSE(is_inside(kernel, {local, peer, 11, true, true}));
    EXPECT_FALSE(is_inside(kernel, {at("10.77.0.1", 0, 1000), at("10.77.0.1", 0, 2000), 11, true}));
    EXPECT_FALSE(is_inside(kernel, {local, at("10.77.0.1", 0, 2000), 11, true}));
    kernel.routes = true;
    EXPECT_FALSE(is_inside(kernel, {local, peer, 11, true}));
    EXPECT_TRUE(is_inside(kernel, {at("::1", 0, 1000), at("::1", 0, 2000), 11, true}));
}

TEST(StaysInside, KernelThatDoesNotAnswer) {
    for (const bool mute : {true, false}) {  // or knows nothing of anybody
        FakeKernel kernel;
        kernel.mute = mute;
        EXPECT_TRUE(is_inside(kernel, {at("127.0.0.1", 0, 1000), at("127.0.0.1", 0, 2000), 11}));
        EXPECT_FALSE(is_inside(kernel, {at("10.77.0.1", 0, 1000), at("10.77.0.1", 0, 2000), 11}));
        kernel.routes = true;
        EXPECT_FALSE(is_inside(kernel, {at("127.0.0.1", 0, 1000), at("127.0.0.1", 0, 2000), 11}));
    }
}

/// On a port of loopback.
struct Listener {
    Listener() {
        sockaddr_in local{};
        local.sin_family = AF_INET;
        local.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof address;
        EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&local), sizeof local), 0);
        EXPECT_EQ(::listen(fd, 1), 0);
        EXPECT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
    }
    ~Listener() { ::close(fd); }
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

    int connect() const {
        const int client = ::socket(AF_INET, SOCK_STREAM, 0);
        EXPECT_EQ(::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
        return client;
    }

    int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
};

TEST(StaysInside, ThisKernelKnowsAConnectionOfThisProcess) {
    const Listener listener;
    const int client = listener.connect();
    EXPECT_TRUE(is_inside(client, false));  // not accepted yet
    const int server = ::accept(listener.fd, nullptr, nullptr);
    EXPECT_TRUE(is_inside(client, false));
    EXPECT_TRUE(is_inside(server, true));
    if (geteuid() == 0 && seteuid(12345) == 0) {
        EXPECT_TRUE(is_inside(server, true));  // root's
        const int other = listener.connect();
        EXPECT_EQ(seteuid(0), 0);
        const int of_other = ::accept(listener.fd, nullptr, nullptr);
        EXPECT_FALSE(is_inside(of_other, true));
        for (const int fd : {other, of_other}) ::close(fd);
    }
    for (const int fd : {client, server}) ::close(fd);
}

/// Who connects as the user, is treated by `prepare`, writes and closes, all before he is accepted.
template <class Prepare>
Place place_of_who_closed(uid_t user, Prepare prepare) {
    const Listener listener;
    EXPECT_EQ(seteuid(user), 0);
    const int client = listener.connect();
    prepare(client);
    EXPECT_EQ(::write(client, "x", 1), 1);
    ::close(client);
    EXPECT_EQ(seteuid(0), 0);
    ::usleep(100'000);  // until the kernel has acknowledged all of it
    sockaddr_storage from{};
    socklen_t from_size = sizeof from;
    const int server = ::accept(listener.fd, reinterpret_cast<sockaddr*>(&from), &from_size);
    EXPECT_EQ(seteuid(user), 0);
    const Place place = place_of(server, *Address::from(reinterpret_cast<sockaddr*>(&from), from_size), true);
    EXPECT_EQ(seteuid(0), 0);
    ::close(server);
    return place;
}

TEST(StaysInside, ThisKernelOnWhoConnectedAndClosed) {
    if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
    constexpr uid_t kUser = 12345;
    const auto as_he_is = [](int /*fd*/) {};
    const auto by_reset = [](int fd) {
        const linger now{1, 0};
        EXPECT_EQ(::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now), 0);
    };
    EXPECT_EQ(place_of_who_closed(kUser, as_he_is), Place::unknown);
    EXPECT_EQ(place_of_who_closed(kUser, by_reset), Place::unknown);
    utsname name{};
    ASSERT_EQ(uname(&name), 0);
    int major = 0;
    int minor = 0;
    ASSERT_EQ(std::sscanf(name.release, "%d.%d", &major, &minor), 2);
    if (major < 6 || (major == 6 && minor < 18)) GTEST_SKIP() << "Linux " << name.release << " may not name the owner";
    EXPECT_EQ(place_of_who_closed(kUser, keep_owner_known), Place::inside);
}

/// A datagram socket, and what is said of a datagram of its.
struct Datagrams {
    explicit Datagrams(int family = AF_INET) : fd(::socket(family, SOCK_DGRAM, 0)) {}
    ~Datagrams() { ::close(fd); }
    Datagrams(const Datagrams&) = delete;
    Datagrams& operator=(const Datagrams&) = delete;

    std::string bound_to() const {
        char name[IF_NAMESIZE] = {};
        socklen_t size = sizeof name;
        return ::getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &size) == 0 ? name : "?";
    }

    const int fd;
    std::string why;
};

/// Some address of this node's that is no loopback address.
std::optional<Interface> elsewhere(bool ipv4) {
    for (const Interface& one : interfaces()) {
        if (one.index != kLo && one.address.ipv4() == ipv4 && !one.address.loopback()) return one;
    }
    return std::nullopt;
}

TEST(KeepsInside, DatagramsForLoopbackAddressesByALoopbackSocket) {
    for (const char* const target : {"127.0.0.1", "127.9.9.9", "0.0.0.0"}) {
        Datagrams one;
        EXPECT_TRUE(keep_inside_datagram(one.fd, at(target), true, one.why)) << target;
        EXPECT_EQ(one.bound_to(), "lo") << target;
        EXPECT_TRUE(keep_inside_datagram(one.fd, at(target), true, one.why)) << "once more";
    }
    Datagrams ipv6(AF_INET6);
    EXPECT_TRUE(keep_inside_datagram(ipv6.fd, at("::1"), true, ipv6.why));
    EXPECT_EQ(ipv6.bound_to(), ipv6.fd < 0 ? "?" : "lo");
}

TEST(KeepsInside, NoDatagramsForOthers) {
    for (const char* const target : {"192.0.2.1", "224.0.0.1", "2001:db8::1"}) {
        Datagrams one;
        EXPECT_FALSE(keep_inside_datagram(one.fd, at(target), true, one.why)) << target;
        EXPECT_EQ(one.why, "");
        EXPECT_EQ(one.bound_to(), "");
    }
}

TEST(KeepsInside, DatagramsByAnySocketWhereOthersAreAllowed) {
    Datagrams one;
    EXPECT_TRUE(keep_inside_datagram(one.fd, at("127.0.0.1"), false, one.why));
    EXPECT_FALSE(keep_inside_datagram(one.fd, at("192.0.2.1"), false, one.why));
    EXPECT_EQ(one.bound_to(), "");
}

TEST(KeepsInside, DatagramsForOtherOwnAddressesWhereTheKernelCan) {
    if (const auto own = elsewhere(true)) {
        Datagrams one;
        EXPECT_TRUE(keep_inside_datagram(one.fd, own->address, true, one.why));
        EXPECT_EQ(one.bound_to(), "lo");
    }
    if (const auto own = elsewhere(false)) {
        Datagrams one(AF_INET6);
        EXPECT_FALSE(keep_inside_datagram(one.fd, own->address, true, one.why));
        EXPECT_NE(one.why.find("IPv6"), std::string::npos) << one.why;
        EXPECT_EQ(one.bound_to(), "");
    }
}

TEST(KeepsInside, NoDatagramsOfASocketThatIsBoundToAnotherInterface) {
    const auto own = elsewhere(true);
    char name[IF_NAMESIZE] = {};
    if (!own || if_indextoname(own->index, name) == nullptr) GTEST_SKIP() << "no other interface here";
    Datagrams one;
    ASSERT_EQ(::setsockopt(one.fd, SOL_SOCKET, SO_BINDTODEVICE, name, sizeof name), 0);
    EXPECT_FALSE(keep_inside_datagram(one.fd, own->address, true, one.why));
    EXPECT_FALSE(keep_inside_datagram(one.fd, at("127.0.0.1"), true, one.why));
    EXPECT_NE(one.why.find("bound to another interface"), std::string::npos) << one.why;
}

TEST(KeepsInside, DatagramsForLoopbackAddressesAloneWhereNoSocketCanBeBound) {
    real::setsockopt.replace([](int /*fd*/, int /*level*/, int /*option*/, const void* /*value*/, socklen_t /*size*/) {
        errno = EPERM;
        return -1;
    });
    Datagrams one;
    EXPECT_TRUE(keep_inside_datagram(one.fd, at("127.0.0.1"), true, one.why));
    EXPECT_EQ(one.bound_to(), "");
    if (const auto own = elsewhere(true)) {
        EXPECT_FALSE(keep_inside_datagram(one.fd, own->address, true, one.why));
        EXPECT_NE(one.why.find("Operation not permitted"), std::string::npos) << one.why;
    }
    real::setsockopt.replace(nullptr);
}

}  // namespace
}  // namespace cryptmpi::channel
