// Sockets used by several threads, and long messages, which threads of ours may seal and open.
#include <pthread.h>
#include <sys/select.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "support.hpp"

namespace sockets {
namespace {

SOCKETS_CASE(full_duplex) {
    Pair pair = connected_pair();
    const Bytes there = context.random.bytes(6 << 20), back = context.random.bytes(5 << 20);
    bool right_there = false, right_back = false;
    std::thread threads[] = {std::thread([&] { send_all(pair.client, there); }),
                             std::thread([&] { send_all(pair.server, back); }),
                             std::thread([&] { right_there = receive(pair.server, there.size()) == there; }),
                             std::thread([&] { right_back = receive(pair.client, back.size()) == back; })};
    for (std::thread& thread : threads) {
        thread.join();
    }
    note("right: %d %d", right_there, right_back);
}

/// One thread connects, sends and receives; the first of the process that does so, and the next one.
SOCKETS_CASE(threads_with_little_stack) {
    sockaddr_in address;
    const Descriptor listener = listen_on_loopback(address);
    std::function<void()> work = [&] {
        Descriptor client(::socket(AF_INET, SOCK_STREAM, 0));
        result("connect", ::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address));
        const Descriptor server = accept_from(listener);
        char byte = 'x';
        result("send", ::send(client, &byte, 1, 0));
        result("poll", wait_for(server, POLLIN) & POLLIN);
        result("recv", ::recv(server, &byte, 1, 0));
    };
    const auto run = [](void* of) -> void* {
        (*static_cast<std::function<void()>*>(of))();
        return nullptr;
    };
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    ::pthread_attr_setstacksize(&attributes, 20 << 10);
    for (int round = 0; round < 2; ++round) {
        pthread_t thread;
        const int error = ::pthread_create(&thread, &attributes, run, &work);
        ::pthread_join(thread, nullptr);
        result("thread", error);
    }
    ::pthread_attr_destroy(&attributes);
}

SOCKETS_CASE(thirty_two_threads) {
    std::atomic<int> right = 0;
    std::vector<std::thread> threads;
    for (int number = 0; number < 32; ++number) {
        threads.emplace_back([&right, seed = context.random.next()] {
            Random random(seed);
            Pair pair = connected_pair();
            for (int round = 0; round < 30; ++round) {
                const Bytes data = random.bytes(random.between(1, 30000));
                send_all(pair.client, data);
                right += receive(pair.server, data.size()) == data ? 1 : 0;
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    note("right: %d", right.load());
}

SOCKETS_CASE(many_writers_one_socket) {
    // Each send is small: its bytes stay together.
    Pair pair = connected_pair();
    std::vector<std::thread> threads;
    for (std::uint8_t number = 0; number < 8; ++number) {
        threads.emplace_back([&pair, number] {
            for (int round = 0; round < 100; ++round) {
                send_all(pair.client, Bytes(100, number));
            }
        });
    }
    const Bytes got = receive(pair.server, 8 * 100 * 100);
    std::size_t torn = 0, counts[8] = {};
    for (std::size_t at = 0; at + 100 <= got.size(); at += 100) {
        for (std::size_t byte = 1; byte < 100; ++byte) {
            torn += got[at + byte] == got[at] ? 0 : 1;
        }
        ++counts[got[at] % 8];
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    note("received %zu, torn %zu", got.size(), torn);
    for (const std::size_t count : counts) {
        note("sends %zu", count);
    }
}

SOCKETS_CASE(shutdown_wakes_a_reader) {
    Pair pair = connected_pair();
    ssize_t got = -2;
    std::thread reading([&] {
        char byte;
        got = ::recv(pair.server, &byte, 1, 0);
    });
    ::poll(nullptr, 0, 100);
    result("shutdown", ::shutdown(pair.server, SHUT_RDWR));
    reading.join();
    note("recv = %zd", got);
}

/// Cancels a thread that has begun to wait in `call`.
template <typename Body>
void cancel_in(const char* call, Body body) {
    std::thread waiting(body);
    ::poll(nullptr, 0, 100);
    note("cancel %s = %d", call, ::pthread_cancel(waiting.native_handle()));
    waiting.join();
}

SOCKETS_CASE(a_thread_that_waits_is_cancelled) {
    Pair pair = connected_pair();
    char byte;
    cancel_in("recv", [&] { ::recv(pair.server, &byte, 1, 0); });
    cancel_in("read", [&] { static_cast<void>(::read(pair.server, &byte, 1)); });
    pollfd wanted{pair.server, POLLIN, 0};
    cancel_in("poll", [&] { ::poll(&wanted, 1, -1); });
    cancel_in("select", [&] {
        fd_set readable;
        FD_ZERO(&readable);
        FD_SET(pair.server, &readable);
        ::select(pair.server + 1, &readable, nullptr, nullptr, nullptr);
    });
    const Descriptor group(::epoll_create1(0));
    epoll_event event{EPOLLIN, {}};
    ::epoll_ctl(group, EPOLL_CTL_ADD, pair.server, &event);
    cancel_in("epoll_wait", [&] { ::epoll_wait(group, &event, 1, -1); });
    send_all(pair.client, text("still there"));
    note("received %zu", receive(pair.server, 11).size());
}

SOCKETS_CASE(a_writer_that_waits_is_cancelled) {
    // How much of it was sent, nobody knows; but it is the beginning of it.
    Pair pair = connected_pair();
    const Bytes data = context.random.bytes(64 << 20);
    cancel_in("send", [&] { ::send(pair.client, data.data(), data.size(), 0); });
    std::thread closing([&] { result("shutdown", ::shutdown(pair.client, SHUT_WR)); });
    const Bytes got = receive(pair.server, data.size());
    closing.join();
    note("some came: %d, the beginning: %d", !got.empty(), std::equal(got.begin(), got.end(), data.begin()));
}

SOCKETS_CASE(a_reader_that_waits_does_not_stop_a_writer) {
    Pair pair = connected_pair();
    Bytes got;
    std::thread reading([&] { got = receive(pair.server, 5); });
    ::poll(nullptr, 0, 50);
    send_all(pair.server, text("writer of the same end"));
    note("received %zu", receive(pair.client, 22).size());
    send_all(pair.client, text("hello"));
    reading.join();
    note("received %zu", got.size());
}

SOCKETS_CASE(a_writer_that_waits_does_not_stop_a_reader) {
    Pair pair = connected_pair();
    const Bytes big = context.random.bytes(16 << 20);
    std::thread writing([&] { send_all(pair.client, big); });
    ::poll(nullptr, 0, 100);
    send_all(pair.server, text("hello"));
    note("received %zu", receive(pair.client, 5).size());
    note("right: %d", receive(pair.server, big.size()) == big);
    writing.join();
}

SOCKETS_CASE(a_reader_that_waits_stops_none_who_does_not) {
    Pair pair = connected_pair();
    Bytes got;
    std::thread reading([&] { got = receive(pair.server, 5); });
    ::poll(nullptr, 0, 100);
    char byte = 0;
    result("recv, not waiting", ::recv(pair.server, &byte, 1, MSG_DONTWAIT));
    send_all(pair.client, text("hello"));
    reading.join();
    note("received %zu", got.size());
}

SOCKETS_CASE(close_while_another_thread_sends) {
    // As in the kernel, the call that is on its way goes on, and the end comes after what it sends.
    Pair pair = connected_pair();
    const Bytes big = context.random.bytes(32 << 20);
    std::thread writing([&, fd = int{pair.client}] { note("sent %zd", ::send(fd, big.data(), big.size(), 0)); });
    ::poll(nullptr, 0, 100);
    pair.client.close();
    note("right: %d", receive(pair.server, big.size()) == big);
    writing.join();
    char byte = 0;
    result("end", ::read(pair.server, &byte, 1));
}

SOCKETS_CASE(poll_wakes_when_another_thread_sends) {
    Pair pair = connected_pair();
    std::thread sending([&] {
        ::poll(nullptr, 0, 100);
        send_all(pair.client, text("x"));
    });
    note("readable: %s", event_names(wait_for(pair.server, POLLIN)).c_str());
    sending.join();
}

SOCKETS_CASE(an_instance_that_is_watched_is_closed) {
    // Two threads wait on an instance that watches others, each of which has something and is closed at once.
    Pair pair = connected_pair();
    send_all(pair.client, text("xyz"));
    note("received %zu", receive(pair.server, 1).size());
    const Descriptor outer(::epoll_create1(0));
    std::atomic<bool> stop{false};
    const auto wait = [&](int milliseconds) {
        epoll_event events[8];
        while (!stop) (void)::epoll_wait(outer, events, 8, milliseconds);
    };
    std::thread threads[] = {std::thread(wait, 0), std::thread(wait, 1)};
    for (int round = 0; round < 5000; ++round) {
        Descriptor inner(::epoll_create1(0));
        epoll_event event{EPOLLIN, {.u64 = 1}};
        if (::epoll_ctl(inner, EPOLL_CTL_ADD, pair.server, &event) != 0) give_up("epoll_ctl");
        if (::epoll_ctl(outer, EPOLL_CTL_ADD, inner, &event) != 0) give_up("epoll_ctl");
        for (std::size_t turns = context.random.between(0, 20'000); turns > 0; --turns)
            std::atomic_signal_fence(std::memory_order_seq_cst);
        inner.close();
    }
    stop = true;
    for (std::thread& thread : threads) thread.join();
    note("received %zu", receive(pair.server, 2).size());
}

SOCKETS_CASE(connections_end_while_another_thread_waits_for_them) {
    // Each is taken out of the instance, or closed, while its handshake is on its way.
    Pair pair = connected_pair();
    sockaddr_in address;
    const Descriptor listener = listen_on_loopback(address);
    const Descriptor epoll(::epoll_create1(0));
    std::atomic<bool> stop{false};
    std::thread accepting([&] {
        while (!stop) {
            if (wait_for(listener, POLLIN, 10) == 0) continue;
            const Descriptor server(::accept(listener, nullptr, nullptr));
            (void)wait_for(server, POLLIN, 1);
        }
    });
    std::thread waiting([&] {
        epoll_event events[8];
        while (!stop) (void)::epoll_wait(epoll, events, 8, 1);
    });
    for (int round = 0; round < 300; ++round) {
        const Descriptor client(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
        (void)::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address);
        epoll_event event{EPOLLIN | EPOLLOUT, {.u64 = 1}};
        if (::epoll_ctl(epoll, EPOLL_CTL_ADD, client, &event) != 0) give_up("epoll_ctl");
        ::usleep(static_cast<useconds_t>(context.random.between(0, 500)));
        if (round % 2 == 0) (void)::epoll_ctl(epoll, EPOLL_CTL_DEL, client, nullptr);
    }
    stop = true;
    accepting.join();
    waiting.join();
    send_all(pair.client, text("x"));
    note("received %zu", receive(pair.server, 1).size());
}

/// One write and one read for all of it, as an MPI does with a long message. Was it right?
bool carry(int from, int to, const Bytes& data) {
    std::thread sending([&] { send_all(from, data); });
    Bytes got(data.size());
    const ssize_t size = ::recv(to, got.data(), got.size(), MSG_WAITALL);
    sending.join();
    return size == static_cast<ssize_t>(data.size()) && got == data;
}

SOCKETS_CASE(long_messages) {
    Pair pair = connected_pair();
    // Around the sizes where their records begin to be several, and where a half of them is full.
    for (const std::size_t size : {131071, 131072, 131073, 163840, 163841, 262144, 400000, 4 << 20}) {
        const Bytes data = context.random.bytes(size);
        note("%zu right: %d %d", size, carry(pair.client, pair.server, data), carry(pair.server, pair.client, data));
    }
}

SOCKETS_CASE(long_messages_of_many_pieces) {
    // More pieces of a record than are sealed or opened without a copy.
    Pair pair = connected_pair();
    Bytes data = context.random.bytes(1 << 20), got(data.size());
    const auto pieces_of = [](Bytes& bytes) {
        std::vector<iovec> pieces;
        for (std::size_t at = 0; at < bytes.size(); at += 1024) pieces.push_back({&bytes[at], 1024});
        return pieces;
    };
    std::vector<iovec> from = pieces_of(data), to = pieces_of(got);
    ssize_t sent = -1;
    std::thread sending([&] { sent = ::writev(pair.client, from.data(), static_cast<int>(from.size())); });
    msghdr message{};
    message.msg_iov = to.data();
    message.msg_iovlen = to.size();
    result("recvmsg", ::recvmsg(pair.server, &message, MSG_WAITALL));
    sending.join();
    note("writev = %zd", sent);
    note("right: %d", got == data);
}

SOCKETS_CASE(long_messages_of_several_connections) {
    std::atomic<int> right = 0;
    std::vector<std::thread> threads;
    for (int number = 0; number < 4; ++number) {
        threads.emplace_back([&right, seed = context.random.next()] {
            Random random(seed);
            Pair pair = connected_pair();
            for (int round = 0; round < 4; ++round) {
                right += carry(pair.client, pair.server, random.bytes(random.between(100000, 2000000))) ? 1 : 0;
            }
        });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    note("right: %d", right.load());
}

int status_of(pid_t child) {
    int status = -1;
    ::waitpid(child, &status, 0);
    return status;
}

SOCKETS_CASE(long_messages_and_forks) {
    // A child has none of its parent's threads; both go on.
    Pair pair = connected_pair();
    const Bytes data = context.random.bytes(3 << 20);
    note("right: %d", carry(pair.client, pair.server, data));
    for (int round = 0; round < 2; ++round) {
        const pid_t child = ::fork();
        if (child == 0) {
            Pair own = connected_pair();
            ::_exit(carry(pair.client, pair.server, data) && carry(own.client, own.server, data) ? 0 : 1);
        }
        result("child", status_of(child));
        note("right: %d", carry(pair.client, pair.server, data));
    }
}

SOCKETS_CASE(long_messages_while_others_fork) {
    Pair pair = connected_pair();
    const Bytes data = context.random.bytes(1 << 20);
    std::atomic<bool> over = false;
    int right = 0;
    std::thread carrying([&] {
        for (int round = 0; round < 20; ++round) right += carry(pair.client, pair.server, data) ? 1 : 0;
        over = true;
    });
    int wrong = 0;
    do {
        const pid_t child = ::fork();
        if (child == 0) {
            Pair own = connected_pair();
            ::_exit(carry(own.client, own.server, data) ? 0 : 1);
        }
        wrong += status_of(child) != 0 ? 1 : 0;
    } while (!over);
    carrying.join();
    note("right: %d, wrong in children: %d", right, wrong);
}

SOCKETS_CASE(long_messages_then_all_descriptors_closed) {
    Pair pair = connected_pair();
    note("right: %d", carry(pair.client, pair.server, context.random.bytes(1 << 20)));
    pair.client.release();
    pair.server.release();
    ::closefrom(3);
    Pair other = connected_pair();
    note("right: %d", carry(other.client, other.server, context.random.bytes(1 << 20)));
}

SOCKETS_CASE_OF_TWO(two_full_duplex)

void both_ways(Context& context, int fd) {
    const Bytes mine = context.random.bytes(3 << 20);
    std::thread sending([&] {
        send_all(fd, mine);
        ::shutdown(fd, SHUT_WR);
    });
    note_until_end("this end", fd);
    sending.join();
    note("sent hash %s", hash_of(mine).c_str());
}

void case_two_full_duplex_client(Context& context) {
    const Descriptor fd = connect_to(context);
    both_ways(context, fd);
}

void case_two_full_duplex_server(Context& context) {
    const Descriptor fd = accept_from(context.listener);
    both_ways(context, fd);
}

}  // namespace
}  // namespace sockets
