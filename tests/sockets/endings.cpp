// How connections end: half close, close with bytes left, reset, errors after the end.
#include <sys/wait.h>

#include <csignal>
#include <cstring>

#include "support.hpp"

namespace sockets {
namespace {

volatile std::sig_atomic_t pipe_signals = 0;

void note_error_of(int fd) {
    int error = -1;
    socklen_t size = sizeof error;
    ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    note("SO_ERROR = %s", error == 0 ? "0" : strerrorname_np(error));
}

void reset_on_close(int fd) {
    const linger now{1, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

SOCKETS_CASE(half_close) {
    Pair pair = connected_pair();
    const Bytes request = context.random.bytes(50000), reply = context.random.bytes(60000);
    std::thread asking([&] {
        send_all(pair.client, request);
        ::shutdown(pair.client, SHUT_WR);
    });
    note_until_end("server", pair.server);
    asking.join();
    char byte;
    result("recv at the end, again", ::recv(pair.server, &byte, 1, 0));
    result("recv at the end, not waiting", ::recv(pair.server, &byte, 1, MSG_DONTWAIT));
    std::thread answering([&] {
        send_all(pair.server, reply);
        ::shutdown(pair.server, SHUT_WR);
    });
    note_until_end("client", pair.client);
    answering.join();
    note("both ends: %s", event_names(wait_for(pair.client, POLLIN | POLLRDHUP)).c_str());
}

SOCKETS_CASE(write_after_shutdown) {
    Pair pair = connected_pair();
    result("shutdown", ::shutdown(pair.client, SHUT_WR));
    result("shutdown again", ::shutdown(pair.client, SHUT_WR));
    const char byte = 0;
    result("send", ::send(pair.client, &byte, 1, MSG_NOSIGNAL));
    struct sigaction action {};
    action.sa_handler = [](int) { pipe_signals = pipe_signals + 1; };
    ::sigaction(SIGPIPE, &action, nullptr);
    result("write", ::write(pair.client, &byte, 1));
    note("SIGPIPE %d", static_cast<int>(pipe_signals));
    result("send with a signal", ::send(pair.client, &byte, 1, 0));
    note("SIGPIPE %d", static_cast<int>(pipe_signals));
    send_all(pair.server, text("still here"));
    note("received %zu", receive(pair.client, 10).size());
}

SOCKETS_CASE(shutdown_reading) {
    Pair pair = connected_pair();
    result("shutdown", ::shutdown(pair.server, SHUT_RD));
    char byte;
    result("recv", ::recv(pair.server, &byte, 1, 0));
    send_all(pair.server, text("hello"));
    note("received %zu", receive(pair.client, 5).size());
}

SOCKETS_CASE(shutdown_both) {
    Pair pair = connected_pair();
    send_all(pair.client, text("hello"));
    result("shutdown", ::shutdown(pair.client, SHUT_RDWR));
    const char byte = 0;
    char space;
    result("send", ::send(pair.client, &byte, 1, MSG_NOSIGNAL));
    result("recv", ::recv(pair.client, &space, 1, 0));
    note_until_end("server", pair.server);
    result("shutdown of nothing known", ::shutdown(pair.server, 7));
}

SOCKETS_CASE(write_after_the_peer_closed) {
    Pair pair = connected_pair();
    pair.server.close();
    wait_for(pair.client, POLLRDHUP);
    const char byte = 0;
    result("send", ::send(pair.client, &byte, 1, MSG_NOSIGNAL));
    // The reset that answers it.
    wait_for(pair.client, POLLERR);
    for (int tries = 0; tries < 100 && ::send(pair.client, &byte, 1, MSG_NOSIGNAL) >= 0; ++tries) {
        ::poll(nullptr, 0, 10);
    }
    result("send again", ::send(pair.client, &byte, 1, MSG_NOSIGNAL));
}

SOCKETS_CASE(close_without_reading) {
    // What the peer sent is thrown away, and the peer learns that by a reset.
    Pair pair = connected_pair();
    send_all(pair.client, text("never read"));
    wait_for(pair.server, POLLIN);
    pair.server.close();
    note("client: %s", event_names(wait_for(pair.client, POLLIN) & (POLLERR | POLLIN)).c_str());
    char byte;
    result("recv", ::recv(pair.client, &byte, 1, 0));
    result("recv after that", ::recv(pair.client, &byte, 1, 0));
}

SOCKETS_CASE(reset) {
    Pair pair = connected_pair();
    reset_on_close(pair.server);
    pair.server.close();
    wait_for(pair.client, POLLRDHUP);
    note("client: %s", event_names(wait_for(pair.client, POLLIN | POLLOUT | POLLRDHUP)).c_str());
    note_error_of(pair.client);
    char byte = 0;
    result("recv", ::recv(pair.client, &byte, 1, 0));
    result("send", ::send(pair.client, &byte, 1, MSG_NOSIGNAL));
}

SOCKETS_CASE(reset_while_receiving) {
    Pair pair = connected_pair();
    std::thread resetting([&] {
        ::poll(nullptr, 0, 100);
        reset_on_close(pair.server);
        pair.server.close();
    });
    char byte;
    result("recv", ::recv(pair.client, &byte, 1, 0));
    result("recv after that", ::recv(pair.client, &byte, 1, 0));
    resetting.join();
}

SOCKETS_CASE(bytes_before_the_end_are_kept) {
    Pair pair = connected_pair();
    const Bytes data = context.random.bytes(40000);
    send_all(pair.client, data);
    pair.client.close();
    wait_for(pair.server, POLLRDHUP);
    note("readable: %s", event_names(wait_for(pair.server, POLLIN | POLLRDHUP)).c_str());
    note("right: %d", receive(pair.server, data.size()) == data);
    char byte;
    result("recv at the end", ::recv(pair.server, &byte, 1, 0));
}

SOCKETS_CASE(linger) {
    Pair pair = connected_pair();
    const linger wait{1, 5};
    ::setsockopt(pair.client, SOL_SOCKET, SO_LINGER, &wait, sizeof wait);
    const Bytes data = context.random.bytes(100000);
    std::thread sending([&] {
        send_all(pair.client, data);
        pair.client.close();
    });
    note("right: %d", receive(pair.server, data.size()) == data);
    char byte;
    result("recv at the end", ::recv(pair.server, &byte, 1, 0));
    sending.join();
}

SOCKETS_CASE(nothing_was_ever_sent) {
    Pair pair = connected_pair();
    pair.client.close();
    char byte;
    result("recv", ::recv(pair.server, &byte, 1, 0));
}

SOCKETS_CASE(close_of_closed) {
    Pair pair = connected_pair();
    const int number = pair.client.release();
    result("close", ::close(number));
    result("close again", ::close(number));
    char byte;
    result("recv of the closed", ::recv(number, &byte, 1, 0));
    result("recv at the end", ::recv(pair.server, &byte, 1, 0));
}

// What follows ends while a sealed connection is still being made: nothing may show of that.

/// A client that is connected, and a server that has not been accepted yet.
struct Early {
    sockaddr_in address{};
    Descriptor listener = listen_on_loopback(address);
    Descriptor client{::socket(AF_INET, SOCK_STREAM, 0)};

    Early() {
        if (::connect(client, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
            give_up("connect");
        }
    }
    Descriptor accept() const { return accept_from(listener); }
};

SOCKETS_CASE(close_at_once_unused) {
    Early early;
    early.client.close();
    const Descriptor server = early.accept();
    note_until_end("server", server);
    char byte;
    result("recv at the end, again", ::recv(server, &byte, 1, 0));
}

SOCKETS_CASE(close_at_once_after_data) {
    Early early;
    send_all(early.client, text("hello"));
    early.client.close();
    const Descriptor server = early.accept();
    note_until_end("server", server);
}

SOCKETS_CASE(close_at_once_by_the_server) {
    Early early;
    early.accept().close();
    note_until_end("client", early.client);
}

SOCKETS_CASE(close_at_once_by_the_server_after_data) {
    Early early;
    Descriptor server = early.accept();
    send_all(server, text("hello"));
    server.close();
    note_until_end("client", early.client);
}

SOCKETS_CASE(close_at_once_by_both) {
    Early early;
    early.client.close();
    early.accept().close();
}

SOCKETS_CASE(close_at_once_while_the_other_polls) {
    Early early;
    set_blocking(early.client, false);
    std::thread closing([&] { early.accept().close(); });
    note("readable: %s", event_names(wait_for(early.client, POLLIN)).c_str());
    char byte;
    result("recv", ::recv(early.client, &byte, 1, 0));
    closing.join();
}

SOCKETS_CASE(both_connect_and_one_closes) {
    // As two ranks do that connect to each other at the same time, and keep one of the two connections.
    Early one, other;
    const Descriptor first = one.accept();
    std::thread closing([&] { other.client.close(); });
    const Descriptor second = other.accept();
    note_until_end("the one that was closed", second);
    closing.join();
    send_all(one.client, text("hello"));
    note("received %zu", receive(first, 5).size());
}

SOCKETS_CASE(half_close_at_once) {
    Early early;
    result("shutdown", ::shutdown(early.client, SHUT_WR));
    const Descriptor server = early.accept();
    note_until_end("server", server);
    send_all(server, text("hello"));
    note("received %zu", receive(early.client, 5).size());
}

SOCKETS_CASE(half_close_at_once_by_the_server) {
    Early early;
    const Descriptor server = early.accept();
    result("shutdown", ::shutdown(server, SHUT_WR));
    note_until_end("client", early.client);
    send_all(early.client, text("hello"));
    note("received %zu", receive(server, 5).size());
}

SOCKETS_CASE(shutdown_of_both_ways_at_once) {
    Early early;
    result("shutdown", ::shutdown(early.client, SHUT_RDWR));
    char byte;
    result("recv", ::recv(early.client, &byte, 1, 0));
    result("send", ::send(early.client, "x", 1, MSG_NOSIGNAL));
    note_until_end("server", early.accept());
}

SOCKETS_CASE(shutdown_reading_at_once) {
    Early early;
    result("shutdown", ::shutdown(early.client, SHUT_RD));
    char byte;
    result("recv", ::recv(early.client, &byte, 1, 0));
    send_all(early.client, text("hello"));
    const Descriptor server = early.accept();
    note("received %zu", receive(server, 5).size());
    result("recv", ::recv(early.client, &byte, 1, 0));
}

SOCKETS_CASE(reset_at_once) {
    Early early;
    const Descriptor server = early.accept();
    reset_on_close(early.client);
    early.client.close();
    char byte;
    result("recv", ::recv(server, &byte, 1, 0));
    result("recv after that", ::recv(server, &byte, 1, 0));
}

SOCKETS_CASE(exit_at_once) {
    sockaddr_in address;
    const Descriptor listener = listen_on_loopback(address);
    const pid_t child = ::fork();
    if (child == 0) {
        const int client = ::socket(AF_INET, SOCK_STREAM, 0);
        ::_exit(::connect(client, reinterpret_cast<sockaddr*>(&address), sizeof address));
    }
    const Descriptor server = accept_from(listener);
    note_until_end("server", server);
    int status = -1;
    ::waitpid(child, &status, 0);
    note("child %d", status);
}

SOCKETS_CASE_OF_TWO(two_half_close)

void case_two_half_close_client(Context& context) {
    const Descriptor fd = connect_to(context);
    send_all(fd, context.random.bytes(100000));
    result("shutdown", ::shutdown(fd, SHUT_WR));
    note_until_end("client", fd);
}

void case_two_half_close_server(Context& context) {
    const Descriptor fd = accept_from(context.listener);
    note_until_end("server", fd);
    send_all(fd, context.random.bytes(200000));
}

SOCKETS_CASE_OF_TWO(two_reset)

void case_two_reset_client(Context& context) {
    const Descriptor fd = connect_to(context);
    send_all(fd, text("hello"));
    char byte;
    result("recv", ::recv(fd, &byte, 1, 0));
}

void case_two_reset_server(Context& context) {
    Descriptor fd = accept_from(context.listener);
    note("received %zu", receive(fd, 5).size());
    reset_on_close(fd);
}

}  // namespace
}  // namespace sockets
