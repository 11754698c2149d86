// Descriptors and processes: dup and its kin, fork, exec, spawn, standard streams on sockets.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <string_view>

#include "support.hpp"

namespace sockets {

/// What the cases exec: programs that take a socket as their standard input and output and know nothing of it.
int run_child_program(std::string_view name) {
    if (name == "echo") {
        char buffer[1000];
        for (ssize_t size; (size = ::read(STDIN_FILENO, buffer, sizeof buffer)) > 0;) {
            for (ssize_t done = 0; done < size;) {
                const ssize_t sent = ::write(STDOUT_FILENO, buffer + done, static_cast<std::size_t>(size - done));
                if (sent < 0) {
                    return 3;
                }
                done += sent;
            }
        }
        return 0;
    }
    if (name == "lines") {
        char line[100];
        while (std::fgets(line, sizeof line, stdin) != nullptr) {
            std::printf("you said %s", line);
            std::fflush(stdout);
        }
        std::printf("goodbye\n");
        return 0;
    }
    return 2;
}

namespace {

long wait_for_child(pid_t child) {
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

void set_close_on_exec(const Pair& pair) {
    ::fcntl(pair.client, F_SETFD, FD_CLOEXEC);
    ::fcntl(pair.server, F_SETFD, FD_CLOEXEC);
}

SOCKETS_CASE(dup_and_close) {
    Pair pair = connected_pair();
    Descriptor second(::dup(pair.client));
    send_all(second, text("one"));
    send_all(pair.client, text("two"));
    pair.client.close();
    send_all(second, text("three"));
    note("received %zu", receive(pair.server, 11).size());
    note("readable: %s", event_names(wait_for(pair.server, POLLIN, kQuiet)).c_str());
    send_all(pair.server, text("reply"));
    note("received %zu", receive(second, 5).size());
    second.close();
    char byte;
    result("recv at the end", ::recv(pair.server, &byte, 1, 0));
}

SOCKETS_CASE(dup_reads_what_is_left) {
    // A part of a write was read by one number, the rest comes out of the other.
    Pair pair = connected_pair();
    const Descriptor second(::dup(pair.server));
    send_all(pair.client, text("0123456789"));
    note("received %zu", receive(pair.server, 4).size());
    const Bytes rest = receive(second, 6);
    note("received %.6s", reinterpret_cast<const char*>(rest.data()));
}

SOCKETS_CASE(dup2_dup3_fcntl) {
    Pair pair = connected_pair(), other = connected_pair();
    result("dup2 to itself", ::dup2(pair.client, pair.client) == pair.client);
    send_all(pair.client, text("x"));
    note("received %zu", receive(pair.server, 1).size());
    // The number's old connection ends, as by close.
    result("dup2 over another", ::dup2(pair.client, other.client) == other.client);
    char byte;
    result("the other's peer", ::recv(other.server, &byte, 1, 0));
    send_all(other.client, text("by the other number"));
    note("received %zu", receive(pair.server, 19).size());
    result("dup3 to itself", ::dup3(pair.client, pair.client, 0));
    result("dup3", ::dup3(pair.client, 700, O_CLOEXEC));
    note("close on exec %d", ::fcntl(700, F_GETFD) & FD_CLOEXEC);
    result("F_DUPFD", ::fcntl(pair.client, F_DUPFD, 800));
    result("F_DUPFD_CLOEXEC", ::fcntl(pair.client, F_DUPFD_CLOEXEC, 900));
    for (const int fd : {700, 800, 900}) {
        send_all(fd, text("abc"));
        note("received %zu", receive(pair.server, 3).size());
        ::close(fd);
    }
    other.client.close();
    send_all(pair.client, text("last"));
    pair.client.close();
    note_until_end("server", pair.server);
    result("dup of a closed descriptor", ::dup(1 << 20));
}

SOCKETS_CASE(dup2_of_a_file_over_a_socket) {
    Pair pair = connected_pair();
    const Descriptor file(::memfd_create("file", MFD_CLOEXEC));
    if (::pwrite(file, "from the file", 13, 0) != 13) {
        give_up("memfd");
    }
    result("dup2", ::dup2(file, pair.client) == pair.client);
    char buffer[20] = {};
    result("read", ::read(pair.client, buffer, sizeof buffer));
    note("%s", buffer);
    result("recv at the end", ::recv(pair.server, buffer, 1, 0));
}

SOCKETS_CASE(calls_that_fail_close_nothing) {
    Pair pair = connected_pair();
    const Descriptor file(::memfd_create("file", MFD_CLOEXEC));
    const Descriptor second(::dup(pair.client));
    const auto try_it = [&](const char* what, auto call) {
        result(what, call());
        send_all(second, text("abc"));
        note("received %zu", receive(pair.server, 3).size());
    };
    try_it("dup3 with a flag of open's", [&] { return ::dup3(file, second, O_APPEND); });
    try_it("dup2 of nothing", [&] { return ::dup2(1 << 20, second); });
    try_it("close_range with a flag that there is not",
           [&] { return ::close_range(static_cast<unsigned>(second), static_cast<unsigned>(second), 1 << 20); });
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    const rlimit lower = {static_cast<rlim_t>(second), limit.rlim_max};
    try_it("dup2 beyond the limit", [&] {
        ::setrlimit(RLIMIT_NOFILE, &lower);
        const int made = ::dup2(file, second);
        const int error = errno;
        ::setrlimit(RLIMIT_NOFILE, &limit);
        errno = error;
        return made;
    });
}

SOCKETS_CASE(number_used_again) {
    Pair pair = connected_pair();
    const int number = pair.client;
    pair.client.close();
    const Descriptor file(::memfd_create("file", MFD_CLOEXEC));
    note("the same number: %d", file == number);
    result("write to the file", ::write(file, "plain", 5));
    char buffer[20] = {};
    result("read from the file", ::pread(file, buffer, sizeof buffer, 0));
    note("%s", buffer);
}

SOCKETS_CASE(close_ranges) {
    Pair pair = connected_pair(), other = connected_pair();
    result("dup2", ::dup2(pair.client, 1000));
    result("dup2", ::dup2(other.client, 1001));
    pair.client.close();
    other.client.close();
    result("close_range", ::close_range(1000, 1000, 0));
    char byte;
    result("recv at the end", ::recv(pair.server, &byte, 1, 0));
    send_all(1001, text("abc"));
    note("received %zu", receive(other.server, 3).size());
    ::closefrom(1000);
    result("recv at the end", ::recv(other.server, &byte, 1, 0));
}

SOCKETS_CASE(numbers_below_a_low_limit) {
    // All that the limit leaves to a program are its own, as long as it counts from below.
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    for (const int most : {900, 512, 100}) {
        const rlimit lower = {static_cast<rlim_t>(most), limit.rlim_max};
        ::setrlimit(RLIMIT_NOFILE, &lower);
        Pair pair = connected_pair();
        const Descriptor file(::memfd_create("file", MFD_CLOEXEC));
        int failed = 0;
        for (int fd = 3; fd < most * 9 / 10; ++fd) {
            if (fd == pair.client || fd == pair.server || fd == file) continue;
            if (::dup2(file, fd) != fd) ++failed;
        }
        note("below %d: %d failed", most, failed);
        send_all(pair.client, text("abc"));
        note("received %zu", receive(pair.server, 3).size());
        for (int fd = 3; fd < most * 9 / 10; ++fd) {
            if (fd != pair.client && fd != pair.server && fd != file) ::close(fd);
        }
        ::setrlimit(RLIMIT_NOFILE, &limit);
    }
}

void fork_server(int listener, std::size_t connections) {
    for (std::size_t at = 0; at < connections; ++at) {
        Descriptor fd = accept_from(listener);
        const pid_t child = ::fork();
        if (child == 0) {
            ::close(listener);
            Bytes space(5000);
            for (ssize_t size; (size = ::recv(fd, space.data(), space.size(), 0)) > 0;) {
                send_all(fd, std::span(space).first(static_cast<std::size_t>(size)));
            }
            fd.close();
            ::_exit(0);
        }
        fd.close();  // the child's goes on
        result("child", wait_for_child(child));
    }
}

SOCKETS_CASE(fork_server_of_one_process) {
    sockaddr_in address;
    const Descriptor listener = listen_on_loopback(address);
    std::memcpy(&context.address, &address, sizeof address);
    context.address_size = sizeof address;
    const pid_t client = ::fork();
    if (client == 0) {
        Random random(context.seed);
        int wrong = 0;
        for (int at = 0; at < 3; ++at) {
            const Descriptor fd = connect_to(context);
            const Bytes data = random.bytes(100000);
            std::thread sending([&] {
                send_all(fd, data);
                ::shutdown(fd, SHUT_WR);
            });
            wrong += receive(fd, data.size() + 1) == data ? 0 : 1;
            sending.join();
        }
        ::_exit(wrong);
    }
    fork_server(listener, 3);
    result("client", wait_for_child(client));
}

SOCKETS_CASE(fork_and_both_write) {
    Pair pair = connected_pair();
    const Bytes mine(1000, 'p'), its(1000, 'c');
    const pid_t child = ::fork();
    if (child == 0) {
        pair.server.close();
        for (int round = 0; round < 200; ++round) {
            send_all(pair.client, its);
        }
        pair.client.close();
        ::_exit(0);
    }
    std::thread writing([&] {
        for (int round = 0; round < 200; ++round) {
            send_all(pair.client, mine);
        }
    });
    const Bytes got = receive(pair.server, 400000);
    std::size_t ps = 0, cs = 0;
    for (const std::uint8_t byte : got) {
        ps += byte == 'p' ? 1 : 0;
        cs += byte == 'c' ? 1 : 0;
    }
    note("from the parent %zu, from the child %zu", ps, cs);
    writing.join();
    result("child", wait_for_child(child));
    pair.client.close();
    char byte;
    result("recv at the end", ::recv(pair.server, &byte, 1, 0));
}

/// Sleeps until the call says that there is something to be read, or for five seconds.
static bool told_of_bytes(int fd, const std::string& call) {
    if (call == "poll") return wait_for(fd, POLLIN, 5000) != 0;
    if (call == "select") {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(fd, &set);
        timeval limit{5, 0};
        return ::select(fd + 1, &set, nullptr, nullptr, &limit) == 1;
    }
    const Descriptor epoll(::epoll_create1(0));
    epoll_event event{EPOLLIN, {.fd = fd}};
    if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) give_up("epoll_ctl");
    int told = 0;
    do {
        told = ::epoll_wait(epoll, &event, 1, 5000);
    } while (told < 0 && errno == EINTR);  // it was stopped
    return told == 1;
}

/// Writes until the kernel is full, tells how much that was, starts a child that only holds the socket, and goes.
[[noreturn]] static void fill_and_leave(int fd, int told, const std::string& how) {
    set_blocking(fd, false);
    const Bytes much(1 << 20, 'z');
    std::size_t sum = 0;
    for (ssize_t n = 0; (n = ::send(fd, much.data(), much.size(), MSG_NOSIGNAL)) > 0;)
        sum += static_cast<std::size_t>(n);
    const pid_t holder = ::fork();
    if (holder == 0) {
        for (;;) ::pause();
    }
    if (::write(told, &sum, sizeof sum) != sizeof sum) ::_exit(1);
    if (::write(told, &holder, sizeof holder) != sizeof holder) ::_exit(1);
    if (how == "shuts down") ::shutdown(fd, SHUT_WR);
    if (how == "closes") ::close(fd);
    if (how == "exits") ::_exit(0);
    if (how == "is killed") ::kill(::getpid(), SIGKILL);
    for (;;) ::pause();
}

/// Sleeps until it is writable, or for ten seconds.
static bool becomes_writable(int fd) {
    const Descriptor epoll(::epoll_create1(0));
    epoll_event event{EPOLLOUT, {.fd = fd}};
    if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) give_up("epoll_ctl");
    return ::epoll_wait(epoll, &event, 1, 10000) == 1;
}

SOCKETS_CASE(fork_while_it_connects) {
    // Either process may see first that it is connected: both are told.
    sockaddr_in address;
    const Descriptor listener = listen_on_loopback(address);
    for (int round = 0; round < 20; ++round) {
        const Descriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
        (void)::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address);
        const pid_t child = ::fork();
        if (child == 0) ::_exit(becomes_writable(client) ? 0 : 1);
        bool writable = false;
        std::thread waiting([&] { writable = becomes_writable(client); });
        ::usleep(20000);
        const Descriptor server = accept_from(listener);
        waiting.join();
        result("child", wait_for_child(child));
        note("the parent's is %s", writable ? "writable" : "not writable");
        send_all(client, text("hello"));
        note("received %zu", receive(server, 5).size());
    }
}

SOCKETS_CASE(fork_and_wait_for_what_the_parent_connects) {
    // The child sleeps in an instance that it has inherited while the parent brings the connection to its end.
    sockaddr_in address;
    const Descriptor listener = listen_on_loopback(address);
    for (int round = 0; round < 5; ++round) {
        const Descriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
        (void)::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address);
        const Descriptor epoll(::epoll_create1(0));
        epoll_event event{EPOLLIN, {.fd = client}};
        ::epoll_ctl(epoll, EPOLL_CTL_ADD, client, &event);
        const pid_t child = ::fork();
        if (child == 0) {
            event.events = EPOLLOUT;
            ::epoll_ctl(epoll, EPOLL_CTL_MOD, client, &event);
            ::_exit(::epoll_wait(epoll, &event, 1, 10000) == 1 && (event.events & EPOLLOUT) != 0 ? 0 : 1);
        }
        ::usleep(50000);
        std::thread accepting([&] {
            const Descriptor server = accept_from(listener);
            note("received %zu", receive(server, 5).size());
        });
        note("the parent's is %s", becomes_writable(client) ? "writable" : "not writable");
        result("child", wait_for_child(child));
        send_all(client, text("hello"));
        accepting.join();
    }
}

SOCKETS_CASE(fork_and_read_a_part) {
    // One process reads a part of what came, while the other one sleeps: what is left wakes that one.
    for (const char* call : {"poll", "select", "epoll"}) {
        Pair pair = connected_pair();
        const int fd = pair.server;
        const pid_t child = ::fork();
        if (child == 0) ::_exit(told_of_bytes(fd, call) ? 0 : 1);
        ::usleep(50000);
        ::kill(child, SIGSTOP);
        send_all(pair.client, text("0123456789"));
        note("%s: the parent received %zu", call, receive(fd, 3).size());
        ::kill(child, SIGCONT);
        result("the child was told", wait_for_child(child) == 0 ? 1 : 0);
    }
}

SOCKETS_CASE(exit_from_a_handler) {
    // The signal comes while the thread waits in a read of the connection.
    Pair pair = connected_pair();
    const pid_t child = ::fork();
    if (child == 0) {
        struct sigaction action {};
        action.sa_handler = [](int) { ::_exit(3); };
        ::sigaction(SIGUSR1, &action, nullptr);
        char byte = 0;
        ::_exit(static_cast<int>(::read(pair.server, &byte, 1)));
    }
    pair.server.close();
    ::usleep(200000);
    ::kill(child, SIGUSR1);
    int status = -1;
    for (int tries = 0; tries < 1000 && ::waitpid(child, &status, WNOHANG) == 0; ++tries) ::usleep(10000);
    note("exited %d", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    ::kill(child, SIGKILL);
}

SOCKETS_CASE(spawn_and_close) {
    // The child does not get the connection: the end is not the child's to tell, who lives on.
    Pair pair = connected_pair();
    set_close_on_exec(pair);
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) give_up("pipe");
    Descriptor reading(ends[0]), writing(ends[1]);
    posix_spawn_file_actions_t actions;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_adddup2(&actions, reading, STDIN_FILENO);
    char name[] = "/bin/cat";
    char* const arguments[] = {name, nullptr};
    pid_t child = -1;
    result("spawn", ::posix_spawn(&child, name, &actions, nullptr, arguments, environ));
    errno = ENOENT;
    pair.client.close();
    note("errno after close %s", strerrorname_np(errno));
    char byte = 0;
    result("end", ::read(pair.server, &byte, 1));
    writing.close();
    result("child", wait_for_child(child));
    ::posix_spawn_file_actions_destroy(&actions);
}

/// A byte is received by a child, which then ends, or sleeps until it is killed. Returns once it has it.
static pid_t child_that_takes_one(int fd, bool ends) {
    int taken[2];
    if (::pipe(taken) != 0) give_up("pipe");
    const pid_t child = ::fork();
    if (child == 0) {
        const Bytes got = receive(fd, 1);
        if (::write(taken[1], got.data(), got.size()) != 1) ::_exit(1);
        while (!ends) ::pause();
        ::_exit(0);
    }
    ::close(taken[1]);
    char byte = 0;
    result("the child has taken", ::read(taken[0], &byte, 1));
    ::close(taken[0]);
    if (ends) result("child", wait_for_child(child));
    return child;
}

SOCKETS_CASE(fork_and_leave_a_part) {
    // A child takes a part of what came, and ends or stays: its parent, which asked to be told before, is told of the
    // rest, even if it does not wait for it.
    for (const unsigned edge : {0U, static_cast<unsigned>(EPOLLET)}) {
        for (const bool ends : {true, false}) {
            for (const int milliseconds : {0, 1000}) {
                Pair pair = connected_pair();
                const Descriptor inner(::epoll_create1(0)), outer(::epoll_create1(0));
                epoll_event event{EPOLLIN | edge, {.fd = pair.server}};
                if (::epoll_ctl(inner, EPOLL_CTL_ADD, pair.server, &event) != 0) give_up("epoll_ctl");
                event = {EPOLLIN, {.fd = inner}};
                if (::epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event) != 0) give_up("epoll_ctl");
                send_all(pair.client, text("0123456789"));
                const pid_t child = child_that_takes_one(pair.server, ends);
                note("%s, %d ms", ends ? "it ended" : "it stays", milliseconds);
                result("of the instance", ::epoll_wait(outer, &event, 1, milliseconds));
                result("of the socket", ::epoll_wait(inner, &event, 1, milliseconds));
                note("received %zu", receive(pair.server, 9).size());
                result("of nothing", ::epoll_wait(inner, &event, 1, 0));
                ::kill(child, SIGKILL);
                if (!ends) result("child", wait_for_child(child));
            }
        }
    }
}

static void fork_and_kill_it_by(int signal, bool at_once) {
    Pair pair = connected_pair();
    const pid_t child = ::fork();
    if (child == 0) {
        pair.server.close();
        ::signal(signal, SIG_DFL);
        for (;;) ::pause();
    }
    if (at_once) ::kill(child, signal);
    send_all(pair.client, text("hello"));
    note("received %zu", receive(pair.server, 5).size());
    if (!at_once) ::kill(child, signal);
    result("child", wait_for_child(child));
    pair.client.close();
    char more = 0;
    result("end", ::read(pair.server, &more, 1));
}

SOCKETS_CASE(fork_and_kill_the_child) {
    // As multiprocessing's pools do with their workers: the end comes from the one that is left, and in order.
    for (const int signal : {SIGTERM, SIGKILL, SIGSEGV}) fork_and_kill_it_by(signal, false);
    // Nor has it to come to anything of its own: on one processor, its parent goes on first.
    cpu_set_t before;
    cpu_set_t one;
    CPU_ZERO(&one);
    const bool found = ::sched_getaffinity(0, sizeof before, &before) == 0 && ::sched_getcpu() >= 0;
    if (found) CPU_SET(static_cast<std::size_t>(::sched_getcpu()), &one);
    if (found) ::sched_setaffinity(0, sizeof one, &one);
    for (int i = 0; i < 5; ++i) fork_and_kill_it_by(SIGKILL, true);
    if (found) ::sched_setaffinity(0, sizeof before, &before);
}

SOCKETS_CASE(fork_with_bytes_to_be_sent) {
    // The writer forks, and leaves what the kernel has not taken yet; the child only holds the socket.
    for (const char* how : {"closes", "shuts down", "exits", "is killed"}) {
        Pair pair = connected_pair();
        int told[2];
        if (::pipe(told) != 0) give_up("pipe");
        const pid_t writer = ::fork();
        if (writer == 0) {
            pair.server.close();
            fill_and_leave(pair.client.release(), told[1], how);
        }
        pair.client.close();
        std::size_t sum = 0;
        pid_t holder = 0;
        if (::read(told[0], &sum, sizeof sum) != sizeof sum) give_up("read");
        if (::read(told[0], &holder, sizeof holder) != sizeof holder) give_up("read");
        note("%s: all came: %s", how, receive(pair.server, sum).size() == sum ? "yes" : "no");
        ::kill(holder, SIGKILL);
        ::kill(writer, SIGKILL);
        (void)wait_for_child(writer);
        ::close(told[0]);
        ::close(told[1]);
    }
}

SOCKETS_CASE(fork_and_write_before_it_is_accepted) {
    // What the child wrote comes, though the parent has closed the socket and the child does something else.
    sockaddr_in address;
    const Descriptor listener = listen_on_loopback(address);
    Descriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    (void)::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    const pid_t child = ::fork();
    if (child == 0) {
        ::usleep(50000);
        send_all(client, text("hello"));
        for (;;) ::pause();
    }
    client.close();
    ::usleep(100000);
    const Descriptor server = accept_from(listener);
    set_timeout(server, SO_RCVTIMEO, 5000);
    note("received %zu", receive(server, 5).size());
    ::kill(child, SIGKILL);
    (void)wait_for_child(child);
}

SOCKETS_CASE(fork_with_a_duplicate_before_it_is_accepted) {
    // The child, in which both descriptors are one connection, sleeps through a wait once the connection is made.
    sockaddr_in address;
    const Descriptor listener = listen_on_loopback(address);
    Descriptor client(::socket(AF_INET, SOCK_STREAM, 0));
    (void)::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address);
    Descriptor second(::dup(client));
    const pid_t child = ::fork();
    if (child == 0) {
        note("the child received %zu", receive(client, 1).size());
        const Descriptor epoll(::epoll_create1(0));
        epoll_event event{EPOLLIN, {.fd = client}};
        if (::epoll_ctl(epoll, EPOLL_CTL_ADD, client, &event) != 0) give_up("epoll_ctl");
        ::usleep(100'000);  // its parent lets go of the connection
        rusage before{}, after{};
        ::getrusage(RUSAGE_THREAD, &before);
        result("told", ::epoll_wait(epoll, &event, 1, 500));
        ::getrusage(RUSAGE_THREAD, &after);
        note("it woke more than twenty times: %d", after.ru_nvcsw - before.ru_nvcsw > 20);
        ::fflush(nullptr);
        ::_exit(0);
    }
    const Descriptor server = accept_from(listener);
    client.close();
    second.close();
    send_all(server, text("x"));
    result("child", wait_for_child(child));
}

SOCKETS_CASE(exec_before_it_is_accepted) {
    // The program that is exec'ed knows nothing of the socket that it has.
    sockaddr_in address;
    const Descriptor listener = listen_on_loopback(address);
    const pid_t child = ::fork();
    if (child == 0) {
        const int client = ::socket(AF_INET, SOCK_STREAM, 0);
        if (::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) ::_exit(1);
        send_all(client, text("hello"));
        ::execlp("sleep", "sleep", "60", nullptr);
        ::_exit(1);
    }
    ::usleep(300000);
    const Descriptor server = accept_from(listener);
    set_timeout(server, SO_RCVTIMEO, 5000);
    note("received %zu", receive(server, 5).size());
    ::kill(child, SIGKILL);
    (void)wait_for_child(child);
}

SOCKETS_CASE(fork_while_another_thread_closes) {
    // The peer sees an orderly end, whether the children had the socket or not.
    constexpr int kPairs = 8;  // so many chances in a round
    for (int round = 0; round < 40; ++round) {
        std::vector<Pair> pairs;
        for (int i = 0; i < kPairs; ++i) pairs.push_back(connected_pair());
        std::atomic<bool> stop{false};
        std::thread forking([&] {
            while (!stop) {
                const pid_t child = ::fork();
                if (child == 0) ::_exit(0);
                (void)wait_for_child(child);
            }
        });
        for (Pair& pair : pairs) {
            ::usleep(static_cast<useconds_t>(context.random.between(0, 500)));
            pair.client.close();
        }
        for (const Pair& pair : pairs) {
            set_timeout(pair.server, SO_RCVTIMEO, 5000);
            char byte = 0;
            result("recv at the end", ::recv(pair.server, &byte, 1, 0));
        }
        stop = true;
        forking.join();
    }
}

SOCKETS_CASE(fork_and_read_in_turns) {
    // What one process left unread, even within one write, the other one gets.
    Pair pair = connected_pair();
    send_all(pair.client, text("0123456789"));
    note("received %zu", receive(pair.server, 3).size());
    const pid_t child = ::fork();
    if (child == 0) {
        const Bytes part = receive(pair.server, 4);
        ::_exit(part.size() == 4 && std::memcmp(part.data(), "3456", 4) == 0 ? 0 : 1);
    }
    result("child", wait_for_child(child));
    const Bytes rest = receive(pair.server, 3);
    note("received %.3s", reinterpret_cast<const char*>(rest.data()));
    send_all(pair.client, text("more"));
    note("received %zu", receive(pair.server, 4).size());
    send_all(pair.server, text("reply"));
    note("received %zu", receive(pair.client, 5).size());
}

SOCKETS_CASE(fork_child_exits_without_closing) {
    Pair pair = connected_pair();
    const pid_t child = ::fork();
    if (child == 0) {
        ::_exit(0);
    }
    result("child", wait_for_child(child));
    send_all(pair.client, text("hello"));
    note("received %zu", receive(pair.server, 5).size());
}

SOCKETS_CASE(exit_without_closing) {
    // The kernel closes what a process leaves open when it ends in order: its peer sees an ordinary end.
    sockaddr_in address;
    Descriptor listener = listen_on_loopback(address);
    std::memcpy(&context.address, &address, sizeof address);
    context.address_size = sizeof address;
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
        const int fd = connect_to(context).release();
        send_all(fd, text("hello"));
        std::exit(0);
    }
    const Descriptor server = accept_from(listener);
    note_until_end("server", server);
    result("child", wait_for_child(child));
}

enum class Start { fork_exec, vfork_exec, spawn };

/// Starts a program of ours with `fd` as standard input and output.
pid_t start_child(const Context& context, const char* name, int fd, Start start) {
    const char* arguments[] = {"sockets", "--child", name, nullptr};
    auto* const* argv = const_cast<char* const*>(arguments);
    pid_t child = -1;
    if (start == Start::spawn) {
        posix_spawn_file_actions_t actions;
        ::posix_spawn_file_actions_init(&actions);
        ::posix_spawn_file_actions_adddup2(&actions, fd, STDIN_FILENO);
        ::posix_spawn_file_actions_adddup2(&actions, fd, STDOUT_FILENO);
        ::posix_spawn_file_actions_addclose(&actions, fd);
        errno = ::posix_spawn(&child, context.self.c_str(), &actions, nullptr, argv, environ);
        ::posix_spawn_file_actions_destroy(&actions);
    } else if ((child = start == Start::fork_exec ? ::fork() : ::vfork()) == 0) {
        ::dup2(fd, STDIN_FILENO);
        ::dup2(fd, STDOUT_FILENO);
        ::close(fd);
        ::execv(context.self.c_str(), argv);
        ::_exit(126);
    }
    if (child < 0) {
        give_up("start a program");
    }
    return child;
}

void talk_to_echo(Context& context, Start start) {
    Pair pair = connected_pair();
    set_close_on_exec(pair);
    const pid_t child = start_child(context, "echo", pair.server, start);
    pair.server.close();
    const Bytes data = context.random.bytes(100000);
    std::thread sending([&] {
        send_all(pair.client, data);
        ::shutdown(pair.client, SHUT_WR);
    });
    note("right: %d", receive(pair.client, data.size()) == data);
    sending.join();
    char byte;
    result("recv at the end", ::recv(pair.client, &byte, 1, 0));
    result("child", wait_for_child(child));
}

SOCKETS_CASE(exec_echo) {
    talk_to_echo(context, Start::fork_exec);
}
SOCKETS_CASE(vfork_exec_echo) {
    talk_to_echo(context, Start::vfork_exec);
}
SOCKETS_CASE(spawn_echo) {
    talk_to_echo(context, Start::spawn);
}

SOCKETS_CASE(exec_standard_streams) {
    Pair pair = connected_pair();
    set_close_on_exec(pair);
    const pid_t child = start_child(context, "lines", pair.server, Start::fork_exec);
    pair.server.close();
    for (const char* words : {"hello\n", "and again\n"}) {
        send_all(pair.client, text(words));
        const Bytes reply = receive(pair.client, std::strlen(words) + 9);
        note("%.*s", static_cast<int>(reply.size()) - 1, reinterpret_cast<const char*>(reply.data()));
    }
    ::shutdown(pair.client, SHUT_WR);
    note_until_end("client", pair.client);
    result("child", wait_for_child(child));
}

SOCKETS_CASE(exec_with_bytes_left) {
    // A part was read before the exec: the rest must be there after it.
    Pair pair = connected_pair();
    set_close_on_exec(pair);
    send_all(pair.client, text("0123456789"));
    note("received %zu", receive(pair.server, 4).size());
    const pid_t child = start_child(context, "echo", pair.server, Start::fork_exec);
    pair.server.close();
    ::shutdown(pair.client, SHUT_WR);
    const Bytes reply = receive(pair.client, 7);
    note("reply %.*s", static_cast<int>(reply.size()), reinterpret_cast<const char*>(reply.data()));
    result("child", wait_for_child(child));
}

SOCKETS_CASE(exec_closes_on_exec) {
    // The child must not keep a connection alive that it was not given.
    Pair pair = connected_pair(), other = connected_pair();
    set_close_on_exec(pair);
    set_close_on_exec(other);
    const pid_t child = start_child(context, "echo", pair.server, Start::fork_exec);
    other.client.close();
    char byte;
    result("recv at the end", ::recv(other.server, &byte, 1, 0));
    pair.server.close();
    ::shutdown(pair.client, SHUT_WR);
    result("recv at the end", ::recv(pair.client, &byte, 1, 0));
    result("child", wait_for_child(child));
}

SOCKETS_CASE(streams_on_a_socket) {
    Pair pair = connected_pair();
    std::FILE* out = ::fdopen(::dup(pair.client), "w");
    std::FILE* in = ::fdopen(::dup(pair.server), "r");
    note("fileno %d", ::fileno(out) >= 0 && ::fileno(in) >= 0);
    std::fprintf(out, "number %d\n", 42);
    std::fputs("second line\n", out);
    std::fflush(out);
    char line[100];
    for (int count = 0; count < 2; ++count) {
        note("%.*s", static_cast<int>(std::strlen(std::fgets(line, sizeof line, in))) - 1, line);
    }
    const Bytes big = context.random.bytes(100000);
    std::thread writing([&] {
        std::fwrite(big.data(), 1, big.size(), out);
        std::fclose(out);
        ::shutdown(pair.client, SHUT_WR);
    });
    Bytes got(big.size() + 10);
    const std::size_t size = std::fread(got.data(), 1, got.size(), in);
    got.resize(size);
    note("right: %d, end %d", got == big, std::feof(in) != 0);
    writing.join();
    std::fclose(in);
}

SOCKETS_CASE(a_stream_in_memory_has_no_number) {
    // Though it lies where a stream over a socket was.
    Pair pair = connected_pair();
    for (int i = 0; i < 3; ++i) {
        std::FILE* const on_socket = ::fdopen(::dup(pair.client), "w");
        std::FILE* const other = ::fdopen(::dup(pair.client), "w");
        note("numbers %d", ::fileno(on_socket) >= 0 && ::fileno(other) > ::fileno(on_socket));
        std::fprintf(on_socket, "abc");
        std::fclose(on_socket);
        char space[10];
        std::FILE* const in_memory = ::fmemopen(space, sizeof space, "w");
        result("fileno", ::fileno(in_memory));
        note("the other's %d", ::fileno(other) >= 0);
        std::fclose(in_memory);
        std::fclose(other);
        note("received %zu", receive(pair.server, 3).size());
    }
}

SOCKETS_CASE(stream_both_ways) {
    Pair pair = connected_pair();
    std::FILE* stream = ::fdopen(::dup(pair.server), "r+");
    std::setvbuf(stream, nullptr, _IOLBF, 1000);
    send_all(pair.client, text("question\n"));
    char line[100] = {};
    note("got %d", std::fgets(line, sizeof line, stream) != nullptr && std::strcmp(line, "question\n") == 0);
    std::fprintf(stream, "answer\n");
    note("received %zu", receive(pair.client, 7).size());
    std::fclose(stream);
    ::dprintf(pair.client, "by dprintf %d\n", 7);
    note("received %zu", receive(pair.server, 13).size());
}

SOCKETS_CASE_OF_TWO(two_fork_server)

void case_two_fork_server_client(Context& context) {
    for (int round = 0; round < 3; ++round) {
        const Descriptor fd = connect_to(context);
        const Bytes data = context.random.bytes(context.random.between(1, 200000));
        std::thread sending([&] {
            send_all(fd, data);
            ::shutdown(fd, SHUT_WR);
        });
        note("right: %d", receive(fd, data.size()) == data);
        sending.join();
        char byte;
        result("recv at the end", ::recv(fd, &byte, 1, 0));
    }
}

void case_two_fork_server_server(Context& context) {
    fork_server(context.listener, 3);
}

SOCKETS_CASE_OF_TWO(two_exec_echo)

void case_two_exec_echo_client(Context& context) {
    const Descriptor fd = connect_to(context);
    send_all(fd, text("hello"));
    ::shutdown(fd, SHUT_WR);
    note_until_end("client", fd);
}

void case_two_exec_echo_server(Context& context) {
    Descriptor fd = accept_from(context.listener);
    ::fcntl(fd, F_SETFD, FD_CLOEXEC);
    const pid_t child = start_child(context, "echo", fd, Start::fork_exec);
    fd.close();
    result("child", wait_for_child(child));
}

}  // namespace
}  // namespace sockets
