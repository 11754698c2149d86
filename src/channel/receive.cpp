// The inward door: raw bytes from the kernel -> records -> the caller's buffer.
//
// HOT PATH: a small message costs one recv, one lock and one open; a record is opened straight into the caller's buffer
// when it fits. Reading ahead means that the kernel may have nothing where we have bytes left: Shared::readable tells
// the readiness calls.
#include <pthread.h>
#include <sys/ioctl.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "channel/clock.hpp"
#include "channel/connection.hpp"
#include "channel/epoll.hpp"
#include "channel/piece_walk.hpp"
#include "channel/real.hpp"

namespace cryptmpi::channel {

namespace {

constexpr std::size_t kMostPieces = 64;  // of the caller's buffer that one record is opened into
// What is read ahead, if no record in front is larger: a record and a bit of the next. It is opened while it is in the
// cache, and while the sender works on what follows; and no connection keeps more memory than that.
constexpr std::size_t kAheadBytes = kRecordBytes + 512;
// Several threads open what was read ahead while the caller reads on: then it is as much again, where the caller has
// room for more than that. With less than a record, another thread is woken too late to help.
constexpr std::size_t kAheadTogether = 2 * (kRecordBytes + seal::kRecordOverhead) + 512;
constexpr std::size_t kRoomWorthSharing = 2 * kRecordBytes;  // bytes of the caller's room
constexpr std::size_t kMostTogether = 4;                     // records
static_assert(2 * kAheadTogether <= kRawCapacity + 2048 && kAheadTogether <= kRawCapacity);

/// Reads of a connection that has failed, after which a process of the launcher is ended.
constexpr int kMostErrorsOfALauncher = 100;

enum class Front { none, partial, end, broken, data, padded };  // the last two: a whole record with data in it

void broke(Process& process, Entry& entry, int code, const std::string& what) {
    if (code == EBADMSG) process.report().count_failed_open();
    break_connection(process, entry, code, std::string("from ") + entry.shared.load()->peer + ": " + what, true);
}

/// With the receive lock held.
void count_opened(Shared& shared, std::size_t records) {
    shared.opened.store(shared.opened.load(std::memory_order_relaxed) + static_cast<std::uint32_t>(records),
                        std::memory_order_relaxed);
}

bool kernel_done(const Shared& shared) {
    return shared.kernel_eof || shared.kernel_error != 0;
}

/// Nothing more will come. A reset record says that the reset which follows is the peer's own doing; the error is the
/// kernel's to tell.
bool at_end(const Entry& entry) {
    return kernel_done(*entry.shared.load()) || (entry.opener->closed() && !entry.opener->reset());
}

template <std::size_t kAhead = kAheadBytes>
std::size_t read_raw(Entry& entry, int flags);

// protocol: R2, R3
/// What stands at the front of the raw bytes; opens control records on the way.
Front look_at_front(Process& process, Entry& entry, std::size_t& size) {
    Shared& shared = *entry.shared;
    for (;;) {
        if (shared.state.load(std::memory_order_relaxed) == State::failed) return Front::broken;
        if (entry.opener->closed()) {
            if (!at_end(entry)) read_raw(entry, MSG_DONTWAIT);  // the reset itself is on the heels of its record
            return at_end(entry) ? Front::end : Front::none;
        }
        const std::size_t have = shared.raw_end - shared.raw_begin;
        if (have == 0) return Front::none;
        if (have < seal::kHeaderSize) return Front::partial;
        const auto header = seal::read_header(shared.raw + shared.raw_begin);
        if (!header) [[unlikely]] {
            broke(process, entry, EBADMSG, seal::parse_header(shared.raw + shared.raw_begin).error().line);
            return Front::broken;
        }
        if (have < header->size + seal::kRecordOverhead) return Front::partial;
        if (header->type == seal::RecordType::data && header->size > 0) {
            size = header->size;
            return Front::data;
        }
        if (header->type == seal::RecordType::padded) {
            size = header->size;
            return Front::padded;
        }
        const auto opened = entry.opener->open(shared.raw + shared.raw_begin, {});
        if (!opened) {
            broke(process, entry, EBADMSG, opened.error().line);
            return Front::broken;
        }
        count_opened(shared, 1);
        if (header->type == seal::RecordType::confirm) {
            broke(process, entry, EBADMSG, "a handshake's end in the middle of the stream");
            return Front::broken;
        }
        shared.raw_begin += static_cast<std::uint32_t>(seal::kRecordOverhead + header->size);
    }
}

/// Opens the data record at the front into `out`, whose lengths sum to `size`.
bool open_front(Process& process, Entry& entry, std::size_t size, std::span<const iovec> out) {
    Shared& shared = *entry.shared;
    const auto opened = entry.opener->open(shared.raw + shared.raw_begin, out);
    if (!opened) {
        broke(process, entry, EBADMSG, opened.error().line);
        return false;
    }
    count_opened(shared, 1);
    shared.raw_begin += static_cast<std::uint32_t>(seal::kRecordOverhead + size);
    if (shared.raw_begin == shared.raw_end) shared.raw_begin = shared.raw_end = 0;
    return true;
}

/// The same of a padded record, to `out`, which has room for all of it. 0: the connection broke.
std::size_t open_padded_front(Process& process, Entry& entry, std::span<std::uint8_t> out) {
    Shared& shared = *entry.shared;
    const auto opened = entry.opener->open_padded(shared.raw + shared.raw_begin, out);
    if (!opened) {
        broke(process, entry, EBADMSG, opened.error().line);
        return 0;
    }
    count_opened(shared, 1);
    shared.raw_begin += static_cast<std::uint32_t>(seal::kRecordOverhead + out.size());
    if (shared.raw_begin == shared.raw_end) shared.raw_begin = shared.raw_end = 0;
    return *opened;
}

/// What look_at_front has found, behind the plaintext that is there; how long the data of a padded record are shows
/// only then.
bool open_front_aside(Process& process, Entry& entry, Front front, std::size_t size) {
    Shared& shared = *entry.shared;
    const iovec aside{shared.plain + shared.plain_end, size};
    shared.plain_high = std::max(shared.plain_high, shared.plain_end + static_cast<std::uint32_t>(size));
    std::size_t data = size;
    if (front == Front::padded) {
        data = open_padded_front(process, entry, {shared.plain + shared.plain_end, size});
        if (data == 0) return false;
    } else if (!open_front(process, entry, size, {&aside, 1})) {
        return false;
    }
    shared.plain_end += static_cast<std::uint32_t>(data);
    return true;
}

/// Bytes of the record at the front of the raw ones; 0: not known yet, or none.
std::size_t front_record(const Shared& shared) {
    if (shared.raw_end - shared.raw_begin < seal::kHeaderSize) return 0;
    const auto header = seal::read_header(shared.raw + shared.raw_begin);
    return header ? header->size + seal::kRecordOverhead : 0;
}

/// recv() that may wait; others see meanwhile that it does.
[[gnu::always_inline]] inline ssize_t recv_waiting(const Entry& entry, Shared& shared, std::uint8_t* to,
                                                   std::size_t room) {
    const Waiting waiting(shared.reader_waits);
    return real::recv(entry.descriptor(), to, room, 0);
}

/// One read from the kernel behind what is there; `filled` is false. Returns as read_raw.
[[gnu::always_inline]] inline std::size_t append_raw(Entry& entry, std::size_t room, int flags) {
    Shared& shared = *entry.shared;
    std::uint8_t* const to = shared.raw + shared.raw_end;
    const ssize_t n = (flags & MSG_DONTWAIT) != 0 ? real::recv_now(entry.descriptor(), to, room)
                                                  : recv_waiting(entry, shared, to, room);
    if (n == 0) shared.kernel_eof = true;
    if (n < 0 && errno != EAGAIN && errno != EINTR) shared.kernel_error = errno;
    if (n <= 0) return 0;
    shared.raw_end += static_cast<std::uint32_t>(n);
    shared.raw_high = std::max(shared.raw_high, shared.raw_end);
    shared.arrivals.fetch_add(1, std::memory_order_relaxed);
    shared.filled = static_cast<std::size_t>(n) == room;
    return static_cast<std::size_t>(n);
}

/// One read from the kernel, so many bytes or the record in front. Returns the bytes; 0: the kernel has no more for now
/// (errno) or for ever (kernel_eof, kernel_error).
template <std::size_t kAhead>
std::size_t read_raw(Entry& entry, int flags) {
    Shared& shared = *entry.shared;
    shared.filled = false;
    if (kernel_done(shared)) return 0;
    // What is left is a part of a record, mostly a short one.
    std::memmove(shared.raw, shared.raw + shared.raw_begin, shared.raw_end - shared.raw_begin);
    shared.raw_end -= shared.raw_begin;
    shared.raw_begin = 0;
    const std::size_t wanted = std::max(kAhead, front_record(shared) + seal::kHeaderSize);
    // More, where somebody wants to see all there is.
    const std::size_t room = (shared.raw_end < wanted ? wanted : kRawCapacity) - shared.raw_end;
    return room == 0 ? 0 : append_raw(entry, room, flags);
}

/// One read of what the kernel has more, while raw[opening, raw_begin) is being opened: behind all, or before that.
void read_beside(Entry& entry, std::size_t opening) {
    Shared& shared = *entry.shared;
    const std::size_t left = shared.raw_end - shared.raw_begin;
    if (kernel_done(shared) || left >= kAheadTogether) return;
    std::size_t end = kRawCapacity;
    if (end - shared.raw_end < kRecordBytes) {
        if (opening < left + kRecordBytes) return;
        std::memcpy(shared.raw, shared.raw + shared.raw_begin, left);
        shared.raw_begin = 0;
        shared.raw_end = static_cast<std::uint32_t>(left);
        end = opening;
    }
    shared.filled = false;
    append_raw(entry, std::min(end - shared.raw_end, kAheadTogether - left), MSG_DONTWAIT);
}

// protocol: R8
/// The kernel has no more for ever, and no record is left: authentic, cut off, or reset. Returns what the call returns.
ssize_t ended(Process& process, Entry& entry) {
    Shared& shared = *entry.shared;
    if (entry.opener->reset() && shared.kernel_error != 0) {
        // As the kernel does: the error once, then the end.
        shared.kernel_eof = true;
        errno = std::exchange(shared.kernel_error, 0);
        return -1;
    }
    if (entry.opener->closed() || shared.read_shut.load()) return 0;
    const int error = shared.kernel_error != 0 ? shared.kernel_error : ECONNRESET;
    broke(process, entry, error,
          shared.kernel_error == 0
              ? "the connection ended without the authenticated close: the peer died, or the stream was cut off"
              : std::string("the connection was lost without the authenticated close: ") + std::strerror(error));
    errno = error;
    return -1;
}

void note_readable(Process& process, Entry& entry) {
    Shared& shared = *entry.shared;
    std::size_t size = 0;
    bool readable = shared.plain_begin != shared.plain_end;
    if (!readable) {
        const Front front = look_at_front(process, entry, size);
        readable = front >= Front::end || kernel_done(shared);
    }
    shared.readable.store(readable, std::memory_order_release);
    if (readable) announce(entry);
}

// protocol: R8
/// However often it is asked, it tells of no end, as the kernel would after one error.
ssize_t failed_with(Process& process, Entry& entry) {
    if (entry.errors_told.fetch_add(1, std::memory_order_relaxed) >= kMostErrorsOfALauncher) process.reads_in_vain();
    const Shared* const shared = entry.shared.load();
    errno = shared == nullptr ? EBADF : shared->error.load();
    return -1;
}

/// Copies plaintext that was opened aside; keeps it when peeking.
std::size_t hand_out(Shared& shared, Pieces& to, bool peek) {
    const std::size_t n = std::min<std::size_t>(to.left(), shared.plain_end - shared.plain_begin);
    if (n == 0) return 0;
    to.fill(shared.plain + shared.plain_begin, n);
    if (!peek) {
        shared.plain_begin += static_cast<std::uint32_t>(n);
        if (shared.plain_begin == shared.plain_end) shared.plain_begin = shared.plain_end = 0;
    }
    return n;
}

/// The whole data records at the front that fit into the caller's buffer, for several threads to open.
class Batch {
public:
    Batch(const Shared& shared, Pieces to) {
        for (std::size_t at = shared.raw_begin; count_ < kMostTogether && shared.raw_end - at >= seal::kHeaderSize;) {
            const auto header = seal::read_header(shared.raw + at);
            if (!header || header->type != seal::RecordType::data || header->size == 0) return;
            const std::size_t whole = header->size + seal::kRecordOverhead;
            if (shared.raw_end - at < whole || header->size > to.left()) return;
            const std::size_t pieces = to.take(header->size, pieces_[count_]);
            if (pieces == 0) return;
            records_[count_] = {shared.raw + at, header->size, {pieces_[count_], pieces}};
            at += whole;
            ++count_;
        }
    }
    Batch(const Batch&) = delete;
    Batch& operator=(const Batch&) = delete;

    std::span<const seal::ToOpen> records() const { return {records_, count_}; }
    /// Bytes of plaintext in the first so many.
    std::size_t size_of(std::size_t records) const {
        std::size_t sum = 0;
        for (std::size_t i = 0; i < records; ++i) sum += records_[i].size;
        return sum;
    }

private:
    iovec pieces_[kMostTogether][kMostPieces];
    seal::ToOpen records_[kMostTogether];
    std::size_t count_ = 0;
};

/// Hands out every whole record that is there, as far as the caller's buffer goes. False: the connection broke.
bool hand_out_records(Process& process, Entry& entry, Pieces& to, std::size_t& got) {
    Shared& shared = *entry.shared;
    got += hand_out(shared, to, false);
    while (to.left() > 0) {
        std::size_t size = 0;
        const Front front = look_at_front(process, entry, size);
        if (front == Front::broken) return false;
        if (front < Front::data) return true;
        iovec pieces[kMostPieces];
        const std::size_t count = front == Front::data && size <= to.left() ? to.take(size, pieces) : 0;
        if (count > 0) {
            if (!open_front(process, entry, size, {pieces, count})) return false;
            got += size;
        } else {
            if (!open_front_aside(process, entry, front, size)) return false;
            got += hand_out(shared, to, false);
        }
    }
    return true;
}

/// Opens the whole data records at the front by several threads, while this one reads on; nothing where that does not
/// pay, or cannot be. False: the connection broke.
bool open_together(Process& process, Entry& entry, Pieces& to, std::size_t& got) {
    Shared& shared = *entry.shared;
    if (shared.raw_end - shared.raw_begin < kRecordBytes) return true;
    const Batch batch(shared, to);
    const std::size_t all = batch.records().size();
    const std::size_t bytes = batch.size_of(all);
    const bool reads_on = shared.filled && to.left() > bytes;
    if (bytes < kRecordBytes || (all == 1 && !reads_on)) return true;
    const std::size_t opening = shared.raw_begin;
    std::size_t opened = 0;
    const auto done = entry.opener->open_several(batch.records(), opened, [&](std::size_t count, const auto& work) {
        shared.raw_begin += static_cast<std::uint32_t>(batch.size_of(count) + count * seal::kRecordOverhead);
        if (!reads_on) {
            process.share(count, work);
        } else {
            process.share_beside([&] { read_beside(entry, opening); }, count, work);
        }
    });
    if (shared.raw_begin == shared.raw_end) shared.raw_begin = shared.raw_end = 0;
    count_opened(shared, opened);
    to.skip(batch.size_of(opened));
    got += batch.size_of(opened);
    if (!done) broke(process, entry, EBADMSG, done.error().line);
    return done.has_value();
}

/// As hand_out_records, with other threads' help.
bool hand_out_together(Process& process, Entry& entry, Pieces& to, std::size_t& got) {
    got += hand_out(*entry.shared.load(), to, false);
    for (std::size_t before = got + 1; got != before;) {
        before = got;
        if (!open_together(process, entry, to, got)) return false;
    }
    return hand_out_records(process, entry, to, got);
}

/// MSG_PEEK: everything that is opened stays aside, so that it comes again.
bool peek_records(Process& process, Entry& entry, Pieces& to, std::size_t& got) {
    Shared& shared = *entry.shared;
    if (shared.raw_begin == shared.raw_end) read_raw(entry, MSG_DONTWAIT);  // everything that is there is seen
    if (shared.plain_begin > 0) {
        std::memmove(shared.plain, shared.plain + shared.plain_begin, shared.plain_end - shared.plain_begin);
        shared.plain_end -= shared.plain_begin;
        shared.plain_begin = 0;
    }
    while (shared.plain_end < to.left()) {
        std::size_t size = 0;
        const Front front = look_at_front(process, entry, size);
        if (front == Front::broken) return false;
        if (front < Front::data || size > seal::kMaxPlaintext - shared.plain_end) break;
        if (!open_front_aside(process, entry, front, size)) return false;
    }
    got = hand_out(shared, to, true);
    return true;
}

/// Notes for the readiness calls whether something is left that can be read without waiting. errno stays. HOT PATH
inline void note_what_is_left(Process& process, Entry& entry) {
    Shared& shared = *entry.shared.load();
    if (shared.plain_begin == shared.plain_end && shared.raw_begin == shared.raw_end && !kernel_done(shared) &&
        !entry.opener->closed()) {
        shared.readable.store(false, std::memory_order_release);
        return;
    }
    const int error = errno;
    note_readable(process, entry);
    errno = error;
}

/// How what was received is handed out.
enum class Way { alone, together, peek };

// HOT PATH
template <Way kWay>
[[gnu::always_inline]] inline ssize_t take(Process& process, Entry& entry, Pieces& to, int flags) {
    Shared& shared = *entry.shared.load();
    const bool whole = (flags & MSG_WAITALL) != 0 && kWay != Way::peek;
    std::size_t got = 0;
    for (;;) {
        if (shared.state.load(std::memory_order_relaxed) == State::failed) {
            if (got > 0) break;
            return failed_with(process, entry);
        }
        const bool good = kWay == Way::peek       ? peek_records(process, entry, to, got)
                          : kWay == Way::together ? hand_out_together(process, entry, to, got)
                                                  : hand_out_records(process, entry, to, got);
        if (!good) {
            if (got > 0) break;
            return failed_with(process, entry);
        }
        if (to.left() == 0 || (kWay == Way::peek && got > 0)) break;
        if (at_end(entry)) {
            if (got > 0) break;
            return ended(process, entry);
        }
        // More than was asked for is never waited for; but what the kernel already has belongs to this read.
        if (got > 0 && !whole && !shared.filled) break;
        const int wait = got > 0 && !whole ? MSG_DONTWAIT : flags;
        const std::size_t n = kWay == Way::together && to.left() >= kRoomWorthSharing
                                  ? read_raw<kAheadTogether>(entry, wait)
                                  : read_raw(entry, wait);
        if (n == 0 && !kernel_done(shared)) {
            if (got > 0) break;
            const int error = errno;
            shared.readable.store(false, std::memory_order_release);
            errno = error;
            return -1;
        }
    }
    note_what_is_left(process, entry);
    return static_cast<ssize_t>(got);
}

}  // namespace

bool confirm(Process& process, Entry& entry) {
    Shared& shared = *entry.shared;
    read_raw(entry, MSG_DONTWAIT);
    const std::size_t have = shared.raw_end - shared.raw_begin;
    if (have < seal::kRecordOverhead) {
        if (!kernel_done(shared)) return false;
        // It gave up, or replayed a hello and could not go on.
        cut_off(entry, shared.kernel_error != 0 ? shared.kernel_error : EPROTO);
        if (shared.early_size > 0) tell_of_cut(process, shared);
        return true;
    }
    const auto header = seal::read_header(shared.raw + shared.raw_begin);
    const bool expected = header && header->type == seal::RecordType::confirm && header->size == 0;
    if (!expected || !entry.opener->open(shared.raw + shared.raw_begin, {})) {
        process.report().count_refused_handshake();
        break_connection(
            process, entry, EKEYREJECTED,
            std::string("connection from ") + shared.peer +
                " refused: it does not hold the handshake's keys (a replayed handshake, or altered on the way)",
            false);
        return true;
    }
    shared.raw_begin += seal::kRecordOverhead;
    if (shared.raw_begin == shared.raw_end) shared.raw_begin = shared.raw_end = 0;
    shared.state.store(State::open);
    send_early(process, entry);
    note_readable(process, entry);
    return true;
}

namespace {

ssize_t receive_or_fail(Process& process, Entry& entry, std::span<const iovec> to, int flags) {
    if ((flags & MSG_DONTWAIT) != 0) pthread_testcancel();  // before anything is held
    const Use use(entry);
    if (use.shared() == nullptr) return closed_meanwhile();
    Shared& shared = *use.shared();
    if (shared.state.load(std::memory_order_acquire) != State::open || !entry.contexts.load()) {
        if (shared.read_shut.load() && drive(process, entry) != State::open) return 0;
        if (await_open(process, entry, flags, SO_RCVTIMEO) != 0) {
            if (use.is_current() && shared.state.load() == State::failed) return failed_with(process, entry);
            return without_us(entry, to, flags, real::recvmsg);
        }
    }
    Pieces pieces(to);
    if (pieces.left() == 0) return shared.readable.load() ? 0 : real::recv(entry.descriptor(), nullptr, 0, flags);
    if (shared.owing.load(std::memory_order_relaxed)) settle_debt(process, entry);
    if ((flags & MSG_DONTWAIT) == 0) {
        shared.receive_lock.lock();
    } else if (!lock_unless_waiting(shared.receive_lock, shared.reader_waits)) {
        errno = EAGAIN;  // there is nothing: a thread waits for it
        return -1;
    }
    const std::lock_guard guard(shared.receive_lock, std::adopt_lock);
    if (!use.is_current() || !entry.contexts.load()) return closed_meanwhile();
    if ((flags & MSG_PEEK) != 0) [[unlikely]]
        return take<Way::peek>(process, entry, pieces, flags);
    if (pieces.left() >= kRoomWorthSharing && process.has_workers()) [[unlikely]] {
        return take<Way::together>(process, entry, pieces, flags);
    }
    return take<Way::alone>(process, entry, pieces, flags);
}

}  // namespace

ssize_t receive(Process& process, Entry& entry, std::span<const iovec> to, int flags) {
    const ssize_t n = receive_or_fail(process, entry, to, flags);
    if (n < 0 && errno != EAGAIN) [[unlikely]]
        process.stay_until_the_end();
    return n;
}

bool verify_readable(Process& process, Entry& entry) {
    const Use use(entry);
    if (use.shared() == nullptr) return true;
    Shared& shared = *use.shared();
    if (shared.state.load() != State::open || !entry.contexts.load()) {
        if (drive(process, entry) != State::open) return shared.state.load() == State::failed;
    }
    // Somebody is reading: what the kernel said is as good as it gets.
    if (!lock_unless_waiting(shared.receive_lock, shared.reader_waits)) return true;
    const std::lock_guard guard(shared.receive_lock, std::adopt_lock);
    if (!use.is_current() || shared.readable.load(std::memory_order_acquire)) return true;
    if (shared.state.load() != State::open) return shared.state.load() == State::failed;
    const int error = errno;
    read_raw(entry, MSG_DONTWAIT);
    note_readable(process, entry);
    errno = error;
    return shared.readable.load(std::memory_order_acquire);
}

namespace {

/// Takes an empty record that is at the very front. Nothing else may be taken here: who waits for the kernel to say
/// that the socket is readable would never hear of it.
bool take_empty_record(Process& process, Entry& entry) {
    Shared& shared = *entry.shared;
    if (shared.raw_begin != shared.raw_end || kernel_done(shared)) return false;
    std::uint8_t record[seal::kRecordOverhead];
    if (real::recv(entry.descriptor(), record, sizeof record, MSG_PEEK | MSG_DONTWAIT) != sizeof record) return false;
    const auto header = seal::read_header(record);
    if (!header || header->type != seal::RecordType::data || header->size != 0) return false;
    shared.raw_begin = shared.raw_end = 0;
    std::size_t size = 0;
    return append_raw(entry, sizeof record, MSG_DONTWAIT) == sizeof record &&
           look_at_front(process, entry, size) == Front::none;
}

}  // namespace

Heard hear(Process& process, Entry& entry) {
    const Use use(entry);
    if (use.shared() == nullptr || !entry.contexts.load()) return {Heard::What::nobody, 0};
    Shared& shared = *use.shared();
    const int error = errno;
    bool ended = false;
    if (shared.receive_lock.try_lock()) {  // else somebody is reading, and opens what comes
        const std::lock_guard guard(shared.receive_lock, std::adopt_lock);
        shared.reader_waits.store(false, std::memory_order_relaxed);  // who was killed has left it
        if (!use.is_current() || shared.state.load() != State::open) return {Heard::What::nobody, 0};
        while (take_empty_record(process, entry)) {
        }
        ended = entry.opener->closed() || kernel_done(shared) || shared.read_shut.load();
    }
    int unread = 0;
    const bool waits = real::ioctl(entry.descriptor(), FIONREAD, &unread) == 0 && unread > 0;
    errno = error;
    if (ended || shared.state.load() != State::open) return {Heard::What::nobody, 0};
    const bool program_is_due = waits || shared.readable.load();
    return {program_is_due ? Heard::What::unread : Heard::What::all, shared.opened.load()};
}

void check_loss(Process& process, Entry& entry) {
    const Use use(entry);
    if (use.shared() == nullptr || drive(process, entry) != State::open) return;
    Shared& shared = *use.shared();
    // Who waits in a read sees the loss himself.
    if (!lock_unless_waiting(shared.receive_lock, shared.reader_waits)) return;
    const std::lock_guard guard(shared.receive_lock, std::adopt_lock);
    if (!use.is_current() || shared.read_shut.load()) return;
    for (;;) {
        std::size_t size = 0;
        const Front front = look_at_front(process, entry, size);
        if (front == Front::end || front == Front::broken || entry.opener->closed()) return;
        if (front >= Front::data) {
            shared.plain_begin = shared.plain_end = 0;
            if (!open_front_aside(process, entry, front, size)) return;
        } else if (read_raw(entry, MSG_DONTWAIT) == 0) {
            const int known = shared.write_error.load() != 0 ? shared.write_error.load() : shared.kernel_error;
            const int error = known != 0 ? known : ECONNRESET;
            broke(process, entry, error,
                  std::string("the connection was lost without the authenticated close: ") + std::strerror(error));
            return;
        }
    }
}

int take_kernel_error(Entry& entry) {
    const Use use(entry);
    Shared* shared = use.shared();
    if (shared == nullptr || !shared->receive_lock.try_lock()) return 0;
    const std::lock_guard guard(shared->receive_lock, std::adopt_lock);
    if (!use.is_current()) return 0;
    if (!entry.contexts.load() || !entry.opener->reset()) return shared->kernel_error;
    if (shared->kernel_error != 0) shared->kernel_eof = true;
    return std::exchange(shared->kernel_error, 0);
}

int bytes_readable(Process& process, Entry& entry) {
    const Use use(entry);
    if (use.shared() == nullptr || drive(process, entry) != State::open) return 0;
    Shared& shared = *use.shared();
    if (!lock_unless_waiting(shared.receive_lock, shared.reader_waits)) return 0;  // there is nothing
    const std::lock_guard guard(shared.receive_lock, std::adopt_lock);
    if (!use.is_current()) return 0;
    while (read_raw(entry, MSG_DONTWAIT) > 0 && shared.filled) {
    }
    note_readable(process, entry);
    // A padded record tells how much it has when it is open. Where there is no room for that, fewer bytes are told.
    std::size_t size = 0;
    while (look_at_front(process, entry, size) == Front::padded && size <= seal::kMaxPlaintext - shared.plain_end) {
        if (!open_front_aside(process, entry, Front::padded, size)) return 0;
    }
    std::size_t sum = shared.plain_end - shared.plain_begin;
    std::size_t at = shared.raw_begin;
    while (shared.raw_end - at >= seal::kHeaderSize) {
        const auto header = seal::read_header(shared.raw + at);
        if (!header || shared.raw_end - at < header->size + seal::kRecordOverhead) break;
        if (header->type == seal::RecordType::padded) break;
        sum += header->size;
        at += header->size + seal::kRecordOverhead;
    }
    return static_cast<int>(sum);
}

}  // namespace cryptmpi::channel
