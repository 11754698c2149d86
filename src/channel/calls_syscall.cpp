// syscall(): the numbers of the calls that the library takes the place of lead to the same functions as libc's calls of
// that name, with what differs in the raw call; what goes around all of them is refused.
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/close_range.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>

#include "channel/calls.hpp"
#include "channel/clock.hpp"
#include "channel/real.hpp"

using namespace cryptmpi::channel;

namespace {

using Arguments = const long (&)[6];
using Handler = long (*)(Arguments);

/// A register's value as a parameter of the type that libc's function has.
template <class T>
T as(long value) {
    if constexpr (std::is_pointer_v<T>) {
        return reinterpret_cast<T>(value);
    } else {
        return static_cast<T>(value);
    }
}

template <auto kCall, class R, class... P, std::size_t... kIndex>
long same(R (*)(P...), Arguments values, std::index_sequence<kIndex...>) {
    return static_cast<long>(kCall(as<P>(values[kIndex])...));
}

/// The raw call has the parameters of libc's function, in the same order.
template <auto kCall>
long same(Arguments values) {
    return []<class R, class... P>(R (*call)(P...), Arguments those) {
        return same<kCall>(call, those, std::index_sequence_for<P...>());
    }(kCall, values);
}

long kernels(long number, Arguments values) {
    return real::syscall(number, values[0], values[1], values[2], values[3], values[4], values[5]);
}

long refuse(const char* what) {
    this_process().report().tell_of_refused(
        what, std::string(what) +
                  " is refused: its operations would bypass the sealing; switch the program's "
                  "use of it off");
    errno = ENOSYS;
    return -1;
}

/// The kernel's set of signals is shorter than libc's; that size only.
bool good_mask(const void* mask, long size) {
    if (mask == nullptr || size == _NSIG / 8) return true;
    errno = EINVAL;
    return false;
}

/// What the raw calls write back: how much of the time was left.
class Left {
public:
    explicit Left(timespec* time) : time_(time), before_(now_ns()) {}
    ~Left() {
        if (time_ == nullptr) return;
        const std::int64_t all = time_->tv_sec * std::int64_t{1'000'000'000} + time_->tv_nsec;
        const std::int64_t left = std::max<std::int64_t>(0, all - (now_ns() - before_));
        *time_ = {static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
    }
    Left(const Left&) = delete;
    Left& operator=(const Left&) = delete;

private:
    timespec* time_;
    std::int64_t before_;
};

long raw_fcntl(Arguments values) {
    return fcntl(as<int>(values[0]), as<int>(values[1]), as<void*>(values[2]));
}

long raw_ioctl(Arguments values) {
    return ioctl(as<int>(values[0]), as<unsigned long>(values[1]), as<void*>(values[2]));
}

long raw_openat(Arguments values) {
    return openat(as<int>(values[0]), as<const char*>(values[1]), as<int>(values[2]), as<mode_t>(values[3]));
}

long raw_openat2(Arguments values) {
    if (device_refused(as<const char*>(values[1]))) return -1;
    return unless_device(static_cast<int>(kernels(SYS_openat2, values)));
}

long raw_ppoll(Arguments values) {
    const auto* mask = as<const sigset_t*>(values[3]);
    if (!good_mask(mask, values[4])) return -1;
    auto* time = as<timespec*>(values[2]);
    const Left left(time);
    return ppoll(as<pollfd*>(values[0]), as<nfds_t>(values[1]), time, mask);
}

long raw_pselect6(Arguments values) {
    struct Mask {
        const sigset_t* set;
        long size;
    };
    const auto* given = as<const Mask*>(values[5]);
    const sigset_t* mask = given == nullptr ? nullptr : given->set;
    if (given != nullptr && !good_mask(mask, given->size)) return -1;
    auto* time = as<timespec*>(values[4]);
    const Left left(time);
    return pselect(as<int>(values[0]), as<fd_set*>(values[1]), as<fd_set*>(values[2]), as<fd_set*>(values[3]), time,
                   mask);
}

long raw_epoll_pwait(Arguments values) {
    const auto* mask = as<const sigset_t*>(values[4]);
    if (!good_mask(mask, values[5])) return -1;
    return epoll_pwait(as<int>(values[0]), as<epoll_event*>(values[1]), as<int>(values[2]), as<int>(values[3]), mask);
}

#ifdef SYS_epoll_pwait2
long raw_epoll_pwait2(Arguments values) {
    const auto* mask = as<const sigset_t*>(values[4]);
    if (!good_mask(mask, values[5])) return -1;
    return epoll_pwait2(as<int>(values[0]), as<epoll_event*>(values[1]), as<int>(values[2]),
                        as<const timespec*>(values[3]), mask);
}
#endif

/// The offset is in one register, and the flags behind an empty one.
long raw_preadv2(Arguments values) {
    return preadv2(as<int>(values[0]), as<const iovec*>(values[1]), as<int>(values[2]), values[3], as<int>(values[5]));
}

long raw_pwritev2(Arguments values) {
    return pwritev2(as<int>(values[0]), as<const iovec*>(values[1]), as<int>(values[2]), values[3], as<int>(values[5]));
}

long raw_execveat(Arguments values) {
    return execveat(as<int>(values[0]), as<const char*>(values[1]), as<char* const*>(values[2]),
                    as<char* const*>(values[3]), as<int>(values[4]));
}

/// New threads are the kernel's business.
long clone_by(long number, std::uint64_t flags, bool has_stack, Arguments values) {
    const Cloned made = cloned(flags);
    // On our stack, the child of a borrower cannot return from this function, as that of vfork.
    const bool is_vfork = made == Cloned::borrowing && !has_stack;
    if (is_vfork && flags == (CLONE_VM | CLONE_VFORK | SIGCHLD)) return fork();
    if (made == Cloned::mixed || is_vfork) return refuse_clone();
    if (made == Cloned::sharing) return kernels(number, values);
    if (made == Cloned::borrowing) {
        const long before = lend_memory();
        const long pid = kernels(number, values);
        if (pid != 0) take_memory_back(before);
        return pid;
    }
    return fork_by([&] { return static_cast<pid_t>(kernels(number, values)); }, (flags & CLONE_NEWPID) != 0);
}

long raw_clone(Arguments values) {
    return clone_by(SYS_clone, static_cast<std::uint64_t>(values[0]), values[1] != 0, values);
}

#ifdef SYS_clone3
long raw_clone3(Arguments values) {
    clone_args given{};
    const auto size = as<std::size_t>(values[1]);
    if (values[0] == 0 || size < sizeof given.flags) return kernels(SYS_clone3, values);
    std::memcpy(&given, as<const void*>(values[0]), std::min(size, sizeof given));
    return clone_by(SYS_clone3, given.flags | given.exit_signal, given.stack != 0, values);
}
#endif

long raw_fork(Arguments) {
    return fork();  // for vfork, too, whose caller cannot return from this function in the child
}

long raw_exit_group(Arguments values) {
    _exit(as<int>(values[0]));
}

long raw_pidfd_getfd(Arguments values) {
    const long fd = kernels(SYS_pidfd_getfd, values);
    if (fd >= 0) taken_over(static_cast<int>(fd));
    return fd;
}

/// Sockets can be written to by the kernel's asynchronous input and output.
long raw_io_submit(Arguments values) {
    auto* const* requests = as<iocb* const*>(values[2]);
    for (long i = 0; requests != nullptr && i < values[1]; ++i) {
        const int fd = requests[i] == nullptr ? -1 : static_cast<int>(requests[i]->aio_fildes);
        if (known(fd) != nullptr || (is_borrower() && is_internet_socket(fd))) return refuse("io_submit on a socket");
    }
    return kernels(SYS_io_submit, values);
}

long raw_io_uring(Arguments) {
    return refuse("io_uring");
}

struct Route {
    long number;
    Handler handler;
};

constexpr Route kRoutes[] = {
    {SYS_read, same<read>},
    {SYS_readv, same<readv>},
    {SYS_recvfrom, same<recvfrom>},
    {SYS_recvmsg, same<recvmsg>},
    {SYS_recvmmsg, same<recvmmsg>},
    {SYS_preadv2, raw_preadv2},
    {SYS_write, same<write>},
    {SYS_writev, same<writev>},
    {SYS_sendto, same<sendto>},
    {SYS_sendmsg, same<sendmsg>},
    {SYS_sendmmsg, same<sendmmsg>},
    {SYS_pwritev2, raw_pwritev2},
    {SYS_sendfile, same<sendfile>},
    {SYS_splice, same<splice>},
    {SYS_socket, same<socket>},
    {SYS_socketpair, same<socketpair>},
    {SYS_connect, same<connect>},
    {SYS_accept, same<accept>},
    {SYS_accept4, same<accept4>},
    {SYS_shutdown, same<shutdown>},
    {SYS_getsockopt, same<getsockopt>},
    {SYS_setsockopt, same<setsockopt>},
    {SYS_ioctl, raw_ioctl},
    {SYS_fcntl, raw_fcntl},
    {SYS_close, same<close>},
    {SYS_close_range, same<close_range>},
    {SYS_dup, same<dup>},
    {SYS_dup3, same<dup3>},
    {SYS_ppoll, raw_ppoll},
    {SYS_pselect6, raw_pselect6},
    {SYS_epoll_create1, same<epoll_create1>},
    {SYS_epoll_ctl, same<epoll_ctl>},
    {SYS_epoll_pwait, raw_epoll_pwait},
    {SYS_openat, raw_openat},
    {SYS_open_by_handle_at, same<open_by_handle_at>},
    {SYS_openat2, raw_openat2},
    {SYS_execve, same<execve>},
    {SYS_execveat, raw_execveat},
    {SYS_clone, raw_clone},
    {SYS_unshare, same<unshare>},
    {SYS_exit_group, raw_exit_group},
    {SYS_pidfd_getfd, raw_pidfd_getfd},
    {SYS_io_submit, raw_io_submit},
    {SYS_io_uring_setup, raw_io_uring},
    {SYS_io_uring_enter, raw_io_uring},
    {SYS_io_uring_register, raw_io_uring},
#ifdef SYS_epoll_pwait2
    {SYS_epoll_pwait2, raw_epoll_pwait2},
#endif
#ifdef SYS_clone3
    {SYS_clone3, raw_clone3},
#endif
#ifdef SYS_open  // the older calls, which newer processors do not have
    {SYS_open,
     [](Arguments values) -> long {
         return open(as<const char*>(values[0]), as<int>(values[1]), as<mode_t>(values[2]));
     }},
    {SYS_creat, same<creat>},
    {SYS_dup2, same<dup2>},
    {SYS_poll, same<poll>},
    {SYS_select, same<select>},
    {SYS_epoll_create, same<epoll_create>},
    {SYS_epoll_wait, same<epoll_wait>},
    {SYS_fork, raw_fork},
    {SYS_vfork, raw_fork},
#endif
};

constexpr std::size_t kNumbers = 512;

constexpr std::array<Handler, kNumbers> kHandlers = [] {
    std::array<Handler, kNumbers> result{};
    for (const Route& route : kRoutes) result[static_cast<std::size_t>(route.number)] = route.handler;
    return result;
}();

#ifdef __x86_64__
constexpr long kOtherAbi = 0x40000000;  // the same calls by the numbers of x32
#endif

}  // namespace

// As libc's, it passes on six arguments of which the caller may have given fewer: no sanitizer should mind.
CRYPTMPI_CALL __attribute__((no_sanitize("address"))) long syscall(long number, ...) {
    va_list arguments;
    va_start(arguments, number);
    long values[6];
    for (long& value : values) value = va_arg(arguments, long);
    va_end(arguments);
    const Process* process = present();
    if (process == nullptr || !process->enabled()) return kernels(number, values);
#ifdef __x86_64__
    if ((number & kOtherAbi) != 0) return refuse("a system call of the x32 ABI");
#endif
    const auto index = static_cast<std::size_t>(number);
    const Handler handler = index < kNumbers ? kHandlers[index] : nullptr;
    return handler == nullptr ? kernels(number, values) : handler(values);
}

CRYPTMPI_CALL int pidfd_getfd(int process, int fd, unsigned flags) {
    return static_cast<int>(syscall(SYS_pidfd_getfd, process, fd, flags));
}
