// socket, connect, accept and what is asked of a socket.
#include <fcntl.h>
#include <fmt/core.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstring>

#include "channel/calls.hpp"
#include "channel/datagrams.hpp"
#include "channel/epoll.hpp"
#include "channel/inside.hpp"
#include "channel/real.hpp"
#include "programs/mpi_witness.hpp"

using namespace cryptmpi::channel;
using cryptmpi::keys::Role;

namespace cryptmpi::channel {

namespace {

bool is_stream(int fd) {
    return option_of(fd, SO_TYPE) == SOCK_STREAM;
}

}  // namespace

namespace {

/// What a socket that came from elsewhere is to us; nullopt: none of our business.
std::optional<Kind> kind_of_passed(Process& process, int fd) {
    if (const auto kind = process.kind_of_foreign(fd)) return kind;
    if (!is_internet_socket(fd) || !is_stream(fd)) return std::nullopt;
    const auto peer = Address::peer_of(fd);
    std::string why;
    if (peer && process.policy().decide(fd, *peer, why) != Verdict::seal) return std::nullopt;
    // Without a peer it is new or listening, or it was reset, and may have bytes of one.
    int left = 0;
    const bool fresh = !peer && (real::ioctl(fd, FIONREAD, &left) != 0 || left == 0);
    return fresh ? Kind::fresh : Kind::foreign;
}

}  // namespace

void taken_over(int fd) {
    Process& process = this_process();
    if (fd < 0 || !process.enabled()) return;
    shut_device(fd);
    if (is_borrower()) {
        (void)got_by_borrower(fd);
        return;
    }
    const auto kind = kind_of_passed(process, fd);
    if (!kind) return;
    if (process.table().add(fd, *kind) == nullptr) real::close(fd);
    arrived(fd);
}

namespace {

/// A socket that had no connection for all we know, and has one: another process that holds it has made it, who alone
/// can seal, or another thread of ours is about to. Nothing: it stays inside, and the kernel may have it.
std::optional<ssize_t> on_connection_of_another(Process& process, int fd, const Address& peer) {
    std::string why;
    const Verdict verdict = process.policy().decide(fd, peer, why);
    Entry* entry = process.table().find(fd);
    Kind expected = Kind::fresh;
    if (verdict != Verdict::seal) {
        if (entry == nullptr || entry->kind.load() != Kind::fresh) return std::nullopt;
        if (!process.report().count(verdict, why)) {
            errno = EPERM;
            return -1;
        }
        entry->kind.compare_exchange_strong(expected, Kind::native);
        return std::nullopt;
    }
    if (entry != nullptr && entry->kind.load() == Kind::fresh)
        process.report().tell_of_refused(
            "a connection of another process",
            "the connection with " + peer.text() +
                " was made by another process, which shares its socket with this one and alone can "
                "seal it: it is refused here; connect before the fork");
    errno = ENOTCONN;
    return -1;
}

/// Without a connection, no byte of the program's goes to the kernel: it might wait there for a connection that another
/// thread or process makes, and go out on it in clear. The kernel is asked with nothing in hand. It waits as it would,
/// and what it says is what the call returns.
std::optional<ssize_t> on_unconnected(Process& process, int fd, const Move& move) {
    if (!is_stream(fd)) return std::nullopt;
    if (const auto peer = Address::peer_of(fd)) return on_connection_of_another(process, fd, *peer);
    char nothing = 0;
    const bool out = move.where == Move::Where::out;
    const ssize_t n = out ? real::send(fd, &nothing, 0, move.flags & (MSG_DONTWAIT | MSG_NOSIGNAL))
                          : real::recv(fd, &nothing, 0, move.flags & MSG_DONTWAIT);
    if (n < 0) return -1;
    if (const auto peer = Address::peer_of(fd)) return on_connection_of_another(process, fd, *peer);
    if (!out) return 0;
    errno = ENOTCONN;
    return -1;
}

/// The MPI layer says that MPI's own packets may take any network. What a process without MPI sends says nobody else.
/// -1 with errno where the report cannot tell of it.
int tell_of_open_road(Process& process, const std::optional<Address>& peer) {
    static std::atomic<bool> told = false;
    if ((peer && peer->loopback()) || told.load(std::memory_order_relaxed)) return 0;
    const bool is_mpis = programs::mpi_function("MPI_Init") != nullptr;
    const std::string to = peer ? peer->text() : "a peer without a port";
    if (!is_mpis && !process.report().count_unsealed("network = any lets UDP to " + to + " and others pass", true)) {
        errno = EPERM;
        return -1;
    }
    told.store(true);
    return 0;
}

/// Does the datagram go to the socket's peer? Nobody knows it: the kernel names none whose port is 0, and sends to it.
bool goes_to_unnamed(int fd, const Move& move) {
    const bool names_none = move.to == nullptr || move.to_size == 0;
    const bool is_skipped = !names_none && move.to_size >= sizeof move.to->sa_family && move.to->sa_family == AF_UNSPEC;
    return names_none || (is_skipped && option_of(fd, SO_DOMAIN) != AF_INET);
}

/// As the kernel says of a socket that is not connected.
int refuse_unnamed(Process& process) {
    process.report().tell_of_refused(
        "a datagram without an address",
        "a datagram without an address is refused where the socket has no peer, or one with port 0, which the kernel "
        "does not name: it might leave this node; connect the socket to a port, or give each datagram its address");
    errno = EDESTADDRREQ;
    return -1;
}

/// The roads but sockets without a connection: -1 with errno and a line for those that are closed.
int check_road(Process& process, int fd, Kind kind, const Move& move) {
    if (kind == Kind::ended) {
        // Its number may by now be that of a file which another thread opened.
        if (!is_internet_socket(fd)) return 0;
        errno = EPIPE;
        return -1;
    }
    if (kind == Kind::foreign) {
        const auto peer = Address::peer_of(fd);
        process.report().complain_once(
            "foreign", (peer ? "a connection with " + peer->text() : std::string("a socket")) +
                           " was opened before cryptmpi was there, and is refused; start all of the job under "
                           "cryptmpi, or allow it by plaintext_peers");
        errno = EPERM;
        return -1;
    }
    if (kind != Kind::datagram) return 0;
    const auto peer = Address::of_datagram(fd, move.to, move.to_size);
    if (!peer && !goes_to_unnamed(fd, move)) return 0;  // the kernel does not take such an address
    if (process.roads_open()) return tell_of_open_road(process, peer);
    if (!peer) return refuse_unnamed(process);
    std::string why;
    std::string stray;
    const bool led = move.message != nullptr && names_a_way(*move.message);
    if (led) stray = "it names an interface or a route of its own (IP_PKTINFO, IPV6_RTHDR)";
    // Who may also send to peers outside needs sockets for both.
    const bool binds = process.settings().plaintext_peers.empty();
    if (!led && keep_inside_datagram(fd, *peer, binds, stray)) return 0;
    if (process.policy().decide_outside(*peer, why) == Verdict::plaintext) {
        if (process.report().count_unsealed(why + " (UDP)", true)) return 0;
        errno = EPERM;
        return -1;
    }
    process.report().tell_of_refused(
        "UDP to " + peer->text(),
        "UDP to " + peer->text() +
            " is refused: " + (stray.empty() ? stray : "it may leave this node, because " + stray + "; ") +
            "datagrams cannot be sealed; set the MPI's transport to tcp (UCX_TLS=tcp,self,sm, "
            "FI_PROVIDER=tcp, --mca btl tcp,self,vader), or allow the peer by plaintext_peers");
    errno = EPERM;
    return -1;
}

}  // namespace

std::optional<ssize_t> kept_from_kernel(int fd, const Entry& entry, const Move& move) {
    Process& process = this_process();
    const Kind kind = entry.kind.load();
    if (kind == Kind::fresh) return on_unconnected(process, fd, move);
    if (check_road(process, fd, kind, move) != 0) return -1;
    return std::nullopt;
}

}  // namespace cryptmpi::channel

namespace {

/// A number that the table has no place for. Only where the system's limits were raised far beyond what is usual.
int refuse_number(int fd) {
    this_process().report().tell_of_refused(fmt::format("descriptors from {}", Table::kMost),
                                            fmt::format("a socket with the number {} is refused: CryptMPI looks after "
                                                        "descriptors below {}; lower the limit (ulimit -n)",
                                                        fd, Table::kMost));
    errno = EMFILE;
    return -1;
}

/// An internet stream or datagram socket that we have not seen being made.
Entry* classify(Process& process, int fd) {
    if (!is_internet_socket(fd)) return nullptr;
    Entry* const entry = process.table().add(fd, process.kind_of_foreign(fd).value_or(Kind::fresh));
    arrived(fd);
    return entry;
}

/// Another process that has the socket, too, would take it for connected as it was, and send in clear. A sealed one
/// does not end unannounced.
int refuse_dissolving() {
    this_process().report().tell_of_refused(
        "connect without a family",
        "connect with AF_UNSPEC, or anew after a connection, is refused for a TCP socket that is sealed, or that "
        "another process may have: it would not know to whom it is connected then; close it and make another one");
    errno = EOPNOTSUPP;
    return -1;
}

bool has_no_family(const sockaddr* address, socklen_t size) {
    return address != nullptr && size >= sizeof address->sa_family && address->sa_family == AF_UNSPEC;
}

/// The verdict on a connection that was just asked for; nullopt: it depends on both ends, and they are not there yet.
std::optional<Verdict> verdict_on(Process& process, int fd, const Address& peer, bool may_differ, std::string& why) {
    const Policy& policy = process.policy();
    if (!may_differ) return policy.decide_outside(peer, why);
    const auto actual = tcp_of(fd) == Tcp::connected ? Address::peer_of(fd) : std::nullopt;
    if (!actual) return std::nullopt;
    return policy.decide(fd, *actual, why);
}

/// It had a connection that was not sealed, and that one has ended.
bool has_been_connected(int fd, const Entry& entry) {
    return entry.was_connected.load() && tcp_of(fd) == Tcp::refused;
}

/// The kernel tells of a connection that has ended, and forgets it: the socket may be connected elsewhere. That it
/// cannot say how it ended (ECONNABORTED) may mean that it was refused, unless another process has made it.
void see_forgotten(Entry& entry, int error) {
    if (error == EISCONN || error == EALREADY) return;
    const bool was_there = error == ECONNRESET || (error == ECONNABORTED && !entry.tried.load());
    if (entry.kind.load() == Kind::native || was_there) entry.was_connected.store(true);
    if (entry.kind.load() == Kind::native) entry.kind.store(Kind::fresh);
}

int connect_stream(Process& process, int fd, Entry& entry, const sockaddr* address, socklen_t size) {
    const auto peer = Address::from(address, size);
    const bool is_alone = entry.made_at == process.given() + 1;
    if (!is_alone && (has_no_family(address, size) || has_been_connected(fd, entry))) return refuse_dissolving();
    if (!peer) {
        const int status = real::connect(fd, address, size);
        if (status == 0) entry.kind.store(Kind::fresh);  // AF_UNSPEC: it is connected no more
        return status;
    }
    const bool may_differ = process.policy().may_differ_inside(*peer);
    const int status = real::connect(fd, address, size);
    const int error = errno;
    // A blocking connect that a signal cut short goes on in the kernel.
    if (status != 0 && error != EINPROGRESS && error != EINTR) {
        see_forgotten(entry, error);
        errno = error;
        return status;
    }
    entry.tried.store(true);
    std::string why;
    const auto verdict = verdict_on(process, fd, *peer, may_differ, why);
    if (verdict && *verdict != Verdict::seal) {
        if (!process.report().count(*verdict, why)) {
            // Another thread may try what the socket takes by now.
            entry.kind.store(Kind::ended);
            real::shutdown(fd, SHUT_RDWR);
            errno = EPERM;
            return -1;
        }
        if (*verdict == Verdict::native) keep_owner_known(fd);
        entry.kind.store(Kind::native);
    } else {
        const Tcp tcp = !verdict ? Tcp::undecided : status == 0 ? Tcp::connected : Tcp::on_its_way;
        if (begin(process, entry, Role::initiator, *peer, tcp) != 0) return -1;
    }
    errno = error;
    return status;
}

/// A second connect() while, or after, the first one is on its way.
int connect_again(Process& process, int fd, Entry& entry, const sockaddr* address, socklen_t size) {
    const State state = drive(process, entry);
    Shared* shared = entry.shared;
    if (shared == nullptr) return connect_stream(process, fd, entry, address, size);  // it is not sealed, or is none
    if (has_no_family(address, size)) return refuse_dissolving();
    if (state == State::failed) {
        tell_of_cut(process, *shared);
        const int error = shared->pending_error.exchange(0);
        if (error == 0) return real::connect(fd, address, size);
        errno = error;
        return -1;
    }
    if (state != State::open) {
        errno = EALREADY;
        return -1;
    }
    if (!shared->connect_reported.exchange(true)) return 0;
    errno = EISCONN;
    return -1;
}

/// accept() tells whose connection it was even if it was reset meanwhile, and bytes of it wait to be read. Where the
/// socket cannot be asked what it is, it is what its peer's address says: nothing goes in clear for want of an answer.
std::optional<Address> peer_of_accepted(int fd, const sockaddr_storage& address, socklen_t size) {
    const auto peer = Address::from(reinterpret_cast<const sockaddr*>(&address), size);
    const int family = option_of(fd, SO_DOMAIN);
    const int type = option_of(fd, SO_TYPE);
    const bool internet = family < 0 ? peer || size == 0 : family == AF_INET || family == AF_INET6;
    if (!internet || (type >= 0 && type != SOCK_STREAM)) return std::nullopt;
    return peer ? peer : Address{};  // which nobody has
}

bool is_carrier(Process& process, int fd) {
    const Entry* entry = process.table().find(fd);
    return entry != nullptr && entry->kind.load() == Kind::carrier;
}

/// A connection as accept() gives it.
struct Accepted {
    int fd = -1;
    sockaddr_storage from{};
    socklen_t size = sizeof from;
    std::optional<Address> peer;  // of a TCP connection
};

Accepted accept_next(int listener, int flags) {
    Accepted one;
    one.fd = real::accept4(listener, reinterpret_cast<sockaddr*>(&one.from), &one.size, flags);
    if (one.fd >= 0) one.peer = peer_of_accepted(one.fd, one.from, std::min<socklen_t>(one.size, sizeof one.from));
    return one;
}

/// In one accept(), of connections that nobody gets.
constexpr int kMostLeftOut = 64;

bool waits(int listener) {
    return (real::fcntl(listener, F_GETFL, nullptr) & O_NONBLOCK) == 0;
}

bool has_one(int listener) {
    pollfd one{listener, POLLIN, 0};
    return real::poll_now(&one, 1) != 0;
}

/// Who waits is told that a connection came to nothing; who does not, that there is none. Both hear of the next one.
Accepted accept_none(Process& process, int listener) {
    if (Entry* const entry = process.table().find(listener); entry != nullptr) renew_readable_edges(*entry);
    errno = waits(listener) ? ECONNABORTED : EAGAIN;
    return {};
}

/// The next connection whose maker is known, with the verdict on it. To a caller that does not wait it is as if the
/// others had never come: an error would end UCX's listener, which closes one of two connections that two ranks of a
/// node open to each other, often before it is accepted. A caller that would wait may have been told that there is one
/// to accept, and gets an error, or whoever connects and closes could stop it; whoever does so faster than they can be
/// left out would hold up any caller.
Accepted accept_decided(Process& process, int listener, int flags, Verdict& verdict, std::string& why) {
    for (int left_out = 0; left_out < kMostLeftOut; ++left_out) {
        Accepted one = accept_next(listener, flags);
        if (!one.peer) return one;
        verdict = process.policy().decide(one.fd, *one.peer, why, true);
        if (verdict != Verdict::leave_out) return one;
        process.report().note_once(
            "left out", "a connection from " + one.peer->host() +
                            " had been closed before it was accepted, and the kernel does not say which user made it: "
                            "it was left out, and what it brought was not read; a program that sends something and "
                            "closes at once should wait for an answer, or allow its address by plaintext_peers");
        real::close(one.fd);
        if (waits(listener) && !has_one(listener)) break;
    }
    return accept_none(process, listener);
}

void give_address(const Accepted& one, sockaddr* address, socklen_t* size) {
    if (one.fd < 0 || address == nullptr || size == nullptr) return;
    std::memcpy(address, &one.from, std::min(*size, one.size));
    *size = one.size;
}

int accept_carrier(Process& process, int listener, sockaddr* address, socklen_t* size, int flags) {
    const Accepted one = accept_next(listener, flags | SOCK_CLOEXEC);
    give_address(one, address, size);
    if (one.peer) process.table().add(one.fd, Kind::carrier);
    return one.fd;
}

int accept_connection(int listener, sockaddr* address, socklen_t* size, int flags) {
    Process& process = this_process();
    if (is_borrower() && refuses_borrower(listener, "accept of an internet socket")) return -1;
    if (!process.enabled() || is_borrower()) return real::accept4(listener, address, size, flags);
    if (is_carrier(process, listener)) return accept_carrier(process, listener, address, size, flags);
    Verdict verdict = Verdict::seal;
    std::string why;
    const Accepted accepted = accept_decided(process, listener, flags, verdict, why);
    const int fd = accepted.fd;
    give_address(accepted, address, size);
    if (!accepted.peer) return fd;
    if (!process.report().count(verdict, why)) {
        real::close(fd);
        errno = ECONNABORTED;
        return -1;
    }
    if (verdict != Verdict::seal) {
        process.table().forget(fd);
        return fd;
    }
    Entry* entry = process.table().add(fd, Kind::fresh);
    const int saved = errno;
    if (entry == nullptr) {
        real::close(fd);
        return refuse_number(fd);
    }
    arrived(fd);
    if (begin(process, *entry, Role::responder, *accepted.peer, Tcp::connected) != 0) {
        const int error = errno;
        close(fd);
        errno = error == EPROTO ? ECONNABORTED : error;
        return -1;
    }
    drive(process, *entry);  // the hello is often there already
    limit_the_silent(process, *entry);
    errno = saved;
    return fd;
}

/// Closed for programs that are started by this one: there nothing is sealed for it.
int carrier_socket(int family, int type, int protocol) {
    const int fd = real::socket(family, type | SOCK_CLOEXEC, protocol);
    if (fd >= 0) this_process().table().add(fd, Kind::carrier);
    return fd;
}

int refuse_socket(int family, int type, int protocol, const std::string& line) {
    this_process().report().tell_of_refused(
        fmt::format("socket family {} type {} protocol {}", family, type & 0xf, protocol), line);
    errno = EAFNOSUPPORT;
    return -1;
}

int refuse_option(const char* name, const char* mend) {
    this_process().report().tell_of_refused(
        name, std::string("setsockopt ") + name + " is refused: it goes around the sealing; " + mend);
    errno = EOPNOTSUPP;
    return -1;
}

}  // namespace

CRYPTMPI_CALL int socket(int family, int type, int protocol) {
    Process& process = this_process();
    if (!process.enabled()) return real::socket(family, type, protocol);
    const bool internet = family == AF_INET || family == AF_INET6;
    if (internet && is_borrower()) return refuse_borrower("an internet socket");
    if (internet && process.doors().carries(__builtin_return_address(0))) return carrier_socket(family, type, protocol);
    const auto line = process.roads_open() ? std::nullopt : Policy::refuse_socket(family, type, protocol);
    if (line) return refuse_socket(family, type, protocol, *line);
    const int fd = real::socket(family, type, protocol);
    if (fd < 0 || !internet) return fd;
    const bool stream = (type & 0xf) == SOCK_STREAM;
    if (!stream && !process.guard_datagrams(fd)) {
        real::close(fd);
        errno = EAFNOSUPPORT;
        return -1;
    }
    Entry* const entry = process.table().add(fd, stream ? Kind::fresh : Kind::datagram);
    if (entry == nullptr) {
        real::close(fd);
        return refuse_number(fd);
    }
    entry->made_at = process.given() + 1;
    arrived(fd);
    return fd;
}

/// TIPC has pairs, too, whose ends may send to anybody.
CRYPTMPI_CALL int socketpair(int family, int type, int protocol, int* pair) {
    Process& process = this_process();
    if (process.enabled() && !process.roads_open()) {
        if (const auto line = Policy::refuse_socket(family, type, protocol))
            return refuse_socket(family, type, protocol, *line);
    }
    return real::socketpair(family, type, protocol, pair);
}

CRYPTMPI_CALL int connect(int fd, const sockaddr* address, socklen_t size) {
    Process& process = this_process();
    if (is_borrower() && refuses_borrower(fd, "connect of an internet socket")) return -1;
    if (!process.enabled() || is_borrower()) return real::connect(fd, address, size);
    Entry* entry = process.table().find(fd);
    if (entry == nullptr) entry = classify(process, fd);
    if (entry == nullptr && !Table::holds(fd) && is_internet_socket(fd)) return refuse_number(fd);
    if (entry == nullptr) return real::connect(fd, address, size);
    switch (entry->kind.load()) {
        case Kind::fresh:
        case Kind::native:  // the kernel says that it is connected, unless it is no more
            return connect_stream(process, fd, *entry, address, size);
        case Kind::sealed:
            return connect_again(process, fd, *entry, address, size);
        default:
            return real::connect(fd, address, size);
    }
}

CRYPTMPI_CALL int accept(int fd, sockaddr* address, socklen_t* size) {
    return accept_connection(fd, address, size, 0);
}

CRYPTMPI_CALL int accept4(int fd, sockaddr* address, socklen_t* size, int flags) {
    return accept_connection(fd, address, size, flags);
}

CRYPTMPI_CALL int shutdown(int fd, int how) {
    if (is_borrower() && refuses_borrower(fd, "shutdown of an internet socket")) return -1;
    Entry* entry = sealed(fd);
    if (entry == nullptr || how < SHUT_RD || how > SHUT_RDWR) return real::shutdown(fd, how);
    Process& process = *Process::made();
    if (how != SHUT_WR) {
        look_for_loss(process, *entry);
        process.stay_until_the_end();
    }
    // The kernel's own follows when the close record is out, and when its end of reading does not end the handshake.
    const bool write_now = how != SHUT_RD && close_sending(process, *entry, 0);
    if (how != SHUT_RD && !write_now) process.background().carry(*entry);
    Shared* shared = entry->shared;
    if (shared != nullptr && how != SHUT_WR) shared->read_shut.store(true);
    const bool read_now = how != SHUT_WR && !handshaking(*entry);
    if (write_now && read_now) return real::shutdown(fd, SHUT_RDWR);
    if (write_now || read_now) return real::shutdown(fd, write_now ? SHUT_WR : SHUT_RD);
    return 0;
}

namespace {

constexpr int kTcpZerocopyReceive = 35;  // TCP_ZEROCOPY_RECEIVE, which older headers lack

/// Would the program see what the kernel has received, as it came?
bool shows_the_wire(int fd) {
    if (is_borrower()) return is_internet_socket(fd);
    const Entry* entry = known(fd);
    const Kind kind = entry == nullptr ? Kind::native : entry->kind.load();
    return kind != Kind::native && kind != Kind::carrier;
}

}  // namespace

CRYPTMPI_CALL int getsockopt(int fd, int level, int option, void* value, socklen_t* size) {
    Entry* entry = sealed(fd);
    if (entry != nullptr && level == SOL_SOCKET && option == SO_ERROR && value != nullptr && size != nullptr &&
        *size >= sizeof(int)) {
        drive(*Process::made(), *entry);
        Shared* shared = entry->shared;
        if (shared != nullptr && shared->state.load() == State::failed) tell_of_cut(*Process::made(), *shared);
        int error = shared == nullptr ? 0 : shared->pending_error.exchange(0);
        if (error == 0) error = take_kernel_error(*entry);
        if (error != 0) {
            std::memcpy(value, &error, sizeof error);
            *size = sizeof error;
            return 0;
        }
    }
    if (level == IPPROTO_TCP && option == kTcpZerocopyReceive && shows_the_wire(fd)) {
        errno = EOPNOTSUPP;
        return -1;
    }
    const int status = real::getsockopt(fd, level, option, value, size);
    if (status == 0 && entry != nullptr && level == IPPROTO_TCP && option == TCP_NODELAY && *size == sizeof(int)) {
        Shared* shared = entry->shared;
        if (shared != nullptr && shared->nodelay_is_ours.load()) std::memset(value, 0, sizeof(int));
    }
    return status;
}

CRYPTMPI_CALL int setsockopt(int fd, int level, int option, const void* value, socklen_t size) {
    if (is_borrower() && refuses_borrower(fd, "setsockopt of an internet socket")) return -1;
    if (known(fd) != nullptr && level == SOL_SOCKET && known(fd)->kind.load() != Kind::native &&
        known(fd)->kind.load() != Kind::carrier) {
        if (option == SO_ZEROCOPY) return refuse_option("SO_ZEROCOPY", "switch the transport's zero-copy sends off");
        if (option == SO_TIMESTAMPING)
            return refuse_option("SO_TIMESTAMPING", "switch the program's packet time stamps off");
    }
    if (known(fd) != nullptr && level == IPPROTO_TCP && option == TCP_FASTOPEN_CONNECT &&
        known(fd)->kind.load() != Kind::carrier) {
        errno = EOPNOTSUPP;  // as MSG_FASTOPEN
        return -1;
    }
    if (known(fd) != nullptr && known(fd)->kind.load() == Kind::datagram && lets_errors_in(level, option) &&
        !Process::made()->roads_open())
        return refuse_option("IP_RECVERR", "switch the program's look at ICMP errors off");
    if (known(fd) != nullptr && known(fd)->kind.load() == Kind::datagram && gives_a_route(level, option) && size > 0 &&
        !Process::made()->roads_open())
        return refuse_option("IP_OPTIONS, IPV6_RTHDR", "let the program send datagrams without a route of their own");
    if (Entry* entry = sealed(fd); entry != nullptr && level == IPPROTO_TCP && option == TCP_NODELAY) {
        if (Shared* shared = entry->shared) shared->nodelay_is_ours.store(false);
    }
    return real::setsockopt(fd, level, option, value, size);
}

CRYPTMPI_CALL int ioctl(int fd, unsigned long request, ...) {
    va_list arguments;
    va_start(arguments, request);
    void* argument = va_arg(arguments, void*);
    va_end(arguments);
    if (request == FIONREAD) {
        if (Entry* entry = sealed(fd)) {
            if (argument == nullptr) {
                errno = EFAULT;
                return -1;
            }
            *static_cast<int*>(argument) = bytes_readable(*Process::made(), *entry);
            return 0;
        }
    }
    return real::ioctl(fd, request, argument);
}
