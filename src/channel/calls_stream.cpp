// read, write and their kin. Each looks the descriptor up; a sealed one goes through receive or transmit, all others to
// libc.
#include <fcntl.h>
#include <stdio_ext.h>
#include <sys/sendfile.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "channel/calls.hpp"
#include "channel/libcs_streams.hpp"
#include "channel/piece_walk.hpp"
#include "channel/real.hpp"
#include "config/internal_variables.hpp"

using namespace cryptmpi::channel;

namespace {

Process& process() {
    return *Process::made();
}

ssize_t receive_into(Entry& entry, void* to, size_t size, int flags) {
    const iovec piece{to, size};
    return receive(process(), entry, {&piece, 1}, flags);
}

ssize_t transmit_from(Entry& entry, const void* from, size_t size, int flags) {
    const iovec all = cryptmpi::piece(from, size);
    return transmit(process(), entry, {&all, 1}, flags);
}

/// Flags that a stream of records cannot keep: -1 with errno, and a line.
int refuse_flags(int flags, const char* call) {
    if ((flags & MSG_OOB) != 0) {
        process().report().tell_of_refused("MSG_OOB", std::string(call) + ": urgent data cannot be sealed (MSG_OOB)");
        errno = EOPNOTSUPP;
        return -1;
    }
    process().report().tell_of_refused("MSG_ZEROCOPY",
                                       std::string(call) +
                                           ": MSG_ZEROCOPY would send the caller's plaintext; switch the transport's "
                                           "zero-copy sends off (libfabric: FI_TCP_ZEROCOPY_SIZE=0)");
    errno = EOPNOTSUPP;
    return -1;
}

int check_flags(int flags, const char* call) {
    return (flags & (MSG_OOB | MSG_ZEROCOPY)) == 0 ? 0 : refuse_flags(flags, call);
}

bool carries_sealed_sockets(const msghdr* message) {
    if (message == nullptr || message->msg_control == nullptr) return false;
    for (cmsghdr* control = CMSG_FIRSTHDR(message); control != nullptr;
         control = CMSG_NXTHDR(const_cast<msghdr*>(message), control)) {
        if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
        if (Process::made() != nullptr) process().note_given();
        const auto* fds = reinterpret_cast<const int*>(CMSG_DATA(control));
        const size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; ++i) {
            if (sealed(fds[i]) != nullptr || (is_borrower() && is_internet_socket(fds[i]))) return true;
        }
    }
    return false;
}

/// The kernel's call on a descriptor that is not sealed, where it may have the bytes.
template <class Call>
ssize_t send_natively(int fd, const Call& call, int flags = 0, const sockaddr* to = nullptr, socklen_t size = 0,
                      const msghdr* message = nullptr) {
    if (is_borrower()) return refuses_borrower(fd, "a write to an internet socket") ? -1 : call();
    const Entry* entry = known(fd);
    if (entry == nullptr) return call();
    const auto kept = kept_from_kernel(fd, *entry, {Move::Where::out, flags, to, size, message});
    return kept ? *kept : call();
}

template <class Call>
ssize_t receive_natively(int fd, const Call& call, int flags = 0) {
    if (is_borrower()) return refuses_borrower(fd, "a read of an internet socket") ? -1 : call();
    const Entry* entry = known(fd);
    const Kind kind = entry == nullptr ? Kind::native : entry->kind.load();
    if (kind != Kind::foreign && kind != Kind::ended && kind != Kind::fresh) return call();
    const auto kept = kept_from_kernel(fd, *entry, {Move::Where::in, flags});
    return kept ? *kept : call();
}

/// Data with the SYN would go out before there are keys: true, with errno.
bool opens_fast(int fd, int flags) {
    if ((flags & MSG_FASTOPEN) == 0 || Process::made() == nullptr || !process().enabled()) return false;
    const Entry* entry = known(fd);
    if (entry != nullptr && entry->kind.load() == Kind::datagram) return false;
    errno = EOPNOTSUPP;
    return true;
}

/// Of what TCP's errors have left there is nothing: who could ask for more is refused.
int check_receive_flags(int flags, const char* call) {
    if ((flags & MSG_ERRQUEUE) == 0) return check_flags(flags, call);
    errno = EAGAIN;
    return -1;
}

constexpr size_t kCopyBytes = 64 * 1024;

/// MSG_TRUNC, of TCP: so many bytes are taken, and go nowhere. The caller may have no room for them.
ssize_t discard(Entry& entry, size_t size, int flags) {
    const auto buffer = std::make_unique<std::uint8_t[]>(std::min(kCopyBytes, size));
    flags &= ~MSG_TRUNC;
    size_t done = 0;
    while (done < size) {
        const int how = done > 0 && (flags & MSG_WAITALL) == 0 ? flags | MSG_DONTWAIT : flags;
        const ssize_t n = receive_into(entry, buffer.get(), std::min(kCopyBytes, size - done), how);
        if (n <= 0) return done > 0 ? static_cast<ssize_t>(done) : n;
        done += static_cast<size_t>(n);
        if ((flags & MSG_PEEK) != 0) break;
    }
    return static_cast<ssize_t>(done);
}

ssize_t receive_or_discard(Entry& entry, void* to, size_t size, int flags) {
    return (flags & MSG_TRUNC) != 0 ? discard(entry, size, flags) : receive_into(entry, to, size, flags);
}

ssize_t receive_message(Entry& entry, msghdr* message, int flags) {
    const std::span<const iovec> pieces(message->msg_iov, message->msg_iovlen);
    const ssize_t n = (flags & MSG_TRUNC) != 0 ? discard(entry, Pieces(pieces).left(), flags)
                                               : receive(process(), entry, pieces, flags);
    if (n >= 0) {
        message->msg_namelen = 0;
        message->msg_controllen = 0;
        message->msg_flags = 0;
    }
    return n;
}

/// Sockets that another process passed to us.
ssize_t taken_over_with(ssize_t result, const msghdr* message) {
    if (result < 0 || message == nullptr || message->msg_control == nullptr || message->msg_controllen == 0)
        return result;
    const int error = errno;
    for (cmsghdr* control = CMSG_FIRSTHDR(message); control != nullptr;
         control = CMSG_NXTHDR(const_cast<msghdr*>(message), control)) {
        if (control->cmsg_level != SOL_SOCKET || control->cmsg_type != SCM_RIGHTS) continue;
        const auto* fds = reinterpret_cast<const int*>(CMSG_DATA(control));
        const size_t count = (control->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; ++i) taken_over(fds[i]);
    }
    errno = error;
    return result;
}

}  // namespace

CRYPTMPI_CALL ssize_t read(int fd, void* to, size_t size) {
    if (Entry* entry = sealed(fd)) return size == 0 ? 0 : receive_into(*entry, to, size, 0);
    return receive_natively(fd, [&] { return real::read(fd, to, size); });
}

CRYPTMPI_CALL ssize_t __read_chk(int fd, void* to, size_t size, size_t room) {
    if (size > room) abort();
    return read(fd, to, size);
}

CRYPTMPI_CALL ssize_t readv(int fd, const iovec* pieces, int count) {
    if (Entry* entry = sealed(fd)) {
        if (count < 0 || count > 1024) {
            errno = EINVAL;
            return -1;
        }
        return receive(process(), *entry, {pieces, static_cast<size_t>(count)}, 0);
    }
    return receive_natively(fd, [&] { return real::readv(fd, pieces, count); });
}

// An offset of -1 means the stream's own place, which a socket has, too.
CRYPTMPI_CALL ssize_t preadv2(int fd, const iovec* pieces, int count, off_t offset, int flags) {
    if (offset == -1 && known(fd) != nullptr && flags == 0) return readv(fd, pieces, count);
    if (sealed(fd) == nullptr)
        return receive_natively(fd, [&] { return real::preadv2(fd, pieces, count, offset, flags); });
    errno = offset == -1 ? EOPNOTSUPP : ESPIPE;
    return -1;
}

CRYPTMPI_CALL ssize_t preadv64v2(int fd, const iovec* pieces, int count, off64_t offset, int flags) {
    return preadv2(fd, pieces, count, offset, flags);
}

CRYPTMPI_CALL ssize_t recv(int fd, void* to, size_t size, int flags) {
    if (Entry* entry = sealed(fd))
        return check_receive_flags(flags, "recv") != 0 ? -1 : receive_or_discard(*entry, to, size, flags);
    return receive_natively(
        fd, [&] { return real::recv(fd, to, size, flags); }, flags);
}

CRYPTMPI_CALL ssize_t __recv_chk(int fd, void* to, size_t size, size_t room, int flags) {
    if (size > room) abort();
    return recv(fd, to, size, flags);
}

CRYPTMPI_CALL ssize_t recvfrom(int fd, void* to, size_t size, int flags, sockaddr* from, socklen_t* from_size) {
    if (Entry* entry = sealed(fd)) {
        if (check_receive_flags(flags, "recvfrom") != 0) return -1;
        if (from != nullptr && from_size != nullptr) *from_size = 0;  // as TCP does
        return receive_or_discard(*entry, to, size, flags);
    }
    return receive_natively(
        fd, [&] { return real::recvfrom(fd, to, size, flags, from, from_size); }, flags);
}

CRYPTMPI_CALL ssize_t __recvfrom_chk(int fd, void* to, size_t size, size_t room, int flags, sockaddr* from,
                                     socklen_t* from_size) {
    if (size > room) abort();
    return recvfrom(fd, to, size, flags, from, from_size);
}

CRYPTMPI_CALL ssize_t recvmsg(int fd, msghdr* message, int flags) {
    if (Entry* entry = sealed(fd))
        return check_receive_flags(flags, "recvmsg") != 0 ? -1 : receive_message(*entry, message, flags);
    return receive_natively(
        fd, [&] { return taken_over_with(real::recvmsg(fd, message, flags), message); }, flags);
}

CRYPTMPI_CALL int recvmmsg(int fd, mmsghdr* messages, unsigned count, int flags, timespec* timeout) {
    Entry* entry = sealed(fd);
    if (entry == nullptr) {
        const auto call = [&] { return static_cast<ssize_t>(real::recvmmsg(fd, messages, count, flags, timeout)); };
        const int got = static_cast<int>(receive_natively(fd, call, flags));
        for (int i = 0; i < got; ++i) taken_over_with(got, &messages[i].msg_hdr);
        return got;
    }
    if (check_receive_flags(flags, "recvmmsg") != 0) return -1;
    unsigned done = 0;
    while (done < count) {
        const int how = done > 0 && (flags & MSG_WAITFORONE) != 0 ? flags | MSG_DONTWAIT : flags;
        const ssize_t n = receive_message(*entry, &messages[done].msg_hdr, how & ~MSG_WAITFORONE);
        if (n < 0) return done > 0 ? static_cast<int>(done) : -1;
        messages[done++].msg_len = static_cast<unsigned>(n);
        if (n == 0) break;
    }
    return static_cast<int>(done);
}

CRYPTMPI_CALL ssize_t write(int fd, const void* from, size_t size) {
    if (Entry* entry = sealed(fd)) return transmit_from(*entry, from, size, 0);
    return send_natively(fd, [&] { return real::write(fd, from, size); });
}

CRYPTMPI_CALL ssize_t writev(int fd, const iovec* pieces, int count) {
    if (Entry* entry = sealed(fd)) {
        if (count < 0 || count > 1024) {
            errno = EINVAL;
            return -1;
        }
        return transmit(process(), *entry, {pieces, static_cast<size_t>(count)}, 0);
    }
    return send_natively(fd, [&] { return real::writev(fd, pieces, count); });
}

CRYPTMPI_CALL ssize_t pwritev2(int fd, const iovec* pieces, int count, off_t offset, int flags) {
    if (offset == -1 && known(fd) != nullptr && flags == 0) return writev(fd, pieces, count);
    if (sealed(fd) == nullptr)
        return send_natively(fd, [&] { return real::pwritev2(fd, pieces, count, offset, flags); });
    errno = offset == -1 ? EOPNOTSUPP : ESPIPE;
    return -1;
}

CRYPTMPI_CALL ssize_t pwritev64v2(int fd, const iovec* pieces, int count, off64_t offset, int flags) {
    return pwritev2(fd, pieces, count, offset, flags);
}

CRYPTMPI_CALL ssize_t send(int fd, const void* from, size_t size, int flags) {
    if (Entry* entry = sealed(fd))
        return check_flags(flags, "send") != 0 ? -1 : transmit_from(*entry, from, size, flags);
    return send_natively(
        fd, [&] { return real::send(fd, from, size, flags); }, flags);
}

CRYPTMPI_CALL ssize_t sendto(int fd, const void* from, size_t size, int flags, const sockaddr* to, socklen_t to_size) {
    if (Entry* entry = sealed(fd))
        return check_flags(flags, "sendto") != 0 ? -1 : transmit_from(*entry, from, size, flags);
    if (opens_fast(fd, flags)) return -1;
    return send_natively(
        fd, [&] { return real::sendto(fd, from, size, flags, to, to_size); }, flags, to, to_size);
}

CRYPTMPI_CALL ssize_t sendmsg(int fd, const msghdr* message, int flags) {
    if (Entry* entry = sealed(fd)) {
        if (check_flags(flags, "sendmsg") != 0) return -1;
        return transmit(process(), *entry, {message->msg_iov, message->msg_iovlen}, flags);
    }
    if (Process::made() != nullptr && carries_sealed_sockets(message)) {
        process().report().complain_once(
            "SCM_RIGHTS", "sendmsg: a sealed socket cannot be passed to another process (SCM_RIGHTS); fork keeps it");
        errno = EOPNOTSUPP;
        return -1;
    }
    if (opens_fast(fd, flags)) return -1;
    const bool named = message != nullptr && message->msg_name != nullptr;
    return send_natively(
        fd, [&] { return real::sendmsg(fd, message, flags); }, flags,
        named ? static_cast<const sockaddr*>(message->msg_name) : nullptr, named ? message->msg_namelen : 0, message);
}

CRYPTMPI_CALL int sendmmsg(int fd, mmsghdr* messages, unsigned count, int flags) {
    const bool passes = std::any_of(messages, messages + (messages == nullptr ? 0 : count),
                                    [](const mmsghdr& one) { return carries_sealed_sockets(&one.msg_hdr); });
    if (known(fd) == nullptr && !passes && !is_borrower()) return real::sendmmsg(fd, messages, count, flags);
    unsigned done = 0;
    while (done < count) {
        const ssize_t n = sendmsg(fd, &messages[done].msg_hdr, flags);
        if (n < 0) return done > 0 ? static_cast<int>(done) : -1;
        messages[done++].msg_len = static_cast<unsigned>(n);
    }
    return static_cast<int>(done);
}

CRYPTMPI_CALL ssize_t sendfile(int to, int from, off_t* offset, size_t size) {
    Entry* entry = sealed(to);
    if (entry == nullptr) return send_natively(to, [&] { return real::sendfile(to, from, offset, size); });
    const auto buffer = std::make_unique<std::uint8_t[]>(kCopyBytes);
    off_t at = offset != nullptr ? *offset : lseek(from, 0, SEEK_CUR);
    if (at < 0) return -1;
    ssize_t done = 0;
    while (static_cast<size_t>(done) < size) {
        const ssize_t n = pread(from, buffer.get(), std::min(kCopyBytes, size - static_cast<size_t>(done)), at);
        if (n <= 0) {
            if (n < 0 && done == 0) return -1;
            break;
        }
        const ssize_t sent = transmit_from(*entry, buffer.get(), static_cast<size_t>(n), 0);
        if (sent < 0) {
            if (done == 0) return -1;
            break;
        }
        at += sent;
        done += sent;
        if (sent < n) break;
    }
    if (offset != nullptr) {
        *offset = at;
    } else if (lseek(from, at, SEEK_SET) < 0) {
        return -1;
    }
    return done;
}

CRYPTMPI_CALL ssize_t sendfile64(int to, int from, off64_t* offset, size_t size) {
    static_assert(sizeof(off_t) == sizeof(off64_t));
    return sendfile(to, from, offset, size);
}

CRYPTMPI_CALL ssize_t splice(int from, off64_t* from_offset, int to, off64_t* to_offset, size_t size, unsigned flags) {
    Entry* source = sealed(from);
    Entry* target = sealed(to);
    const int how = (flags & SPLICE_F_NONBLOCK) != 0 ? MSG_DONTWAIT : 0;
    const auto call = [&] { return real::splice(from, from_offset, to, to_offset, size, flags); };
    if (source == nullptr && target == nullptr)
        return send_natively(
            to, [&] { return receive_natively(from, call, how); }, how);
    const auto buffer = std::make_unique<std::uint8_t[]>(kCopyBytes);
    const size_t most = std::min(size, kCopyBytes);
    if (source != nullptr) {
        // Into a pipe that may be full: only as much is taken as it accepts.
        const ssize_t there = receive_into(*source, buffer.get(), most, how | MSG_PEEK);
        if (there <= 0) return there;
        const ssize_t taken = write(to, buffer.get(), static_cast<size_t>(there));
        if (taken <= 0) return taken;
        return receive_into(*source, buffer.get(), static_cast<size_t>(taken), 0);
    }
    const ssize_t n = real::read(from, buffer.get(), most);
    if (n <= 0) return n;
    ssize_t done = 0;
    while (done < n) {
        // What was taken from the pipe cannot be put back: all of it is sent.
        const ssize_t sent = transmit_from(*target, buffer.get() + done, static_cast<size_t>(n - done), 0);
        if (sent < 0 && errno == EAGAIN) {
            pollfd poll{to, POLLOUT, 0};
            real::ppoll(&poll, 1, nullptr, nullptr);
            continue;
        }
        if (sent < 0) return -1;
        done += sent;
    }
    return done;
}

// stdio's own writes do not come through write(): a stream over a sealed socket is made of our calls instead.

namespace {

/// One of stdin, stdout and stderr.
struct Standard {
    FILE** name;
    const char* mode;
    FILE* libcs = nullptr;  // while ours stands in its place
};

Standard* standard_stream(int fd) {
    static Standard all[] = {{&stdin, "r"}, {&stdout, "w"}, {&stderr, "w"}};
    return fd >= STDIN_FILENO && fd <= STDERR_FILENO ? &all[fd] : nullptr;
}

/// A stream made of our calls.
struct Cookie {
    explicit Cookie(int of, Standard* in_place_of) : fd(of), standard(in_place_of) {}
    int fd;
    Standard* standard;  // nullptr: one that the program opened
    std::atomic<bool> closed{false};
};

int descriptor_of(void* cookie) {
    return static_cast<Cookie*>(cookie)->fd;
}

ssize_t cookie_read(void* cookie, char* to, size_t size) {
    return read(descriptor_of(cookie), to, size);
}

ssize_t cookie_write(void* cookie, const char* from, size_t size) {
    const ssize_t n = write(descriptor_of(cookie), from, size);
    return n < 0 ? 0 : n;
}

FILE* leave_place(Standard& standard) {
    return *standard.name = std::exchange(standard.libcs, nullptr);
}

/// The name leads to libc's stream again, which a program may go on printing to: it is closed, as it would be. libc
/// closes none that has no descriptor.
void close_in_place(Standard& standard) {
    if (standard.libcs == nullptr) return;
    FILE* const libcs = leave_place(standard);
    libcs->_fileno = real::open("/dev/null", O_RDWR | O_CLOEXEC, 0);
    (void)std::fclose(libcs);
}

/// Without the lock, which a thread that forks has while the program's handlers of fork run in it.
int cookie_close(void* of) {
    Cookie& cookie = *static_cast<Cookie*>(of);
    cookie.closed.store(true);
    const int status = close(cookie.fd);
    const int error = errno;
    if (cookie.standard != nullptr) close_in_place(*cookie.standard);
    errno = error;
    return status;
}

/// fopencookie's streams have no descriptor of their own; fileno() is asked for it all the same. A stream that is
/// closed stays here until another one of ours is at its address.
struct CookieStreams {
    std::mutex lock;
    std::map<FILE*, std::unique_ptr<Cookie>> cookies;
};

CookieStreams& cookie_streams() {
    static auto* all = new CookieStreams;
    return *all;
}

FILE* open_cookie(int fd, const char* mode, Standard* in_place_of = nullptr) {
    auto cookie = std::make_unique<Cookie>(fd, in_place_of);
    FILE* stream = fopencookie(cookie.get(), mode, {cookie_read, cookie_write, nullptr, cookie_close});
    if (stream == nullptr) return nullptr;
    const std::lock_guard guard(cookie_streams().lock);
    cookie_streams().cookies[stream] = std::move(cookie);
    return stream;
}

}  // namespace

namespace cryptmpi::channel {

/// libc's own streams must not write to it past us.
bool needs_cookie(int fd) {
    const Entry* entry = known(fd);
    if (entry == nullptr) return false;
    const Kind kind = entry->kind.load();
    return kind == Kind::sealed || kind == Kind::fresh || kind == Kind::native || kind == Kind::foreign ||
           kind == Kind::datagram;
}

namespace {

/// What was printed and is not out yet goes where the descriptor leads now, as it would plain. libc's stream is kept
/// from it: whoever has its address, as C++'s streams do, gets an error. One that the program has closed, or led
/// elsewhere, has nothing to do with the descriptor.
void take_over(Standard& standard, int fd) {
    FILE* const libcs = *standard.name;
    if (libcs == nullptr || libcs->_fileno != fd) return;
    FILE* const ours = open_cookie(fd, standard.mode, &standard);
    if (ours == nullptr) return;
    if (fd == STDERR_FILENO) setvbuf(ours, nullptr, _IONBF, 0);
    (void)std::fwrite(libcs->_IO_write_base, 1, __fpending(libcs), ours);
    __fpurge(libcs);
    libcs->_fileno = -1;
    standard.libcs = libcs;
    *standard.name = ours;
}

void give_back(Standard& standard, int fd) {
    (void)std::fflush(*standard.name);
    standard.libcs->_fileno = fd;
    (void)leave_place(standard);
}

}  // namespace

void follow_standard_stream(int fd) {
    Standard* standard = standard_stream(fd);
    if (standard == nullptr) return;
    const int error = errno;
    const bool taken = standard->libcs != nullptr;
    if (needs_cookie(fd) && !taken) take_over(*standard, fd);
    if (!needs_cookie(fd) && taken) give_back(*standard, fd);
    errno = error;
}

FILE* to_reopen(const char* path, FILE* stream) {
    if (path == nullptr) return stream;  // it stays where it is
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        Standard& standard = *standard_stream(fd);
        if (standard.libcs == nullptr || *standard.name != stream) continue;
        (void)std::fclose(stream);
        return *standard.name;
    }
    return stream;
}

std::unique_lock<std::mutex> hold_streams() {
    return std::unique_lock(cookie_streams().lock);
}

bool arrived(int fd) {
    if (standard_stream(fd) != nullptr) {
        follow_standard_stream(fd);
        return false;
    }
    if (!needs_cookie(fd)) return false;
    bool any = false;
    each_libcs_stream([&](FILE* stream) {
        if (stream->_fileno != fd) return;
        stream->_fileno = -1;
        any = true;
    });
    return any;
}

Process* made_where_inherited() {
    if (is_making_process() || std::getenv(cryptmpi::config::kArenaVariable) == nullptr) return nullptr;
    Process& made = this_process();
    take_over_standard_streams();
    return &made;
}

void take_over_standard_streams() {
    for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) follow_standard_stream(fd);
}

}  // namespace cryptmpi::channel

CRYPTMPI_CALL FILE* fdopen(int fd, const char* mode) {
    if (is_borrower() && refuses_borrower(fd, "fdopen of an internet socket")) return nullptr;
    return needs_cookie(fd) ? open_cookie(fd, mode) : real::fdopen(fd, mode);
}

CRYPTMPI_CALL int fileno(FILE* stream) {
    const int fd = real::fileno(stream);
    if (fd >= 0) return fd;
    const int error = errno;
    const std::lock_guard guard(cookie_streams().lock);
    const auto found = cookie_streams().cookies.find(stream);
    errno = error;
    return found == cookie_streams().cookies.end() || found->second->closed.load() ? -1 : found->second->fd;
}

CRYPTMPI_CALL int fileno_unlocked(FILE* stream) {
    return fileno(stream);
}

CRYPTMPI_CALL int vdprintf(int fd, const char* format, va_list arguments) {
    char* text = nullptr;
    const int size = vasprintf(&text, format, arguments);
    if (size < 0) return size;
    const std::unique_ptr<char, decltype(&std::free)> owner(text, &std::free);
    for (int done = 0; done < size;) {
        const ssize_t n = write(fd, text + done, static_cast<size_t>(size - done));
        if (n < 0) return -1;
        done += static_cast<int>(n);
    }
    return size;
}

CRYPTMPI_CALL int dprintf(int fd, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int n = vdprintf(fd, format, arguments);
    va_end(arguments);
    return n;
}

CRYPTMPI_CALL int __vdprintf_chk(int fd, int, const char* format, va_list arguments) {
    return vdprintf(fd, format, arguments);
}

CRYPTMPI_CALL int __dprintf_chk(int fd, int, const char* format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int n = vdprintf(fd, format, arguments);
    va_end(arguments);
    return n;
}
