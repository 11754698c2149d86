#include "channel/readiness.hpp"

#include <algorithm>
#include <array>
#include <memory_resource>
#include <span>
#include <vector>

#include "channel/clock.hpp"
#include "channel/epoll.hpp"
#include "channel/real.hpp"

namespace cryptmpi::channel {

namespace {

constexpr short kIn = POLLIN | POLLRDNORM;

struct Watched {
    nfds_t index;
    Entry* entry;
    bool shaking;
    bool shared = false;  // with another process, before we looked
};

/// HOT PATH
inline bool ours(const Entry* entry) {
    if (entry == nullptr) return false;
    const Kind kind = entry->kind.load(std::memory_order_acquire);
    if (kind == Kind::sealed) return true;
    const Epoll* const epoll = kind == Kind::epoll ? entry->epoll : nullptr;  // another thread may be closing it
    return epoll != nullptr && !epoll->plain();
}

/// The kernel knows all there is to say of it.
bool quiet(const Entry& entry) {
    if (entry.kind.load(std::memory_order_acquire) == Kind::epoll) return !readable_here(entry);
    const Shared* shared = entry.shared.load();
    return shared == nullptr ||
           (shared->state.load(std::memory_order_acquire) == State::open &&
            !shared->readable.load(std::memory_order_acquire) && !shared->owing.load(std::memory_order_acquire));
}

/// What to ask the kernel for. True: one of them is ready without it.
bool prepare(const pollfd* fds, std::span<pollfd> asked, std::span<Watched> watched) {
    bool ready = false;
    for (Watched& one : watched) {
        asked[one.index].events = fds[one.index].events;
        one.shared = is_shared(*one.entry);  // whoever has left by now has left all that there is
        one.shaking = handshaking(*one.entry);
        if (one.shaking) {
            asked[one.index].events = handshake_events(*one.entry);
            continue;
        }
        Shared* shared = one.entry->kind.load() == Kind::sealed ? one.entry->shared.load() : nullptr;
        if (shared != nullptr && shared->owing.load(std::memory_order_acquire))
            asked[one.index].events = static_cast<short>(asked[one.index].events | POLLOUT);
        if ((fds[one.index].events & kIn) != 0 && readable_here(*one.entry)) {
            ready = true;
        }
    }
    return ready;
}

/// Turns the kernel's answer for one of ours into the caller's. True: look again at once.
bool settle(Process& process, const pollfd& wanted, pollfd& got, const Watched& one) {
    if (one.entry->kind.load(std::memory_order_acquire) == Kind::epoll) {
        if (readable_here(*one.entry)) got.revents = static_cast<short>(got.revents | (wanted.events & kIn));
        return false;
    }
    if (one.shaking) {
        const bool moved = got.revents != 0;
        got.revents = 0;
        const State state = drive(process, *one.entry);
        return moved && (state == State::open || state == State::failed);
    }
    if ((got.revents & POLLOUT) != 0) {
        // Writable for the caller once what waits is out, and if it asked.
        if (!settle_debt(process, *one.entry) || (wanted.events & POLLOUT) == 0)
            got.revents = static_cast<short>(got.revents & ~(POLLOUT | (wanted.events & POLLWRNORM)));
    }
    if ((got.revents & kIn) != 0 && !verify_readable(process, *one.entry))
        got.revents = static_cast<short>(got.revents & ~kIn);
    if (readable_here(*one.entry)) got.revents = static_cast<short>(got.revents | (wanted.events & kIn));
    if (Shared* shared = one.entry->shared; shared != nullptr && (got.revents & POLLOUT) != 0)
        shared->connect_reported.store(true);
    return false;
}

}  // namespace

// HOT PATH: a rank that spins asks so all the time.
Among look_among(Process& process, const pollfd* fds, nfds_t count) {
    bool found = false;
    for (nfds_t i = 0; i < count; ++i) {
        const Entry* entry = process.table().find(fds[i].fd);
        if (!ours(entry)) continue;
        if (!quiet(*entry)) return Among::busy;
        found = true;
    }
    return found ? Among::quiet : Among::foreign;
}

// HOT PATH
int poll_quiet(Process& process, pollfd* fds, nfds_t count) {
    int ready = real::poll_now(fds, count);
    if (ready <= 0) return ready;
    for (nfds_t i = 0; i < count; ++i) {
        if (fds[i].revents == 0) continue;
        Entry* entry = process.table().find(fds[i].fd);
        if (!ours(entry)) continue;
        settle(process, fds[i], fds[i], {i, entry, false});
        if (fds[i].revents == 0) --ready;
    }
    return ready;
}

namespace {

constexpr std::int64_t kNow = 0;

/// When a call ends that has this timeout. Negative: never.
std::int64_t end_of(const timespec* timeout) {
    if (timeout == nullptr) return -1;
    // A rank that spins asks without a timeout, thousands of times a second: no look at the clock then.
    if (timeout->tv_sec == 0 && timeout->tv_nsec == 0) return kNow;
    return now_ns() + timeout->tv_sec * std::int64_t{1'000'000'000} + timeout->tv_nsec;
}

/// How long the kernel may wait in a call that ends then: not past the next look at handshakes. Negative: for ever.
std::int64_t longest_wait(std::int64_t until, std::span<const Watched> watched, Ticks& ticks) {
    const std::int64_t left = until <= kNow ? until : std::max<std::int64_t>(0, until - now_ns());
    if (left == kNow) return left;
    const bool shaking = std::any_of(watched.begin(), watched.end(), [](const Watched& one) { return one.shaking; });
    const bool shared = std::any_of(watched.begin(), watched.end(), [](const Watched& one) { return one.shared; });
    if (!shaking && !shared) return left;
    const std::int64_t tick = shaking ? ticks.next_ns() : kUnheardMs * std::int64_t{1'000'000};
    return left < 0 ? tick : std::min(left, tick);
}

int ask_kernel(std::span<pollfd> asked, std::int64_t wait_ns, const sigset_t* mask) {
    if (wait_ns == 0 && mask == nullptr) return real::poll(asked.data(), asked.size(), 0);
    const timespec wait{wait_ns / 1'000'000'000, wait_ns % 1'000'000'000};
    return real::ppoll(asked.data(), asked.size(), wait_ns < 0 ? nullptr : &wait, mask);
}

/// Tells the caller what was found. Returns how many are ready.
int tell(std::span<const pollfd> asked, pollfd* fds) {
    int ready = 0;
    for (std::size_t i = 0; i < asked.size(); ++i) {
        fds[i].revents = asked[i].revents;
        if (fds[i].revents != 0) ++ready;
    }
    return ready;
}

}  // namespace

int wait_ready(Process& process, pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
    // HOT PATH: no allocation for the descriptors of a usual rank.
    std::array<std::byte, 2048> space;
    std::pmr::monotonic_buffer_resource memory(space.data(), space.size());
    std::pmr::vector<pollfd> asked(fds, fds + count, &memory);
    std::pmr::vector<Watched> watched(&memory);
    watched.reserve(count);
    for (nfds_t i = 0; i < count; ++i) {
        Entry* entry = process.table().find(fds[i].fd);
        if (ours(entry)) watched.push_back({i, entry, false});
    }
    const std::int64_t until = end_of(timeout);
    bool at_once = false;
    Ticks ticks;
    for (;;) {
        if (prepare(fds, asked, watched)) at_once = true;
        const std::int64_t wait_ns = longest_wait(until, watched, ticks);
        const int n = ask_kernel(asked, at_once ? 0 : wait_ns, mask);
        if (n < 0) return n;
        at_once = false;
        for (const Watched& one : watched) {
            if (settle(process, fds[one.index], asked[one.index], one)) at_once = true;
        }
        if (const int ready = tell(asked, fds); ready > 0) return ready;
        if (!at_once && (until == kNow || (until > kNow && now_ns() >= until))) return 0;
    }
}

}  // namespace cryptmpi::channel
