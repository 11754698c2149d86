// epoll over sealed sockets.
//
// The kernel's registrations of sockets that may be sealed carry a cookie of ours, which epoll_wait turns back into the
// caller's data. On the way out an event is checked: the kernel says readable for every byte, we say it for whole
// records. On the way in, sockets that have plaintext in our buffers are reported although the kernel has nothing
// (level-triggered), once for each arrival (edge-triggered).
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "channel/table.hpp"

namespace cryptmpi::channel {

/// What an instance asks of the connections that it watches.
class Connections {
public:
    /// Those on their way.
    virtual int handshakes() const = 0;
    /// How often some have become other processes', too.
    virtual std::uint32_t shares() const = 0;
    /// Moves a handshake as far as it goes without waiting.
    virtual void drive(Entry& entry) = 0;
    /// Sends what waits, without waiting itself. True when nothing does any more.
    virtual bool settle_debt(Entry& entry) = 0;
    /// After the kernel said readable: would a read return at once?
    virtual bool verify_readable(Entry& entry) = 0;

protected:
    ~Connections() = default;
};

/// One descriptor in one epoll instance. Its address and its count are the cookie. Objects are recycled, never freed.
/// Each has a cache line of its own, which also makes an object of an address without a division.
/// It changes hands under the locks of its owner and of its entry's registrations: who has one of them and finds the
/// count that it knows has what it knows. Others see it only where it is atomic, and may see that of somebody else.
struct alignas(64) Registration {
    std::atomic<Epoll*> owner{nullptr};
    std::atomic<Entry*> entry{nullptr};   // nullptr: free
    std::atomic<std::uint16_t> count{0};  // how often it was given back
    int fd = -1;
    std::atomic<std::uint32_t> events{0};  // as the caller asked
    epoll_data_t data{};
    std::atomic<bool> waiting{false};     // in owner->pending_
    std::atomic<bool> spent{false};       // EPOLLONESHOT has fired
    std::atomic<std::uint32_t> armed{0};  // the events that the kernel was asked for
    std::atomic<bool> held{false};        // the kernel said writable, but something waited
    std::uint32_t seen = 0;               // Shared::arrivals that were reported
};

/// What the kernel keeps for us: a registration, and which of those that its object has been.
struct Cookie {
    Registration* registration;
    std::uint16_t count;

    static Cookie of(Registration& one) { return {&one, one.count.load()}; }
    epoll_data_t data() const;
    /// It has not been taken out. For good with the lock of its owner or of its entry's registrations.
    bool is_current() const { return registration->count.load() == count; }
};

/// Objects are recycled, never freed: another thread that still has one, from what it watches or from what watches it,
/// finds valid memory, and that it has nothing to do there.
class Epoll {
public:
    /// `table` keeps the descriptors that it makes for itself.
    static Epoll& open(int fd, Entry* self, Table& table);
    /// Its descriptor is about to be closed, and everything that it watches is forgotten.
    void close();
    /// It is closed, and no entry leads to it.
    void recycle();

    int control(int operation, int fd, Entry& entry, const epoll_event* event);
    /// epoll_pwait; there is room for at least one event. `look` does not wait, nor change the mask of signals.
    int wait(Connections& connections, epoll_event* events, int most, int timeout_ms, const sigset_t* mask);
    int look(Connections& connections, epoll_event* events, int most);

    /// Nothing of ours is registered: the kernel's call is all there is to do.
    bool plain() const { return count_.load(std::memory_order_acquire) == 0; }
    /// The kernel would not report it, but wait() would.
    bool readable();

    /// The entry has bytes that the kernel does not know of.
    void announce(Registration& registration);
    /// False: announce() would change nothing.
    bool must_hear_of(const Registration& registration) const;
    /// Asks the kernel for what the entry's state needs. With the entry's registrations_lock held, as renew().
    void rearm(Registration& registration, const Entry& entry);
    void renew(Registration& registration, const Entry& entry);
    /// Its socket is gone.
    void drop(Registration& registration, const Entry& entry);

    bool try_lock() { return lock_.try_lock(); }
    void unlock() { lock_.unlock(); }

private:
    Epoll() = default;
    int change(int operation, int fd, Entry& entry, const epoll_event* event);
    // With lock_ held.
    Registration* make(int fd, Entry& entry);
    bool ask_kernel(int operation, Registration& registration, const epoll_event& event);
    void keep(Registration& registration);
    void renew_if_used_up(const Cookie& cookie, Entry& entry);
    bool deliver(Connections& connections, const Cookie& cookie, epoll_event& event);
    int translate(epoll_event* events, int count);
    int deliver_all(Connections& connections, epoll_event* events, int pending, int from_kernel);
    int wait_once(Connections& connections, epoll_event* events, int most, int timeout_ms, const sigset_t* mask);
    int take_pending(epoll_event* events, int most);
    void note_told(Registration& registration) const;
    void forget(Registration& registration);
    void clear();
    void tick(Connections& connections);
    bool look_after_others(std::uint32_t shares);
    void kick();

    std::atomic<int> fd_{-1};
    std::atomic<Entry*> self_{nullptr};  // this instance as others may watch it
    Table* table_ = nullptr;
    std::atomic<std::uint32_t> closes_{0};  // of this object: who waits in it sees that it is another instance now
    std::mutex lock_;
    std::unordered_map<int, Registration*> registrations_;
    std::vector<Registration*> pending_;
    std::vector<Registration*> reported_;  // take_pending's
    std::atomic<int> count_{0};
    std::atomic<int> instances_{0};  // among them, epoll instances
    std::atomic<int> pending_count_{0};
    std::atomic<std::uint32_t> alone_since_{0};  // Connections::shares() when no other process held anything here
    std::atomic<int> waiters_{0};
    std::atomic<int> kick_{-1};        // an eventfd, once a thread had to wake another one
    Registration* kick_of_ = nullptr;  // nobody's: the cookie of its events, which are swallowed
};

/// How long a wait may last where what it is for may come about unheard: by another process that holds the connection,
/// or in an instance that another one watches. (The thread that reads ahead reads the bytes, too, as a rule. UCX's
/// thread for asynchronous progress, which watches what it watches, is not woken for them: that would cost a switch a
/// message.)
inline constexpr int kUnheardMs = 10;

/// Other processes hold the connection, too.
bool is_shared(const Entry& entry);
/// Its handshake is on its way.
bool handshaking(const Entry& entry);
/// What the kernel must be asked to wait for then: POLLIN or POLLOUT.
short handshake_events(const Entry& entry);
/// A read, or a wait on an instance, would return at once without asking the kernel.
bool readable_here(const Entry& entry);

/// Around fork: no lock of ours may be held by a thread that the child does not have. The table's is one of them.
class ForkLocks {
public:
    explicit ForkLocks(Table& table);
    ~ForkLocks();
    ForkLocks(const ForkLocks&) = delete;
    ForkLocks& operator=(const ForkLocks&) = delete;

private:
    bool try_all();
    void give_back();

    Table& table_;
    std::vector<Epoll*> instances_;
};

/// All instances that watch the entry.
void announce(Entry& entry);
void rearm(Entry& entry);
/// What waited is out, but not by a call of the program: an edge that was held back meanwhile has to come again.
void renew_writable_edges(Entry& entry);
/// A listener still has connections, though a caller was told that there is none.
void renew_readable_edges(Entry& entry);
void forget_registrations(Entry& entry);

}  // namespace cryptmpi::channel
