// The outward door: the caller's buffer -> records -> the kernel.
//
// HOT PATH: a small message costs one lock, one seal and one send.
// The kernel may take a part of a record only. The rest waits in Shared::out, and the caller is told one byte less than was sealed: it comes
// back when the socket is writable, which sends the rest. That byte is then skipped, for it has been sealed already.
#include "base/secret.hpp"
#include "channel/connection.hpp"
#include "channel/pieces.hpp"
#include "channel/real.hpp"

#include <poll.h>
#include <signal.h>

#include <cerrno>
#include <cstring>

namespace cryptmpi::channel {

namespace {

constexpr std::size_t kRecordBytes = 64 * 1024;  // plaintext of a record in a long write: fits the second-level cache
constexpr std::size_t kMostPieces = 64;
constexpr int kClosePatienceMs = 5000;  // for a full kernel when the close record must out

/// Sends what waits. True when nothing is left; false with errno.
bool flush(int fd, Shared& shared, int flags) {
    while (shared.out_begin < shared.out_end) {
        const ssize_t n = real::send(fd, shared.out + shared.out_begin, shared.out_end - shared.out_begin, flags);
        if (n < 0) {
            shared.congested = true;
            return false;
        }
        shared.out_begin += static_cast<std::uint32_t>(n);
    }
    shared.out_begin = shared.out_end = 0;
    return true;
}

bool writable_now(int fd) {
    pollfd poll{fd, POLLOUT, 0};
    const timespec now{0, 0};
    return real::ppoll(&poll, 1, &now, nullptr) > 0;
}

/// Keeps what is written before the handshake is done, as the kernel would. 0: no room, or the handshake is not under way or over.
std::size_t keep_early(Shared& shared, std::span<const iovec> from) {
    const std::lock_guard guard(shared.send_lock);
    const State state = shared.state.load();
    if (state != State::await_hello && state != State::await_confirm) return 0;
    Pieces pieces(from);
    const std::size_t room = kRecordBytes - shared.early_size;
    if (pieces.left() > room) return 0;
    const std::size_t size = pieces.left();
    pieces.gather(shared.plain + shared.early_size, size);
    shared.early_size += static_cast<std::uint32_t>(size);
    shared.plain_high = std::max(shared.plain_high, shared.early_size);
    return size;
}

ssize_t pipe_broken(int flags) {
    if ((flags & MSG_NOSIGNAL) == 0) raise(SIGPIPE);
    errno = EPIPE;
    return -1;
}

}  // namespace

ssize_t transmit(Process& process, int fd, Entry& entry, std::span<const iovec> from, int flags) {
    if (entry.shared == nullptr) return closed_meanwhile();
    Shared& shared = *entry.shared;
    if (shared.state.load(std::memory_order_acquire) != State::open || !entry.sealer) {
        if (shared.state.load() == State::failed) {
            errno = shared.error.load();
            return -1;
        }
        const State state = drive(process, fd, entry);
        if (state == State::await_hello || state == State::await_confirm) {
            if (const std::size_t kept = keep_early(shared, from); kept > 0) return static_cast<ssize_t>(kept);
        }
        if (await_open(process, fd, entry, flags, SO_SNDTIMEO) != 0) return -1;
    }
    const int how = flags & (MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE);
    const std::lock_guard guard(shared.send_lock);
    if (entry.shared != &shared) return closed_meanwhile();
    if (shared.write_closed) return pipe_broken(flags);
    Pieces pieces(from);
    const std::size_t all = pieces.left();
    if (all == 0) return 0;
    if (shared.out_begin < shared.out_end && !flush(fd, shared, how)) return -1;

    std::size_t done = 0;
    if (shared.held) {
        pieces.skip(1);
        shared.held = false;
        done = 1;
    } else if (shared.congested && (how & MSG_DONTWAIT) != 0 && all == 1 && !writable_now(fd)) {
        // One byte cannot be held back: what is sealed must be acknowledged.
        errno = EAGAIN;
        return -1;
    }
    shared.congested = false;
    while (pieces.left() > 0) {
        const std::size_t size = std::min(pieces.left(), kRecordBytes);
        iovec in[kMostPieces];
        std::size_t count = pieces.take(size, in);
        if (count == 0) {
            // Too many small pieces: gathered behind the record that is about to be written.
            static_assert(kOutCapacity - kRecordBytes >= kRecordBytes + 2 * seal::kRecordOverhead);
            std::uint8_t* aside = shared.out + kOutCapacity - size;
            pieces.gather(aside, size);
            in[0] = {aside, size};
            count = 1;
        }
        const auto sealed = entry.sealer->seal({in, count}, size, shared.out);
        if (!sealed) {
            break_connection(process, fd, entry, sealed.error().code, std::string("to ") + shared.peer + ": " + sealed.error().line, true);
            errno = sealed.error().code;
            return -1;
        }
        shared.out_begin = 0;
        shared.out_end = static_cast<std::uint32_t>(*sealed);
        done += size;
        if (!flush(fd, shared, how)) {
            if (errno != EAGAIN && errno != EINTR) return -1;
            shared.held = true;
            if (done == 1) return -1;
            return static_cast<ssize_t>(done - 1);
        }
    }
    return static_cast<ssize_t>(done);
}

void send_early(Process& process, int fd, Entry& entry) {
    Shared& shared = *entry.shared;
    if (shared.early_size == 0) return;
    const iovec early{shared.plain, shared.early_size};
    const auto sealed = entry.sealer->seal({&early, 1}, shared.early_size, shared.out);
    wipe(shared.plain, shared.early_size);
    shared.early_size = 0;
    if (!sealed) {
        break_connection(process, fd, entry, sealed.error().code, std::string("to ") + shared.peer + ": " + sealed.error().line, true);
        return;
    }
    shared.out_begin = 0;
    shared.out_end = static_cast<std::uint32_t>(*sealed);
    (void)flush(fd, shared, MSG_DONTWAIT | MSG_NOSIGNAL);  // the rest goes with the next write, or by the courier
}

bool early_done(Process& process, int fd, Entry& entry) {
    Shared& shared = *entry.shared;
    const State state = drive(process, fd, entry);
    if (state == State::failed) return true;
    if (state != State::open) return false;
    const std::lock_guard guard(shared.send_lock);
    return flush(fd, shared, MSG_DONTWAIT | MSG_NOSIGNAL) || (errno != EAGAIN && errno != EINTR);
}

void close_sending(Process& process, int fd, Entry& entry) {
    Shared& shared = *entry.shared;
    const std::int64_t patience = now_ns() + kClosePatienceMs * std::int64_t{1'000'000};
    State state = drive(process, fd, entry);
    while (shared.early_size > 0 && state != State::open && state != State::failed && now_ns() < patience) {
        pollfd poll{fd, handshake_events(entry), 0};
        const timespec tick{0, kTickMs * 1'000'000L};
        real::ppoll(&poll, 1, &tick, nullptr);
        state = drive(process, fd, entry);
    }
    if (state != State::open || !entry.sealer) return;
    const std::lock_guard guard(shared.send_lock);
    if (shared.write_closed) return;
    shared.write_closed = true;
    shared.held = false;
    const auto push = [&] {
        while (!flush(fd, shared, MSG_DONTWAIT | MSG_NOSIGNAL)) {
            if (errno != EAGAIN && errno != EINTR) return false;
            if (now_ns() > patience) return false;
            pollfd poll{fd, POLLOUT, 0};
            const timespec tick{0, kTickMs * 1'000'000L};
            real::ppoll(&poll, 1, &tick, nullptr);
        }
        return true;
    };
    if (!push()) return;
    const auto size = entry.sealer->seal_control(seal::RecordType::close, shared.out);
    if (!size) return;
    shared.out_end = static_cast<std::uint32_t>(*size);
    // A peer that is gone does not miss it; one that is there will see that the stream was cut off.
    (void)push();
}

void end(Process& process, int fd, Entry& entry) {
    Shared* shared = entry.shared;
    process.handshake_settled(entry);
    if (entry.sealer && entry.opener) process.add(entry.sealer->counters(), entry.opener->counters());
    if (shared->processes.fetch_sub(1) > 1) {
        entry.kind.store(Kind::ended);
        return;
    }
    close_sending(process, fd, entry);
    // A thread of ours may wait in a call on this socket: wake it, then wait for it to leave.
    if (!shared->receive_lock.try_lock()) {
        real::shutdown(fd, SHUT_RDWR);
        shared->receive_lock.lock();
    }
    if (!shared->send_lock.try_lock()) {
        real::shutdown(fd, SHUT_RDWR);
        shared->send_lock.lock();
    }
    // An unread close record in the kernel would turn our FIN into a reset that destroys what the peer has not read yet.
    if (shared->state.load() == State::open) {
        int rounds = 64;
        while (rounds-- > 0 && real::recv(fd, shared->raw, sizeof shared->raw, MSG_DONTWAIT) > 0) {
        }
    }
    entry.shared = nullptr;
    entry.kind.store(Kind::ended);
    shared->send_lock.unlock();
    shared->receive_lock.unlock();
    process.arena().give_back(shared);
}

}  // namespace cryptmpi::channel
