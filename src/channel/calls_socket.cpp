// socket, connect, accept and what is asked of a socket.
#include <fcntl.h>
#include <linux/net_tstamp.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstring>

#include "channel/calls.hpp"
#include "channel/real.hpp"

using namespace cryptmpi::channel;
using cryptmpi::keys::Role;

namespace cryptmpi::channel {

namespace {

bool is_internet_socket(int fd) {
    int family = 0;
    socklen_t size = sizeof family;
    if (real::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &size) != 0) return false;
    return family == AF_INET || family == AF_INET6;
}

}  // namespace

int check_road(int fd, const Entry& entry, const sockaddr* to, socklen_t size) {
    Process& process = Process::get();
    const Kind kind = entry.kind.load();
    if (kind == Kind::ended) {
        // Its number may by now be that of a file which another thread opened.
        if (!is_internet_socket(fd)) return 0;
        errno = EPIPE;
        return -1;
    }
    if (kind == Kind::foreign) {
        const auto peer = Address::peer_of(fd);
        process.complain_once("foreign",
                              "a connection" + (peer ? " with " + peer->text() : std::string()) +
                                  " was opened before cryptmpi was there, and is refused; start all of the job under "
                                  "cryptmpi, or allow it by plaintext_peers");
        errno = EPERM;
        return -1;
    }
    if (kind != Kind::datagram) return 0;
    const auto peer = to != nullptr ? Address::from(to, size) : Address::peer_of(fd);
    std::string why;
    if (!peer || Policy::on_this_node(*peer)) return 0;
    if (process.policy().decide(*peer, why) == Verdict::plaintext) {
        process.count_unsealed(why + " (UDP)", true);
        return 0;
    }
    process.refuse_road(
        "UDP to " + peer->text(),
        "UDP to " + peer->text() +
            " is refused: datagrams cannot be sealed; set the MPI's transport to tcp (UCX_TLS=tcp,self,sm, "
            "FI_PROVIDER=tcp, --mca btl tcp,self,vader), or allow the peer by plaintext_peers");
    errno = EPERM;
    return -1;
}

}  // namespace cryptmpi::channel

namespace {

/// An internet stream or datagram socket that we have not seen being made.
Entry* classify(Process& process, int fd) {
    if (!is_internet_socket(fd)) return nullptr;
    int type = 0;
    socklen_t size = sizeof type;
    if (real::getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) != 0) return nullptr;
    return process.table().add(fd, type == SOCK_STREAM ? Kind::fresh : Kind::datagram);
}

/// A second connect() while, or after, the first one is on its way.
int connect_again(Process& process, int fd, Entry& entry, const sockaddr* address, socklen_t size) {
    const State state = drive(process, entry);
    Shared* shared = entry.shared;
    if (shared == nullptr) return real::connect(fd, address, size);  // TCP said no: the kernel says why
    if (state == State::failed) {
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

int connect_stream(Process& process, int fd, Entry& entry, const sockaddr* address, socklen_t size) {
    const auto peer = Address::from(address, size);
    if (!peer) return real::connect(fd, address, size);
    std::string why;
    const Verdict verdict = process.policy().decide(*peer, why);
    const int status = real::connect(fd, address, size);
    const int error = errno;
    const bool on_its_way = status != 0 && error == EINPROGRESS;
    if (status != 0 && !on_its_way) {
        // A blocking connect that a signal cut short goes on in the kernel.
        if (error == EINTR && verdict == Verdict::seal && begin(process, entry, Role::initiator, *peer, true) != 0)
            return -1;
        errno = error;
        return status;
    }
    if (verdict == Verdict::native) process.count_native();
    if (verdict == Verdict::plaintext) process.count_unsealed(why, true);
    if (verdict != Verdict::seal) {
        entry.kind.store(Kind::native);
    } else if (begin(process, entry, Role::initiator, *peer, on_its_way) != 0) {
        return -1;
    }
    errno = error;
    return status;
}

int accepted(int fd) {
    if (fd < 0) return fd;
    Process& process = Process::get();
    if (!process.enabled()) return fd;
    const auto peer = Address::peer_of(fd);
    if (!peer) return fd;
    std::string why;
    switch (process.policy().decide(*peer, why)) {
        case Verdict::native:
            process.table().forget(fd);
            process.count_native();
            return fd;
        case Verdict::plaintext:
            process.count_unsealed(why, true);
            return fd;
        case Verdict::seal:
            break;
    }
    Entry* entry = process.table().add(fd, Kind::fresh);
    const int saved = errno;
    if (entry == nullptr || begin(process, *entry, Role::responder, *peer, false) != 0) {
        const int error = errno;
        close(fd);
        errno = error == EPROTO ? ECONNABORTED : error;
        return -1;
    }
    drive(process, *entry);  // the hello is often there already
    errno = saved;
    return fd;
}

int refuse_option(const char* name, const char* mend) {
    Process::get().complain_once(
        name, std::string("setsockopt ") + name + " is refused: it would bypass the sealing; " + mend);
    errno = EOPNOTSUPP;
    return -1;
}

}  // namespace

CRYPTMPI_CALL int socket(int family, int type, int protocol) {
    Process& process = Process::get();
    if (!process.enabled()) return real::socket(family, type, protocol);
    if (const auto line = Policy::refuse_socket(family, type, protocol)) {
        process.refuse_road("socket family " + std::to_string(family) + " type " + std::to_string(type & 0xf), *line);
        errno = EAFNOSUPPORT;
        return -1;
    }
    const int fd = real::socket(family, type, protocol);
    if (fd >= 0 && (family == AF_INET || family == AF_INET6))
        process.table().add(fd, (type & 0xf) == SOCK_STREAM ? Kind::fresh : Kind::datagram);
    return fd;
}

CRYPTMPI_CALL int connect(int fd, const sockaddr* address, socklen_t size) {
    Process& process = Process::get();
    if (!process.enabled()) return real::connect(fd, address, size);
    Entry* entry = process.table().find(fd);
    if (entry == nullptr) entry = classify(process, fd);
    if (entry == nullptr) return real::connect(fd, address, size);
    switch (entry->kind.load()) {
        case Kind::fresh:
            return connect_stream(process, fd, *entry, address, size);
        case Kind::sealed:
            return connect_again(process, fd, *entry, address, size);
        default:
            return real::connect(fd, address, size);
    }
}

CRYPTMPI_CALL int accept(int fd, sockaddr* address, socklen_t* size) {
    return accepted(real::accept4(fd, address, size, 0));
}

CRYPTMPI_CALL int accept4(int fd, sockaddr* address, socklen_t* size, int flags) {
    return accepted(real::accept4(fd, address, size, flags));
}

CRYPTMPI_CALL int shutdown(int fd, int how) {
    if (Entry* entry = sealed(fd)) {
        if (how == SHUT_WR || how == SHUT_RDWR) {
            if (!close_sending(*Process::made(), *entry, 0)) {
                // The kernel is full: its own shutdown follows when the close record is out.
                Process::made()->courier().carry(*Process::made(), *entry);
                if (how == SHUT_WR) return 0;
                how = SHUT_RD;
            }
        }
        Shared* shared = entry->shared;
        if (shared != nullptr && how != SHUT_WR) shared->read_shut.store(true);
    }
    return real::shutdown(fd, how);
}

CRYPTMPI_CALL int getsockopt(int fd, int level, int option, void* value, socklen_t* size) {
    Entry* entry = sealed(fd);
    if (entry != nullptr && level == SOL_SOCKET && option == SO_ERROR && value != nullptr && size != nullptr &&
        *size >= sizeof(int)) {
        drive(*Process::made(), *entry);
        Shared* shared = entry->shared;
        int error = shared == nullptr ? 0 : shared->pending_error.exchange(0);
        if (error == 0) error = take_kernel_error(*entry);
        if (error != 0) {
            std::memcpy(value, &error, sizeof error);
            *size = sizeof error;
            return 0;
        }
    }
    const int status = real::getsockopt(fd, level, option, value, size);
    if (status == 0 && entry != nullptr && level == IPPROTO_TCP && option == TCP_NODELAY && *size == sizeof(int)) {
        Shared* shared = entry->shared;
        if (shared != nullptr && shared->nodelay_is_ours.load()) std::memset(value, 0, sizeof(int));
    }
    return status;
}

CRYPTMPI_CALL int setsockopt(int fd, int level, int option, const void* value, socklen_t size) {
    if (known(fd) != nullptr && level == SOL_SOCKET && known(fd)->kind.load() != Kind::native) {
        if (option == SO_ZEROCOPY) return refuse_option("SO_ZEROCOPY", "switch the transport's zero-copy sends off");
        if (option == SO_TIMESTAMPING)
            return refuse_option("SO_TIMESTAMPING", "switch the program's packet time stamps off");
    }
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
