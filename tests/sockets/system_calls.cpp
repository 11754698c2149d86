// The same calls by another way: libc's syscall(), its other names, and stdio.
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <pty.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <iostream>
#include <thread>

#include "support.hpp"

extern "C" {
ssize_t __read(int fd, void* to, size_t size);
ssize_t __write(int fd, const void* from, size_t size);
ssize_t __send(int fd, const void* from, size_t size, int flags);
int __connect(int fd, const sockaddr* address, socklen_t size);
int __close(int fd);
int __dup2(int from, int to);
int __poll(pollfd* fds, nfds_t count, int timeout);
int __select(int count, fd_set* in, fd_set* out, fd_set* exceptional, timeval* timeout);
pid_t __fork();
pid_t __vfork();
}

namespace sockets {
namespace {

/// Made by numbers alone.
Pair raw_pair() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    const Descriptor listener(static_cast<int>(::syscall(SYS_socket, AF_INET, SOCK_STREAM, 0)));
    if (::bind(listener, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(listener, 1) != 0 ||
        ::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
        give_up("listen");
    }
    Pair pair;
    pair.client = Descriptor(static_cast<int>(::syscall(SYS_socket, AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)));
    result("connect", ::syscall(SYS_connect, int{pair.client}, &address, size));
    pair.server = Descriptor(static_cast<int>(::syscall(SYS_accept4, int{listener}, nullptr, nullptr, SOCK_CLOEXEC)));
    return pair;
}

SOCKETS_CASE(numbers_that_transfer) {
    Pair pair = raw_pair();
    const int client = pair.client, server = pair.server;
    char words[] = "0123456789";
    iovec parts[2] = {{words, 4}, {words + 4, 6}};
    mmsghdr messages[2] = {};
    for (mmsghdr& message : messages) {
        message.msg_hdr.msg_iov = parts;
        message.msg_hdr.msg_iovlen = 2;
    }
    char file_name[] = "/tmp/cryptmpi-sockets-XXXXXX";
    const Descriptor file(::mkstemp(file_name));
    ::unlink(file_name);
    if (::write(file, words, 10) != 10) {
        give_up("write a file");
    }
    int ends[2];
    if (::pipe(ends) != 0 || ::write(ends[1], words, 10) != 10) {
        give_up("pipe");
    }
    const Descriptor in(ends[0]), out(ends[1]);
    off_t offset = 0;
    result("write", ::syscall(SYS_write, client, words, 10));
    result("writev", ::syscall(SYS_writev, client, parts, 2));
    result("sendto", ::syscall(SYS_sendto, client, words, 10, MSG_NOSIGNAL, nullptr, 0));
    result("sendmsg", ::syscall(SYS_sendmsg, client, &messages[0].msg_hdr, 0));
    result("sendmmsg", ::syscall(SYS_sendmmsg, client, messages, 2, 0));
    result("pwritev2", ::syscall(SYS_pwritev2, client, parts, 2, -1L, -1L, 0));
    result("pwritev2, somewhere", ::syscall(SYS_pwritev2, client, parts, 2, 0L, 0L, 0));
    result("sendfile", ::syscall(SYS_sendfile, client, int{file}, &offset, 10));
    result("splice", ::syscall(SYS_splice, int{in}, nullptr, client, nullptr, 10, 0));
    note("all of it: %s", hash_of(receive(server, 90)).c_str());
    send_all(client, context.random.bytes(60));
    Bytes got(60);
    iovec into[2] = {{got.data() + 10, 4}, {got.data() + 14, 6}};
    result("read", ::syscall(SYS_read, server, got.data(), 10));
    result("readv", ::syscall(SYS_readv, server, into, 2));
    result("recvfrom", ::syscall(SYS_recvfrom, server, got.data() + 20, 10, 0, nullptr, nullptr));
    iovec last = {got.data() + 30, 10};
    messages[0].msg_hdr.msg_iov = &last;
    messages[0].msg_hdr.msg_iovlen = 1;
    result("recvmsg", ::syscall(SYS_recvmsg, server, &messages[0].msg_hdr, 0));
    last.iov_base = got.data() + 40;
    result("recvmmsg", ::syscall(SYS_recvmmsg, server, messages, 1, 0, nullptr));
    last.iov_base = got.data() + 50;
    result("preadv2", ::syscall(SYS_preadv2, server, &last, 1, -1L, -1L, 0));
    result("preadv2, somewhere", ::syscall(SYS_preadv2, server, &last, 1, 0L, 0L, 0));
    note("all of it: %s", hash_of(got).c_str());
    result("shutdown", ::syscall(SYS_shutdown, client, SHUT_WR));
    result("read at the end", ::syscall(SYS_read, server, got.data(), 10));
}

SOCKETS_CASE(numbers_that_wait) {
    Pair pair = raw_pair();
    const int server = pair.server;
    pollfd entry{server, POLLIN, 0};
    timespec time{0, 20'000'000};
    std::uint64_t mask = 0;
    result("ppoll, nothing", ::syscall(SYS_ppoll, &entry, 1, &time, &mask, sizeof mask));
    note("time left: %ld s", static_cast<long>(time.tv_sec));
    result("ppoll, long mask", ::syscall(SYS_ppoll, &entry, 1, nullptr, &mask, 16));
    send_all(pair.client, text("x"));
    time = {1000, 0};
    result("ppoll", ::syscall(SYS_ppoll, &entry, 1, &time, &mask, sizeof mask));
    note("%s, time left: %d", event_names(static_cast<unsigned>(entry.revents)).c_str(), time.tv_sec == 999);
    result("poll", ::syscall(SYS_poll, &entry, 1, 10000));
    fd_set in;
    FD_ZERO(&in);
    FD_SET(server, &in);
    timeval limit{10, 0};
    result("select", ::syscall(SYS_select, server + 1, &in, nullptr, nullptr, &limit));
    const struct {
        const void* set;
        std::size_t size;
    } sixth{&mask, sizeof mask};
    time = {1000, 0};
    result("pselect6", ::syscall(SYS_pselect6, server + 1, &in, nullptr, nullptr, &time, &sixth));
    note("set %d, time left: %d", FD_ISSET(server, &in) ? 1 : 0, time.tv_sec == 999);
    const Descriptor epoll(static_cast<int>(::syscall(SYS_epoll_create1, 0)));
    epoll_event event{EPOLLIN, {.u64 = 7}};
    result("epoll_ctl", ::syscall(SYS_epoll_ctl, int{epoll}, EPOLL_CTL_ADD, server, &event));
    result("epoll_wait", ::syscall(SYS_epoll_wait, int{epoll}, &event, 1, 10000));
    result("epoll_pwait", ::syscall(SYS_epoll_pwait, int{epoll}, &event, 1, 10000, &mask, sizeof mask));
    time = {10, 0};
    result("epoll_pwait2", ::syscall(SYS_epoll_pwait2, int{epoll}, &event, 1, &time, &mask, sizeof mask));
    note("data %d", static_cast<int>(event.data.u64));
    char byte;
    result("read", ::syscall(SYS_read, server, &byte, 1));
}

SOCKETS_CASE(numbers_of_descriptors) {
    Pair pair = raw_pair();
    const Descriptor one(static_cast<int>(::syscall(SYS_dup, int{pair.client})));
    const Descriptor two(static_cast<int>(::syscall(SYS_fcntl, int{one}, F_DUPFD_CLOEXEC, 100)));
    result("dup3", ::syscall(SYS_dup3, int{one}, 200, O_CLOEXEC));
    result("dup2", ::syscall(SYS_dup2, int{one}, 201));
    result("close", ::syscall(SYS_close, pair.client.release()));
    for (const int fd : {int{one}, int{two}, 200, 201}) {
        result("write", ::syscall(SYS_write, fd, "hello", 5));
    }
    note("received %zu", receive(pair.server, 20).size());
    send_all(one, text("more"));
    wait_for(pair.server, POLLIN);
    int there = 0;
    result("ioctl", ::syscall(SYS_ioctl, int{pair.server}, FIONREAD, &there));
    int error = -1;
    socklen_t size = sizeof error;
    result("getsockopt", ::syscall(SYS_getsockopt, int{pair.server}, SOL_SOCKET, SO_ERROR, &error, &size));
    const int on = 1;
    result("setsockopt", ::syscall(SYS_setsockopt, int{pair.server}, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on));
    note("there %d, error %d", there, error);
    result("close_range", ::syscall(SYS_close_range, 200, 201, 0));
    result("close of the closed", ::syscall(SYS_close, 200));
    note("received %zu", receive(pair.server, 4).size());
}

template <class Start>
void child_that_writes(const char* how, Start start) {
    Pair pair = raw_pair();
    const long child = start();
    if (child == 0) {
        send_all(pair.client, text("from the child"));
        ::syscall(SYS_exit_group, 7);
    }
    pair.client.close();
    note("%s: received %zu", how, receive(pair.server, 14).size());
    int status = 0;
    ::waitpid(static_cast<pid_t>(child), &status, 0);
    char byte;
    result("recv at the end", ::recv(pair.server, &byte, 1, 0));
    note("child %d", WEXITSTATUS(status));
}

SOCKETS_CASE(numbers_that_fork) {
    child_that_writes("fork", [] { return ::syscall(SYS_fork); });
    child_that_writes("clone", [] { return ::syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); });
    child_that_writes("clone3", [] {
        clone_args arguments{};
        arguments.exit_signal = SIGCHLD;
        return ::syscall(SYS_clone3, &arguments, sizeof arguments);
    });
    child_that_writes("__fork", [] { return static_cast<long>(__fork()); });
    child_that_writes("_Fork", [] { return static_cast<long>(::_Fork()); });
}

/// The parent's part: the child has written, and ended with 7 or is none of ours to wait for.
void note_child_that_wrote(const char* how, Pair pair, pid_t child) {
    pair.client.close();
    note("%s: received %zu", how, receive(pair.server, 14).size());
    int status = 0;
    const bool ours = ::waitpid(child, &status, 0) == child;
    char byte;
    result("recv at the end", ::recv(pair.server, &byte, 1, 0));
    note("child %d", ours && WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

/// By another number, too.
void write_by_both(int fd) {
    const Descriptor again(::dup(fd));
    send_all(again, text("from the"));
    send_all(fd, text(" child"));
}

int clone_that_writes(void* fd) {
    write_by_both(*static_cast<int*>(fd));
    return 7;
}

SOCKETS_CASE(functions_that_fork) {
    {
        Pair pair = raw_pair();
        int fd = pair.client;
        std::vector<char> stack(1U << 18U);
        const pid_t child = ::clone(clone_that_writes, stack.data() + stack.size(), SIGCHLD, &fd);
        note_child_that_wrote("clone", std::move(pair), child);
    }
    {
        Pair pair = raw_pair();
        const pid_t child = ::fork();
        if (child == 0) {
            if (::daemon(1, 1) == 0) write_by_both(pair.client);
            ::_exit(0);
        }
        note_child_that_wrote("daemon", std::move(pair), child);
    }
    {
        Pair pair = raw_pair();
        int terminal = -1;
        const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
        if (child == 0) {
            write_by_both(pair.client);
            ::_exit(::isatty(STDIN_FILENO) == 1 && ::getsid(0) == ::getpid() ? 7 : 8);
        }
        note_child_that_wrote("forkpty", std::move(pair), child);
        ::close(terminal);
    }
}

SOCKETS_CASE_OF_KIND(refused_clone, Kind::sealed_only) {
    std::vector<char> stack(1U << 18U);
    int fd = -1;
    for (const int flags : {CLONE_VM, CLONE_FILES, CLONE_VM | CLONE_FILES})
        result("clone", ::clone(clone_that_writes, stack.data() + stack.size(), flags | SIGCHLD, &fd));
    result("number", ::syscall(SYS_clone, CLONE_FILES | SIGCHLD, 0, 0, 0, 0));
}

/// A thread that has descriptors of its own closes some of its numbers; the others' go on being sealed.
SOCKETS_CASE_OF_KIND(refused_unshare, Kind::sealed_only) {
    std::vector<char> stack(1U << 18U);
    int fd = -1;
    constexpr int kThread = CLONE_VM | CLONE_SIGHAND | CLONE_THREAD;
    result("thread", ::clone(clone_that_writes, stack.data() + stack.size(), kThread, &fd));
    result("number", ::syscall(SYS_clone, kThread, 0, 0, 0, 0));
    Pair pair = connected_pair();
    std::thread leaving([&] {
        result("unshare", ::unshare(CLONE_FILES));
        result("number", ::syscall(SYS_unshare, CLONE_FILES));
        result("close_range", ::close_range(pair.client, pair.client, CLOSE_RANGE_UNSHARE));
        result("other spaces", ::unshare(CLONE_FS));
    });
    leaving.join();
    send_all(pair.client, text("still sealed"));
    note("received %zu", receive(pair.server, 12).size());
}

struct Answer {
    long value;
    int error;
};

template <class Call>
Answer tried(const Call& call) {
    errno = 0;
    const long value = call();
    return {value, errno};
}

/// A child that has our memory: it prints nothing, and we tell what it got.
struct Borrower {
    const Pair& pair;
    const Descriptor& listener;
    sockaddr_in address;
    std::vector<std::pair<const char*, Answer>> answers;

    void run() {
        constexpr int kNumber = 400;
        char byte = 'x';
        const int client = pair.client;
        const auto* to = reinterpret_cast<const sockaddr*>(&address);
        answer("dup2", [&] { return ::dup2(client, kNumber); });
        answer("write", [&] { return ::write(kNumber, "secret", 6); });
        answer("write", [&] { return ::write(client, "secret", 6); });
        answer("send", [&] { return ::send(kNumber, "secret", 6, 0); });
        answer("number", [&] { return ::syscall(SYS_write, kNumber, "secret", 6); });
        answer("read", [&] { return ::recv(pair.server, &byte, 1, MSG_DONTWAIT); });
        answer("shutdown", [&] { return ::shutdown(kNumber, SHUT_WR); });
        answer("accept", [&] { return ::accept(listener, nullptr, nullptr); });
        answer("dup2", [&] { return ::dup2(client, STDERR_FILENO); });
        answer("stderr", [&] { return std::fputs("secret", stderr) < 0 ? -1 : 0; });
        answer("open", [&] { return ::open("/dev/infiniband/uverbs0", O_RDWR); });
        ::close(client);
        answer("socket", [&] { return ::socket(AF_INET, SOCK_STREAM, 0); });
        answer("connect", [&] { return ::connect(kNumber, to, sizeof address); });
        answer("fork", [&] { return ::fork(); });
    }

    template <class Call>
    void answer(const char* what, const Call& call) {
        answers.emplace_back(what, tried(call));
    }
};

int borrower_of_clone(void* borrower) {
    static_cast<Borrower*>(borrower)->run();
    ::_exit(0);
}

pid_t borrower_of_vfork(Borrower& borrower) {
    const pid_t child = ::vfork();
    if (child == 0) borrower_of_clone(&borrower);
    return child;
}

/// It uses our memory until it has ended, and knows other descriptors by the numbers of ours.
SOCKETS_CASE_OF_KIND(refused_after_vfork, Kind::sealed_only) {
    sockaddr_in address;
    const Descriptor listener = listen_on_loopback(address);
    std::vector<char> stack(1U << 18U);
    constexpr int kAsVfork = CLONE_VM | CLONE_VFORK | SIGCHLD;
    for (const bool is_clone : {false, true}) {
        Pair pair = connected_pair();
        Borrower borrower{pair, listener, address, {}};
        borrower.answers.reserve(100);
        const pid_t child = is_clone ? ::clone(borrower_of_clone, stack.data() + stack.size(), kAsVfork, &borrower)
                                     : borrower_of_vfork(borrower);
        ::waitpid(child, nullptr, 0);
        for (const auto& [what, answer] : borrower.answers) {
            errno = answer.error;
            result(what, answer.value);
        }
        std::clearerr(stderr);
        result("the parent's stderr", std::fputs("the parent's\n", stderr) < 0 ? -1 : 0);
        send_all(pair.client, text("still sealed"));
        note("received %zu", receive(pair.server, 12).size());
    }
    for (const int flags : {CLONE_FILES, CLONE_SETTLS})
        result("clone", ::clone(borrower_of_clone, stack.data() + stack.size(), kAsVfork | flags, nullptr));
}

/// What programs do in such a child: they tell by a pipe why there is no other program.
SOCKETS_CASE(vfork_and_pipes) {
    Pair pair = connected_pair();
    send_all(pair.client, text("hello"));
    note("received %zu", receive(pair.server, 5).size());
    int pipe[2];
    int local[2];
    if (::pipe(pipe) != 0 || ::socketpair(AF_UNIX, SOCK_STREAM, 0, local) != 0) give_up("pipe");
    char name[] = "/tmp/cryptmpi-sockets-XXXXXX";
    const Descriptor file(::mkstemp(name));
    ::unlink(name);
    const pid_t child = __vfork();
    if (child == 0) {
        // The numbers of our connection are a file's and a socket's there.
        ::dup2(file, pair.client);
        ::dup2(local[1], pair.server);
        ::execl("/nonexistent/program", "program", nullptr);
        const int error = errno;
        const bool told = ::write(pipe[1], &error, sizeof error) == sizeof error;
        const bool written = ::write(pair.client, "to the file", 11) == 11;
        const bool sent = ::send(pair.server, "to the socket", 13, 0) == 13;
        pollfd poll{pipe[0], POLLIN, 0};
        const bool seen = ::poll(&poll, 1, 0) == 1;
        const int epoll = ::epoll_create1(0);
        epoll_event event{EPOLLIN, {.fd = 7}};
        const bool waits = ::epoll_ctl(epoll, EPOLL_CTL_ADD, pipe[0], &event) == 0;
        const bool waited = ::epoll_wait(epoll, &event, 1, 0) == 1;
        ::_exit(told && written && sent && seen && waits && waited ? 7 : 8);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    note("child %d", WEXITSTATUS(status));
    int error = 0;
    result("pipe", ::read(pipe[0], &error, sizeof error));
    note("exec: %s", std::strerror(error));
    char got[20] = {};
    result("file", ::pread(file, got, sizeof got, 0));
    result("socket", ::recv(local[0], got, sizeof got, 0));
    for (const int one : {pipe[0], pipe[1], local[0], local[1]}) ::close(one);
    send_all(pair.client, text("and on"));
    note("received %zu", receive(pair.server, 6).size());
    send_all(pair.server, text("and back"));
    note("received %zu", receive(pair.client, 8).size());
}

int dissolve(int fd) {
    const sockaddr nobody{};
    return ::connect(fd, &nobody, sizeof nobody);
}

/// A connection that stays inside the node, and one of the processes that have it would lead elsewhere.
SOCKETS_CASE_OF_KIND(refused_dissolving, Kind::sealed_only) {
    const Pair alone = connected_pair();
    result("alone", dissolve(alone.client));
    result("accepted", dissolve(alone.server));
    const Pair pair = connected_pair();
    const pid_t child = ::fork();
    if (child == 0) {
        ::_exit(dissolve(pair.client) == 0 ? 7 : errno == EOPNOTSUPP ? 8 : 9);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    note("child %d", WEXITSTATUS(status));
    result("parent", dissolve(pair.client));
    send_all(pair.client, text("hello"));
    note("received %zu", receive(pair.server, 5).size());
}

/// A connection inside the node which is not made before there is room for it, so that it is found out by whoever
/// looks.
struct Late {
    sockaddr_in address;
    Descriptor listener = listen_on_loopback(address, 0);
    Descriptor first = Descriptor(::socket(AF_INET, SOCK_STREAM, 0));
    Descriptor late = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));

    Late() {
        const auto* const to = reinterpret_cast<const sockaddr*>(&address);
        ::connect(first, to, sizeof address);
        result("connect", ::connect(late, to, sizeof address));
    }
    void make_room() { accept_from(listener).close(); }
};

/// The child leads a connection elsewhere that the parent has found to stay inside the node.
SOCKETS_CASE_OF_KIND(refused_dissolving_of_a_late_one, Kind::sealed_only) {
    Late connection;
    int go[2];
    result("pipe", ::pipe(go));
    const pid_t child = ::fork();
    if (child == 0) {
        char byte = 0;
        (void)!::read(go[0], &byte, 1);
        ::_exit(dissolve(connection.late) == 0 ? 7 : errno == EOPNOTSUPP ? 8 : 9);
    }
    connection.make_room();
    note("%s", event_names(wait_for(connection.late, POLLOUT, 10000)).c_str());
    (void)!::write(go[1], "", 1);
    int status = 0;
    ::waitpid(child, &status, 0);
    note("child %d", WEXITSTATUS(status));
    result("send", ::send(connection.late, "hello", 5, 0));
    Descriptor server = accept_from(connection.listener);
    note("received %zu", receive(server, 5).size());
}

/// As above, but by connecting anew once its peer has reset it, which needs no AF_UNSPEC. The child has not looked at
/// the connection before; `asks`: nor does the kernel say that it was reset.
void connect_after_a_reset(bool asks) {
    Late connection;
    int go[2];
    result("pipe", ::pipe(go));
    const pid_t child = ::fork();
    if (child == 0) {
        char byte = 0;
        (void)!::read(go[0], &byte, 1);
        int error = 0;
        socklen_t size = sizeof error;
        if (asks) ::getsockopt(connection.late, SOL_SOCKET, SO_ERROR, &error, &size);
        const auto* const to = reinterpret_cast<const sockaddr*>(&connection.address);
        ::_exit(::connect(connection.late, to, sizeof connection.address) == 0 ? 7 : errno == EOPNOTSUPP ? 8 : 9);
    }
    connection.make_room();
    note("%s", event_names(wait_for(connection.late, POLLOUT, 10000)).c_str());
    Descriptor server = accept_from(connection.listener);
    const linger at_once{1, 0};
    ::setsockopt(server, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    server.close();
    wait_for(connection.late, POLLRDHUP, 10000);
    (void)!::write(go[1], "", 1);
    int status = 0;
    ::waitpid(child, &status, 0);
    note("child %d", WEXITSTATUS(status));
}

SOCKETS_CASE_OF_KIND(refused_connect_after_a_reset, Kind::sealed_only) {
    connect_after_a_reset(false);
}

SOCKETS_CASE_OF_KIND(refused_connect_after_a_reset_and_so_error, Kind::sealed_only) {
    connect_after_a_reset(true);
}

SOCKETS_CASE(connect_again_after_a_refusal_and_a_fork) {
    sockaddr_in address;
    Descriptor listener = listen_on_loopback(address);
    sockaddr_in nobody;
    listen_on_loopback(nobody).close();
    const Descriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    ::connect(client, reinterpret_cast<const sockaddr*>(&nobody), sizeof nobody);
    note("%s", event_names(wait_for(client, POLLOUT)).c_str());
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    ::waitpid(child, nullptr, 0);
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(client, SOL_SOCKET, SO_ERROR, &error, &size);
    note("%s", std::strerror(error));
    result("connect", ::connect(client, reinterpret_cast<const sockaddr*>(&nobody), sizeof nobody));
    set_blocking(client, true);
    const int again = ::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    result("connect", again);
    if (again != 0) return;  // nobody comes
    const Descriptor server = accept_from(listener);
    send_all(client, text("hello"));
    note("received %zu", receive(server, 5).size());
}

void child_that_echoes(const char* how, Pair pair, const std::function<void()>& start) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::dup2(pair.server, STDIN_FILENO);
        ::dup2(pair.server, STDOUT_FILENO);
        start();
        ::_exit(9);
    }
    pair.server.close();
    send_all(pair.client, text("hello"));
    note("%s: received %zu", how, receive(pair.client, 5).size());
    pair.client.close();
    int status = 0;
    ::waitpid(child, &status, 0);
    note("child %d", WEXITSTATUS(status));
}

SOCKETS_CASE(numbers_that_exec) {
    const char* const arguments[] = {"sockets", "--child", "echo", nullptr};
    child_that_echoes("execve", raw_pair(), [&] { ::syscall(SYS_execve, context.self.c_str(), arguments, environ); });
    child_that_echoes("execveat", raw_pair(),
                      [&] { ::syscall(SYS_execveat, AT_FDCWD, context.self.c_str(), arguments, environ, 0); });
}

SOCKETS_CASE(other_names) {
    sockaddr_in address;
    const Descriptor listener = listen_on_loopback(address);
    const Descriptor client(::socket(AF_INET, SOCK_STREAM, 0));
    result("connect", __connect(client, reinterpret_cast<sockaddr*>(&address), sizeof address));
    Descriptor server = accept_from(listener);
    result("write", __write(client, "hello", 5));
    result("send", __send(client, "world", 5, 0));
    pollfd entry{server, POLLIN, 0};
    result("poll", __poll(&entry, 1, 10000));
    note("received %zu", receive(server, 5).size());
    fd_set in;
    FD_ZERO(&in);
    FD_SET(server, &in);
    timeval limit{10, 0};
    result("select", __select(server + 1, &in, nullptr, nullptr, &limit));
    Bytes got(5);
    result("read", __read(server, got.data(), 5));
    result("dup2", __dup2(server, 300));
    result("close", __close(server.release()));
    result("write", __write(300, "hello", 5));
    note("received %zu", receive(client, 5).size());
}

SOCKETS_CASE(standard_output_is_a_socket) {
    Pair pair = connected_pair();
    std::fflush(stdout);
    const Descriptor kept(::dup(STDOUT_FILENO));
    ::dup2(pair.client, STDOUT_FILENO);
    std::printf("printed %d\n", 42);
    std::fflush(stdout);
    std::puts("and put");
    ::dup2(kept, STDOUT_FILENO);  // it is still in the buffer, and goes where the descriptor leads
    std::fflush(stdout);
    note("back");
    pair.client.close();
    note_until_end("server", pair.server);
}

SOCKETS_CASE(standard_output_is_a_socket_and_is_closed) {
    Pair pair = connected_pair();
    std::fflush(stdout);
    const Descriptor kept(::dup(STDOUT_FILENO));
    ::dup2(pair.client, STDOUT_FILENO);
    pair.client.close();
    std::puts("hello");
    const int closed = std::fclose(stdout);
    std::vector<Bytes> fill(32, Bytes(552));  // where the stream was, if it was on the heap
    const int printed = std::printf("again\n");
    const int error = errno;
    const int flushed = std::fflush(stdout);
    const int number = ::fileno(stdout);
    ::dup2(kept, STDOUT_FILENO);
    const int printed_later = std::printf("and again\n");
    std::FILE* const anew = std::freopen("/dev/null", "w", stdout);
    const bool is_same = anew == stdout;
    const int printed_anew = std::printf("anew\n");
    std::fflush(stdout);
    note("closed %d, printed %d: %s, flushed %d, number %d, later %d, anew %d %d", closed, printed,
         std::strerror(error), flushed, number, printed_later, is_same, printed_anew);
    note_until_end("server", pair.server);
}

SOCKETS_CASE(standard_output_is_a_socket_and_is_opened_anew) {
    Pair pair = connected_pair();
    std::fflush(stdout);
    const Descriptor kept(::dup(STDOUT_FILENO));
    ::dup2(pair.client, STDOUT_FILENO);
    pair.client.close();
    std::puts("hello");
    std::FILE* const anew = std::freopen("/dev/null", "w", stdout);
    const bool is_same = anew == stdout;
    const int printed = std::printf("not to the server\n");
    const int flushed = std::fflush(stdout);
    const int number = ::fileno(stdout);
    ::dup2(kept, STDOUT_FILENO);
    note("same %d, printed %d, flushed %d, number %d", is_same, printed, flushed, number);
    note_until_end("server", pair.server);
}

SOCKETS_CASE(stream_before_the_connection) {
    sockaddr_in address;
    const Descriptor listener = listen_on_loopback(address);
    const int client = ::socket(AF_INET, SOCK_STREAM, 0);
    std::FILE* stream = ::fdopen(client, "w");
    result("connect", ::connect(client, reinterpret_cast<sockaddr*>(&address), sizeof address));
    std::fprintf(stream, "number %d\n", 42);
    result("fclose", std::fclose(stream));
    const Descriptor server = accept_from(listener);
    note_until_end("server", server);
}

// Where C++'s streams stay with libc's: they may fail, but never print to the socket.
SOCKETS_CASE_OF_KIND(cpp_streams_never_in_clear, Kind::sealed_only) {
    Pair pair = connected_pair();
    const Descriptor kept(::dup(STDOUT_FILENO));
    ::dup2(pair.client, STDOUT_FILENO);
    std::cout << "secret" << std::flush;
    const bool good = std::cout.good();
    std::cout.clear();
    ::dup2(kept, STDOUT_FILENO);
    note("good %d", good);
    send_all(pair.client, text("hello"));
    note("received %zu", receive(pair.server, 5).size());
    note("more: %s", event_names(wait_for(pair.server, POLLIN, kQuiet)).c_str());
}

SOCKETS_CASE_OF_KIND(refused_io_submit, Kind::sealed_only) {
    Pair pair = connected_pair();
    unsigned long context_of_kernel = 0;
    result("io_setup", ::syscall(SYS_io_setup, 1, &context_of_kernel));
    struct {
        std::uint64_t data;
        std::uint32_t key, flags;
        std::uint16_t opcode;
        std::int16_t priority;
        std::uint32_t fd;
        std::uint64_t buffer, size;
        std::int64_t offset;
        std::uint64_t reserved[2];
    } request{};
    request.opcode = 1;  // write
    request.fd = static_cast<std::uint32_t>(int{pair.client});
    request.buffer = reinterpret_cast<std::uint64_t>("secret");
    request.size = 6;
    void* requests[] = {&request};
    result("io_submit", ::syscall(SYS_io_submit, context_of_kernel, 1, requests));
}

#ifdef __x86_64__
SOCKETS_CASE_OF_KIND(refused_other_abi, Kind::sealed_only) {
    Pair pair = connected_pair();
    result("write", ::syscall(0x40000000 | SYS_write, int{pair.client}, "x", 1));
}
#endif

}  // namespace
}  // namespace sockets
