// poll, select and epoll.
#include <pthread.h>
#include <sys/select.h>

#include <cerrno>
#include <cstdlib>
#include <vector>

#include "channel/calls.hpp"
#include "channel/clock.hpp"
#include "channel/epoll.hpp"
#include "channel/readiness.hpp"
#include "channel/real.hpp"

using namespace cryptmpi::channel;

namespace {

timespec from_milliseconds(int timeout) {
    return {timeout / 1000, timeout % 1000 * 1'000'000L};
}

/// select as ppoll.
class Sets {
public:
    Sets(int count, fd_set* in, fd_set* out, fd_set* exceptional) : in_(in), out_(out), exceptional_(exceptional) {
        for (int fd = 0; fd < count; ++fd) {
            int events = 0;
            if (in != nullptr && FD_ISSET(fd, in)) events |= POLLIN;
            if (out != nullptr && FD_ISSET(fd, out)) events |= POLLOUT;
            if (exceptional != nullptr && FD_ISSET(fd, exceptional)) events |= POLLPRI;
            if (events != 0) polls_.push_back({fd, static_cast<short>(events), 0});
        }
    }

    std::vector<pollfd>& polls() { return polls_; }

    /// The number of bits set, or -1 (EBADF) as select does for a descriptor that is not open.
    int report() {
        for (const pollfd& poll : polls_) {
            if ((poll.revents & POLLNVAL) == 0) continue;
            errno = EBADF;
            return -1;
        }
        int bits = 0;
        for (const pollfd& poll : polls_) {
            bits += keep(in_, poll, POLLIN, POLLIN | POLLHUP | POLLERR);
            bits += keep(out_, poll, POLLOUT, POLLOUT | POLLERR);
            bits += keep(exceptional_, poll, POLLPRI, POLLPRI);
        }
        return bits;
    }

private:
    static int keep(fd_set* set, const pollfd& poll, short asked, int means) {
        if (set == nullptr || (poll.events & asked) == 0) return 0;
        if ((poll.revents & means) != 0) return 1;
        FD_CLR(poll.fd, set);
        return 0;
    }

    fd_set* in_;
    fd_set* out_;
    fd_set* exceptional_;
    std::vector<pollfd> polls_;
};

/// The process whose connections a wait has to look at; null: the kernel's call does.
Process* waiting_process() {
    return is_borrower() ? nullptr : Process::made();
}

bool selects_ours(int count, const fd_set* in, const fd_set* out, const fd_set* exceptional) {
    const int known_fds = std::min(count, Process::made()->table().highest() + 1);
    for (int fd = 0; fd < known_fds; ++fd) {
        const bool asked = (in != nullptr && FD_ISSET(fd, in)) || (out != nullptr && FD_ISSET(fd, out)) ||
                           (exceptional != nullptr && FD_ISSET(fd, exceptional));
        if (!asked) continue;
        const pollfd one{fd, 0, 0};
        if (look_among(*Process::made(), &one, 1) != Among::foreign) return true;
    }
    return false;
}

Epoll* instance(int epfd) {
    Entry* entry = known(epfd);
    return entry != nullptr && entry->kind.load() == Kind::epoll ? entry->epoll : nullptr;
}

/// An instance of the parent's says to the kernel what only the parent understands.
/// `true`: errno says so. HOT PATH: no call but of a child's that uses its parent's memory.
[[gnu::noinline, gnu::cold]] bool refuse_parents(int epfd) {
    const Entry* entry = Process::made()->table().find(epfd);
    if (entry == nullptr || entry->kind.load() != Kind::epoll) return false;
    (void)refuse_borrower("epoll with an instance of the parent's");
    return true;
}

inline bool is_parents(int epfd) {
    return is_borrower() && refuse_parents(epfd);
}

class Watched final : public Connections {
public:
    explicit Watched(Process& process) : process_(process) {}

    int handshakes() const override { return process_.handshakes(); }
    std::uint32_t shares() const override { return process_.shares(); }
    void drive(Entry& entry) override { cryptmpi::channel::drive(process_, entry); }
    bool settle_debt(Entry& entry) override { return cryptmpi::channel::settle_debt(process_, entry); }
    bool verify_readable(Entry& entry) override { return cryptmpi::channel::verify_readable(process_, entry); }

private:
    Process& process_;
};

int created(int fd) {
    if (fd < 0) return fd;
    Process& process = this_process();
    if (!process.enabled() || is_borrower()) return fd;
    Entry* entry = process.table().add(fd, Kind::epoll);
    if (entry != nullptr) entry->epoll = &Epoll::open(fd, entry, process.table());
    return fd;
}

}  // namespace

CRYPTMPI_CALL int poll(pollfd* fds, nfds_t count, int timeout) {
    Process* process = waiting_process();
    const Among among = process == nullptr ? Among::foreign : look_among(*process, fds, count);
    if (among == Among::foreign) return real::poll(fds, count, timeout);
    if (among == Among::quiet && timeout == 0) {
        pthread_testcancel();
        return poll_quiet(*process, fds, count);
    }
    const timespec time = from_milliseconds(timeout);
    return wait_ready(*process, fds, count, timeout < 0 ? nullptr : &time, nullptr);
}

CRYPTMPI_CALL int __poll_chk(pollfd* fds, nfds_t count, int timeout, size_t room) {
    if (room / sizeof *fds < count) abort();
    return poll(fds, count, timeout);
}

CRYPTMPI_CALL int ppoll(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask) {
    if (waiting_process() == nullptr || look_among(*Process::made(), fds, count) == Among::foreign)
        return real::ppoll(fds, count, timeout, mask);
    return wait_ready(*Process::made(), fds, count, timeout, mask);
}

CRYPTMPI_CALL int __ppoll_chk(pollfd* fds, nfds_t count, const timespec* timeout, const sigset_t* mask, size_t room) {
    if (room / sizeof *fds < count) abort();
    return ppoll(fds, count, timeout, mask);
}

CRYPTMPI_CALL int select(int count, fd_set* in, fd_set* out, fd_set* exceptional, timeval* timeout) {
    if (waiting_process() == nullptr || !selects_ours(count, in, out, exceptional))
        return real::select(count, in, out, exceptional, timeout);
    Sets sets(count, in, out, exceptional);
    timespec time{};
    if (timeout != nullptr) time = {timeout->tv_sec, timeout->tv_usec * 1000};
    const std::int64_t started = now_ns();
    const int n = wait_ready(*Process::made(), sets.polls().data(), sets.polls().size(),
                             timeout == nullptr ? nullptr : &time, nullptr);
    if (timeout != nullptr) {
        // Linux tells how much time was left.
        const std::int64_t left =
            std::max<std::int64_t>(0, time.tv_sec * 1'000'000'000 + time.tv_nsec - (now_ns() - started));
        *timeout = {left / 1'000'000'000, left % 1'000'000'000 / 1000};
    }
    return n < 0 ? n : sets.report();
}

CRYPTMPI_CALL int pselect(int count, fd_set* in, fd_set* out, fd_set* exceptional, const timespec* timeout,
                          const sigset_t* mask) {
    if (waiting_process() == nullptr || !selects_ours(count, in, out, exceptional))
        return real::pselect(count, in, out, exceptional, timeout, mask);
    Sets sets(count, in, out, exceptional);
    const int n = wait_ready(*Process::made(), sets.polls().data(), sets.polls().size(), timeout, mask);
    return n < 0 ? n : sets.report();
}

CRYPTMPI_CALL int epoll_create(int size) {
    return created(real::epoll_create(size));
}

CRYPTMPI_CALL int epoll_create1(int flags) {
    return created(real::epoll_create1(flags));
}

CRYPTMPI_CALL int epoll_ctl(int epfd, int operation, int fd, epoll_event* event) {
    if (is_parents(epfd)) return -1;
    Epoll* epoll = instance(epfd);
    Entry* entry = known(fd);
    if (epoll == nullptr || entry == nullptr || entry->kind.load() == Kind::datagram)
        return real::epoll_ctl(epfd, operation, fd, event);
    return epoll->control(operation, fd, *entry, event);
}

CRYPTMPI_CALL int epoll_pwait(int epfd, epoll_event* events, int most, int timeout, const sigset_t* mask) {
    if (is_parents(epfd)) return -1;
    Epoll* epoll = instance(epfd);
    const bool ours = epoll != nullptr && !epoll->plain() && events != nullptr && most > 0;
    if (!ours) return real::epoll_pwait(epfd, events, most, timeout, mask);
    Watched watched(*Process::made());
    if (timeout == 0 && mask == nullptr) {
        pthread_testcancel();
        return epoll->look(watched, events, most);
    }
    return epoll->wait(watched, events, most, timeout, mask);
}

CRYPTMPI_CALL int epoll_wait(int epfd, epoll_event* events, int most, int timeout) {
    return epoll_pwait(epfd, events, most, timeout, nullptr);
}

CRYPTMPI_CALL int epoll_pwait2(int epfd, epoll_event* events, int most, const timespec* timeout, const sigset_t* mask) {
    int milliseconds = -1;
    if (timeout != nullptr)
        milliseconds = static_cast<int>(timeout->tv_sec * 1000 + (timeout->tv_nsec + 999'999) / 1'000'000);
    return epoll_pwait(epfd, events, most, milliseconds, mask);
}
