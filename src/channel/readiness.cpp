#include "channel/readiness.hpp"

#include <algorithm>
#include <array>
#include <memory_resource>
#include <span>
#include <vector>

#include "channel/epoll.hpp"
#include "channel/real.hpp"

namespace cryptmpi::channel {

namespace {

constexpr short kIn = POLLIN | POLLRDNORM;

struct Watched {
    nfds_t index;
    Entry* entry;
    bool shaking;
};

bool ours(const Entry* entry) {
    if (entry == nullptr) return false;
    const Kind kind = entry->kind.load(std::memory_order_acquire);
    return kind == Kind::sealed || (kind == Kind::epoll && !entry->epoll->plain());
}

/// The kernel knows all there is to say of it.
bool quiet(const Entry& entry) {
    if (entry.kind.load(std::memory_order_acquire) == Kind::epoll) return !entry.epoll->readable();
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

int wait_ready(Process& process, pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
    // HOT PATH: no allocation for the descriptors of a usual rank.
    std::array<std::byte, 8192> space;
    std::pmr::monotonic_buffer_resource memory(space.data(), space.size());
    std::pmr::vector<pollfd> asked(fds, fds + count, &memory);
    std::pmr::vector<Watched> watched(&memory);
    watched.reserve(count);
    for (nfds_t i = 0; i < count; ++i) {
        Entry* entry = process.table().find(fds[i].fd);
        if (ours(entry)) watched.push_back({i, entry, false});
    }
    // A rank that spins asks without a timeout, thousands of times a second: no look at the clock then.
    const bool spins = timeout != nullptr && timeout->tv_sec == 0 && timeout->tv_nsec == 0;
    std::int64_t until = -1;
    if (timeout != nullptr)
        until = spins ? 0 : now_ns() + timeout->tv_sec * std::int64_t{1'000'000'000} + timeout->tv_nsec;
    bool at_once = false;
    Ticks ticks;
    for (;;) {
        if (prepare(fds, asked, watched)) at_once = true;
        std::int64_t wait_ns = until <= 0 ? until : std::max<std::int64_t>(0, until - now_ns());
        const bool ticking =
            std::any_of(watched.begin(), watched.end(), [](const Watched& one) { return one.shaking; });
        if (ticking) {
            const std::int64_t tick_ns = ticks.next_ns();
            if (wait_ns < 0 || wait_ns > tick_ns) wait_ns = tick_ns;
        }
        if (at_once) wait_ns = 0;
        const timespec this_wait{wait_ns / 1'000'000'000, wait_ns % 1'000'000'000};
        const int n = wait_ns == 0 && mask == nullptr
                          ? real::poll(asked.data(), count, 0)
                          : real::ppoll(asked.data(), count, wait_ns < 0 ? nullptr : &this_wait, mask);
        if (n < 0) return n;
        at_once = false;
        for (const Watched& one : watched) {
            if (settle(process, fds[one.index], asked[one.index], one)) at_once = true;
        }
        int ready = 0;
        for (nfds_t i = 0; i < count; ++i) {
            fds[i].revents = asked[i].revents;
            if (fds[i].revents != 0) ++ready;
        }
        if (ready > 0) return ready;
        if (!at_once && (spins || (until > 0 && now_ns() >= until))) return 0;
    }
}

}  // namespace cryptmpi::channel
