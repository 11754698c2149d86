// A kernel of which a test decides how it moves bytes: how many a call takes, how many fit into a socket, and which
// call says EAGAIN, is interrupted, or ends the connection. The sockets are real ones of loopback, so that they have
// addresses and a state; their bytes go through queues of ours.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>

#include "channel/real.hpp"

namespace cryptmpi::channel {

enum class Fault {
    none,
    again,        // EAGAIN: no room, or nothing there, for once
    interrupted,  // EINTR
    reset,        // ECONNRESET, from then on
    end,          // nothing comes any more: end of file to who receives, EPIPE to who sends
};

class FakeKernel {
public:
    static constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();

    FakeKernel() {
        now_ = this;
        real::send.replace([](int fd, const void* from, size_t size, int) -> ssize_t {
            return now_->send(fd, static_cast<const std::uint8_t*>(from), size);
        });
        real::recv.replace([](int fd, void* to, size_t size, int flags) -> ssize_t {
            return now_->receive(fd, static_cast<std::uint8_t*>(to), size, (flags & MSG_PEEK) != 0);
        });
        real::syscall.replace([](long number, long fd, long at, long size, long flags, long, long) -> long {
            if (number == SYS_sendto)
                return now_->send(static_cast<int>(fd), reinterpret_cast<const std::uint8_t*>(at),
                                  static_cast<std::size_t>(size));
            if (number == SYS_recvfrom)
                return now_->receive(static_cast<int>(fd), reinterpret_cast<std::uint8_t*>(at),
                                     static_cast<std::size_t>(size), (flags & MSG_PEEK) != 0);
            std::abort();  // the stream makes no other call by number
        });
        real::shutdown.replace([](int fd, int how) {
            if (how != SHUT_RD) now_->close_from(fd);
            return 0;
        });
        // Two sockets of this node, connected to each other.
        const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        socklen_t size = sizeof at;
        auto* const address = reinterpret_cast<sockaddr*>(&at);
        ends[0] = ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
        made_ = ::bind(listener, address, size) == 0 && ::listen(listener, 1) == 0 &&
                ::getsockname(listener, address, &size) == 0 &&
                (::connect(ends[0], address, size) == 0 || errno == EINPROGRESS);
        ends[1] = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK);
        made_ = made_ && ends[1] >= 0;
        ::close(listener);
        wires_[ends[0]].peer = ends[1];
        wires_[ends[1]].peer = ends[0];
    }
    ~FakeKernel() {
        for (const int fd : ends) ::close(fd);
    }
    FakeKernel(const FakeKernel&) = delete;
    FakeKernel& operator=(const FakeKernel&) = delete;

    bool made() const { return made_; }
    std::size_t calls() const { return calls_; }
    /// Bytes that were sent, and those that were sent or received.
    std::size_t moved() const { return moved_; }
    std::size_t activity() const { return moved_ + received_; }
    bool struck() const { return struck_; }
    /// Nothing comes to this end any more but what is on its way.
    void close_from(int fd) { wires_[wires_[fd].peer].ended = true; }

    int ends[2] = {-1, -1};
    std::size_t most = kNever;        // bytes that one call moves
    std::size_t capacity = 1U << 20;  // bytes that are on their way in one direction
    std::size_t faulty = kNever;      // this call, counted from 0, has
    Fault fault = Fault::none;
    std::size_t flipped = kNever;  // of all bytes that are moved, this one has a bit changed

private:
    /// What comes to one socket.
    struct Wire {
        std::deque<std::uint8_t> bytes;
        int peer = -1;
        bool ended = false;
        bool reset = false;
    };

    /// 0, or what the call fails with.
    int trouble(int fd) {
        if (calls_++ == faulty) {
            struck_ = true;
            if (fault == Fault::again) return EAGAIN;
            if (fault == Fault::interrupted) return EINTR;
            for (auto& [end, wire] : wires_) {
                wire.reset = fault == Fault::reset;
                wire.ended = true;
                if (wire.reset) wire.bytes.clear();
            }
        }
        return wires_[fd].reset ? ECONNRESET : 0;
    }

    ssize_t failed(int error) {
        errno = error;
        return -1;
    }

    ssize_t send(int fd, const std::uint8_t* from, std::size_t size) {
        if (const int error = trouble(fd)) return failed(error);
        Wire& to = wires_[wires_[fd].peer];
        if (to.ended) return failed(EPIPE);
        const std::size_t room = capacity - std::min(capacity, to.bytes.size());
        // A fresh socket takes a hello whole: nothing was sent on it before.
        const std::size_t n = std::min({size, room, to.bytes.empty() ? std::max<std::size_t>(most, 256) : most});
        if (n == 0 && size > 0) return failed(EAGAIN);
        for (std::size_t i = 0; i < n; ++i, ++moved_) {
            if (moved_ == flipped) struck_ = true;
            to.bytes.push_back(from[i] ^ (moved_ == flipped ? 4 : 0));
        }
        return static_cast<ssize_t>(n);
    }

    ssize_t receive(int fd, std::uint8_t* to, std::size_t size, bool peek) {
        if (const int error = trouble(fd)) return failed(error);
        Wire& from = wires_[fd];
        const std::size_t n = std::min({size, from.bytes.size(), most});
        if (n == 0) return from.ended || size == 0 ? 0 : failed(EAGAIN);
        std::copy_n(from.bytes.begin(), n, to);
        if (!peek) from.bytes.erase(from.bytes.begin(), from.bytes.begin() + static_cast<std::ptrdiff_t>(n));
        received_ += n;
        return static_cast<ssize_t>(n);
    }

    static inline FakeKernel* now_ = nullptr;
    std::map<int, Wire> wires_;
    std::size_t calls_ = 0;
    std::size_t moved_ = 0;
    std::size_t received_ = 0;
    bool struck_ = false;
    bool made_ = false;
};

}  // namespace cryptmpi::channel
