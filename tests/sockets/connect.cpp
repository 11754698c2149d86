// Making connections: blocking and not, refused, many, and their names.
#include <fcntl.h>
#include <netinet/tcp.h>

#include <chrono>
#include <cstring>

#include "support.hpp"

namespace sockets {
namespace {

const sockaddr* generic(const sockaddr_in& address) {
    return reinterpret_cast<const sockaddr*>(&address);
}

int error_of(int fd) {
    int error = -1;
    socklen_t size = sizeof error;
    ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    return error;
}

void note_error_of(int fd) {
    const int error = error_of(fd);
    note("SO_ERROR = %s", error == 0 ? "0" : strerrorname_np(error));
}

/// The other side: accepts, reads "hello", answers "world!".
class Answering {
public:
    explicit Answering(int listener)
        : thread_([this, listener] {
              server_ = accept_from(listener);
              received_ = receive(server_, 5).size();
              send_all(server_, text("world!"));
          }) {}
    void note_received() {
        thread_.join();
        note("received %zu", received_);
    }

private:
    Descriptor server_;
    std::size_t received_ = 0;
    std::thread thread_;  // after what it uses
};

SOCKETS_CASE(connect_non_blocking) {
    sockaddr_in address;
    const Descriptor listener = listen_on_loopback(address);
    const Descriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    result("connect", ::connect(client, generic(address), sizeof address));
    Answering peer(listener);
    note("then: %s", event_names(wait_for(client, POLLOUT)).c_str());
    note_error_of(client);
    // The first connect after the connection is there may say so, the next one must.
    const int again = ::connect(client, generic(address), sizeof address);
    note("connect again: %s", again == 0 || errno == EISCONN ? "0 or EISCONN" : strerrorname_np(errno));
    result("connect once more", ::connect(client, generic(address), sizeof address));
    send_all(client, text("hello"));
    note("received %zu", receive(client, 6).size());
    peer.note_received();
}

SOCKETS_CASE(connect_non_blocking_by_epoll) {
    sockaddr_in address;
    const Descriptor listener = listen_on_loopback(address);
    const Descriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    const Descriptor epoll(::epoll_create1(0));
    result("connect", ::connect(client, generic(address), sizeof address));
    epoll_event event{EPOLLIN | EPOLLOUT | EPOLLET, {.u64 = 0x1122334455667788}};
    result("epoll_ctl", ::epoll_ctl(epoll, EPOLL_CTL_ADD, client, &event));
    Answering peer(listener);
    event = {};
    result("epoll_wait", ::epoll_wait(epoll, &event, 1, 10000));
    note("%s, data %llx", event_names(event.events).c_str(), static_cast<unsigned long long>(event.data.u64));
    note_error_of(client);
    send_all(client, text("hello"));
    // The edge of EPOLLOUT may come again, as any: the kernel makes one of each wake-up, that for our handshake's too.
    int found = 0;
    do {
        found = ::epoll_wait(epoll, &event, 1, 10000);
    } while (found == 1 && (event.events & EPOLLIN) == 0);
    result("epoll_wait", found);
    note("%s", event_names(event.events & EPOLLIN).c_str());
    note("received %zu", receive(client, 6).size());
    peer.note_received();
}

SOCKETS_CASE(connect_non_blocking_send_at_once) {
    // Until the connection is there, a call says EAGAIN or that it is not connected, and loses nothing.
    sockaddr_in address;
    const Descriptor listener = listen_on_loopback(address);
    const Descriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    result("connect", ::connect(client, generic(address), sizeof address));
    Answering peer(listener);
    send_all(client, text("hello"));
    peer.note_received();
}

SOCKETS_CASE(accepted_and_left_alone) {
    // The other side accepts and then does something else for a while, as a process that computes does.
    sockaddr_in address;
    const Descriptor listener = listen_on_loopback(address);
    Descriptor server;
    std::thread accepting([&] { server = accept_from(listener); });
    const Descriptor client(::socket(AF_INET, SOCK_STREAM, 0));
    result("connect", ::connect(client, generic(address), sizeof address));
    accepting.join();
    send_all(client, text("hello"));
    note("received %zu", receive(server, 5).size());
}

SOCKETS_CASE(connect_before_accept) {
    // Nobody accepts yet: a program with one thread may connect to itself, or to a process that does the same.
    sockaddr_in address;
    const Descriptor listener = listen_on_loopback(address);
    const Descriptor client(::socket(AF_INET, SOCK_STREAM, 0));
    result("connect", ::connect(client, generic(address), sizeof address));
    send_all(client, text("hello"));
    const Descriptor server = accept_from(listener);
    note("received %zu", receive(server, 5).size());
    send_all(server, text("world!"));
    note("received %zu", receive(client, 6).size());
}

SOCKETS_CASE(connect_refused) {
    sockaddr_in address;
    listen_on_loopback(address).close();
    const Descriptor blocking(::socket(AF_INET, SOCK_STREAM, 0));
    result("connect", ::connect(blocking, generic(address), sizeof address));
    const Descriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    if (::connect(client, generic(address), sizeof address) == 0 || errno != EINPROGRESS) {
        result("non-blocking connect", -1);
    }
    note("then: %s", event_names(wait_for(client, POLLOUT)).c_str());
    note_error_of(client);
    note_error_of(client);
    char byte = 0;
    result("send", ::send(client, &byte, 1, MSG_NOSIGNAL));
}

SOCKETS_CASE(close_while_it_is_refused) {
    // The news may come in the middle of close() or shutdown().
    sockaddr_in address;
    listen_on_loopback(address).close();
    for (int round = 0; round < 6000; ++round) {
        Descriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
        (void)::connect(client, generic(address), sizeof address);
        const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(round % 60);
        while (std::chrono::steady_clock::now() < until) {
        }
        if (round % 3 == 0) ::shutdown(client, SHUT_RDWR);
    }
    note("all closed");
}

SOCKETS_CASE(nothing_is_sent_before_it_is_accepted) {
    sockaddr_in address;
    const Descriptor listener = listen_on_loopback(address);
    const Descriptor client(::socket(AF_INET, SOCK_STREAM, 0));
    result("connect", ::connect(client, generic(address), sizeof address));
    result("send nothing", ::send(client, "", 0, 0));
    result("send nothing, not waiting", ::send(client, "", 0, MSG_DONTWAIT));
    const Descriptor server = accept_from(listener);
    send_all(client, text("hello"));
    note("received %zu", receive(server, 5).size());
}

SOCKETS_CASE(connect_again_after_refusal) {
    sockaddr_in address;
    Descriptor listener = listen_on_loopback(address);
    listener.close();
    const Descriptor client(::socket(AF_INET, SOCK_STREAM, 0));
    result("connect", ::connect(client, generic(address), sizeof address));
    listener = listen_on_loopback(address);
    Answering peer(listener);
    result("connect", ::connect(client, generic(address), sizeof address));
    send_all(client, text("hello"));
    peer.note_received();
}

SOCKETS_CASE(connect_unusual) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    const Descriptor client(::socket(AF_INET, SOCK_STREAM, 0));
    char byte = 0;
    result("send, not connected", ::send(client, &byte, 1, MSG_NOSIGNAL));
    result("recv, not connected", ::recv(client, &byte, 1, 0));
    result("shutdown, not connected", ::shutdown(client, SHUT_RDWR));
    result("accept, not listening", ::accept(client, nullptr, nullptr));
    result("connect, short address", ::connect(client, generic(address), 3));
    result("connect of a closed descriptor", ::connect(1 << 20, generic(address), sizeof address));
    int ends[2];
    result("socketpair", ::socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
    const Descriptor one(ends[0]), other(ends[1]);
    send_all(one, text("native"));
    note("received %zu", receive(other, 6).size());
}

SOCKETS_CASE(accept_flags) {
    sockaddr_in address;
    const Descriptor listener = listen_on_loopback(address);
    set_blocking(listener, false);
    result("accept, nobody there", ::accept(listener, nullptr, nullptr));
    result("accept4, nobody there", ::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    for (const int flags : {0, int{SOCK_NONBLOCK}, int{SOCK_CLOEXEC}, SOCK_NONBLOCK | SOCK_CLOEXEC}) {
        Descriptor client(::socket(AF_INET, SOCK_STREAM, 0));
        std::thread connecting([&] {
            if (::connect(client, generic(address), sizeof address) != 0) {
                give_up("connect");
            }
            send_all(client, text("hello"));
        });
        sockaddr_in peer{};
        socklen_t size = sizeof peer;
        int fd;
        while ((fd = ::accept4(listener, reinterpret_cast<sockaddr*>(&peer), &size, flags)) < 0 && errno == EAGAIN) {
            wait_for(listener, POLLIN);
        }
        const Descriptor server(fd);
        note("family %d, address size %u, loopback %d", peer.sin_family, size,
             peer.sin_addr.s_addr == htonl(INADDR_LOOPBACK));
        note("non-blocking %d, close on exec %d", (::fcntl(server, F_GETFL) & O_NONBLOCK) != 0,
             (::fcntl(server, F_GETFD) & FD_CLOEXEC) != 0);
        note("received %zu", receive(server, 5).size());
        connecting.join();
    }
    result("accept4, bad flags", ::accept4(listener, nullptr, nullptr, 1));
}

SOCKETS_CASE(accept_many_by_poll) {
    // The listener is non-blocking and polled; connections come in at the same time, and one sends late.
    constexpr std::size_t kCount = 20;
    sockaddr_in address;
    const Descriptor listener = listen_on_loopback(address);
    set_blocking(listener, false);
    std::vector<std::thread> clients;
    for (std::size_t at = 0; at < kCount; ++at) {
        clients.emplace_back([&address] {
            const Descriptor client(::socket(AF_INET, SOCK_STREAM, 0));
            if (::connect(client, generic(address), sizeof address) != 0) {
                give_up("connect");
            }
            send_all(client, text("hello"));
            receive(client, 1);
        });
    }
    std::vector<Descriptor> accepted;
    while (accepted.size() < kCount && wait_for(listener, POLLIN) != 0) {
        const int fd = ::accept(listener, nullptr, nullptr);
        if (fd >= 0) {
            accepted.emplace_back(fd);
        } else if (errno != EAGAIN) {
            result("accept", fd);
        }
    }
    note("accepted %zu", accepted.size());
    std::size_t total = 0;
    for (const Descriptor& server : accepted) {
        total += receive(server, 5).size();
        send_all(server, text("!"));
    }
    note("received %zu", total);
    for (std::thread& client : clients) {
        client.join();
    }
    result("accept, nobody there", ::accept(listener, nullptr, nullptr));
}

SOCKETS_CASE(names_and_options) {
    Pair pair = connected_pair();
    sockaddr_in client_self{}, client_peer{}, server_self{}, server_peer{};
    const auto name = [](int fd, auto&& call, sockaddr_in& out) {
        socklen_t size = sizeof out;
        result("name", call(fd, reinterpret_cast<sockaddr*>(&out), &size));
        note("size %u", size);
    };
    name(pair.client, ::getsockname, client_self);
    name(pair.client, ::getpeername, client_peer);
    name(pair.server, ::getsockname, server_self);
    name(pair.server, ::getpeername, server_peer);
    note("they agree: %d, %d", std::memcmp(&client_self, &server_peer, sizeof client_self) == 0,
         std::memcmp(&client_peer, &server_self, sizeof client_peer) == 0);
    for (const int fd : {int{pair.client}, int{pair.server}}) {
        for (const auto& [text, option] : {std::pair{"SO_TYPE", SO_TYPE},
                                           {"SO_DOMAIN", SO_DOMAIN},
                                           {"SO_PROTOCOL", SO_PROTOCOL},
                                           {"SO_ERROR", SO_ERROR},
                                           {"SO_ACCEPTCONN", SO_ACCEPTCONN},
                                           {"SO_RCVLOWAT", SO_RCVLOWAT}}) {
            int value = -1;
            socklen_t size = sizeof value;
            ::getsockopt(fd, SOL_SOCKET, option, &value, &size);
            note("%s = %d", text, value);
        }
    }
    const int on = 1;
    result("TCP_NODELAY", ::setsockopt(pair.client, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on));
    result("SO_KEEPALIVE", ::setsockopt(pair.client, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on));
    const int size = 65536;
    result("SO_SNDBUF", ::setsockopt(pair.client, SOL_SOCKET, SO_SNDBUF, &size, sizeof size));
    result("SO_RCVBUF", ::setsockopt(pair.client, SOL_SOCKET, SO_RCVBUF, &size, sizeof size));
    send_all(pair.client, text("hello"));
    note("received %zu", receive(pair.server, 5).size());
}

SOCKETS_CASE(low_water_mark) {
    Pair pair = connected_pair();
    const int mark = 10;
    result("SO_RCVLOWAT", ::setsockopt(pair.server, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof mark));
    send_all(pair.client, text("0123456789abcde"));
    note("readable: %s", event_names(wait_for(pair.server, POLLIN)).c_str());
    note("received %zu", receive(pair.server, 15).size());
    int value = 0;
    socklen_t size = sizeof value;
    ::getsockopt(pair.server, SOL_SOCKET, SO_RCVLOWAT, &value, &size);
    note("SO_RCVLOWAT = %d", value);
}

SOCKETS_CASE(two_thousand_connections) {
    constexpr std::size_t kCount = 2000;
    sockaddr_in address;
    const Descriptor listener = listen_on_loopback(address, 4096);
    std::vector<Descriptor> clients, servers;
    std::thread accepting([&] {
        for (std::size_t at = 0; at < kCount; ++at) {
            servers.push_back(accept_from(listener));
            send_all(servers.back(), receive(servers.back(), 1));
        }
    });
    for (std::size_t at = 0; at < kCount; ++at) {
        clients.emplace_back(::socket(AF_INET, SOCK_STREAM, 0));
        if (::connect(clients.back(), generic(address), sizeof address) != 0) {
            give_up("connect");
        }
        send_all(clients.back(), text("x"));
        if (receive(clients.back(), 1).size() != 1) {
            give_up("the first byte");
        }
    }
    accepting.join();
    const Descriptor epoll(::epoll_create1(0));
    for (std::size_t at = 0; at < kCount; ++at) {
        epoll_event event{EPOLLIN, {.u64 = at}};
        ::epoll_ctl(epoll, EPOLL_CTL_ADD, servers[at], &event);
        send_all(clients[at], context.random.bytes(100));
    }
    std::vector<epoll_event> events(64);
    std::size_t received = 0;
    while (received < kCount * 100) {
        const int ready = ::epoll_wait(epoll, events.data(), static_cast<int>(events.size()), 10000);
        if (ready <= 0) {
            break;
        }
        for (int at = 0; at < ready; ++at) {
            char buffer[200];
            const ssize_t got =
                ::recv(servers[events[static_cast<std::size_t>(at)].data.u64], buffer, sizeof buffer, 0);
            received += got > 0 ? static_cast<std::size_t>(got) : 0;
        }
    }
    note("received %zu", received);
    clients.clear();
    std::size_t ends = 0;
    for (const Descriptor& server : servers) {
        char byte;
        ends += ::recv(server, &byte, 1, 0) == 0 ? 1 : 0;
    }
    note("ends %zu", ends);
}

SOCKETS_CASE(connect_and_close_over_and_over) {
    // Descriptors' numbers are used again at once.
    for (int round = 0; round < 200; ++round) {
        Pair pair = connected_pair();
        send_all(pair.client, text("ping"));
        if (receive(pair.server, 4).size() != 4) {
            note("round %d failed", round);
        }
        (round % 2 == 0 ? pair.client : pair.server).close();
    }
    note("done");
}

}  // namespace
}  // namespace sockets
