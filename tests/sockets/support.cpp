#include "support.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <sys/time.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace sockets {

void note(const char* format, ...) {
    const int error = errno;
    // Formatted here and written by one call, so that processes which share the output do not mix their lines.
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    int size = std::vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    size = size < int{sizeof line} - 2 ? size : int{sizeof line} - 2;
    line[size] = '\n';
    if (::write(STDOUT_FILENO, line, static_cast<std::size_t>(size) + 1) < 0) {
        std::_Exit(2);
    }
    errno = error;
}

long result(const char* what, long value) {
    if (value == -1) {
        note("%s = -1 %s", what, strerrorname_np(errno));
    } else {
        note("%s = %ld", what, value);
    }
    return value;
}

void give_up(const char* what) {
    std::fprintf(stderr, "cannot set the case up: %s: %s\n", what, std::strerror(errno));
    std::_Exit(2);
}

std::uint64_t Random::next() {  // splitmix64
    std::uint64_t value = state_ += 0x9e3779b97f4a7c15;
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
    value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
    return value ^ (value >> 31);
}

Bytes Random::bytes(std::size_t size) {
    Bytes data(size);
    for (std::size_t at = 0; at < size; at += 8) {
        const std::uint64_t value = next();
        std::memcpy(data.data() + at, &value, std::min<std::size_t>(8, size - at));
    }
    return data;
}

void Hash::add(const void* data, std::size_t size) {  // FNV-1a
    for (const auto* byte = static_cast<const std::uint8_t*>(data); size > 0; ++byte, --size) {
        state_ = (state_ ^ *byte) * 0x100000001b3;
    }
}

std::string Hash::text() const {
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(state_));
    return digits;
}

std::string hash_of(std::span<const std::uint8_t> data) {
    Hash hash;
    hash.add(data.data(), data.size());
    return hash.text();
}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
    if (this != &other) {
        close();
        fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
}

void Descriptor::close() {
    if (fd_ >= 0) {
        ::close(std::exchange(fd_, -1));
    }
}

Descriptor listen_on_loopback(sockaddr_in& address, int backlog) {
    Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (::bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener, backlog) != 0 ||
        ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
        give_up("listen on loopback");
    }
    return listener;
}

Pair join_ends(int listener, Descriptor client, const sockaddr_storage& address) {
    Pair pair;
    pair.client = std::move(client);
    std::uint8_t one = 1, other = 0;
    std::thread connecting([&] {
        if (::connect(pair.client, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
            ::send(pair.client, &one, 1, 0) != 1 || ::recv(pair.client, &other, 1, MSG_WAITALL) != 1) {
            give_up("connect");
        }
    });
    std::uint8_t byte;
    pair.server = accept_from(listener);
    if (::recv(pair.server, &byte, 1, MSG_WAITALL) != 1 || ::send(pair.server, &byte, 1, 0) != 1) {
        give_up("accept");
    }
    connecting.join();
    return pair;
}

Pair connected_pair() {
    sockaddr_in address;
    const Descriptor listener = listen_on_loopback(address);
    sockaddr_storage storage{};
    std::memcpy(&storage, &address, sizeof address);
    return join_ends(listener, Descriptor(::socket(storage.ss_family, SOCK_STREAM, 0)), storage);
}

Pair connected_pair_ipv6() {
    const Descriptor listener(::socket(AF_INET6, SOCK_STREAM, 0));
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_addr = in6addr_loopback;
    socklen_t size = sizeof address;
    if (::bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener, 1) != 0 ||
        ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
        give_up("listen on ::1");
    }
    sockaddr_storage storage{};
    std::memcpy(&storage, &address, sizeof address);
    return join_ends(listener, Descriptor(::socket(storage.ss_family, SOCK_STREAM, 0)), storage);
}

Descriptor connect_to(const Context& context) {
    Descriptor fd(::socket(context.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&context.address), context.address_size) != 0) {
        give_up("connect");
    }
    return fd;
}

Descriptor accept_from(int listener) {
    Descriptor fd(::accept(listener, nullptr, nullptr));
    if (fd < 0) {
        give_up("accept");
    }
    return fd;
}

void set_blocking(int fd, bool blocking) {
    const int flags = ::fcntl(fd, F_GETFL);
    if (::fcntl(fd, F_SETFL, blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK) != 0) {
        give_up("fcntl(F_SETFL)");
    }
}

void set_timeout(int fd, int option, int milliseconds) {
    const timeval time{milliseconds / 1000, milliseconds % 1000 * 1000};
    if (::setsockopt(fd, SOL_SOCKET, option, &time, sizeof time) != 0) {
        give_up("setsockopt of a timeout");
    }
}

short wait_for(int fd, short events, int milliseconds) {
    pollfd entry{fd, events, 0};
    int ready;
    while ((ready = ::poll(&entry, 1, milliseconds)) < 0 && errno == EINTR) {
    }
    return ready > 0 ? entry.revents : short{0};
}

std::string event_names(unsigned events) {
    // The POLL* and EPOLL* values of these are the same on Linux.
    constexpr struct {
        unsigned bit;
        const char* name;
    } kNames[] = {{POLLIN, "IN"},   {POLLPRI, "PRI"},   {POLLOUT, "OUT"},    {POLLERR, "ERR"},
                  {POLLHUP, "HUP"}, {POLLNVAL, "NVAL"}, {POLLRDHUP, "RDHUP"}};
    std::string names;
    for (const auto& [bit, name] : kNames) {
        if ((events & bit) != 0) {
            names += names.empty() ? "" : "|";
            names += name;
        }
    }
    return names.empty() ? "none" : names;
}

void send_all(int fd, std::span<const std::uint8_t> data) {
    while (!data.empty()) {
        const ssize_t sent = ::send(fd, data.data(), data.size(), MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) {
            wait_for(fd, POLLOUT);
        } else if (sent < 0 && errno != EINTR) {
            result("send_all", -1);
            return;
        } else if (sent > 0) {
            data = data.subspan(static_cast<std::size_t>(sent));
        }
    }
}

Bytes receive(int fd, std::size_t size) {
    Bytes data(size);
    std::size_t have = 0;
    while (have < size) {
        const ssize_t got = ::recv(fd, data.data() + have, size - have, 0);
        if (got < 0 && errno == EAGAIN) {
            if (wait_for(fd, POLLIN) == 0) {
                errno = EAGAIN;
                break;
            }
        } else if (got == 0 || (got < 0 && errno != EINTR)) {
            break;
        } else if (got > 0) {
            have += static_cast<std::size_t>(got);
        }
    }
    data.resize(have);
    return data;
}

void note_until_end(const char* who, int fd) {
    Hash hash;
    std::size_t total = 0;
    Bytes buffer(1 << 16);
    ssize_t got;
    while ((got = ::recv(fd, buffer.data(), buffer.size(), 0)) > 0) {
        hash.add(buffer.data(), static_cast<std::size_t>(got));
        total += static_cast<std::size_t>(got);
    }
    const int error = errno;
    note("%s received %zu bytes, hash %s", who, total, hash.text().c_str());
    errno = error;
    result("recv at the end", got);
}

std::span<const std::uint8_t> text(const char* characters) {
    return {reinterpret_cast<const std::uint8_t*>(characters), std::strlen(characters)};
}

std::vector<Case>& cases() {
    static std::vector<Case> all;
    return all;
}

}  // namespace sockets
