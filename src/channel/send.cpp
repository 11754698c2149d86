// The outward door: the caller's buffer -> records -> the kernel.
//
// HOT PATH: a small message costs one lock, one seal and one send.
// The kernel may take a part of a record only. The rest waits in Shared::out, as in a larger socket buffer: the caller
// has been told that it was taken. It goes out with the next call that touches the socket, when a readiness call sees
// it writable, or by the courier.
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/single_threaded.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/secret.hpp"
#include "channel/clock.hpp"
#include "channel/connection.hpp"
#include "channel/epoll.hpp"
#include "channel/piece_walk.hpp"
#include "channel/real.hpp"

namespace cryptmpi::channel {

namespace {

// A long write begins with a small record, sent by itself, so that the receiver has something to open early; then a
// call for every two records, since each call walks the whole network stack.
constexpr std::size_t kFirstBytes = 32 * 1024;
constexpr std::size_t kMostPieces = 64;
constexpr int kExitPatienceMs = 5000;                   // for a full kernel when the process ends
constexpr int kExitTogetherMs = 1000;                   // for all handshakes then that nobody has written anything on
constexpr std::int64_t kLeftAlone_ns = 60'000'000'000;  // for such a one when the program has closed it
constexpr int kLockPatienceMs = 20;                     // of an end, for a thread that sends or reads
constexpr std::int64_t kBothLocks_ns = 200'000'000;     // of an end that has woken who reads

std::int64_t after_ms(int milliseconds) {
    return now_ns() + milliseconds * std::int64_t{1'000'000};
}

/// Both locks of a connection that is about to end, if they can be had: a thread that sends may wait in the kernel for
/// ever, and a signal handler may have interrupted the very call that holds one.
class LockedBoth {
public:
    explicit LockedBoth(Shared& shared) : shared_(shared) {
        const std::int64_t until = now_ns() + kBothLocks_ns;
        if (!shared.receive_lock.lock_until(until)) return;
        has_ = shared.send_lock.lock_until(until);
        if (!has_) shared.receive_lock.unlock();
    }
    ~LockedBoth() {
        if (!has_) return;
        shared_.send_lock.unlock();
        shared_.receive_lock.unlock();
    }
    LockedBoth(const LockedBoth&) = delete;
    LockedBoth& operator=(const LockedBoth&) = delete;
    explicit operator bool() const { return has_; }

private:
    Shared& shared_;
    bool has_ = false;
};

/// Hands bytes to the kernel, as send() does. A thread that is cancelled in send() does not learn how much of a record
/// has gone. So it can be cancelled only while it waits for room, and then takes that for one byte.
ssize_t hand_over(int fd, Shared& shared, const std::uint8_t* from, std::size_t size, int flags) {
    if (__libc_single_threaded != 0) return real::send(fd, from, size, flags);
    const ssize_t n = real::send_now(fd, from, size, flags);
    const bool may_wait = n < 0 && errno == EAGAIN && (flags & MSG_DONTWAIT) == 0;
    if (!may_wait) return n;
    const Waiting waiting(shared.sender_waits);
    return real::send(fd, from, 1, flags);
}

/// Sends what waits. True when nothing is left; false with errno.
bool flush(Entry& entry, int flags) {
    Shared& shared = *entry.shared;
    while (shared.out_begin < shared.out_end) {
        const ssize_t n = hand_over(entry.descriptor(), shared, shared.out + shared.out_begin,
                                    shared.out_end - shared.out_begin, flags);
        if (n < 0) return false;
        shared.out_begin += static_cast<std::uint32_t>(n);
        if (shared.ahead_end != 0 && shared.out_begin == shared.out_end) [[unlikely]] {
            shared.out_begin = std::exchange(shared.ahead_begin, 0);
            shared.out_end = std::exchange(shared.ahead_end, 0);
        }
    }
    shared.out_begin = shared.out_end = 0;
    return true;
}

/// After a send that failed. True: for good.
bool note_loss(Shared& shared) {
    if (errno == EAGAIN || errno == EINTR) return false;
    shared.write_error.store(errno);
    return true;
}

/// Tells the readiness calls and the courier that bytes wait for a writable socket, or that none do any more.
void owe(Process& process, Entry& entry, bool owing) {
    if (entry.shared.load()->owing.exchange(owing) == owing) return;
    rearm(entry);
    if (owing) process.background().carry(entry);
}

/// Keeps what is written before the handshake is done, as the kernel would. 0: no room, or the handshake is not under
/// way or over.
std::size_t keep_early(const Use& use, std::span<const iovec> from) {
    Shared& shared = *use.shared();
    const std::lock_guard guard(shared.send_lock);
    if (!use.is_current()) return 0;
    const State state = shared.state.load();
    if ((state != State::await_hello && state != State::await_confirm) || shared.write_closed) return 0;
    Pieces pieces(from);
    const std::size_t room = kRecordBytes - shared.early_size;
    if (pieces.left() > room) return 0;
    const std::size_t size = pieces.left();
    pieces.gather(shared.plain + shared.early_size, size);
    shared.early_size += static_cast<std::uint32_t>(size);
    shared.plain_high = std::max(shared.plain_high, shared.early_size);
    return size;
}

/// Ends the connection. False with errno.
bool cannot_seal(Process& process, Entry& entry, const Error& error) {
    break_connection(process, entry, error.code, std::string("to ") + entry.shared.load()->peer + ": " + error.line,
                     true);
    errno = error.code;
    return false;
}

/// The next bytes, for one record. Returns how many pieces they are.
[[gnu::always_inline]] inline std::size_t take_or_gather(Shared& shared, Pieces& pieces, std::size_t size,
                                                         iovec (&in)[kMostPieces]) {
    const std::size_t count = pieces.take(size, in);
    if (count > 0) return count;
    pieces.gather(shared.gathered, size);
    shared.gathered_high = std::max(shared.gathered_high, static_cast<std::uint32_t>(size));
    in[0] = {shared.gathered, size};
    return 1;
}

/// Seals the next bytes, at most `most`, as one record behind what waits. False with errno: the connection is broken.
bool seal_next(Process& process, Entry& entry, Pieces& pieces, std::size_t most) {
    Shared& shared = *entry.shared;
    const std::size_t size = std::min(pieces.left(), most);
    iovec in[kMostPieces];
    const std::size_t count = take_or_gather(shared, pieces, size, in);
    const auto sealed = entry.sealer->seal({in, count}, size, shared.out + shared.out_end);
    if (!sealed) return cannot_seal(process, entry, sealed.error());
    shared.out_end += static_cast<std::uint32_t>(*sealed);
    return true;
}

/// The same as a padded record.
bool seal_next_padded(Process& process, Entry& entry, Pieces& pieces, const Spread::Share& share) {
    static_assert(kMostPieces <= seal::StreamSealer::kMostPaddedPieces);
    Shared& shared = *entry.shared;
    iovec in[kMostPieces];
    const std::size_t count = take_or_gather(shared, pieces, share.data, in);
    const auto sealed = entry.sealer->seal_padded({in, count}, share.data, share.room, shared.out + shared.out_end);
    if (!sealed) return cannot_seal(process, entry, sealed.error());
    shared.out_end += static_cast<std::uint32_t>(*sealed);
    return true;
}

/// The next records of a long write, for several threads to seal; as they would be one after the other.
class Batch {
public:
    /// None where it takes more pieces of the caller's than seal_next would take uncopied.
    Batch(Pieces from, std::uint8_t* out) {
        while (from.left() > 0 && count_ < kBatchRecords) {
            const std::size_t size = std::min(from.left(), kRecordBytes);
            const std::size_t pieces = from.take(size, pieces_[count_]);
            if (pieces == 0) return;
            records_[count_] = {{pieces_[count_], pieces}, size, out};
            out += size + seal::kRecordOverhead;
            ++count_;
        }
    }
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;

    std::span<const seal::ToSeal> records() const { return {records_, count_}; }
    /// Bytes of plaintext in the first so many.
    std::size_t size_of(std::size_t records) const {
        std::size_t sum = 0;
        for (std::size_t i = 0; i < records; ++i) sum += records_[i].size;
        return sum;
    }

private:
    iovec pieces_[kBatchRecords][kMostPieces];
    seal::ToSeal records_[kBatchRecords];
    std::size_t count_ = 0;
};

/// Tells the caller of what was sent before the kernel took no more, or is owed; -1 with errno if nothing is.
ssize_t stopped(Process& process, Entry& entry, std::size_t sent, std::size_t owed) {
    if (note_loss(*entry.shared.load())) return sent > 0 ? static_cast<ssize_t>(sent) : -1;
    owe(process, entry, true);
    return static_cast<ssize_t>(sent + owed);
}

/// One thread's way: `seal` makes the next record, of so many bytes at most; `all`: bytes of all of them.
template <class Seal>
[[gnu::always_inline]] inline ssize_t transmit_records(Process& process, Entry& entry, Pieces& pieces, int how,
                                                       std::size_t all, const Seal& seal) {
    std::size_t done = 0;
    while (pieces.left() > 0) {
        const std::size_t before = pieces.left();
        const bool begins = done == 0 && all > kFirstBytes;
        bool good = seal(begins ? kFirstBytes : kRecordBytes);
        if (good && !begins && pieces.left() > 0) good = seal(kRecordBytes);
        if (!good) return -1;
        if (!flush(entry, how)) return stopped(process, entry, done, before - pieces.left());
        done += before - pieces.left();
    }
    return static_cast<ssize_t>(done);
}

ssize_t transmit_alone(Process& process, Entry& entry, Pieces& pieces, int how) {
    return transmit_records(process, entry, pieces, how, pieces.left(),
                            [&](std::size_t most) { return seal_next(process, entry, pieces, most); });
}

// protocol: R19
/// Who sees the records' lengths learns the bucket of the write's size. One that the kernel takes a part of is a write
/// of that part, and then another one.
ssize_t transmit_padded(Process& process, Entry& entry, Pieces& pieces, int how) {
    const std::size_t bucket = process.settings().padding.bucket(pieces.left());
    Spread spread(pieces.left(), bucket);
    return transmit_records(process, entry, pieces, how, bucket, [&](std::size_t most) {
        return seal_next_padded(process, entry, pieces, spread.next(most - seal::kLengthSize));
    });
}

/// What became of a batch: how many of its records are sealed; did the kernel take all that was sealed before them, and
/// if not, errno.
struct Turn {
    std::size_t sealed = 0;
    bool sent = false;
    int error = 0;
};

/// Has several threads seal the batch while this one has the kernel take what is sealed. Nothing: the connection broke.
std::optional<Turn> seal_while_sending(Process& process, Entry& entry, const Batch& batch, int how) {
    Turn turn;
    const auto send = [&] {
        turn.sent = flush(entry, how);
        turn.error = errno;
    };
    const auto sealed = entry.sealer->seal_several(
        batch.records(), [&](std::size_t count, const auto& work) { process.share_beside(send, count, work); });
    if (!sealed) {
        cannot_seal(process, entry, sealed.error());
        return std::nullopt;
    }
    if (*sealed == 0) send();
    turn.sealed = *sealed;
    return turn;
}

/// Several threads' way: the next records are sealed while the kernel takes those before them, in the other half of
/// what is sealed.
ssize_t transmit_together(Process& process, Entry& entry, Pieces& pieces, int how) {
    Shared& shared = *entry.shared;
    if (!seal_next(process, entry, pieces, kFirstBytes)) return -1;
    std::size_t done = 0;
    std::size_t sealed = kFirstBytes;
    for (;;) {
        const std::size_t place = shared.out_begin < kBatchCapacity ? kBatchCapacity : 0;
        const Batch batch(pieces, shared.out + place);
        const auto turn = seal_while_sending(process, entry, batch, how);
        if (!turn) return -1;
        const std::size_t size = batch.size_of(turn->sealed);
        const std::size_t end = place + size + turn->sealed * seal::kRecordOverhead;
        pieces.skip(size);
        if (!turn->sent) {
            if (turn->sealed > 0) {
                shared.ahead_begin = static_cast<std::uint32_t>(place);
                shared.ahead_end = static_cast<std::uint32_t>(end);
            }
            errno = turn->error;
            return stopped(process, entry, done, sealed + size);
        }
        done += sealed;
        if (pieces.left() == 0 && turn->sealed == 0) return static_cast<ssize_t>(done);
        if (turn->sealed > 0) {
            shared.out_begin = static_cast<std::uint32_t>(place);
            shared.out_end = static_cast<std::uint32_t>(end);
            sealed = size;
            continue;
        }
        // The end of a key, or too many pieces.
        const std::size_t before = pieces.left();
        if (!seal_next(process, entry, pieces, kRecordBytes)) return -1;
        sealed = before - pieces.left();
    }
}

ssize_t pipe_broken(int flags) {
    if ((flags & MSG_NOSIGNAL) == 0) raise(SIGPIPE);
    errno = EPIPE;
    return -1;
}

/// Nobody has said what is to be done about it, and this thread takes it.
bool dies_of(int signal) {
    struct sigaction action {};
    sigset_t blocked{};
    return sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_DFL &&
           pthread_sigmask(SIG_BLOCK, nullptr, &blocked) == 0 && sigismember(&blocked, signal) == 0;
}

/// The kernel has lost the connection, and would have sent SIGPIPE. Who dies of it has no other chance to say that it
/// was lost without the authenticated close.
void break_pipe(Process& process, Entry& entry, int flags) {
    if ((flags & MSG_NOSIGNAL) != 0) return;
    if (dies_of(SIGPIPE)) check_loss(process, entry);
    raise(SIGPIPE);
    errno = EPIPE;
}

/// With the lock held, of a connection that is open: a process was killed that had opened it, and had yet to send what
/// was written early. The peer must not take an end for the end of all that was written. True: it is broken now.
bool early_was_lost(Process& process, Entry& entry, Shared& shared) {
    if (shared.early_size == 0) return false;
    shared.early_size = 0;
    break_connection(process, entry, ECONNRESET,
                     std::string("to ") + shared.peer +
                         ": a process that shared the connection was killed before it had sent what was written first",
                     true);
    return true;
}

/// On a connection that is open.
ssize_t transmit_locked(Process& process, Entry& entry, const Use& use, std::span<const iovec> from, int flags) {
    Shared& shared = *use.shared();
    const int how = (flags & (MSG_DONTWAIT | MSG_MORE)) | MSG_NOSIGNAL;  // see break_pipe()
    if ((flags & MSG_DONTWAIT) == 0) {
        shared.send_lock.lock();
    } else if (!lock_unless_waiting(shared.send_lock, shared.sender_waits)) {
        errno = EAGAIN;  // a thread waits for the kernel, which is full
        return -1;
    }
    const std::lock_guard guard(shared.send_lock, std::adopt_lock);
    if (!use.is_current() || !entry.contexts.load()) return closed_meanwhile();
    if (shared.write_closed) return pipe_broken(flags);
    if (early_was_lost(process, entry, shared)) [[unlikely]] {
        errno = ECONNRESET;
        return -1;
    }
    Pieces pieces(from);
    const std::size_t all = pieces.left();
    if (all == 0) return 0;
    if (shared.out_begin < shared.out_end) {
        if (!flush(entry, how)) {
            note_loss(shared);
            return -1;
        }
        owe(process, entry, false);
        renew_writable_edges(entry);  // what the kernel said of it meanwhile was not told
    }

    if (all >= process.seals_plainly_below()) {
        if (process.settings().padding.is_on()) return transmit_padded(process, entry, pieces, how);
        if (process.has_workers()) return transmit_together(process, entry, pieces, how);
    }
    return transmit_alone(process, entry, pieces, how);
}

ssize_t transmit_or_fail(Process& process, Entry& entry, std::span<const iovec> from, int flags) {
    const Use use(entry);
    if (use.shared() == nullptr) return closed_meanwhile();
    Shared& shared = *use.shared();
    if (shared.state.load(std::memory_order_acquire) != State::open || !entry.contexts.load()) {
        if (shared.state.load() == State::failed) {
            tell_of_cut(process, shared);
            errno = shared.error.load();
            return -1;
        }
        const State state = drive(process, entry);
        if (state == State::await_hello || state == State::await_confirm) {
            if (shared.write_closed) return pipe_broken(flags);
            if (Pieces(from).left() == 0) return 0;
            if (const std::size_t kept = keep_early(use, from); kept > 0) {
                if (process.shares()) process.background().carry(entry);  // the parent's courier may be gone
                return static_cast<ssize_t>(kept);
            }
        }
        if (await_open(process, entry, flags, SO_SNDTIMEO) != 0) return without_us(entry, from, flags, real::sendmsg);
    }
    const ssize_t n = transmit_locked(process, entry, use, from, flags);
    if (n < 0 && errno == EPIPE && !shared.write_closed.load()) [[unlikely]]
        break_pipe(process, entry, flags);
    return n;
}

}  // namespace

ssize_t transmit(Process& process, Entry& entry, std::span<const iovec> from, int flags) {
    const ssize_t n = transmit_or_fail(process, entry, from, flags);
    if (n < 0 && errno != EAGAIN) [[unlikely]]
        process.stay_until_the_end();
    return n;
}

bool settle_debt(Process& process, Entry& entry) {
    const Use use(entry);
    Shared* shared = use.shared();
    if (shared == nullptr || !shared->owing.load(std::memory_order_acquire)) return true;
    if (!shared->send_lock.try_lock()) return false;  // somebody is sending: that flushes first
    const std::lock_guard guard(shared->send_lock, std::adopt_lock);
    if (!use.is_current()) return true;
    if (shared->state.load() == State::open && early_was_lost(process, entry, *shared)) return true;
    const int error = errno;
    const bool done = flush(entry, MSG_DONTWAIT | MSG_NOSIGNAL) || note_loss(*shared);
    errno = error;
    if (done) owe(process, entry, false);
    return done;
}

void say_something(Process& process, Entry& entry) {
    const Use use(entry);
    Shared* shared = use.shared();
    if (shared == nullptr || shared->state.load() != State::open || !entry.contexts.load()) return;
    if (!shared->send_lock.try_lock()) return;  // somebody is sending
    const std::lock_guard guard(shared->send_lock, std::adopt_lock);
    const bool idle = use.is_current() && entry.contexts.load() && !shared->write_closed.load() &&
                      shared->early_size == 0 && shared->sending.closed == 0 && shared->out_begin == shared->out_end;
    if (!idle) return;
    const auto sealed = entry.sealer->seal({}, 0, shared->out);
    if (!sealed) {
        cannot_seal(process, entry, sealed.error());
        return;
    }
    shared->out_begin = 0;
    shared->out_end = static_cast<std::uint32_t>(*sealed);
    const int error = errno;
    if (!flush(entry, MSG_DONTWAIT | MSG_NOSIGNAL) && !note_loss(*shared)) owe(process, entry, true);
    errno = error;
}

void send_early(Process& process, Entry& entry) {
    Shared& shared = *entry.shared;
    if (shared.early_size == 0) return;
    const iovec early{shared.plain, shared.early_size};
    Pieces pieces({&early, 1});
    const auto& padding = process.settings().padding;
    Spread spread(shared.early_size, padding.bucket(shared.early_size));
    shared.out_begin = shared.out_end = 0;
    bool sealed = true;
    while (sealed && pieces.left() > 0) {
        sealed = padding.is_on()
                     ? seal_next_padded(process, entry, pieces, spread.next(kRecordBytes - seal::kLengthSize))
                     : seal_next(process, entry, pieces, kRecordBytes);
    }
    wipe(shared.plain, shared.early_size);
    shared.early_size = 0;
    if (!sealed) return;
    if (!flush(entry, MSG_DONTWAIT | MSG_NOSIGNAL) && !note_loss(shared)) owe(process, entry, true);
}

namespace {

enum class Wait { yes, no };

/// The close or reset record, after all that waits. True when all is out, or nothing can be; false when the kernel was
/// still full after `patience_ms`. `Wait::no`: nor is a thread waited for that is sending.
bool send_close(Process& process, Entry& entry, const Use& use, seal::RecordType type, int patience_ms, Wait wait) {
    Shared& shared = *use.shared();
    const std::int64_t until = after_ms(patience_ms);
    Ticks ticks;
    State state = drive(process, entry);
    while (state != State::open && state != State::failed && now_ns() < until) {
        pollfd poll{entry.descriptor(), handshake_events(entry), 0};
        const timespec tick = ticks.next();
        real::ppoll(&poll, 1, &tick, nullptr);
        state = drive(process, entry);
    }
    if (!shared.send_lock.lock_until(wait == Wait::yes ? std::max(until, after_ms(kLockPatienceMs)) : 0)) return false;
    const std::lock_guard guard(shared.send_lock, std::adopt_lock);
    if (!use.is_current()) return true;
    // Until the handshake is done the end cannot be told so that the peer may believe it. Without TCP there is no peer.
    if (state != State::open || !entry.contexts.load())
        return state != State::await_hello && state != State::await_confirm;
    if (state == State::open && early_was_lost(process, entry, shared)) return true;
    for (;;) {
        // A peer that is gone does not miss the close record; one that is there will see that the stream was cut off.
        if (!flush(entry, MSG_DONTWAIT | MSG_NOSIGNAL)) {
            if (errno != EAGAIN && errno != EINTR) return true;
            if (now_ns() >= until) return false;
            pollfd poll{entry.descriptor(), POLLOUT, 0};
            const timespec tick = ticks.next();
            real::ppoll(&poll, 1, &tick, nullptr);
            continue;
        }
        if (shared.sending.closed != 0) return true;
        const auto size = entry.sealer->seal_control(type, shared.out);
        if (!size) return true;
        shared.out_end = static_cast<std::uint32_t>(*size);
    }
}

}  // namespace

bool close_sending(Process& process, Entry& entry, int patience_ms, seal::RecordType type) {
    const Use use(entry);
    if (use.shared() == nullptr) return true;
    const bool locked = use.shared()->send_lock.lock_until(after_ms(std::max(patience_ms, kLockPatienceMs)));
    const bool current = use.is_current();
    // What a thread sends that waits for the kernel goes out first.
    if (current) use.shared()->write_closed.store(true);
    if (locked) use.shared()->send_lock.unlock();
    if (!current) return true;
    return locked && send_close(process, entry, use, type, patience_ms, Wait::yes);
}

bool carried(Process& process, Entry& entry) {
    const Use use(entry);
    Shared* shared = use.shared();
    if (shared == nullptr) return true;
    const State state = drive(process, entry);
    if (state == State::failed) return true;
    const bool lingering = shared->lingering.load();
    if (state != State::open && !lingering) return false;
    if (!shared->write_closed.load()) {
        const bool owed = shared->owing.load();
        if (!settle_debt(process, entry)) return false;
        if (owed) renew_writable_edges(entry);
        return true;
    }
    // Closed, or shut down, while the kernel was full.
    const auto type = shared->resets.load() ? seal::RecordType::reset : seal::RecordType::close;
    if (!send_close(process, entry, use, type, 0, Wait::no)) return false;
    if (!lingering && use.is_current()) real::shutdown(entry.descriptor(), SHUT_WR);
    return true;
}

namespace {

/// How long an exit waits for this connection; nothing else does.
int exit_patience_ms(const Process& process, const Shared& shared) {
    if (!process.finishing()) return 0;
    if (shared.early_size > 0 || shared.state.load() == State::open) return kExitPatienceMs;
    // A peer that has not said a word is none.
    if (shared.role == keys::Role::responder && shared.hello_size == 0) return 0;
    const std::int64_t left_ns = process.finishing_since_ns() + kExitTogetherMs * std::int64_t{1'000'000} - now_ns();
    return static_cast<int>(std::max<std::int64_t>(0, left_ns / 1'000'000));
}

/// What the kernel does on close: a reset when SO_LINGER asks for it, or when the program leaves bytes unread. Control
/// records are ours, and are taken out so that they do not count.
bool ends_in_reset(Process& process, Entry& entry) {
    linger lingering{};
    socklen_t size = sizeof lingering;
    if (real::getsockopt(entry.descriptor(), SOL_SOCKET, SO_LINGER, &lingering, &size) == 0 && lingering.l_onoff != 0 &&
        lingering.l_linger == 0)
        return true;
    return drive(process, entry) == State::open && bytes_readable(process, entry) > 0;
}

/// Takes the connection away from the entry, and counts what it did; both its locks are held.
void detach(Process& process, Entry& entry) {
    const std::lock_guard guard(entry.registrations_lock);
    if (entry.contexts.load()) process.report().add(entry.sealer->counters(), entry.opener->counters());
    entry.shared.store(nullptr);
    entry.kind.store(Kind::ended);
    entry.contexts.store(false);
    entry.sealer.reset();
    entry.opener.reset();
}

/// What has a connection from now on that the program has closed: nothing, another entry, or this one, which is not to
/// be recycled.
enum class Heir { none, another, itself };

/// The program has closed the socket, but what it wrote is not out yet: the kernel would go on sending, so a descriptor
/// of our own keeps the connection, and the courier brings it to its end. Where a thread stays in a call on it, the
/// entry keeps it, too: that call goes on by our descriptor.
Heir linger_on(Process& process, Entry& entry) {
    const int own = Table::duplicate(entry.descriptor());
    if (own < 0) return Heir::none;
    if (!Table::holds(own)) {
        real::close(own);
        return Heir::none;
    }
    Shared* shared = entry.shared;
    Entry* heir = nullptr;
    {
        const LockedBoth locked(*shared);
        if (!locked) {
            shared->lingering.store(true);
            process.table().keep(&entry, own);
            process.background().carry(entry);
            return Heir::itself;
        }
        heir = process.table().add(own, Kind::fresh);
        detach(process, entry);
        shared->lingering.store(true);
        const State state = shared->state.load();
        if (state != State::open && shared->early_size == 0)
            shared->deadline_ns.store(std::min(shared->deadline_ns.load(), now_ns() + kLeftAlone_ns));
    }
    if (auto resumed = resume(process, *heir, *shared); !resumed) process.report().complain(resumed.error().line);
    process.background().carry(*heir);
    return Heir::another;
}

}  // namespace

namespace {

/// The peer's TCP has ended, or all of it: not by our close, which is yet to come. Some programs (libfabric's provider
/// tcp) close a connection that poll calls broken, and read nothing of it: they would never know that it was cut off,
/// and wait for another.
/// Launchers are left out where the peer alone has ended: Hydra's proxies go without a word.
bool has_ended(const Process& process, const Entry& entry, const Shared& shared) {
    tcp_info information{};
    socklen_t size = sizeof information;
    return shared.state.load() == State::open &&
           real::getsockopt(entry.descriptor(), IPPROTO_TCP, TCP_INFO, &information, &size) == 0 &&
           (information.tcpi_state == TCP_CLOSE || (process.is_rank() && information.tcpi_state == TCP_CLOSE_WAIT));
}

}  // namespace

void look_for_loss(Process& process, Entry& entry) {
    const Use use(entry);
    const Shared* const shared = use.shared();
    if (shared == nullptr) return;  // the courier has just found that there is no connection
    if (shared->write_error.load() != 0 || has_ended(process, entry, *shared)) check_loss(process, entry);
}

namespace {

/// This process holds the connection no more. False: others do, or it is another connection by now.
bool leaves_last(const Process& process, Entry& entry, Shared& shared) {
    if (shared.holders.leave(entry.generation.load(), process.name()) == 0) return true;
    entry.kind.store(Kind::ended);
    return false;
}

}  // namespace

bool end(Process& process, Entry& entry) {
    return end(process, entry, std::unique_lock(process.holders_lock()));
}

bool end(Process& process, Entry& entry, std::unique_lock<std::mutex> holders) {
    Shared* shared = entry.shared;
    if (shared == nullptr) {  // the courier has just found that there is no connection, and may still look at the entry
        holders.unlock();
        return Table::unused(entry);
    }
    if (entry.ending.exchange(true)) return false;
    process.handshake_settled(entry);
    const bool last = leaves_last(process, entry, *shared);
    holders.unlock();
    if (!last) {
        // The locks may be held by another process, for long.
        if (!Table::unused(entry)) return false;
        detach(process, entry);
        return true;
    }
    // A thread of ours may wait in a call on this socket: wake it, then wait for it to leave.
    const bool waited_on = !Table::unused(entry);
    const bool shaking = handshaking(entry);
    if (waited_on && !shaking) real::shutdown(entry.descriptor(), SHUT_RD);
    if (!waited_on) look_for_loss(process, entry);
    const bool resets = shared->resets.load() || (!waited_on && ends_in_reset(process, entry));
    shared->resets.store(resets);
    const auto type = resets ? seal::RecordType::reset : seal::RecordType::close;
    const bool told = close_sending(process, entry, exit_patience_ms(process, *shared), type);
    // A full kernel does not delay a reset.
    if (!told && (!resets || shaking) && !process.finishing()) {
        shared->holders.join(entry.generation.load());
        shared->holders.sign(entry.generation.load(), process.name());
        const Heir heir = linger_on(process, entry);
        if (heir != Heir::none) return heir == Heir::another;
    }
    if (shaking && handshaking(entry) && shared->early_size > 0) {
        process.report().complain(std::string("connection to ") + shared->peer +
                                  ": what was written was never sent: the peer has not answered the handshake");
    }
    if (resets) {
        const linger reset{1, 0};
        real::setsockopt(entry.descriptor(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    }
    {
        const LockedBoth locked(*shared);
        if (!locked) {  // the call that has one goes on, but nothing that begins now
            entry.kind.store(Kind::ended);
            return false;
        }
        detach(process, entry);
    }
    process.arena().give_back(shared);
    return true;
}

}  // namespace cryptmpi::channel
