// One sealed connection, as the processes that hold its socket share it (arena.hpp). Nothing here has a pointer.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "channel/holders.hpp"
#include "keys/handshake.hpp"
#include "seal/stream.hpp"

namespace cryptmpi::channel {

/// A lock in shared memory that survives the death of its owner.
class SharedMutex {
public:
    void init();
    /// Waits however long it takes: whoever holds it may wait in the kernel.
    void lock();
    bool try_lock();
    /// Waits until then (CLOCK_MONOTONIC). False: somebody has it still; this very thread, where a signal handler has
    /// interrupted it.
    bool lock_until(std::int64_t until_ns);
    void unlock() { pthread_mutex_unlock(&mutex_); }

private:
    pthread_mutex_t mutex_;
};

enum class State : std::uint8_t {
    tcp_connecting,  // connect() said EINPROGRESS
    await_hello,     // for the peer's hello
    await_confirm,   // responder: for the initiator's first record
    open,
    failed,  // `error` says with what; for ever
};

inline constexpr std::size_t kRawCapacity = 2 * seal::kMaxRecord;
inline constexpr std::size_t kRecordBytes =
    64 * 1024;  // plaintext of a record in a long write: fits the second-level cache
inline constexpr std::size_t kWorthSharing =
    128 * 1024;                                  // bytes of a write: of less, another thread is woken too late to help
inline constexpr std::size_t kBatchRecords = 2;  // of a long write, that the kernel gets by one call
inline constexpr std::size_t kBatchCapacity = kBatchRecords * (kRecordBytes + 2 * seal::kRecordOverhead);

/// Says that its thread waits in the kernel with a lock held. One that is cancelled takes it back, too.
class Waiting {
public:
    explicit Waiting(std::atomic<bool>& said) : said_(said) { said_.store(true, std::memory_order_relaxed); }
    ~Waiting() { said_.store(false, std::memory_order_relaxed); }
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

private:
    std::atomic<bool>& said_;
};

/// The slow way of lock_unless_waiting.
bool wait_for_lock(SharedMutex& lock, const std::atomic<bool>& waits);

/// Locks one of a connection's locks. False: somebody holds it, in this process or another one, who waits in the kernel
/// and `waits` says so, or whoever holds it is stopped. Everybody else is waited for: who reads may be taking just what
/// the kernel has called readable, as hear() does, and who read then would wait for what comes next.
inline bool lock_unless_waiting(SharedMutex& lock, std::atomic<bool>& waits) {
    if (!lock.try_lock() && !wait_for_lock(lock, waits)) return false;
    waits.store(false, std::memory_order_relaxed);  // who was killed has left it
    return true;
}

/// One sealed connection. `receive_lock` guards what is read, `send_lock` what is written; the handshake takes both, in
/// that order.
struct Shared {
    std::atomic<std::uint32_t> in_use;
    Holders holders;  // the processes that hold the socket
    bool locks_made;
    SharedMutex receive_lock;
    SharedMutex send_lock;
    // All above outlives the connection: a late call may still take a lock, to find that the slot is somebody else's.

    std::uint64_t inode;  // of the socket: how an exec'ed program finds it again
    std::atomic<State> state;
    std::atomic<int> error;
    std::atomic<bool> readable;           // a read would return at once without asking the kernel
    std::atomic<bool> reader_waits;       // in the kernel, with receive_lock held
    std::atomic<bool> sender_waits;       // the same, with send_lock held
    std::atomic<std::uint32_t> arrivals;  // raw reads that brought bytes: what edge-triggered waiters have not seen
    std::atomic<std::uint32_t> opened;    // records: by whom a peer is heard

    keys::HandshakeState handshake;
    std::uint8_t hello[keys::kLargestHelloSize];
    std::uint32_t hello_size;
    std::int64_t started_ns;                // the handshake, CLOCK_MONOTONIC
    std::atomic<std::int64_t> deadline_ns;  // of it
    std::atomic<bool> connect_reported;     // connect() has told the caller that it is connected
    std::atomic<bool> undecided;            // it may stay inside the node: that is asked once TCP is connected
    std::atomic<bool> stayed_inside;        // so it did: a process has found that, and sends as it is
    std::atomic<int> pending_error;         // for SO_ERROR
    std::atomic<bool> nodelay_is_ours;  // TCP_NODELAY is on for the handshake's sake: the program did not ask for it
    char peer[64];                      // "10.0.0.2:4242"
    keys::Role role;

    seal::DirectionState sending;
    seal::DirectionState receiving;

    // Received, not yet opened: raw[raw_begin, raw_end). Opened, not yet handed out: plain[plain_begin, plain_end).
    std::uint32_t raw_begin, raw_end, raw_high;
    std::uint32_t plain_begin, plain_end, plain_high;
    bool filled;  // the last raw read took all it asked for: the kernel may have more
    bool kernel_eof;
    int kernel_error;  // what recv() said while records were still to be handed out

    // Written before the handshake was done: plain[0, early_size), which nothing received can need yet.
    std::uint32_t early_size;

    // Sealed, not yet taken by the kernel: out[out_begin, out_end), and after that out[ahead_begin, ahead_end), which
    // other threads have sealed meanwhile.
    std::uint32_t out_begin, out_end, gathered_high;
    std::uint32_t ahead_begin, ahead_end;
    std::atomic<bool> owing;  // something waits there
    std::atomic<bool> write_closed;
    std::atomic<int> write_error;  // the kernel took no more, with this: at the end we look whether the peer had ended
    std::atomic<bool> lingering;   // the program has closed it
    std::atomic<bool> read_shut;   // by our own shutdown(): the end of what we read is our doing
    std::atomic<bool> resets;      // it was closed so that a reset has to follow
    std::atomic<int> cut_off;      // the handshake was, with this error, which the program has not been told of yet

    alignas(64) std::uint8_t raw[kRawCapacity];
    alignas(64) std::uint8_t plain[seal::kMaxPlaintext];
    alignas(64) std::uint8_t out[2 * kBatchCapacity];  // the second half only where several threads seal
    alignas(64) std::uint8_t gathered[kRecordBytes];   // a record's plaintext from too many small pieces
};

}  // namespace cryptmpi::channel
