// poll, select and epoll tell the truth: readable exactly when a read would give something, however records lie in the
// buffers.
#include <fcntl.h>
#include <sys/select.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstring>
#include <vector>

#include "support.hpp"

namespace sockets {
namespace {

timespec to_timespec(int milliseconds) {
    return {milliseconds / 1000, milliseconds % 1000 * 1000000L};
}

using Wait = short (*)(int fd, short events, int milliseconds);

short by_ppoll(int fd, short events, int milliseconds) {
    pollfd entry{fd, events, 0};
    const timespec time = to_timespec(milliseconds);
    return ::ppoll(&entry, 1, &time, nullptr) > 0 ? entry.revents : short{0};
}

template <typename Call>
short by_select_call(int fd, short events, Call&& call) {
    fd_set readable, writable;
    FD_ZERO(&readable);
    FD_ZERO(&writable);
    if ((events & POLLIN) != 0) {
        FD_SET(fd, &readable);
    }
    if ((events & POLLOUT) != 0) {
        FD_SET(fd, &writable);
    }
    if (call(fd + 1, &readable, &writable) <= 0) {
        return 0;
    }
    return static_cast<short>((FD_ISSET(fd, &readable) ? POLLIN : 0) | (FD_ISSET(fd, &writable) ? POLLOUT : 0));
}

short by_select(int fd, short events, int milliseconds) {
    return by_select_call(fd, events, [&](int count, fd_set* readable, fd_set* writable) {
        timeval time{milliseconds / 1000, milliseconds % 1000 * 1000};
        return ::select(count, readable, writable, nullptr, &time);
    });
}

short by_pselect(int fd, short events, int milliseconds) {
    return by_select_call(fd, events, [&](int count, fd_set* readable, fd_set* writable) {
        const timespec time = to_timespec(milliseconds);
        return ::pselect(count, readable, writable, nullptr, &time, nullptr);
    });
}

template <typename Call>
short by_epoll_call(int fd, short events, Call&& call) {
    const Descriptor epoll(::epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{static_cast<std::uint32_t>(events), {.fd = fd}};
    if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) {
        give_up("epoll_ctl");
    }
    event = {};
    return call(epoll, &event) > 0 && event.data.fd == fd ? static_cast<short>(event.events) : short{0};
}

short by_epoll_wait(int fd, short events, int milliseconds) {
    return by_epoll_call(fd, events,
                         [&](int epoll, epoll_event* event) { return ::epoll_wait(epoll, event, 1, milliseconds); });
}

short by_epoll_pwait(int fd, short events, int milliseconds) {
    return by_epoll_call(fd, events, [&](int epoll, epoll_event* event) {
        return ::epoll_pwait(epoll, event, 1, milliseconds, nullptr);
    });
}

short by_epoll_pwait2(int fd, short events, int milliseconds) {
    return by_epoll_call(fd, events, [&](int epoll, epoll_event* event) {
        const timespec time = to_timespec(milliseconds);
        return ::epoll_pwait2(epoll, event, 1, &time, nullptr);
    });
}

void readiness(Context& context, Wait wait) {
    Pair pair = connected_pair();
    const auto show = [&](const char* when, int fd, short events, int milliseconds) {
        note("%s: %s", when, event_names(static_cast<unsigned>(wait(fd, events, milliseconds))).c_str());
    };
    char buffer[64];
    show("nothing there", pair.server, POLLIN, kQuiet);
    show("nothing there, now", pair.server, POLLIN, 0);
    show("writable", pair.server, POLLOUT, 10000);
    send_all(pair.client, text("0123456789"));
    show("ten there", pair.server, POLLIN, 10000);
    note("recv = %zd", ::recv(pair.server, buffer, 4, 0));
    show("six left", pair.server, POLLIN, 0);
    show("six left, and writable", pair.server, POLLIN | POLLOUT, 0);
    note("recv = %zd", ::recv(pair.server, buffer, 6, 0));
    show("nothing left", pair.server, POLLIN, kQuiet);

    const Bytes big = context.random.bytes(300000);
    std::thread writing([&] { send_all(pair.client, big); });
    Bytes got;
    std::size_t not_readable = 0, empty = 0;
    while (got.size() < big.size()) {
        if (wait(pair.server, POLLIN, 10000) == 0) {
            ++not_readable;
            break;
        }
        std::array<std::uint8_t, 1000> small;
        const ssize_t size = ::recv(pair.server, small.data(), small.size(), MSG_DONTWAIT);
        if (size > 0) {
            got.insert(got.end(), small.begin(), small.begin() + size);
        } else {
            ++empty;
        }
    }
    writing.join();
    note("a big write in small reads: right %d, not readable %zu, readable but empty %zu", got == big, not_readable,
         empty);
    show("nothing left", pair.server, POLLIN, kQuiet);

    ::shutdown(pair.client, SHUT_WR);
    show("the end", pair.server, POLLIN, 10000);
    note("recv = %zd", ::recv(pair.server, buffer, sizeof buffer, 0));
    show("still the end", pair.server, POLLIN, 0);
    send_all(pair.server, text("reply"));
    show("the reply", pair.client, POLLIN, 10000);
    pair.server.close();
    note("recv = %zu", receive(pair.client, 5).size());
    show("the other end", pair.client, POLLIN, 10000);
    note("recv = %zd", ::recv(pair.client, buffer, sizeof buffer, 0));
    show("both ends", pair.client, POLLIN, 10000);
}

const bool kRegistered = [] {
    constexpr struct {
        const char* name;
        Wait wait;
    } kWaits[] = {{"poll", wait_for},
                  {"ppoll", by_ppoll},
                  {"select", by_select},
                  {"pselect", by_pselect},
                  {"epoll_wait", by_epoll_wait},
                  {"epoll_pwait", by_epoll_pwait},
                  {"epoll_pwait2", by_epoll_pwait2}};
    for (const auto& [name, wait] : kWaits) {
        cases().push_back({std::string("readiness_") + name, Kind::one_process,
                           [wait = wait](Context& context) { readiness(context, wait); }, nullptr});
    }
    return true;
}();

void add(int epoll, int fd, std::uint32_t events, std::uint64_t data) {
    epoll_event event{events, {.u64 = data}};
    result("add", ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event));
}

void modify(int epoll, int fd, std::uint32_t events, std::uint64_t data) {
    epoll_event event{events, {.u64 = data}};
    result("modify", ::epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &event));
}

/// What epoll_wait reports, by data.
void show(const char* when, int epoll, int milliseconds) {
    std::vector<epoll_event> events(8);
    int count = ::epoll_wait(epoll, events.data(), static_cast<int>(events.size()), milliseconds);
    if (count < 0) {
        result(when, count);
        return;
    }
    std::sort(events.begin(), events.begin() + count,
              [](const epoll_event& a, const epoll_event& b) { return a.data.u64 < b.data.u64; });
    std::string all;
    for (int at = 0; at < count; ++at) {
        all += " " + std::to_string(events[static_cast<std::size_t>(at)].data.u64) + ":" +
               event_names(events[static_cast<std::size_t>(at)].events);
    }
    note("%s: %d%s", when, count, all.c_str());
}

SOCKETS_CASE(epoll_level) {
    Pair pair = connected_pair();
    const Descriptor epoll(::epoll_create1(0));
    add(epoll, pair.server, EPOLLIN, 0xfedcba9876543210);
    show("nothing", epoll, kQuiet);
    send_all(pair.client, text("0123456789"));
    show("ten", epoll, 10000);
    show("ten, again", epoll, 0);
    note("received %zu", receive(pair.server, 9).size());
    show("one", epoll, 0);
    note("received %zu", receive(pair.server, 1).size());
    show("none", epoll, kQuiet);
}

SOCKETS_CASE(epoll_edge) {
    Pair pair = connected_pair();
    set_blocking(pair.server, false);
    const Descriptor epoll(::epoll_create1(0));
    add(epoll, pair.server, EPOLLIN | EPOLLET, 7);
    send_all(pair.client, text("0123456789"));
    show("ten", epoll, 10000);
    show("no new edge", epoll, kQuiet);
    note("received %zu", receive(pair.server, 4).size());
    show("six left, no new edge", epoll, kQuiet);
    send_all(pair.client, text("abc"));
    show("three more", epoll, 10000);
    note("received %zu", receive(pair.server, 9).size());
    char byte;
    result("recv, empty", ::recv(pair.server, &byte, 1, 0));
    show("empty", epoll, kQuiet);
    send_all(pair.client, text("x"));
    show("one more", epoll, 10000);
    ::shutdown(pair.client, SHUT_WR);
    wait_for(pair.server, POLLRDHUP);
    note("received %zu", receive(pair.server, 1).size());
    show("the end", epoll, 10000);
    result("recv at the end", ::recv(pair.server, &byte, 1, 0));
}

SOCKETS_CASE(epoll_edge_big) {
    // An edge for what is left of a big write must not be lost: the reader waits for one whenever it got EAGAIN.
    Pair pair = connected_pair();
    set_blocking(pair.server, false);
    const Descriptor epoll(::epoll_create1(0));
    add(epoll, pair.server, EPOLLIN | EPOLLET, 7);
    const Bytes big = context.random.bytes(4 << 20);
    std::thread writing([&] {
        Random random(context.seed + 1);
        for (std::size_t at = 0; at < big.size();) {
            const std::size_t size = std::min(random.between(1, 400000), big.size() - at);
            send_all(pair.client, std::span(big).subspan(at, size));
            at += size;
        }
    });
    Bytes got, space(150000);
    while (got.size() < big.size()) {
        epoll_event event;
        if (::epoll_wait(epoll, &event, 1, 10000) <= 0) {
            note("no edge after %zu bytes", got.size());
            break;
        }
        for (;;) {
            const ssize_t size = ::recv(pair.server, space.data(), context.random.between(1, space.size()), 0);
            if (size <= 0) {
                break;
            }
            got.insert(got.end(), space.begin(), space.begin() + size);
        }
    }
    note("right: %d", got == big);
    pair.server.close();
    writing.join();
}

SOCKETS_CASE(epoll_edge_writable) {
    Pair pair = connected_pair();
    set_blocking(pair.client, false);
    const Descriptor epoll(::epoll_create1(0));
    add(epoll, pair.client, EPOLLOUT | EPOLLET, 3);
    show("writable", epoll, 10000);
    show("no new edge", epoll, kQuiet);
    const Bytes big = context.random.bytes(8 << 20);
    std::thread reading([&] { note("right: %d", receive(pair.server, big.size()) == big); });
    for (std::size_t at = 0; at < big.size();) {
        const ssize_t sent =
            ::send(pair.client, big.data() + at, std::min<std::size_t>(big.size() - at, 1 << 20), MSG_NOSIGNAL);
        epoll_event event;
        if (sent > 0) {
            at += static_cast<std::size_t>(sent);
        } else if (::epoll_wait(epoll, &event, 1, 10000) <= 0) {
            give_up("no edge for writing");
        }
    }
    reading.join();
}

SOCKETS_CASE(epoll_oneshot_is_spent) {
    // What waits to be sent asks the kernel anew; the program has not.
    Pair pair = connected_pair();
    const Descriptor epoll(::epoll_create1(0));
    add(epoll, pair.client, EPOLLIN | EPOLLONESHOT, 1);
    send_all(pair.server, text("a"));
    epoll_event event{};
    result("told", ::epoll_wait(epoll, &event, 1, 5000));
    note("received %zu", receive(pair.client, 1).size());
    set_blocking(pair.client, false);
    const Bytes much(1 << 20, 'z');
    while (::send(pair.client, much.data(), much.size(), MSG_NOSIGNAL) > 0) {
    }
    send_all(pair.server, text("b"));
    result("told again", ::epoll_wait(epoll, &event, 1, 200));
}

SOCKETS_CASE(epoll_oneshot) {
    Pair pair = connected_pair();
    const Descriptor epoll(::epoll_create1(0));
    add(epoll, pair.server, EPOLLIN | EPOLLONESHOT, 1);
    send_all(pair.client, text("0123456789"));
    show("once", epoll, 10000);
    show("not twice", epoll, kQuiet);
    note("received %zu", receive(pair.server, 4).size());
    modify(epoll, pair.server, EPOLLIN | EPOLLONESHOT, 2);
    show("armed again", epoll, 10000);
    note("received %zu", receive(pair.server, 6).size());
    modify(epoll, pair.server, EPOLLIN | EPOLLONESHOT, 3);
    show("armed, nothing there", epoll, kQuiet);
    send_all(pair.client, text("x"));
    show("one", epoll, 10000);
}

SOCKETS_CASE(epoll_control) {
    Pair pair = connected_pair();
    const Descriptor epoll(::epoll_create1(0));
    epoll_event event{EPOLLIN, {.u64 = 1}};
    result("modify what is not there", ::epoll_ctl(epoll, EPOLL_CTL_MOD, pair.server, &event));
    result("delete what is not there", ::epoll_ctl(epoll, EPOLL_CTL_DEL, pair.server, nullptr));
    add(epoll, pair.server, EPOLLIN, 1);
    add(epoll, pair.server, EPOLLIN, 1);
    send_all(pair.client, text("x"));
    show("readable", epoll, 10000);
    modify(epoll, pair.server, EPOLLOUT, 2);
    show("writable", epoll, 10000);
    modify(epoll, pair.server, EPOLLIN | EPOLLOUT, 3);
    show("both", epoll, 10000);
    modify(epoll, pair.server, 0, 4);
    show("neither", epoll, kQuiet);
    modify(epoll, pair.server, EPOLLIN, 5);
    show("readable", epoll, 10000);
    result("delete", ::epoll_ctl(epoll, EPOLL_CTL_DEL, pair.server, nullptr));
    show("deleted", epoll, kQuiet);
    add(epoll, pair.server, EPOLLIN | EPOLLRDHUP, 6);
    show("readable", epoll, 10000);
    result("add itself", ::epoll_ctl(epoll, EPOLL_CTL_ADD, epoll, &event));
    result("wait for none", ::epoll_wait(epoll, &event, 0, 0));
    result("wait on a socket", ::epoll_wait(pair.server, &event, 1, 0));
    pair.server.close();
    show("closed", epoll, kQuiet);
}

SOCKETS_CASE(epoll_several) {
    // More are ready than fit into one call: each gets its turn. What is half read stays ready.
    const Descriptor epoll(::epoll_create1(0));
    std::vector<Pair> pairs;
    for (std::uint64_t at = 0; at < 5; ++at) {
        pairs.push_back(connected_pair());
        add(epoll, pairs.back().server, EPOLLIN, at);
        send_all(pairs.back().client, text("0123456789"));
        wait_for(pairs.back().server, POLLIN);
    }
    note("received %zu", receive(pairs[2].server, 5).size());
    unsigned seen = 0;
    for (int round = 0; round < 5; ++round) {
        std::array<epoll_event, 2> events;
        const int count = ::epoll_wait(epoll, events.data(), 2, 10000);
        for (int at = 0; at < count; ++at) {
            seen |= 1U << events[static_cast<std::size_t>(at)].data.u64;
        }
    }
    note("seen %x", seen);
    show("all", epoll, 10000);
}

SOCKETS_CASE(epoll_nested) {
    Pair pair = connected_pair();
    const Descriptor inner(::epoll_create1(0)), outer(::epoll_create1(0));
    add(inner, pair.server, EPOLLIN, 1);
    add(outer, inner, EPOLLIN, 2);
    show("outer, nothing", outer, kQuiet);
    note("poll, nothing: %s", event_names(wait_for(inner, POLLIN, kQuiet)).c_str());
    send_all(pair.client, text("0123456789"));
    note("poll: %s", event_names(wait_for(inner, POLLIN)).c_str());
    show("outer", outer, 10000);
    show("inner", inner, 10000);
    note("received %zu", receive(pair.server, 4).size());
    note("poll, six left: %s", event_names(wait_for(inner, POLLIN)).c_str());
    show("outer, six left", outer, 10000);
    show("inner, six left", inner, 10000);
    note("received %zu", receive(pair.server, 6).size());
    note("poll, none left: %s", event_names(wait_for(inner, POLLIN, kQuiet)).c_str());
    show("outer, none left", outer, kQuiet);
}

SOCKETS_CASE(epoll_nested_over_a_socket_that_is_readable) {
    Pair pair = connected_pair();
    send_all(pair.client, text("0123456789"));
    note("poll: %s", event_names(wait_for(pair.server, POLLIN)).c_str());
    const Descriptor inner(::epoll_create1(0)), outer(::epoll_create1(0));
    add(outer, inner, EPOLLIN, 2);
    add(inner, pair.server, EPOLLIN, 1);
    show("outer", outer, 10000);
    modify(inner, pair.server, 0, 1);
    show("outer, nothing asked", outer, kQuiet);
    modify(inner, pair.server, EPOLLIN, 1);
    show("outer, asked again", outer, 10000);
}

SOCKETS_CASE(epoll_nested_and_read_without_it) {
    Pair pair = connected_pair();
    const Descriptor inner(::epoll_create1(0)), outer(::epoll_create1(0));
    add(inner, pair.server, EPOLLIN, 1);
    add(outer, inner, EPOLLIN, 2);
    for (int round = 0; round < 3; ++round) {
        send_all(pair.client, text("0123456789"));
        note("poll: %s", event_names(wait_for(pair.server, POLLIN)).c_str());
        show("outer", outer, 10000);
        note("received %zu", receive(pair.server, 10).size());
        show("outer, none left", outer, kQuiet);
    }
}

SOCKETS_CASE(epoll_two_instances) {
    Pair pair = connected_pair();
    const Descriptor one(::epoll_create1(0)), two(::epoll_create1(0));
    add(one, pair.server, EPOLLIN, 1);
    add(two, pair.server, EPOLLIN | EPOLLET, 2);
    send_all(pair.client, text("0123456789"));
    show("one", one, 10000);
    show("two", two, 10000);
    note("received %zu", receive(pair.server, 4).size());
    show("one, six left", one, 10000);
    show("two, no new edge", two, kQuiet);
    note("received %zu", receive(pair.server, 6).size());
    show("one, none left", one, kQuiet);
    send_all(pair.client, text("x"));
    show("one", one, 10000);
    show("two", two, 10000);
}

SOCKETS_CASE(epoll_of_duplicates) {
    Pair pair = connected_pair();
    const Descriptor epoll(::epoll_create1(0));
    const Descriptor second(::dup(pair.server));
    add(epoll, pair.server, EPOLLIN, 1);
    add(epoll, second, EPOLLIN, 2);
    send_all(pair.client, text("0123456789"));
    show("both", epoll, 10000);
    note("received by the second: %zu", receive(second, 4).size());
    show("six left", epoll, 10000);
    result("delete", ::epoll_ctl(epoll, EPOLL_CTL_DEL, pair.server, nullptr));
    show("the second", epoll, 10000);
    pair.server.close();
    show("the second", epoll, 10000);
    note("received %zu", receive(second, 6).size());
    show("none left", epoll, kQuiet);
    pair.client.close();
    show("the end", epoll, 10000);
}

SOCKETS_CASE(poll_many) {
    Pair one = connected_pair(), two = connected_pair(), three = connected_pair();
    send_all(one.client, text("0123456789"));
    wait_for(one.server, POLLIN);
    receive(one.server, 5);
    ::shutdown(three.client, SHUT_WR);
    wait_for(three.server, POLLIN);
    pollfd entries[] = {{one.server, POLLIN, 0}, {two.server, POLLIN, 0}, {three.server, POLLIN | POLLRDHUP, 0},
                        {-1, POLLIN, 7},         {1 << 20, POLLIN, 0},    {two.client, POLLOUT, 0}};
    result("poll", ::poll(entries, std::size(entries), 10000));
    for (const pollfd& entry : entries) {
        note("%s", event_names(static_cast<unsigned>(entry.revents)).c_str());
    }
    result("poll of none", ::poll(nullptr, 0, 1));
    // One has decrypted bytes left and the other has none: a wait without end must return at once.
    result("poll without end", ::poll(entries, 2, -1));
    note("%s %s", event_names(static_cast<unsigned>(entries[0].revents)).c_str(),
         event_names(static_cast<unsigned>(entries[1].revents)).c_str());
}

SOCKETS_CASE(readiness_is_true_when_records_arrive_in_parts) {
    // Tiny buffers cut every record into many parts; a non-blocking reader that is told "readable" must get bytes.
    for (const auto wait : {Wait{wait_for}, Wait{by_select}, Wait{by_epoll_wait}}) {
        sockaddr_in address;
        const Descriptor listener = listen_on_loopback(address);
        const int small = 4096;
        ::setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
        Descriptor unconnected(::socket(AF_INET, SOCK_STREAM, 0));
        ::setsockopt(unconnected, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
        sockaddr_storage storage{};
        std::memcpy(&storage, &address, sizeof address);
        const auto [client, server] = join_ends(listener, std::move(unconnected), storage);
        const Bytes data = context.random.bytes(1 << 19);
        std::thread writing([&data, fd = int{client}] { send_all(fd, data); });
        Bytes got, space(1 << 18);
        std::size_t lies = 0;
        while (got.size() < data.size()) {
            if (wait(server, POLLIN, 10000) == 0) {
                note("never readable again after %zu bytes", got.size());
                break;
            }
            const ssize_t size = ::recv(server, space.data(), space.size(), MSG_DONTWAIT);
            if (size > 0) {
                got.insert(got.end(), space.begin(), space.begin() + size);
            } else {
                ++lies;
            }
        }
        note("right %d, readable but empty %zu", got == data, lies);
        ::shutdown(server, SHUT_RDWR);
        writing.join();
    }
}

void on_signal(int) {}

void send_signals(bool restart) {
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = restart ? SA_RESTART : 0;
    ::sigaction(SIGUSR1, &action, nullptr);
}

void on_first_signal(int) {
    std::signal(SIGUSR1, SIG_IGN);
}

/// The first one interrupts, and leaves no handler by which one could tell that afterwards.
void send_signals_of_which_one_counts() {
    struct sigaction action {};
    action.sa_handler = on_first_signal;
    ::sigaction(SIGUSR1, &action, nullptr);
}

/// Runs `call` in a thread and sends that thread signals while it waits: until it returns, or a few, and then `help`
/// lets it return.
void interrupted(const char* what, const std::function<long()>& call, const std::function<void()>& help = {}) {
    long value = 0;
    int error = 0;
    std::atomic<bool> returned = false;
    std::thread waiting([&] {
        value = call();
        error = errno;
        returned = true;
    });
    for (int count = 0; !returned && (!help || count < 5); ++count) {
        ::poll(nullptr, 0, 30);
        ::pthread_kill(waiting.native_handle(), SIGUSR1);
    }
    if (help) {
        help();
    }
    waiting.join();
    errno = error;
    result(what, value);
}

SOCKETS_CASE(interrupted_calls) {
    Pair pair = connected_pair();
    char buffer[16];
    send_signals(false);
    interrupted("recv", [&] { return ::recv(pair.server, buffer, sizeof buffer, 0); });
    interrupted("read", [&] { return ::read(pair.server, buffer, sizeof buffer); });
    interrupted("poll", [&] {
        pollfd entry{pair.server, POLLIN, 0};
        return ::poll(&entry, 1, 10000);
    });
    interrupted("select", [&] {
        fd_set set;
        FD_ZERO(&set);
        FD_SET(pair.server, &set);
        timeval time{10, 0};
        return ::select(pair.server + 1, &set, nullptr, nullptr, &time);
    });
    interrupted("epoll_wait", [&] {
        const Descriptor epoll(::epoll_create1(0));
        epoll_event event{EPOLLIN, {.u64 = 0}};
        ::epoll_ctl(epoll, EPOLL_CTL_ADD, pair.server, &event);
        return ::epoll_wait(epoll, &event, 1, 10000);
    });
    sockaddr_in address;
    const Descriptor listener = listen_on_loopback(address);
    interrupted("accept", [&] { return ::accept(listener, nullptr, nullptr); });
    send_signals(true);
    interrupted(
        "recv, restarted", [&] { return ::recv(pair.server, buffer, sizeof buffer, 0); },
        [&] { send_all(pair.client, text("hello")); });
}

SOCKETS_CASE(interrupted_before_it_is_accepted) {
    sockaddr_in address;
    const Descriptor listener = listen_on_loopback(address);
    const Descriptor client(::socket(AF_INET, SOCK_STREAM, 0));
    if (::connect(client, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) give_up("connect");
    char buffer[16];
    const auto wait = [&] { return ::recv(client, buffer, sizeof buffer, 0); };
    send_signals(false);
    interrupted("recv", wait);
    send_signals_of_which_one_counts();
    interrupted("recv, once", wait);
    send_signals(true);
    set_timeout(client, SO_RCVTIMEO, 10000);
    interrupted("recv with a time limit", wait);
    set_timeout(client, SO_RCVTIMEO, 0);
    Descriptor server;
    interrupted("recv, restarted", wait, [&] {
        server = accept_from(listener);
        send_all(server, text("hello"));
    });
}

SOCKETS_CASE(signal_masks) {
    // ppoll, pselect and epoll_pwait let the signal in only while they wait.
    Pair pair = connected_pair();
    send_signals(false);
    sigset_t blocked, open;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    ::pthread_sigmask(SIG_BLOCK, &blocked, &open);
    pollfd entry{pair.server, POLLIN, 0};
    const timespec time{10, 0};
    ::raise(SIGUSR1);
    result("ppoll", ::ppoll(&entry, 1, &time, &open));
    ::raise(SIGUSR1);
    fd_set set;
    FD_ZERO(&set);
    FD_SET(pair.server, &set);
    result("pselect", ::pselect(pair.server + 1, &set, nullptr, nullptr, &time, &open));
    ::raise(SIGUSR1);
    const Descriptor epoll(::epoll_create1(0));
    epoll_event event{EPOLLIN, {.u64 = 0}};
    ::epoll_ctl(epoll, EPOLL_CTL_ADD, pair.server, &event);
    result("epoll_pwait", ::epoll_pwait(epoll, &event, 1, 10000, &open));
}

SOCKETS_CASE_OF_TWO(two_epoll_server)

constexpr std::size_t kClients = 20;

void case_two_epoll_server_client(Context& context) {
    std::vector<Descriptor> fds;
    for (std::size_t at = 0; at < kClients; ++at) {
        fds.push_back(connect_to(context));
    }
    std::size_t wrong = 0;
    for (int round = 0; round < 10; ++round) {
        std::vector<Bytes> sent;
        for (const Descriptor& fd : fds) {
            sent.push_back(context.random.bytes(context.random.between(1, 20000)));
            send_all(fd, sent.back());
        }
        for (std::size_t at = 0; at < kClients; ++at) {
            wrong += receive(fds[at], sent[at].size()) == sent[at] ? 0 : 1;
        }
    }
    note("wrong echoes: %zu", wrong);
}

void case_two_epoll_server_server(Context& context) {
    const Descriptor epoll(::epoll_create1(0));
    set_blocking(context.listener, false);
    epoll_event event{EPOLLIN, {.fd = context.listener}};
    ::epoll_ctl(epoll, EPOLL_CTL_ADD, context.listener, &event);
    std::size_t ended = 0, total = 0, failed = 0;
    while (ended < kClients) {
        if (::epoll_wait(epoll, &event, 1, 10000) <= 0) {
            note("nothing happens any more");
            break;
        }
        if (event.data.fd == context.listener) {
            const int fd = ::accept4(context.listener, nullptr, nullptr, SOCK_NONBLOCK);
            if (fd >= 0) {
                event = {EPOLLIN | EPOLLET, {.fd = fd}};
                ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
            }
            continue;
        }
        for (;;) {
            std::array<std::uint8_t, 5000> space;
            const ssize_t size = ::recv(event.data.fd, space.data(), space.size(), 0);
            if (size > 0) {
                total += static_cast<std::size_t>(size);
                send_all(event.data.fd, std::span(space).first(static_cast<std::size_t>(size)));
                continue;
            }
            if (size == 0 || errno != EAGAIN) {
                failed += size == 0 ? 0 : 1;
                ++ended;
                ::close(event.data.fd);
            }
            break;
        }
    }
    note("ended %zu, failed %zu, bytes %zu", ended, failed, total);
}

}  // namespace
}  // namespace sockets
