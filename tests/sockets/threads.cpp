// Sockets used by several threads.
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

SOCKETS_CASE(poll_wakes_when_another_thread_sends) {
    Pair pair = connected_pair();
    std::thread sending([&] {
        ::poll(nullptr, 0, 100);
        send_all(pair.client, text("x"));
    });
    note("readable: %s", event_names(wait_for(pair.server, POLLIN)).c_str());
    sending.join();
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
