// What programs of these tests have in common. They know nothing of CryptMPI: they call libc.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <string>
#include <utility>

#include "fake_kernel.hpp"
#include "keys/handshake.hpp"

namespace cryptmpi::channel::fake {

inline constexpr std::uint16_t kPort = 4242;

class Fd {
public:
    Fd() = default;
    explicit Fd(int fd) : fd_(fd) {}
    Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Fd& operator=(Fd&& other) noexcept {
        close();
        fd_ = std::exchange(other.fd_, -1);
        return *this;
    }
    ~Fd() { close(); }
    operator int() const { return fd_; }
    void close() {
        if (fd_ >= 0) ::close(std::exchange(fd_, -1));
    }
    int release() { return std::exchange(fd_, -1); }

private:
    int fd_ = -1;
};

/// What a call returned, and its error.
struct Result {
    ssize_t n;
    int error;
};

inline Result result(ssize_t n) {
    return {n, n < 0 ? errno : 0};
}

inline void set_blocking(int fd, bool blocking) {
    const int flags = ::fcntl(fd, F_GETFL);
    ::fcntl(fd, F_SETFL, blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

inline short wait_for(int fd, short events, int milliseconds = 60'000) {
    pollfd one{fd, events, 0};
    int n = 0;
    while ((n = ::poll(&one, 1, milliseconds)) < 0 && errno == EINTR) {
    }
    return n > 0 ? one.revents : short{0};
}

inline int error_of(int fd) {
    int error = -1;
    socklen_t size = sizeof error;
    return ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

inline Fd listen_at(std::uint16_t port = kPort) {
    Fd listener(::socket(AF_INET, SOCK_STREAM, 0));
    listen_on(listener, port);
    return listener;
}

inline Fd accept_from(int listener, int flags = 0) {
    for (;;) {
        Fd fd(::accept4(listener, nullptr, nullptr, flags));
        if (fd >= 0 || errno != EINTR) return fd;
    }
}

inline int connect_to(int fd, const sockaddr_in& to) {
    return ::connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to);
}

/// Connects, and waits until it is. -1 with errno.
inline Fd connected_to(const sockaddr_in& to, bool blocking = true) {
    await_listener(to);
    Fd fd(::socket(AF_INET, SOCK_STREAM | (blocking ? 0 : SOCK_NONBLOCK), 0));
    if (fd < 0 || connect_to(fd, to) == 0) return fd;
    if (errno != EINPROGRESS && errno != EINTR) return Fd();
    wait_for(fd, POLLOUT);
    if (const int error = error_of(fd)) {
        fd.close();
        errno = error;
    }
    return fd;
}

/// Sends all of it, waiting where there is no room. The error, or 0.
inline int send_all(int fd, const Bytes& bytes, std::size_t most = kAll) {
    for (std::size_t at = 0; at < bytes.size();) {
        const ssize_t n = ::send(fd, bytes.data() + at, std::min(most, bytes.size() - at), MSG_NOSIGNAL);
        if (n >= 0) {
            at += static_cast<std::size_t>(n);
        } else if (errno == EAGAIN) {
            wait_for(fd, POLLOUT);
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

/// What was read, and how it ended.
struct Read {
    Bytes bytes;
    bool ended = false;  // in order
    int error = 0;
};

/// Reads so many bytes, or to the end.
inline Read read_from(int fd, std::size_t size = kAll, std::size_t most = 4096) {
    Read read;
    Bytes room(most);
    while (read.bytes.size() < size) {
        const ssize_t n = ::recv(fd, room.data(), std::min(most, size - read.bytes.size()), 0);
        if (n > 0) {
            read.bytes.insert(read.bytes.end(), room.begin(), room.begin() + n);
        } else if (n == 0) {
            read.ended = true;
            break;
        } else if (errno == EAGAIN) {
            wait_for(fd, POLLIN);
        } else if (errno != EINTR) {
            read.error = errno;
            break;
        }
    }
    return read;
}

/// A conversation: the client connects, sends, ends its direction, and reads to the end; the server reads to the end,
/// answers and closes. What each of them saw.
struct Talk {
    Ending ending;
    Read there;  // by the server
    Read back;   // by the client
    int connect_error = 0;
    int accept_error = 0;
    int client_error = 0;  // of writing
    int server_error = 0;

    bool is_whole(std::size_t sent_there, std::size_t sent_back) const {
        return there.bytes == clear(sent_there, 1) && back.bytes == clear(sent_back, 2) && there.ended && back.ended;
    }
    /// A part may be missing, but nothing else has come, and no part passes for the whole.
    bool is_honest(std::size_t sent_there, std::size_t sent_back) const {
        const auto honest = [](const Read& read, const Bytes& sent) {
            return read.bytes.size() <= sent.size() && std::equal(read.bytes.begin(), read.bytes.end(), sent.begin()) &&
                   (!read.ended || read.bytes.size() == sent.size());
        };
        return honest(there, clear(sent_there, 1)) && honest(back, clear(sent_back, 2));
    }
    bool client_was_told() const { return connect_error != 0 || client_error != 0 || back.error != 0; }
    bool server_was_told() const { return accept_error != 0 || server_error != 0 || there.error != 0; }
    std::string told() const {
        return "client: connect " + std::to_string(connect_error) + ", write " + std::to_string(client_error) +
               ", read " + std::to_string(back.bytes.size()) + " bytes, " + (back.ended ? "ended" : "error ") +
               std::to_string(back.error) + "; server: accept " + std::to_string(accept_error) + ", write " +
               std::to_string(server_error) + ", read " + std::to_string(there.bytes.size()) + " bytes, " +
               (there.ended ? "ended" : "error ") + std::to_string(there.error) + "\n" + ending.told();
    }
};

struct Manner {
    std::size_t there = 1000;
    std::size_t back = 500;
    std::size_t most = kAll;  // bytes in a write
    bool blocking = true;
    std::size_t most_read = 4096;
    bool settled = false;  // the client does not write before the connection is open, so that each write is a record
    std::function<void(Job&)> before = {};  // run() is called
};

inline Talk talk(const Options& options, const Manner& manner = {}) {
    Talk talk;
    Job job(options);
    if (manner.before) manner.before(job);
    job.program(1, [&] {
        const Fd listener = listen_at();
        if (!manner.blocking) set_blocking(listener, false);
        Fd fd;
        do {
            fd = Fd(::accept4(listener, nullptr, nullptr, manner.blocking ? 0 : SOCK_NONBLOCK));
            if (fd < 0 && errno == EAGAIN) wait_for(listener, POLLIN);
        } while (fd < 0 && (errno == EAGAIN || errno == EINTR) && wait_for(listener, POLLIN) != 0);
        if (fd < 0) {
            talk.accept_error = errno;
            return;
        }
        talk.there = read_from(fd, kAll, manner.most_read);
        talk.server_error = send_all(fd, clear(manner.back, 2), manner.most);
    });
    job.program(0, [&] {
        const Fd fd = connected_to(address(1, kPort), manner.blocking);
        if (fd < 0) {
            talk.connect_error = errno;
            return;
        }
        if (manner.settled) wait_for(fd, POLLOUT);
        talk.client_error = send_all(fd, clear(manner.there, 1), manner.most);
        ::shutdown(fd, SHUT_WR);
        talk.back = read_from(fd, kAll, manner.most_read);
    });
    talk.ending = job.run();
    return talk;
}

inline std::string name_of(int error) {
    return error == 0 ? "0" : strerrorname_np(error);
}

inline std::string event_names(unsigned events) {
    constexpr struct {
        unsigned bit;
        const char* name;
    } kNames[] = {{POLLIN, "IN"},   {POLLOUT, "OUT"}, {POLLRDHUP, "RDHUP"},
                  {POLLERR, "ERR"}, {POLLHUP, "HUP"}, {POLLNVAL, "NVAL"}};
    std::string all;
    for (const auto& [bit, name] : kNames) {
        if ((events & bit) != 0) all += (all.empty() ? "" : "|") + std::string(name);
    }
    return all.empty() ? "none" : all;
}

}  // namespace cryptmpi::channel::fake
