// What each file descriptor is to us.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "channel/shared.hpp"
#include "seal/stream.hpp"

namespace cryptmpi::channel {

struct Registration;
class Epoll;

enum class Kind : std::uint8_t {
    fresh,     // an internet stream socket, not connected yet (or listening)
    native,    // connected, by the policy not sealed
    sealed,    // connected, sealed
    datagram,  // an internet datagram socket: may not send to other nodes
    carrier,   // of UCX or libfabric, for what the fabric layer has sealed
    foreign,   // connected to another node before we were there: refused
    ended,     // closed, or this process is at its end: nothing goes in or out, least of all in clear
    own,       // the library's: the program, which does not know of it, cannot close it
    epoll,
};

/// One open file description that we care about; dup'ed descriptors share it. Objects are recycled, never freed, so
/// that a call that races with close() finds valid memory; it looks again after it has the lock.
struct Entry {
    std::atomic<Kind> kind{Kind::fresh};
    std::atomic<int> descriptors{0};
    std::atomic<int> fd{-1};  // one of them: what our own work on the connection goes through
    bool listening = false;
    /// One more than Process::given() was when our socket() made it; 0: it came by another way, or long ago.
    std::uint32_t made_at = 0;
    std::atomic<bool> tried{false};          // this process, or one that it was forked by, asked for a connection
    std::atomic<bool> was_connected{false};  // without seals: a process that has the socket may go on so

    // sealed
    std::atomic<Shared*> shared{nullptr};
    std::atomic<std::uint32_t> generation{0};  // of `shared`, see Holders
    std::atomic<int> users{0};                 // calls on their way, see Use
    std::atomic<bool> ending{false};
    std::atomic<bool> handshaking{false};  // counted in Process::handshakes
    std::atomic<int> errors_told{0};       // reads that a connection which has failed has answered
    std::atomic<bool> contexts{false};     // the two that follow are there
    std::optional<seal::StreamSealer> sealer;
    std::optional<seal::StreamOpener> opener;

    // epoll instances that watch it; the lock is also held while one asks the kernel for what the state needs
    std::mutex registrations_lock;
    std::vector<Registration*> registrations;
    std::atomic<int> registration_count{0};

    Epoll* epoll = nullptr;  // Kind::epoll

    int descriptor() const { return fd.load(std::memory_order_relaxed); }
};

/// A call on its way through a sealed connection. While there is one, close() in another thread neither recycles the
/// entry nor gives a descriptor's number back unseen. What the call holds on to is `shared`: under one of its locks,
/// `is_current` says whether it still is this entry's.
class Use {
public:
    explicit Use(Entry& entry) : entry_(entry) {
        entry_.users.fetch_add(1);
        if (entry_.kind.load() != Kind::sealed) return;
        shared_ = entry_.shared.load();
        generation_ = entry_.generation.load();
    }
    ~Use() { entry_.users.fetch_sub(1, std::memory_order_release); }
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

    /// nullptr: it is sealed no more.
    Shared* shared() const { return shared_; }
    bool is_current() const {
        return entry_.shared.load() == shared_ && (shared_ == nullptr || shared_->holders.generation() == generation_);
    }

private:
    Entry& entry_;
    Shared* shared_ = nullptr;
    std::uint32_t generation_ = 0;
};

class Table {
public:
    static constexpr unsigned kMost = 1U << 20;
    /// No other descriptor can be looked after.
    static constexpr bool holds(int fd) { return static_cast<unsigned>(fd) < kMost; }

    Table();

    /// A copy of it among the library's numbers; -1 with errno.
    static int duplicate(int fd);
    /// Moves a fresh descriptor of the library out of the way of programs that count on low numbers. Returns the new
    /// one.
    int own(int fd);
    void disown(int fd);

    /// The entry of a descriptor; nullptr for everything that is none of our business. Lock-free.
    Entry* find(int fd) const {
        if (!holds(fd)) return nullptr;
        return slots_[fd].load(std::memory_order_acquire);
    }
    Entry* find_sealed(int fd) const {
        Entry* entry = find(fd);
        return entry != nullptr && entry->kind.load(std::memory_order_acquire) == Kind::sealed ? entry : nullptr;
    }

    Entry* add(int fd, Kind kind);
    void share(int from, int to);
    /// Takes the descriptor out; until `forget` it counts as ended, so that no racing call takes it for a native one.
    /// Returns the entry when this was its last descriptor: the caller ends it and calls recycle.
    Entry* remove(int fd);
    /// A sealed connection is about to get this number, which was of no interest: until it has it, the number counts as
    /// ended, so that no racing call writes to the connection in clear.
    void reserve(int fd);
    /// The kernel has closed the descriptor, or it is a new one.
    void forget(int fd);
    /// An entry that `remove` has returned lives on under a descriptor of the library.
    void keep(Entry* entry, int fd);
    void recycle(Entry* entry);
    /// Waits a moment for the calls on their way. False: some thread stays in one.
    static bool unused(const Entry& entry);

    /// Around fork: no lock of ours may be held by a thread that the child does not have.
    void lock() { free_lock_.lock(); }
    void unlock() { free_lock_.unlock(); }

    int highest() const { return highest_.load(std::memory_order_relaxed); }

private:
    std::atomic<Entry*>* slots_;
    std::atomic<int> highest_{-1};
    Entry closing_;
    std::mutex free_lock_;
    std::vector<Entry*> free_;
};

}  // namespace cryptmpi::channel
