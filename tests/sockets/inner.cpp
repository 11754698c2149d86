// What libc does by itself on a descriptor, and calls of which a program seldom makes use.
#include <execinfo.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <spawn.h>
#include <sys/wait.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "support.hpp"

namespace sockets {
namespace {

constexpr int kTcpZerocopyReceive = 35;  // TCP_ZEROCOPY_RECEIVE, which older headers lack

SOCKETS_CASE(discarded) {
    Pair pair = connected_pair();
    const Bytes data = context.random.bytes(200000);
    std::thread writer([&] { send_all(pair.client, data); });
    result("recv MSG_TRUNC", ::recv(pair.server, nullptr, 150000, MSG_TRUNC | MSG_WAITALL));
    iovec nowhere{nullptr, 10};
    msghdr message{};
    message.msg_iov = &nowhere;
    message.msg_iovlen = 1;
    result("recvmsg MSG_TRUNC", ::recvmsg(pair.server, &message, MSG_TRUNC));
    const Bytes rest = receive(pair.server, 49990);
    writer.join();
    note("the rest is right: %d", std::equal(rest.begin(), rest.end(), data.end() - 49990, data.end()));
    char byte;
    result("recv of nothing", ::recv(pair.server, &byte, 1, MSG_TRUNC | MSG_DONTWAIT));
}

SOCKETS_CASE(queue_of_errors) {
    Pair pair = connected_pair();
    send_all(pair.client, text("data"));
    wait_for(pair.server, POLLIN);
    char bytes[10];
    result("recv MSG_ERRQUEUE", ::recv(pair.server, bytes, sizeof bytes, MSG_ERRQUEUE));
    note("received %zu", receive(pair.server, 4).size());
}

SOCKETS_CASE(backtrace_into_a_socket) {
    Pair pair = connected_pair();
    void* frames[3];
    const int count = std::min(::backtrace(frames, 3), 3);
    ::backtrace_symbols_fd(frames, count, pair.client);
    pair.client.close();
    std::size_t lines = 0;
    for (char byte; ::recv(pair.server, &byte, 1, 0) == 1;) {
        if (byte == '\n') ++lines;
    }
    note("as many lines as frames: %d", lines == static_cast<std::size_t>(count));
}

/// What was printed and is not out yet is the parent's.
SOCKETS_CASE(child_leaves_at_once) {
    Pair pair = connected_pair();
    std::FILE* file = std::tmpfile();
    std::fputs("once", file);
    const pid_t child = ::fork();
    if (child == 0) ::_exit(0);
    ::waitpid(child, nullptr, 0);
    std::fflush(file);
    result("size", ::lseek(::fileno(file), 0, SEEK_END));
    std::fclose(file);
}

SOCKETS_CASE(quick_exit_ends_in_order) {
    sockaddr_in address{};
    const Descriptor listener = listen_on_loopback(address);
    std::fflush(stdout);
    const pid_t child = ::fork();
    if (child == 0) {
        const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
        if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) ::_exit(1);
        if (::send(fd, "goodbye", 7, 0) != 7) ::_exit(2);
        char byte;
        if (::recv(fd, &byte, 1, 0) != 1) ::_exit(3);
        std::quick_exit(4);
    }
    const Descriptor fd = accept_from(listener);
    note("received %zu", receive(fd, 7).size());
    send_all(fd, text("x"));
    int status = 0;
    ::waitpid(child, &status, 0);
    note("status %d", WEXITSTATUS(status));
    char byte;
    result("recv at the end", ::recv(fd, &byte, 1, 0));
}

/// Threads of the parent hold what there is to hold when it forks; the child does the same.
void fork_amid(const char* name, const std::function<void()>& step) {
    std::atomic<bool> stop = false;
    std::thread busy([&] {
        while (!stop) step();
    });
    int ended = 0;
    for (int i = 0; i < 200; ++i) {
        const pid_t child = ::fork();
        if (child == 0) {
            ::alarm(5);
            step();
            ::_exit(0);
        }
        int status = 0;
        ::waitpid(child, &status, 0);
        if (status != 0) break;
        ++ended;
    }
    stop = true;
    busy.join();
    note("%s: %d children ended", name, ended);
}

SOCKETS_CASE(forks_amid_calls) {
    Pair pair = connected_pair();
    std::FILE* stream = ::fdopen(::dup(pair.client), "w");
    fork_amid("fileno", [&] { (void)::fileno(stream); });
    std::fclose(stream);
    fork_amid("spawn", [] {
        posix_spawn_file_actions_t actions;
        ::posix_spawn_file_actions_init(&actions);
        ::posix_spawn_file_actions_addchdir_np(&actions, "/");
        ::posix_spawn_file_actions_destroy(&actions);
    });
    const Descriptor epoll(::epoll_create1(0));
    epoll_event event{EPOLLIN, {}};
    ::epoll_ctl(epoll, EPOLL_CTL_ADD, pair.client, &event);
    fork_amid("epoll", [&] {
        epoll_event change{EPOLLIN, {}};
        ::epoll_ctl(epoll, EPOLL_CTL_MOD, pair.client, &change);
    });
}

/// libc's own stream over a file, whose number becomes that of a connection: it would write there by itself.
SOCKETS_CASE_OF_KIND(refused_stream_over_a_number, Kind::sealed_only) {
    Pair pair = connected_pair();
    std::FILE* stream = std::tmpfile();
    ::dup2(pair.client, ::fileno(stream));
    std::fputs("secret", stream);
    errno = 0;
    result("fflush", std::fflush(stream));
    std::FILE* forgotten = std::tmpfile();
    ::close(::fileno(forgotten));
    Pair other = connected_pair();
    std::fputs("secret", forgotten);
    errno = 0;
    result("fflush of a forgotten one", std::fflush(forgotten));
    note("readable: %s", event_names(wait_for(pair.server, POLLIN, kQuiet)).c_str());
    note("readable: %s", event_names(wait_for(other.server, POLLIN, kQuiet)).c_str());
}

SOCKETS_CASE_OF_KIND(refused_receive_by_mapping, Kind::sealed_only) {
    Pair pair = connected_pair();
    std::uint64_t request[8] = {};
    socklen_t size = sizeof request;
    result("TCP_ZEROCOPY_RECEIVE",
           ::getsockopt(pair.server, IPPROTO_TCP, kTcpZerocopyReceive, static_cast<void*>(request), &size));
}

SOCKETS_CASE_OF_KIND(refused_pairs, Kind::sealed_only) {
    int ends[2];
    result("socketpair", ::socketpair(AF_TIPC, SOCK_DGRAM, 0, ends));
}

/// What CryptMPI or libc has to say on descriptor 2 does not go into a sealed stream in clear.
SOCKETS_CASE_OF_KIND(lines_do_not_go_into_a_stream, Kind::sealed_only) {
    Pair pair = connected_pair();
    const Descriptor kept(::dup(STDERR_FILENO));
    ::dup2(pair.client, STDERR_FILENO);
    result("send MSG_OOB", ::send(pair.client, "x", 1, MSG_OOB));
    h_errno = HOST_NOT_FOUND;
    ::herror("who");
    std::fflush(stderr);
    ::dup2(kept, STDERR_FILENO);
    pair.client.close();
    std::string heard;
    for (char byte; ::recv(pair.server, &byte, 1, 0) == 1;) heard += byte;
    note("%s", heard.c_str());
}

}  // namespace
}  // namespace sockets
