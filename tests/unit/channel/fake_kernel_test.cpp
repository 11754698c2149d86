// The fake kernel does what Linux does: one program, which makes both ends of its connections and never waits, over
// each of the two.
#include "fake_kernel.hpp"

#include <gtest/gtest.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>

#include <chrono>

#include "programs.hpp"

namespace cryptmpi::channel::fake {
namespace {

int settling_ms = 1;

/// Until what was sent over loopback has come.
void settle() {
    sleep_ns(settling_ms * kMillisecond);
}

void note_call(const char* what, ssize_t n) {
    const Result done = result(n);
    note("%s = %zd %s", what, done.n, name_of(done.error).c_str());
}

void note_events(const char* what, int fd) {
    pollfd one{fd, POLLIN | POLLOUT | POLLRDHUP, 0};
    ::poll(&one, 1, 0);
    tcp_info information{};
    socklen_t size = sizeof information;
    ::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &information, &size);
    const int state = information.tcpi_state == TCP_FIN_WAIT2 ? int{TCP_FIN_WAIT1} : information.tcpi_state;
    note("%s: %s, state %d", what, event_names(static_cast<unsigned>(one.revents)).c_str(), state);
}

void note_error(const char* what, int fd) {
    note("%s: SO_ERROR %s", what, name_of(error_of(fd)).c_str());
}

void note_read(const char* what, int fd, std::size_t size = 100, int flags = 0) {
    Bytes room(size);
    note_call(what, ::recv(fd, room.data(), size, flags));
}

void note_write(const char* what, int fd, std::size_t size = 10) {
    note_call(what, ::send(fd, clear(size).data(), size, MSG_NOSIGNAL));
    settle();
}

void note_peer(const char* what, int fd) {
    sockaddr_in peer{};
    socklen_t size = sizeof peer;
    note_call(what, ::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size));
}

struct Ends {
    Fd listener;
    sockaddr_in at{};
    Fd client;
    Fd server;
};

Ends listening() {
    Ends ends;
    ends.listener = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    listen_on(ends.listener, kPort);
    ends.at = loopback(kPort);
    socklen_t size = sizeof ends.at;
    sockaddr_in bound{};
    if (::getsockname(ends.listener, reinterpret_cast<sockaddr*>(&bound), &size) == 0)
        ends.at.sin_port = bound.sin_port;
    ends.client = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    return ends;
}

Ends connected() {
    Ends ends = listening();
    (void)connect_to(ends.client, ends.at);
    settle();
    ends.server = accept_from(ends.listener, SOCK_NONBLOCK);
    return ends;
}

void resets(Fd& fd) {
    const linger now{1, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    fd.close();
    settle();
}

void close_now(Fd& fd) {
    fd.close();
    settle();
}

void shut(const char* what, int fd, int how) {
    note_call(what, ::shutdown(fd, how));
    settle();
}

void fresh() {
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
    note_events("fresh", fd);
    note_read("recv", fd);
    note_write("send", fd);
    note_peer("getpeername", fd);
    note_call("shutdown", ::shutdown(fd, SHUT_WR));
    note_error("fresh", fd);
}

void connecting() {
    Ends ends = listening();
    note_events("nobody has come", ends.listener);
    note_call("accept", ::accept(ends.listener, nullptr, nullptr));
    note_call("connect", connect_to(ends.client, ends.at));
    settle();
    note_events("somebody has come", ends.listener);
    note_events("connected", ends.client);
    note_error("connected", ends.client);
    note_call("connect again", connect_to(ends.client, ends.at));
    note_call("connect once more", connect_to(ends.client, ends.at));
    ends.server = accept_from(ends.listener, SOCK_NONBLOCK);
    note_events("accepted", ends.server);
    note_events("nobody more", ends.listener);
    note_peer("getpeername", ends.server);
}

void refused() {
    Ends ends = listening();
    close_now(ends.listener);
    note_call("connect", connect_to(ends.client, ends.at));
    settle();
    note_events("refused", ends.client);
    note_error("refused", ends.client);
    note_error("refused, again", ends.client);
    note_events("refused and told", ends.client);
    note_read("recv", ends.client);
    note_call("connect again", connect_to(ends.client, ends.at));
    settle();
    note_call("connect once more", connect_to(ends.client, ends.at));
}

void reading() {
    Ends ends = connected();
    note_read("recv of nothing", ends.server);
    note_write("send", ends.client);
    note_events("ten", ends.server);
    note_read("peek", ends.server, 100, MSG_PEEK);
    note_read("recv of no bytes", ends.server, 0);
    int left = 0;
    note_call("FIONREAD", ::ioctl(ends.server, FIONREAD, &left));
    note("%d are there", left);
    note_read("recv of 4", ends.server, 4);
    note_events("six", ends.server);
    note_write("send", ends.client);
    note_read("recv of 100", ends.server);
    note_events("none", ends.server);
    note_read("recv of no bytes where there are none", ends.server, 0);
}

void half_closed() {
    Ends ends = connected();
    note_write("send", ends.client);
    shut("shutdown", ends.client, SHUT_WR);
    note_events("client", ends.client);
    note_events("server", ends.server);
    note_write("send after that", ends.client);
    note_read("recv", ends.server);
    note_read("recv at the end", ends.server);
    note_read("recv at the end, again", ends.server);
    note_write("reply", ends.server);
    note_events("client with a reply", ends.client);
    note_read("recv of the reply", ends.client);
    shut("shutdown of the server", ends.server, SHUT_WR);
    note_events("client", ends.client);
    note_events("server", ends.server);
    note_peer("getpeername", ends.server);
    note_call("shutdown again", ::shutdown(ends.client, SHUT_WR));
    note_read("recv", ends.client);
}

void no_more_reading() {
    Ends ends = connected();
    shut("shutdown", ends.server, SHUT_RD);
    note_events("server", ends.server);
    note_read("recv", ends.server);
    note_write("send", ends.client);
    note_events("server with data", ends.server);
    note_read("recv", ends.server);
    note_read("recv", ends.server);
    note_events("client", ends.client);
}

void closed_by_the_peer() {
    Ends ends = connected();
    note_write("send", ends.client);
    close_now(ends.client);
    note_events("server", ends.server);
    note_read("recv", ends.server);
    note_read("recv at the end", ends.server);
    note_write("send", ends.server);
    note_events("server", ends.server);
    note_write("send again", ends.server);
    note_write("send once more", ends.server);
    note_read("recv", ends.server);
    note_error("server", ends.server);
}

void closed_with_bytes_unread() {
    Ends ends = connected();
    note_write("send", ends.client);
    close_now(ends.server);
    note_events("client", ends.client);
    note_read("recv", ends.client);
    note_read("recv again", ends.client);
    note_write("send", ends.client);
    note_peer("getpeername", ends.client);
    note_call("shutdown", ::shutdown(ends.client, SHUT_WR));
}

void reset_by_the_peer() {
    Ends ends = connected();
    note_write("send", ends.client);
    resets(ends.client);
    note_events("server", ends.server);
    note_read("recv", ends.server);
    note_read("recv again", ends.server);
    note_read("recv once more", ends.server);
    note_events("server", ends.server);
}

void reset_and_asked_for() {
    Ends ends = connected();
    resets(ends.client);
    note_error("server", ends.server);
    note_error("server, again", ends.server);
    note_write("send", ends.server);
    note_read("recv", ends.server);
}

void reset_and_written_to() {
    Ends ends = connected();
    resets(ends.client);
    note_write("send", ends.server);
    note_write("send again", ends.server);
    note_read("recv", ends.server);
}

void reset_before_it_is_accepted() {
    Ends ends = listening();
    (void)connect_to(ends.client, ends.at);
    settle();
    note_write("send", ends.client);
    resets(ends.client);
    sockaddr_in from{};
    socklen_t size = sizeof from;
    ends.server = Fd(::accept4(ends.listener, reinterpret_cast<sockaddr*>(&from), &size, SOCK_NONBLOCK));
    note("accepted %d, of %s", ends.server >= 0, from.sin_addr.s_addr == htonl(INADDR_LOOPBACK) ? "loopback" : "?");
    note_peer("getpeername", ends.server);
    note_events("server", ends.server);
    note_read("recv", ends.server);
    note_read("recv again", ends.server);
}

void not_accepted() {
    Ends ends = listening();
    (void)connect_to(ends.client, ends.at);
    settle();
    close_now(ends.listener);
    note_events("client", ends.client);
    note_read("recv", ends.client);
}

void with_a_full_peer() {
    Ends ends = connected();
    Bytes some(1 << 16);
    for (int round = 0; round < 3; ++round) {
        while (::send(ends.client, some.data(), some.size(), MSG_NOSIGNAL) > 0) {
        }
        settle();
    }
    note_call("send", ::send(ends.client, some.data(), some.size(), MSG_NOSIGNAL));
    note_events("full", ends.client);
    for (int round = 0; round < 5; ++round) {
        while (::recv(ends.server, some.data(), some.size(), 0) > 0) {
        }
        settle();
    }
    note_events("empty", ends.client);
    note_write("send", ends.client);
}

// epoll

void add(int epoll, int operation, int fd, std::uint32_t events, std::uint64_t data) {
    epoll_event event{events, {.u64 = data}};
    note_call("epoll_ctl", ::epoll_ctl(epoll, operation, fd, &event));
}

void note_epoll(const char* what, int epoll) {
    epoll_event events[8];
    const int count = ::epoll_wait(epoll, events, 8, 0);
    std::sort(events, events + std::max(0, count),
              [](const epoll_event& one, const epoll_event& other) { return one.data.u64 < other.data.u64; });
    std::string all;
    for (int i = 0; i < count; ++i)
        all += " " + std::to_string(events[i].data.u64) + ":" + event_names(events[i].events);
    note("%s:%s", what, all.c_str());
}

void by_level() {
    Ends ends = connected();
    const Fd epoll(::epoll_create1(0));
    add(epoll, EPOLL_CTL_ADD, ends.server, EPOLLIN, 1);
    add(epoll, EPOLL_CTL_ADD, ends.server, EPOLLIN, 1);
    note_epoll("nothing", epoll);
    note_write("send", ends.client);
    note_epoll("ten", epoll);
    note_epoll("ten, again", epoll);
    note_read("recv", ends.server, 4);
    note_epoll("six", epoll);
    note_read("recv", ends.server);
    note_epoll("none", epoll);
    add(epoll, EPOLL_CTL_MOD, ends.server, EPOLLIN | EPOLLOUT | EPOLLRDHUP, 2);
    note_epoll("writable", epoll);
    close_now(ends.client);
    note_epoll("the end", epoll);
    add(epoll, EPOLL_CTL_DEL, ends.server, 0, 0);
    note_epoll("deleted", epoll);
    add(epoll, EPOLL_CTL_MOD, ends.server, EPOLLIN, 2);
}

void by_edge() {
    Ends ends = connected();
    const Fd epoll(::epoll_create1(0));
    add(epoll, EPOLL_CTL_ADD, ends.server, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, 1);
    note_epoll("writable", epoll);
    note_epoll("nothing new", epoll);
    note_write("send", ends.client);
    note_epoll("ten", epoll);
    note_epoll("nothing new", epoll);
    note_read("recv", ends.server, 4);
    note_epoll("nothing new", epoll);
    note_write("send", ends.client);
    note_epoll("more", epoll);
    note_write("send", ends.client);
    note_write("send", ends.client);
    note_epoll("more, once", epoll);
    note_epoll("nothing new", epoll);
    add(epoll, EPOLL_CTL_MOD, ends.server, EPOLLIN | EPOLLET, 2);
    note_epoll("asked anew", epoll);
    note_read("recv", ends.server);
    add(epoll, EPOLL_CTL_MOD, ends.server, EPOLLIN | EPOLLET, 3);
    note_epoll("nothing there", epoll);
    note_write("send", ends.client);
    note_read("recv before anybody looked", ends.server);
    note_epoll("nothing there any more", epoll);
    shut("shutdown", ends.client, SHUT_WR);
    note_epoll("the end", epoll);
    note_epoll("nothing new", epoll);
    close_now(ends.client);
    note_epoll("closed", epoll);
}

void once() {
    Ends ends = connected();
    const Fd epoll(::epoll_create1(0));
    add(epoll, EPOLL_CTL_ADD, ends.server, EPOLLIN | EPOLLONESHOT, 1);
    note_write("send", ends.client);
    note_epoll("ten", epoll);
    note_epoll("once", epoll);
    note_write("send", ends.client);
    note_epoll("once", epoll);
    add(epoll, EPOLL_CTL_MOD, ends.server, EPOLLIN | EPOLLONESHOT, 2);
    note_epoll("armed again", epoll);
    resets(ends.client);
    note_epoll("not even the end", epoll);
}

void duplicates() {
    Ends ends = connected();
    const Fd epoll(::epoll_create1(0));
    Fd second(::dup(ends.server));
    add(epoll, EPOLL_CTL_ADD, ends.server, EPOLLIN, 1);
    add(epoll, EPOLL_CTL_ADD, second, EPOLLIN, 2);
    note_write("send", ends.client);
    note_epoll("both", epoll);
    add(epoll, EPOLL_CTL_DEL, ends.server, 0, 0);
    close_now(ends.server);
    note_epoll("the second", epoll);
    note_read("recv", second);
    note_write("reply", second);
    note_read("recv", ends.client);
    close_now(second);
    note_epoll("none", epoll);
    note_events("client", ends.client);
}

void nested() {
    Ends ends = connected();
    const Fd inner(::epoll_create1(0));
    const Fd outer(::epoll_create1(0));
    add(inner, EPOLL_CTL_ADD, ends.server, EPOLLIN, 1);
    add(outer, EPOLL_CTL_ADD, inner, EPOLLIN, 2);
    note_epoll("outer, nothing", outer);
    note_write("send", ends.client);
    pollfd one{inner, POLLIN, 0};
    note("poll = %d", ::poll(&one, 1, 0));
    note_epoll("outer", outer);
    note_epoll("inner", inner);
    note_read("recv", ends.server);
    note_epoll("outer, nothing left", outer);
    note_epoll("inner, nothing left", inner);
}

void refused_and_waited_for() {
    Ends ends = listening();
    close_now(ends.listener);
    const Fd epoll(::epoll_create1(0));
    add(epoll, EPOLL_CTL_ADD, ends.client, EPOLLIN | EPOLLOUT | EPOLLET, 1);
    note_epoll("fresh", epoll);
    note_call("connect", connect_to(ends.client, ends.at));
    settle();
    note_epoll("refused", epoll);
}

struct Program {
    const char* name;
    void (*run)();
};

class FakeKernel : public testing::TestWithParam<Program> {};

TEST_P(FakeKernel, DoesWhatLinuxDoes) {
    Options options;
    options.sealed = false;
    Job job(options);
    job.program(0, GetParam().run);
    const Ending ending = job.run();
    ASSERT_TRUE(ending.went_well()) << ending.told();
    std::vector<std::string> fakes;
    for (const std::string& line : ending.noted) fakes.push_back(line.substr(line.find(": ") + 2));
    EXPECT_FALSE(fakes.empty());
    // A machine that is busy elsewhere may be late with what goes over loopback.
    std::vector<std::string> linuxes;
    for (settling_ms = 1; settling_ms < 500 && linuxes != fakes; settling_ms *= 4) linuxes = on_linux(GetParam().run);
    settling_ms = 1;
    EXPECT_EQ(fakes, linuxes);
}

constexpr Program kPrograms[] = {
    {"Fresh", fresh},
    {"Connecting", connecting},
    {"Refused", refused},
    {"Reading", reading},
    {"HalfClosed", half_closed},
    {"NoMoreReading", no_more_reading},
    {"ClosedByThePeer", closed_by_the_peer},
    {"ClosedWithBytesUnread", closed_with_bytes_unread},
    {"ResetByThePeer", reset_by_the_peer},
    {"ResetAndAskedFor", reset_and_asked_for},
    {"ResetAndWrittenTo", reset_and_written_to},
    {"ResetBeforeItIsAccepted", reset_before_it_is_accepted},
    {"NotAccepted", not_accepted},
    {"WithAFullPeer", with_a_full_peer},
    {"ByLevel", by_level},
    {"ByEdge", by_edge},
    {"Once", once},
    {"Duplicates", duplicates},
    {"Nested", nested},
    {"RefusedAndWaitedFor", refused_and_waited_for},
};

INSTANTIATE_TEST_SUITE_P(Programs, FakeKernel, testing::ValuesIn(kPrograms),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace cryptmpi::channel::fake
