// libc's own calls, found lazily: libraries of the program call us before our constructor has run.
#pragma once

#include <aio.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>
#include <wordexp.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

#include "base/own_thread.hpp"

// liburing's.
struct io_uring;
struct io_uring_params;

namespace cryptmpi::channel::real {

template <class R, class... A>
class Call {
public:
    using Function = R(A...);

    explicit constexpr Call(const char* name) : name_(name) {}
    explicit constexpr Call(Function* function) : name_(""), function_(function) {}

    R operator()(A... arguments) {
        auto* function = function_.load(std::memory_order_relaxed);
        if (function == nullptr) function = resolve();
        return function(arguments...);
    }

    /// Newer C libraries have calls that this one may lack.
    bool is_there() const { return dlsym(RTLD_NEXT, name_) != nullptr; }

    /// Ahead of its first call, which may be in a handler of signals.
    void look_up() {
        if (function_.load(std::memory_order_relaxed) == nullptr) resolve();
    }

    /// What answers from now on in the place of libc's: for tests, which play a kernel of their own.
    void replace(Function* function) { function_.store(function, std::memory_order_relaxed); }

private:
    Function* resolve() {
        auto* function = reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name_));
        if (function == nullptr) {
            std::fprintf(stderr, "cryptmpi: this C library has no %s\n", name_);
            std::abort();
        }
        function_.store(function, std::memory_order_relaxed);
        return function;
    }

    const char* name_;
    std::atomic<Function*> function_{nullptr};
};

#define CRYPTMPI_REAL(name, ...)              \
    inline constinit Call<__VA_ARGS__> name { \
#name                                 \
    }

CRYPTMPI_REAL(read, ssize_t, int, void*, size_t);
CRYPTMPI_REAL(readv, ssize_t, int, const iovec*, int);
CRYPTMPI_REAL(recv, ssize_t, int, void*, size_t, int);
CRYPTMPI_REAL(recvfrom, ssize_t, int, void*, size_t, int, sockaddr*, socklen_t*);
CRYPTMPI_REAL(recvmsg, ssize_t, int, msghdr*, int);
CRYPTMPI_REAL(recvmmsg, int, int, mmsghdr*, unsigned, int, timespec*);
CRYPTMPI_REAL(write, ssize_t, int, const void*, size_t);
CRYPTMPI_REAL(writev, ssize_t, int, const iovec*, int);
CRYPTMPI_REAL(send, ssize_t, int, const void*, size_t, int);
CRYPTMPI_REAL(sendto, ssize_t, int, const void*, size_t, int, const sockaddr*, socklen_t);
CRYPTMPI_REAL(sendmsg, ssize_t, int, const msghdr*, int);
CRYPTMPI_REAL(sendmmsg, int, int, mmsghdr*, unsigned, int);
CRYPTMPI_REAL(sendfile, ssize_t, int, int, off_t*, size_t);
CRYPTMPI_REAL(splice, ssize_t, int, off64_t*, int, off64_t*, size_t, unsigned);
CRYPTMPI_REAL(socket, int, int, int, int);
CRYPTMPI_REAL(socketpair, int, int, int, int, int*);
CRYPTMPI_REAL(connect, int, int, const sockaddr*, socklen_t);
CRYPTMPI_REAL(accept4, int, int, sockaddr*, socklen_t*, int);
CRYPTMPI_REAL(shutdown, int, int, int);
CRYPTMPI_REAL(getsockname, int, int, sockaddr*, socklen_t*);
CRYPTMPI_REAL(getpeername, int, int, sockaddr*, socklen_t*);
CRYPTMPI_REAL(close, int, int);
CRYPTMPI_REAL(close_range, int, unsigned, unsigned, int);
CRYPTMPI_REAL(dup, int, int);
CRYPTMPI_REAL(dup2, int, int, int);
CRYPTMPI_REAL(dup3, int, int, int, int);
CRYPTMPI_REAL(fcntl, int, int, int, void*);
CRYPTMPI_REAL(ioctl, int, int, unsigned long, void*);
CRYPTMPI_REAL(getsockopt, int, int, int, int, void*, socklen_t*);
CRYPTMPI_REAL(setsockopt, int, int, int, int, const void*, socklen_t);
CRYPTMPI_REAL(ppoll, int, pollfd*, nfds_t, const timespec*, const sigset_t*);
CRYPTMPI_REAL(poll, int, pollfd*, nfds_t, int);
CRYPTMPI_REAL(select, int, int, fd_set*, fd_set*, fd_set*, timeval*);
CRYPTMPI_REAL(pselect, int, int, fd_set*, fd_set*, fd_set*, const timespec*, const sigset_t*);
CRYPTMPI_REAL(epoll_create1, int, int);
CRYPTMPI_REAL(epoll_create, int, int);
CRYPTMPI_REAL(epoll_ctl, int, int, int, int, epoll_event*);
CRYPTMPI_REAL(epoll_pwait, int, int, epoll_event*, int, int, const sigset_t*);
CRYPTMPI_REAL(open, int, const char*, int, mode_t);
CRYPTMPI_REAL(openat, int, int, const char*, int, mode_t);
CRYPTMPI_REAL(open_by_handle_at, int, int, file_handle*, int);
CRYPTMPI_REAL(fopen, FILE*, const char*, const char*);
CRYPTMPI_REAL(fopen64, FILE*, const char*, const char*);
CRYPTMPI_REAL(freopen, FILE*, const char*, const char*, FILE*);
CRYPTMPI_REAL(freopen64, FILE*, const char*, const char*, FILE*);
CRYPTMPI_REAL(fdopen, FILE*, int, const char*);
CRYPTMPI_REAL(fileno, int, FILE*);
CRYPTMPI_REAL(syscall, long, long, long, long, long, long, long, long);
CRYPTMPI_REAL(fork, pid_t);
CRYPTMPI_REAL(_Fork, pid_t);
CRYPTMPI_REAL(clone, int, int (*)(void*), void*, int, void*, pid_t*, void*, pid_t*);
CRYPTMPI_REAL(unshare, int, int);
CRYPTMPI_REAL(preadv2, ssize_t, int, const iovec*, int, off_t, int);
CRYPTMPI_REAL(pwritev2, ssize_t, int, const iovec*, int, off_t, int);
CRYPTMPI_REAL(execve, int, const char*, char* const*, char* const*);
CRYPTMPI_REAL(execvpe, int, const char*, char* const*, char* const*);
CRYPTMPI_REAL(fexecve, int, int, char* const*, char* const*);
CRYPTMPI_REAL(execveat, int, int, const char*, char* const*, char* const*, int);
CRYPTMPI_REAL(system, int, const char*);
CRYPTMPI_REAL(popen, FILE*, const char*, const char*);
CRYPTMPI_REAL(wordexp, int, const char*, wordexp_t*, int);
CRYPTMPI_REAL(posix_spawn, int, pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*,
              char* const*, char* const*);
CRYPTMPI_REAL(posix_spawnp, int, pid_t*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*,
              char* const*, char* const*);
CRYPTMPI_REAL(pidfd_spawn, int, int*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*,
              char* const*, char* const*);
CRYPTMPI_REAL(pidfd_spawnp, int, int*, const char*, const posix_spawn_file_actions_t*, const posix_spawnattr_t*,
              char* const*, char* const*);
CRYPTMPI_REAL(posix_spawn_file_actions_addchdir_np, int, posix_spawn_file_actions_t*, const char*);
CRYPTMPI_REAL(posix_spawn_file_actions_addfchdir_np, int, posix_spawn_file_actions_t*, int);
CRYPTMPI_REAL(_exit, void, int);
CRYPTMPI_REAL(aio_read, int, aiocb*);
CRYPTMPI_REAL(aio_write, int, aiocb*);
CRYPTMPI_REAL(lio_listio, int, int, aiocb* const*, int, sigevent*);
CRYPTMPI_REAL(io_uring_queue_init, int, unsigned, io_uring*, unsigned);
CRYPTMPI_REAL(io_uring_queue_init_params, int, unsigned, io_uring*, io_uring_params*);
CRYPTMPI_REAL(io_uring_queue_init_mem, int, unsigned, io_uring*, io_uring_params*, void*, size_t);
CRYPTMPI_REAL(io_uring_setup, int, unsigned, io_uring_params*);
CRYPTMPI_REAL(rresvport_af, int, int*, sa_family_t);
CRYPTMPI_REAL(backtrace_symbols_fd, void, void* const*, int, int);
CRYPTMPI_REAL(herror, void, const char*);
CRYPTMPI_REAL(rcmd_af, int, char**, unsigned short, const char*, const char*, const char*, int*, sa_family_t);
CRYPTMPI_REAL(rexec_af, int, char**, int, const char*, const char*, const char*, int*, sa_family_t);
CRYPTMPI_REAL(clock_gettime, int, clockid_t, timespec*);
CRYPTMPI_REAL(usleep, int, useconds_t);

#undef CRYPTMPI_REAL

/// Not libc's: threads of ours, in which a test's kernel has its say, too.
inline constinit Call<bool, void* (*)(void*), void*> own_thread{&start_own_thread};
inline constinit Call<void, std::size_t, void* (*)(void*), void*> with_stack{&call_with_stack};

// Calls that never wait, without what libc does around each system call where a thread may be cancelled in it: two
// atomic exchanges, a part of what a small message costs. No thread is cancelled in them, but for the forms with a
// mask.

inline ssize_t recv_now(int fd, void* to, size_t size) {
    return syscall(SYS_recvfrom, fd, reinterpret_cast<long>(to), static_cast<long>(size), MSG_DONTWAIT, 0, 0);
}

inline ssize_t send_now(int fd, const void* from, size_t size, int flags) {
    return syscall(SYS_sendto, fd, reinterpret_cast<long>(from), static_cast<long>(size), flags | MSG_DONTWAIT, 0, 0);
}

#ifdef SYS_poll

inline int poll_now(pollfd* fds, nfds_t count) {
    return static_cast<int>(syscall(SYS_poll, reinterpret_cast<long>(fds), static_cast<long>(count), 0, 0, 0, 0));
}

inline int epoll_now(int fd, epoll_event* events, int most) {
    return static_cast<int>(syscall(SYS_epoll_wait, fd, reinterpret_cast<long>(events), most, 0, 0, 0));
}

#else  // newer processors have but the forms with a mask of signals

inline int poll_now(pollfd* fds, nfds_t count) {
    return poll(fds, count, 0);
}

inline int epoll_now(int fd, epoll_event* events, int most) {
    return epoll_pwait(fd, events, most, 0, nullptr);
}

#endif

}  // namespace cryptmpi::channel::real
