#include "channel/epoll.hpp"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "channel/clock.hpp"
#include "channel/real.hpp"

namespace cryptmpi::channel {

bool is_shared(const Entry& entry) {
    if (entry.kind.load(std::memory_order_acquire) != Kind::sealed) return false;
    const Shared* shared = entry.shared;
    return shared != nullptr && shared->holders.count() > 1;
}

bool handshaking(const Entry& entry) {
    if (entry.kind.load(std::memory_order_acquire) != Kind::sealed) return false;
    const Shared* shared = entry.shared;
    if (shared == nullptr) return false;
    const State state = shared->state.load(std::memory_order_acquire);
    return state != State::open && state != State::failed;
}

short handshake_events(const Entry& entry) {
    const Shared* shared = entry.shared.load();
    return shared != nullptr && shared->state.load() == State::tcp_connecting ? POLLOUT : POLLIN;
}

bool readable_here(const Entry& entry) {
    switch (entry.kind.load(std::memory_order_acquire)) {
        case Kind::sealed: {
            const Shared* shared = entry.shared.load();
            return shared != nullptr && shared->readable.load(std::memory_order_acquire);
        }
        case Kind::epoll: {
            Epoll* const epoll = entry.epoll;  // nullptr: it is being opened, or was closed
            return epoll != nullptr && epoll->readable();
        }
        default:
            return false;
    }
}

namespace {

constexpr int kAddressBits = 48;            // of user space, where a program does not ask for more
constexpr std::uint32_t kNeverAlone = ~0U;  // Connections::shares() does not come to that

/// From now on its cookies are worth nothing.
void expire(Registration& registration) {
    registration.owner.store(nullptr);
    registration.entry.store(nullptr);
    registration.count.fetch_add(1);
}

/// Cookies live in one range of addresses, so that a caller's own data is told from them by its value.
class Cookies {
public:
    Registration* take() {
        const std::lock_guard guard(lock_);
        if (base_ == nullptr) {
            void* at = mmap(nullptr, kMost * sizeof(Registration), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (at == MAP_FAILED) return nullptr;
            base_ = static_cast<Registration*>(at);
        }
        if (!free_.empty()) {
            Registration* registration = free_.back();
            free_.pop_back();
            return registration;
        }
        return used_ < kMost ? new (base_.load() + used_++) Registration : nullptr;
    }

    /// It has expired.
    void give_back(Registration& registration) {
        const std::lock_guard guard(lock_);
        free_.push_back(&registration);
    }

    void lock() { lock_.lock(); }
    void unlock() { lock_.unlock(); }

    /// Without a registration: it is the caller's own data.
    static Cookie find(const epoll_event& event) {
        const std::uint64_t value = event.data.u64;
        const std::uint64_t address = value & ((std::uint64_t{1} << kAddressBits) - 1);
        Registration* const base = base_.load(std::memory_order_acquire);
        const std::uint64_t offset = address - reinterpret_cast<std::uint64_t>(base);
        if (base == nullptr || offset >= kMost * sizeof(Registration)) return {nullptr, 0};
        return {base + offset / sizeof(Registration), static_cast<std::uint16_t>(value >> kAddressBits)};
    }

private:
    static constexpr std::size_t kMost = 1U << 20;
    // Of the one object that there is: it is looked at for each event, before anything of ours is known of it.
    static inline constinit std::atomic<Registration*> base_{nullptr};
    std::mutex lock_;
    std::size_t used_ = 0;
    std::vector<Registration*> free_;
};

Cookies& cookies() {
    static auto* all = new Cookies;  // other libraries' destructors may still wait
    return *all;
}

/// Those that were closed.
class Spare {
public:
    /// nullptr: there is none.
    Epoll* take() {
        const std::lock_guard guard(lock_);
        if (epolls_.empty()) return nullptr;
        Epoll* const epoll = epolls_.back();
        epolls_.pop_back();
        // A late call may have held its lock when this process was forked: nobody gives it back here.
        if (!epoll->try_lock()) return nullptr;
        epoll->unlock();
        return epoll;
    }
    void give_back(Epoll& epoll) {
        const std::lock_guard guard(lock_);
        epolls_.push_back(&epoll);
    }

    void lock() { lock_.lock(); }
    void unlock() { lock_.unlock(); }

private:
    std::mutex lock_;
    std::vector<Epoll*> epolls_;
};

Spare& spare() {
    static auto* all = new Spare;
    return *all;
}

bool owes(const Entry& entry) {
    if (entry.kind.load(std::memory_order_acquire) != Kind::sealed) return false;
    const Shared* shared = entry.shared;
    return shared != nullptr && shared->owing.load(std::memory_order_acquire);
}

/// What the kernel must be asked for. The entry is the registration's. It is given, because another thread may take the
/// registration out meanwhile.
std::uint32_t events_for(const Registration& registration, const Entry& entry) {
    if (handshaking(entry)) return handshake_events(entry) == POLLOUT ? EPOLLOUT : EPOLLIN;
    const std::uint32_t events = registration.events.load();
    return owes(entry) ? events | EPOLLOUT : events;
}

epoll_event kernel_event(Registration& registration, const Entry& entry) {
    epoll_event event{};
    event.data = Cookie::of(registration).data();
    event.events = events_for(registration, entry);
    return event;
}

}  // namespace

epoll_data_t Cookie::data() const {
    epoll_data_t data{};
    data.u64 = reinterpret_cast<std::uint64_t>(registration) | std::uint64_t{count} << kAddressBits;
    return data;
}

Epoll& Epoll::open(int fd, Entry* self, Table& table) {
    Epoll* epoll = spare().take();
    if (epoll == nullptr) epoll = new Epoll;
    const std::lock_guard guard(epoll->lock_);
    epoll->clear();  // a late call may have put something in after it was closed
    epoll->fd_.store(fd);
    epoll->self_.store(self);
    epoll->table_ = &table;
    return *epoll;
}

int Epoll::control(int operation, int fd, Entry& entry, const epoll_event* event) {
    const int status = change(operation, fd, entry, event);
    // Instances that watch this one are told as in announce(): the kernel, which would wake them, does not know.
    Entry* const self = self_;
    if (status == 0 && self != nullptr && pending_count_.load() > 0) ::cryptmpi::channel::announce(*self);
    return status;
}

int Epoll::change(int operation, int fd, Entry& entry, const epoll_event* event) {
    const std::lock_guard guard(lock_);
    const auto found = registrations_.find(fd);
    Registration* registration = found == registrations_.end() ? nullptr : found->second;
    if (operation == EPOLL_CTL_DEL) {
        const int status = real::epoll_ctl(fd_, operation, fd, nullptr);
        if (status == 0 && registration != nullptr) forget(*registration);
        return status;
    }
    if (event == nullptr) {
        errno = EFAULT;
        return -1;
    }
    if (operation == EPOLL_CTL_ADD && registration != nullptr && registration->entry != &entry) {
        forget(*registration);  // the descriptor was closed and is another socket now
        registration = nullptr;
    }
    const bool fresh = registration == nullptr;
    if (fresh) registration = make(fd, entry);
    if (registration == nullptr) {
        errno = ENOMEM;
        return -1;
    }
    {
        // Whoever moves the connection on meanwhile finds the registration, and asks the kernel after us.
        const std::lock_guard arming(entry.registrations_lock);
        if (!ask_kernel(operation, *registration, *event)) {
            if (fresh) {
                expire(*registration);
                cookies().give_back(*registration);
            }
            return -1;
        }
        if (fresh) keep(*registration);
    }
    if (readable_here(entry) && !registration->waiting) {
        registration->waiting = true;
        pending_.push_back(registration);
        pending_count_.fetch_add(1);
    }
    return 0;
}

/// nullptr: there is no memory.
Registration* Epoll::make(int fd, Entry& entry) {
    Registration* const registration = cookies().take();
    if (registration == nullptr) return nullptr;
    registration->fd = fd;
    registration->events.store(0);
    registration->data = {};
    registration->waiting.store(false);
    registration->spent.store(false);
    registration->armed.store(0);
    registration->held.store(false);
    registration->seen = 0;
    registration->entry.store(&entry);
    registration->owner.store(this);
    return registration;
}

/// Where the kernel refuses, the registration is as it was. With the entry's registrations_lock held.
bool Epoll::ask_kernel(int operation, Registration& registration, const epoll_event& event) {
    const std::uint32_t events_before = registration.events;
    const epoll_data_t data_before = registration.data;
    registration.events = event.events;
    registration.data = event.data;
    epoll_event asked = kernel_event(registration, *registration.entry);
    registration.armed.store(asked.events);
    if (real::epoll_ctl(fd_, operation, registration.fd, &asked) != 0) {
        registration.events = events_before;
        registration.data = data_before;
        return false;
    }
    registration.spent = false;
    registration.seen = 0;
    return true;
}

/// With the entry's registrations_lock held.
void Epoll::keep(Registration& registration) {
    Entry& entry = *registration.entry;
    registrations_[registration.fd] = &registration;
    alone_since_.store(kNeverAlone);
    count_.fetch_add(1);
    if (entry.kind.load() == Kind::epoll) instances_.fetch_add(1);
    entry.registrations.push_back(&registration);
    entry.registration_count.fetch_add(1);
}

void Epoll::forget(Registration& registration) {
    // Called with lock_ held.
    Entry& entry = *registration.entry;
    registrations_.erase(registration.fd);
    if (registration.waiting) {
        std::erase(pending_, &registration);
        pending_count_.fetch_sub(1);
    }
    {
        const std::lock_guard guard(entry.registrations_lock);
        std::erase(entry.registrations, &registration);
        entry.registration_count.fetch_sub(1);
        expire(registration);
    }
    count_.fetch_sub(1);
    if (entry.kind.load() == Kind::epoll) instances_.fetch_sub(1);
    cookies().give_back(registration);
}

void Epoll::drop(Registration& registration, const Entry& entry) {
    const std::lock_guard guard(lock_);
    if (registration.owner.load() == this && registration.entry.load() == &entry) forget(registration);
}

/// With lock_ held.
void Epoll::clear() {
    while (!registrations_.empty()) forget(*registrations_.begin()->second);
    const int kick = kick_.exchange(-1);
    if (kick >= 0) table_->disown(kick);
}

void Epoll::close() {
    const std::lock_guard guard(lock_);
    clear();
    closes_.fetch_add(1);
}

void Epoll::recycle() {
    spare().give_back(*this);
}

// What the kernel was asked last must be from the connection's last state: threads take turns from the look at the
// state to the end of the kernel's call.
void Epoll::rearm(Registration& registration, const Entry& entry) {
    if (registration.spent) return;
    epoll_event asked = kernel_event(registration, entry);
    // Only a change: asking again would make an edge of what was reported already.
    if (registration.armed.exchange(asked.events) == asked.events) return;
    real::epoll_ctl(fd_, EPOLL_CTL_MOD, registration.fd, &asked);
}

/// The kernel looks anew, and reports what holds.
void Epoll::renew(Registration& registration, const Entry& entry) {
    if (registration.spent) return;
    epoll_event asked = kernel_event(registration, entry);
    registration.armed.store(asked.events);
    real::epoll_ctl(fd_, EPOLL_CTL_MOD, registration.fd, &asked);
}

void Epoll::announce(Registration& registration) {
    {
        const std::lock_guard guard(lock_);
        // It may have been taken out, and be another instance's now.
        if (registration.owner.load() != this) return;
        const Entry& entry = *registration.entry;
        if (!registration.waiting) {
            registration.waiting = true;
            pending_.push_back(&registration);
            pending_count_.fetch_add(1);
            if (waiters_.load() > 0 && entry.kind.load() != Kind::epoll) kick();  // else: see kUnheardMs
        }
    }
    // Instances that watch this one; not under our lock, because they look into us under theirs.
    if (Entry* const self = self_; self != nullptr) ::cryptmpi::channel::announce(*self);
}

bool Epoll::must_hear_of(const Registration& registration) const {
    // One that waits already may have been read since, unseen by this instance, and those above it have seen that.
    const Entry* const self = self_;
    return !registration.waiting || (self != nullptr && self->registration_count.load(std::memory_order_acquire) > 0);
}

/// Another thread sleeps in the kernel, which will not wake it for bytes that we took out. Called with lock_ held.
void Epoll::kick() {
    if (kick_.load() < 0) {
        const int made = table_->own(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
        if (made < 0) return;
        epoll_event event{};
        event.events = EPOLLIN | EPOLLET;
        if (kick_of_ == nullptr) kick_of_ = cookies().take();
        if (kick_of_ != nullptr) event.data = Cookie::of(*kick_of_).data();
        real::epoll_ctl(fd_, EPOLL_CTL_ADD, made, &event);
        kick_.store(made);
    }
    const std::uint64_t one = 1;
    if (real::write(kick_.load(), &one, sizeof one) < 0) return;  // full: it is awake
}

bool Epoll::readable() {
    if (pending_count_.load(std::memory_order_acquire) == 0) return false;
    const std::lock_guard guard(lock_);
    return std::any_of(pending_.begin(), pending_.end(), [](const Registration* registration) {
        return !registration->spent && (registration->events & EPOLLIN) != 0 && readable_here(*registration->entry);
    });
}

namespace {

const Shared* sealed_state(const Entry& entry) {
    return entry.kind.load() == Kind::sealed ? entry.shared.load() : nullptr;
}

bool is_edge(const Registration& registration) {
    return (registration.events & EPOLLET) != 0;
}

/// The caller asked for what there is to be read, and has not been told of it.
bool is_due(const Registration& registration) {
    const Entry& entry = *registration.entry;
    if ((registration.events & EPOLLIN) == 0 || registration.spent || !readable_here(entry)) return false;
    const Shared* const shared = sealed_state(entry);
    return !is_edge(registration) || shared == nullptr || registration.seen != shared->arrivals.load();
}

/// What the caller is told: beside EPOLLIN, what holds for the descriptor only the kernel knows.
epoll_event event_of(Registration& registration) {
    pollfd rest{registration.fd, static_cast<short>(registration.events & (EPOLLOUT | EPOLLPRI | EPOLLRDHUP)), 0};
    const timespec now{0, 0};
    if (sealed_state(*registration.entry) == nullptr || real::ppoll(&rest, 1, &now, nullptr) < 0) rest.revents = 0;
    epoll_event event{};
    event.events = EPOLLIN | static_cast<std::uint32_t>(rest.revents & ~POLLNVAL);
    event.data = Cookie::of(registration).data();
    return event;
}

}  // namespace

/// The caller is told of it: an edge, or one shot, comes once.
void Epoll::note_told(Registration& registration) const {
    if (const Shared* const shared = sealed_state(*registration.entry); is_edge(registration) && shared != nullptr) {
        registration.seen = shared->arrivals.load();
        registration.waiting = false;
    }
    if ((registration.events & EPOLLONESHOT) != 0) {
        registration.spent = true;
        registration.waiting = false;
        epoll_event off{};
        off.data = Cookie::of(registration).data();
        real::epoll_ctl(fd_, EPOLL_CTL_MOD, registration.fd, &off);
    }
}

int Epoll::take_pending(epoll_event* events, int most) {
    if (pending_count_.load(std::memory_order_acquire) == 0) return 0;
    const std::lock_guard guard(lock_);
    int count = 0;
    std::size_t kept = 0;
    for (Registration* registration : pending_) {
        registration->waiting = is_due(*registration);
        if (!registration->waiting) continue;
        if (count == most) {
            pending_[kept++] = registration;
            continue;
        }
        events[count++] = event_of(*registration);
        note_told(*registration);
        if (registration->waiting) reported_.push_back(registration);
    }
    pending_.resize(kept);
    pending_.insert(pending_.end(), reported_.begin(), reported_.end());  // at the end, so that all have their turn
    reported_.clear();
    pending_count_.store(static_cast<int>(pending_.size()));
    return count;
}

/// The kernel's event is not the caller's: one shot is still to come.
void Epoll::renew_if_used_up(const Cookie& cookie, Entry& entry) {
    if ((cookie.registration->events & EPOLLONESHOT) == 0) return;
    const std::lock_guard arming(entry.registrations_lock);
    if (cookie.is_current()) renew(*cookie.registration, entry);
}

/// Turns the kernel's event into the caller's. False: there is nothing to report yet.
bool Epoll::deliver(Connections& connections, const Cookie& cookie, epoll_event& event) {
    Registration& registration = *cookie.registration;
    Entry* const entry = registration.entry;
    if (entry == nullptr || !cookie.is_current()) return false;
    const Kind kind = entry->kind.load(std::memory_order_acquire);
    if (kind == Kind::sealed) {
        bool on_its_way = handshaking(*entry);
        if (on_its_way) {
            connections.drive(*entry);
            on_its_way = handshaking(*entry);
        }
        if (registration.armed.load() != events_for(registration, *entry)) {
            // The kernel's answer was for the handshake, or for what waited: it is asked anew for the caller.
            const std::lock_guard arming(entry->registrations_lock);
            if (cookie.is_current()) rearm(registration, *entry);
            return false;
        }
        if (on_its_way) return false;
        if ((event.events & EPOLLOUT) != 0) {
            // Writable for the caller once what waits is out, and if it asked.
            const bool settled = connections.settle_debt(*entry);
            registration.held = !settled;
            if (!settled || (registration.events & EPOLLOUT) == 0)
                event.events &= ~static_cast<std::uint32_t>(EPOLLOUT | EPOLLWRNORM);
            if (event.events == 0) {
                renew_if_used_up(cookie, *entry);
                return false;
            }
        }
        if ((event.events & EPOLLIN) != 0 && !connections.verify_readable(*entry)) {
            event.events &= ~static_cast<std::uint32_t>(EPOLLIN | EPOLLRDNORM);
            if (event.events == 0) {
                renew_if_used_up(cookie, *entry);
                return false;
            }
        }
        if (Shared* shared = entry->shared; shared != nullptr && (event.events & EPOLLOUT) != 0)
            shared->connect_reported.store(true);
    }
    return true;
}

/// Handshakes have deadlines that the kernel does not know of, and another process that shares the socket may end one.
void Epoll::tick(Connections& connections) {
    std::vector<std::pair<int, Entry*>> on_their_way;
    {
        const std::lock_guard guard(lock_);
        for (const auto& [fd, registration] : registrations_) {
            Entry* const entry = registration->entry;
            if (handshaking(*entry) || entry->handshaking.load()) on_their_way.emplace_back(fd, entry);
        }
    }
    for (const auto& [fd, entry] : on_their_way) connections.drive(*entry);
}

/// Another process has read ahead, or has sent what waited: its announcements and its questions to the kernel do not
/// reach this instance. It may be no more: what it left is looked for in all connections. False: nothing here is
/// another process's, too, by now.
bool Epoll::look_after_others(std::uint32_t shares) {
    // HOT PATH: a rank that spins, and has forked once, asks so all the time.
    if (shares == 0 || (alone_since_.load(std::memory_order_acquire) == shares && instances_.load() == 0)) return false;
    const std::lock_guard guard(lock_);
    bool found = false;
    for (const auto& [fd, registration] : registrations_) {
        Entry& entry = *registration->entry;
        // Asked before we look: whoever has left by then has left all that there is.
        if (is_shared(entry)) found = true;
        if (entry.kind.load(std::memory_order_acquire) == Kind::epoll) {
            Epoll* const watched = entry.epoll;
            if (watched != nullptr && watched->look_after_others(shares)) found = true;
        }
        if (readable_here(entry) && !registration->waiting) {
            registration->waiting = true;
            pending_.push_back(registration);
            pending_count_.fetch_add(1);
        }
        if (owes(entry)) continue;
        if (!registration->held && registration->armed.load() == events_for(*registration, entry)) continue;
        const std::lock_guard arming(entry.registrations_lock);
        if (registration->held.exchange(false)) {
            renew(*registration, entry);
        } else {
            rearm(*registration, entry);
        }
    }
    if (!found) alone_since_.store(shares, std::memory_order_release);
    return found;
}

namespace {

/// The caller is about to be told; with the lock of the registration's owner held.
void note_delivered(Registration& registration, const epoll_event& event) {
    if ((event.events & EPOLLIN) != 0) {
        const Shared* const shared = sealed_state(*registration.entry);
        if (shared != nullptr) registration.seen = shared->arrivals.load();
    }
    if ((registration.events & EPOLLONESHOT) != 0) registration.spent = true;
}

}  // namespace

/// Gives the caller's data for our cookies. Returns how many events are left: another thread may have taken out what
/// one was of.
int Epoll::translate(epoll_event* events, int count) {
    if (count == 0) return 0;
    const std::lock_guard guard(lock_);
    int left = 0;
    for (int i = 0; i < count; ++i) {
        epoll_event event = events[i];
        if (const Cookie cookie = Cookies::find(event); cookie.registration != nullptr) {
            if (!cookie.is_current()) continue;
            note_delivered(*cookie.registration, event);
            event.data = cookie.registration->data;
        }
        events[left++] = event;
    }
    return left;
}

/// Checks the kernel's events, which stand behind the pending ones. Returns how many are left of all.
int Epoll::deliver_all(Connections& connections, epoll_event* events, int pending, int from_kernel) {
    int count = pending;
    for (int i = pending; i < pending + from_kernel; ++i) {
        epoll_event event = events[i];
        const Cookie cookie = Cookies::find(event);
        if (cookie.registration != nullptr && !deliver(connections, cookie, event)) continue;
        // A descriptor that was reported from our buffers already has one event, not two.
        epoll_event* const reported = events + pending;
        epoll_event* same = reported;
        if (cookie.registration != nullptr && pending > 0)
            same = std::find_if(events, reported, [&](const auto& one) { return one.data.u64 == event.data.u64; });
        if (same != reported) {
            same->events |= event.events;
        } else {
            events[count++] = event;
        }
    }
    return translate(events, count);
}

/// One look at our own pending sockets and one at the kernel.
int Epoll::wait_once(Connections& connections, epoll_event* events, int most, int timeout_ms, const sigset_t* mask) {
    const int pending = take_pending(events, most);
    if (pending > 0) timeout_ms = 0;
    const bool sleeps = timeout_ms != 0;
    if (sleeps) {
        waiters_.fetch_add(1);
        // Announced since we looked?
        if (readable()) timeout_ms = 0;
    }
    const int n = pending == most ? 0 : real::epoll_pwait(fd_, events + pending, most - pending, timeout_ms, mask);
    if (sleeps) waiters_.fetch_sub(1);
    if (n <= 0 && pending == 0) return n;
    return deliver_all(connections, events, pending, std::max(n, 0));
}

// HOT PATH: a rank that spins asks so all the time.
int Epoll::look(Connections& connections, epoll_event* events, int most) {
    (void)look_after_others(connections.shares());
    const int pending = take_pending(events, most);
    const int n = pending == most ? 0 : real::epoll_now(fd_, events + pending, most - pending);
    if (n <= 0 && pending == 0) return n;
    return deliver_all(connections, events, pending, std::max(n, 0));
}

int Epoll::wait(Connections& connections, epoll_event* events, int most, int timeout_ms, const sigset_t* mask) {
    const std::uint32_t closes = closes_;
    const std::int64_t until = timeout_ms < 0 ? 0 : now_ns() + timeout_ms * std::int64_t{1'000'000};
    Ticks ticks;
    for (;;) {
        const bool ticking = connections.handshakes() > 0;
        const bool sharing = look_after_others(connections.shares());
        const int tick_ms = static_cast<int>((ticks.next_ns() + 999'999) / 1'000'000);
        const int longest_ms = ticking ? tick_ms : kUnheardMs;
        const bool in_steps = ticking || sharing || instances_.load() > 0;
        const bool cut = in_steps && (timeout_ms < 0 || timeout_ms > longest_ms);
        const int count = wait_once(connections, events, most, cut ? longest_ms : timeout_ms, mask);
        if (count != 0) return count;
        if (closes_ != closes) {
            errno = EBADF;
            return -1;
        }
        if (ticking) tick(connections);
        if (timeout_ms < 0) continue;
        const std::int64_t left_ns = until - now_ns();
        if (left_ns <= 0) return 0;
        timeout_ms = static_cast<int>((left_ns + 999'999) / 1'000'000);
    }
}

// Who holds the lock of an instance may wait for that of the table, or of the instance below: they are taken together
// or not at all.
ForkLocks::ForkLocks(Table& table) : table_(table) {
    constexpr useconds_t kPause_us = 50;
    for (;;) {
        table_.lock();
        if (try_all()) break;
        give_back();
        table_.unlock();
        real::usleep(kPause_us);
    }
    cookies().lock();
    spare().lock();
}

ForkLocks::~ForkLocks() {
    spare().unlock();
    cookies().unlock();
    give_back();
    table_.unlock();
}

bool ForkLocks::try_all() {
    for (int fd = 0; fd <= table_.highest(); ++fd) {
        const Entry* entry = table_.find(fd);
        // Once, of those that share it.
        if (entry == nullptr || entry->kind.load() != Kind::epoll || entry->descriptor() != fd) continue;
        if (entry->epoll == nullptr) continue;
        if (!entry->epoll->try_lock()) return false;
        instances_.push_back(entry->epoll);
    }
    return true;
}

void ForkLocks::give_back() {
    for (Epoll* instance : instances_) instance->unlock();
    instances_.clear();
}

namespace {

void announce(Registration& registration) {
    Epoll* const owner = registration.owner;  // nullptr: another thread has taken it out
    if (owner != nullptr && owner->must_hear_of(registration)) owner->announce(registration);
}

}  // namespace

// HOT PATH for one registration, which is the rule.
void announce(Entry& entry) {
    if (entry.registration_count.load(std::memory_order_acquire) == 0) return;
    Registration* only = nullptr;
    std::vector<Registration*> several;
    {
        const std::lock_guard guard(entry.registrations_lock);
        if (entry.registrations.size() == 1) {
            only = entry.registrations.front();
        } else {
            several = entry.registrations;
        }
    }
    if (only != nullptr) announce(*only);
    for (Registration* registration : several) announce(*registration);
}

void rearm(Entry& entry) {
    const std::lock_guard guard(entry.registrations_lock);
    for (Registration* registration : entry.registrations) registration->owner.load()->rearm(*registration, entry);
}

namespace {

void renew_edges(Entry& entry, std::uint32_t event) {
    const std::lock_guard guard(entry.registrations_lock);
    for (Registration* registration : entry.registrations) {
        const bool once = (registration->events & (EPOLLET | EPOLLONESHOT)) != 0;
        if (once && (registration->events & event) != 0) registration->owner.load()->renew(*registration, entry);
    }
}

}  // namespace

void renew_writable_edges(Entry& entry) {
    renew_edges(entry, EPOLLOUT);
}

void renew_readable_edges(Entry& entry) {
    renew_edges(entry, EPOLLIN);
}

void forget_registrations(Entry& entry) {
    for (;;) {
        Registration* registration = nullptr;
        {
            const std::lock_guard guard(entry.registrations_lock);
            if (entry.registrations.empty()) return;
            registration = entry.registrations.back();
        }
        // Where another thread has taken it out meanwhile, it is in the list no more.
        if (Epoll* const owner = registration->owner; owner != nullptr) owner->drop(*registration, entry);
    }
}

}  // namespace cryptmpi::channel
