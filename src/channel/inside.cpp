#include "channel/inside.hpp"

#include <fcntl.h>
#include <ifaddrs.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "channel/real.hpp"

namespace cryptmpi::channel {

namespace {

constexpr int kTries = 5;  // the other end of a connection that has just been made may be a moment behind
constexpr useconds_t kBetween_us = 1000;
constexpr int kLoopback = 1;      // the interface's index, in every network namespace: the kernel insists
constexpr int kBindToIndex = 62;  // SO_BINDTOIFINDEX, which older headers lack

/// A request for one socket, and its answer. Each has a netlink socket of its own: the process may have changed its
/// network namespace since the last one.
class Diagnosis {
public:
    Diagnosis() : fd_(real::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG)) {}
    ~Diagnosis() {
        if (fd_ >= 0) real::close(fd_);
    }
    Diagnosis(const Diagnosis&) = delete;
    Diagnosis& operator=(const Diagnosis&) = delete;

    Asked ask(const Address& local, const Address& remote, unsigned interface, inet_diag_msg& answer) const {
        if (fd_ < 0 || !send(local, remote, interface)) return Asked::unanswered;
        alignas(nlmsghdr) std::array<char, 1024> space;  // an answer has less than 300
        const ssize_t n = real::recv(fd_, space.data(), space.size(), 0);
        nlmsghdr header;
        if (n < static_cast<ssize_t>(sizeof header)) return Asked::unanswered;
        std::memcpy(&header, space.data(), sizeof header);
        if (header.nlmsg_type == NLMSG_ERROR) {
            nlmsgerr error{};
            if (n < static_cast<ssize_t>(NLMSG_LENGTH(sizeof error))) return Asked::unanswered;
            std::memcpy(&error, space.data() + NLMSG_HDRLEN, sizeof error);
            return error.error == -ENOENT ? Asked::none : Asked::unanswered;
        }
        if (header.nlmsg_type != SOCK_DIAG_BY_FAMILY || n < static_cast<ssize_t>(NLMSG_LENGTH(sizeof answer)))
            return Asked::unanswered;
        std::memcpy(&answer, space.data() + NLMSG_HDRLEN, sizeof answer);
        return Asked::found;
    }

private:
    bool send(const Address& local, const Address& remote, unsigned interface) const {
        struct {
            nlmsghdr header;
            inet_diag_req_v2 request;
        } message{};
        message.header.nlmsg_len = sizeof message;
        message.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
        message.header.nlmsg_flags = NLM_F_REQUEST;
        message.request.sdiag_protocol = IPPROTO_TCP;
        message.request.idiag_states = ~0U;
        auto& id = message.request.id;
        const bool ipv4 = local.ipv4() && remote.ipv4();
        message.request.sdiag_family = ipv4 ? AF_INET : AF_INET6;
        std::memcpy(id.idiag_src, local.bytes + (ipv4 ? 12 : 0), ipv4 ? 4 : 16);
        std::memcpy(id.idiag_dst, remote.bytes + (ipv4 ? 12 : 0), ipv4 ? 4 : 16);
        id.idiag_sport = htons(local.port);
        id.idiag_dport = htons(remote.port);
        id.idiag_if = interface;
        id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
        sockaddr_nl kernel{};
        kernel.nl_family = AF_NETLINK;
        return real::sendto(fd_, &message, sizeof message, 0, reinterpret_cast<sockaddr*>(&kernel), sizeof kernel) ==
               static_cast<ssize_t>(sizeof message);
    }

    int fd_;
};

/// The kernel answers with a listening socket where there is none of the connection: only the very addresses count.
bool is_end(const inet_diag_msg& answer, const __be32 (&words)[4], __be16 port, const Address& address) {
    Address said;
    if (answer.idiag_family == AF_INET) {
        said = Address::from_ipv4(words);
    } else {
        std::memcpy(said.bytes, words, 16);
    }
    return ntohs(port) == address.port && said.same_host(address);
}

/// Tried on Linux 6.18. Of older ones nothing is believed, on which root's name may stand for nobody's.
bool names_owners_of_closed_sockets() {
    static const bool result = [] {
        utsname name{};
        int major = 0;
        int minor = 0;
        if (uname(&name) != 0 || std::sscanf(name.release, "%d.%d", &major, &minor) != 2) return false;
        return major > 6 || (major == 6 && minor >= 18);
    }();
    return result;
}

/// Of a socket that no process has any more older kernels say that it is root's, and so does every kernel that has kept
/// no more of it than a timer.
bool user_known(const inet_diag_msg& answer) {
    constexpr __u8 kNoMoreThanATimer = 3;
    if (answer.idiag_inode != 0) return true;
    return answer.idiag_timer != kNoMoreThanATimer && (answer.idiag_uid != 0 || names_owners_of_closed_sockets());
}

class ThisKernel : public Kernel {
public:
    Asked socket_between(const Address& local, const Address& remote, unsigned interface, Found& found) override {
        inet_diag_msg answer{};
        const Asked asked = Diagnosis().ask(local, remote, interface, answer);
        if (asked != Asked::found) return asked;
        if (!is_end(answer, answer.id.idiag_src, answer.id.idiag_sport, local) ||
            !is_end(answer, answer.id.idiag_dst, answer.id.idiag_dport, remote))
            return Asked::none;
        found = {answer.idiag_inode, answer.idiag_state, answer.idiag_uid, user_known(answer)};
        return Asked::found;
    }

    std::vector<Interface> interfaces() override { return channel::interfaces(); }

    bool routes_loopback() override {
        std::error_code error;
        bool any = false;
        for (const auto& folder : std::filesystem::directory_iterator("/proc/sys/net/ipv4/conf", error)) {
            std::ifstream file(folder.path() / "route_localnet");
            int value = 1;
            file >> value;
            // That of lo says nothing about other interfaces.
            if (value != 0 && folder.path().filename() != "lo") return true;
            any = true;
        }
        return error || !any;
    }
};

/// The interfaces that a socket between these two may be bound to, and none; the same list for both ends.
std::vector<unsigned> bindings(const End& end, std::span<const Interface> all) {
    std::vector<unsigned> result;
    const auto add = [&](unsigned index) {
        if (std::find(result.begin(), result.end(), index) == result.end()) result.push_back(index);
    };
    if (!end.local.link_local() && !end.remote.link_local()) add(0);
    for (const unsigned scope : {end.local.scope, end.remote.scope}) {
        if (scope != 0) add(scope);
    }
    for (const Interface& one : all) {
        const bool of_either = one.address.same_host(end.local) || one.address.same_host(end.remote);
        if (of_either || one.address.loopback()) add(one.index);
    }
    return result;
}

Asked ask_all(Kernel& kernel, const Address& local, const Address& remote, std::span<const unsigned> bound,
              Found& found) {
    for (const unsigned interface : bound) {
        const Asked asked = kernel.socket_between(local, remote, interface, found);
        if (asked != Asked::none) return asked;
    }
    return Asked::none;
}

enum class Ends { found, none, unanswered, of_unknown_user, of_another_user };

/// Whether the kernel holds both ends.
Ends both_ends(Kernel& kernel, const End& end, std::span<const Interface> all) {
    const auto bound = bindings(end, all);
    Found other;
    Found own;
    // The other end first: what it says of its past is then no news to ours.
    const Asked asked = ask_all(kernel, end.remote, end.local, bound, other);
    // A kernel without socket diagnosis says "none" of everything.
    if (ask_all(kernel, end.local, end.remote, bound, own) != Asked::found) return Ends::unanswered;
    if (asked == Asked::unanswered) return Ends::unanswered;
    if (asked == Asked::none) return Ends::none;
    // A socket that is not in the namespace that answers is not ours.
    if (own.inode != end.inode) return Ends::none;
    // What is left of an earlier connection between the same addresses is not the other end of this one.
    const bool closed = other.state == TCP_TIME_WAIT || other.state == TCP_FIN_WAIT2 || other.state == TCP_CLOSE;
    if (closed && own.state == TCP_ESTABLISHED) return Ends::none;
    const bool strangers = other.user_known && other.user != end.user && other.user != 0;
    // Another user can make two ends of his own, bound to an interface, whose addresses are those of ours.
    if (!end.accepted) return strangers ? Ends::of_another_user : Ends::found;
    if (!other.user_known) return Ends::of_unknown_user;
    return strangers ? Ends::none : Ends::found;
}

/// From and to loopback addresses nothing comes off the wire, and nothing leaves by it, unless an interface was told to
/// take 127/8. ::1 is never taken from elsewhere.
bool only_loopback(Kernel& kernel, const End& end) {
    if (end.bound || !end.local.loopback() || !end.remote.loopback()) return false;
    return !end.local.ipv4() || !kernel.routes_loopback();
}

int tcp_state(int fd) {
    tcp_info information{};
    socklen_t size = sizeof information;
    if (real::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &information, &size) != 0) return TCP_CLOSE;
    return information.tcpi_state;
}

/// The index of the interface that the socket is bound to; 0: none; -1: it cannot be told.
long bound_to(int fd) {
    char name[IF_NAMESIZE] = {};
    socklen_t size = sizeof name;
    if (real::getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name, &size) != 0) return -1;
    if (size == 0 || name[0] == '\0') return 0;
    const unsigned index = if_nametoindex(name);
    return index == 0 ? -1 : static_cast<long>(index);
}

}  // namespace

std::vector<Interface> interfaces() {
    std::vector<Interface> result;
    ifaddrs* list = nullptr;
    if (getifaddrs(&list) != 0) return result;
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
        if (entry->ifa_addr == nullptr) continue;
        const auto size = entry->ifa_addr->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
        const auto own = Address::from(entry->ifa_addr, static_cast<socklen_t>(size));
        if (own) result.push_back({if_nametoindex(entry->ifa_name), *own});
    }
    freeifaddrs(list);
    return result;
}

bool owned(const Address& address, std::span<const Interface> all) {
    if (address.unspecified() || address.multicast()) return false;
    if (address.loopback()) return true;
    return std::any_of(all.begin(), all.end(), [&](const Interface& one) {
        const bool in_scope = !address.link_local() || (address.scope != 0 && one.index == address.scope);
        return in_scope && one.address.same_host(address);
    });
}

bool may_be_owned(const Address& address, std::span<const Interface> all) {
    if (address.unspecified() || address.loopback()) return true;
    return std::any_of(all.begin(), all.end(), [&](const Interface& one) { return one.address.same_host(address); });
}

Place place_of(Kernel& kernel, const End& end) {
    const auto all = kernel.interfaces();
    if (!owned(end.local, all) || !owned(end.remote, all)) return Place::outside;
    Ends ends = both_ends(kernel, end, all);
    for (int tries = 1; ends == Ends::none && !end.peer_is_gone && tries < kTries; ++tries) {
        real::usleep(kBetween_us);
        ends = both_ends(kernel, end, all);
    }
    if (ends == Ends::found) return Place::inside;
    if (ends == Ends::of_unknown_user) return Place::unknown;
    const bool loopback = only_loopback(kernel, end);
    if (ends == Ends::of_another_user) return loopback ? Place::inside : Place::outside;
    // A peer that came and went may have left nothing to ask about, and there are kernels that do not answer.
    const bool unknowable = ends == Ends::unanswered || end.peer_is_gone;
    if (!unknowable || !loopback) return Place::outside;
    const bool may_be_anybodys = end.accepted && (end.reset || ends == Ends::none);
    return may_be_anybodys ? Place::unknown : Place::inside;
}

Place place_of(int fd, const Address& peer, bool accepted) {
    const auto local = Address::local_of(fd);
    struct stat information {};
    if (!local || fstat(fd, &information) != 0) return Place::outside;
    ThisKernel kernel;
    const auto now = [&] {
        const int state = tcp_state(fd);
        const bool gone = state != TCP_ESTABLISHED && state != TCP_SYN_SENT && state != TCP_SYN_RECV;
        const bool reset = state == TCP_CLOSE;
        return End{*local, peer, information.st_ino, gone, bound_to(fd) != 0, accepted, geteuid(), reset};
    };
    const End before = now();
    const Place place = place_of(kernel, before);
    // It may have been reset while the kernel was asked, which then had nothing to say of it.
    const End after = now();
    return after.reset && !before.reset ? place_of(kernel, after) : place;
}

void keep_owner_known(int fd) {
    constexpr int kLongest_s = 120;  // above 60 the kernel keeps all of the socket, for what is above
    int seconds = 0;
    socklen_t size = sizeof seconds;
    if (real::getsockopt(fd, IPPROTO_TCP, TCP_LINGER2, &seconds, &size) != 0 || seconds < 0) return;
    if (seconds < kLongest_s) real::setsockopt(fd, IPPROTO_TCP, TCP_LINGER2, &kLongest_s, sizeof kLongest_s);
}

namespace {

/// What the address alone says.
bool stays_inside_datagram(int fd, const Address& to) {
    const long bound = bound_to(fd);
    Address target = to;
    if (target.link_local() && target.scope == 0 && bound > 0) target.scope = static_cast<unsigned>(bound);
    if (target.unspecified() && bound == 0) return true;
    const auto all = interfaces();
    if (!owned(target, all)) return false;
    // Of a socket that is bound to an interface, what is for another interface's address goes out on its own.
    return bound == 0 || std::any_of(all.begin(), all.end(), [&](const Interface& one) {
               const bool is_lo = one.address.loopback();
               return one.index == static_cast<unsigned>(bound) &&
                      (one.address.same_host(target) || (is_lo && target.loopback()));
           });
}

/// As bound_to(), of the socket's own network namespace.
long index_bound_to(int fd) {
    int index = 0;
    socklen_t size = sizeof index;
    return real::getsockopt(fd, SOL_SOCKET, kBindToIndex, &index, &size) == 0 ? index : bound_to(fd);
}

/// False, with errno.
bool bind_to_loopback(int fd) {
    const int index = kLoopback;
    if (real::setsockopt(fd, SOL_SOCKET, kBindToIndex, &index, sizeof index) == 0) return true;
    if (errno == ENOPROTOOPT && real::setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", sizeof "lo") == 0) return true;
    const int error = errno;
    const bool by_another_thread = index_bound_to(fd) == kLoopback;
    errno = error;
    return by_another_thread;
}

/// Of an own address: does the kernel find it from a socket that is bound to the loopback interface?
bool reached_by_loopback(const Address& own, std::span<const Interface> all) {
    if (own.ipv4()) return true;
    return std::any_of(all.begin(), all.end(),
                       [&](const Interface& one) { return one.index == kLoopback && one.address.same_host(own); });
}

}  // namespace

bool keep_inside_datagram(int fd, const Address& to, bool binds, std::string& why) {
    if (!binds) return stays_inside_datagram(fd, to);
    const bool loopback = to.unspecified() || to.loopback();
    if (!loopback) {
        const auto all = interfaces();
        if (!may_be_owned(to, all)) return false;
        if (!reached_by_loopback(to, all)) {
            why = "the kernel cannot be told to keep on this node what is for an own address of IPv6 (::1 it can)";
            return false;
        }
    }
    const long bound = index_bound_to(fd);
    if (bound == kLoopback) return true;
    if (bound != 0) {
        why = "its socket is bound to another interface than the loopback one";
        return false;
    }
    // Kernels before 5.7 ask for CAP_NET_RAW. Loopback addresses, which few lead elsewhere, are all that is left there.
    if (bind_to_loopback(fd) || loopback) return true;
    why = std::string("this system does not let its socket be bound to the loopback interface (") +
          std::strerror(errno) + "), and 127.0.0.1 and ::1 alone are known to stay on this node without";
    return false;
}

}  // namespace cryptmpi::channel
