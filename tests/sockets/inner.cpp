// What libc does by itself on a descriptor, and as a process forks and ends.
#include <spawn.h>
#include <sys/wait.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "support.hpp"

namespace sockets {
namespace {

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

}  // namespace
}  // namespace sockets
