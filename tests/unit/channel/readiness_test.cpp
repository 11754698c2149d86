// What poll, select and epoll say over the fake kernel: readable only where a read gets something, however a record is
// cut on its way, and never silence while there is something to read.
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/syscall.h>

#include <array>
#include <thread>

#include "channel/process.hpp"
#include "programs.hpp"

namespace cryptmpi::channel::fake {
namespace {

timespec to_timespec(int milliseconds) {
    return {milliseconds / 1000, milliseconds % 1000 * kMillisecond};
}

/// One way to wait; true: readable.
class Waiter {
public:
    virtual ~Waiter() = default;
    virtual bool wait(int milliseconds) = 0;
};

class ByPoll : public Waiter {
public:
    explicit ByPoll(int fd) : fd_(fd) {}
    bool wait(int milliseconds) override {
        pollfd one{fd_, POLLIN, 0};
        return ::poll(&one, 1, milliseconds) > 0;
    }

private:
    int fd_;
};

class ByPpoll : public Waiter {
public:
    explicit ByPpoll(int fd) : fd_(fd) {}
    bool wait(int milliseconds) override {
        // Writable all the time: that is no reason to be readable.
        pollfd some[2] = {{-1, POLLIN, 0}, {fd_, POLLIN | POLLRDHUP | POLLOUT, 0}};
        const timespec time = to_timespec(milliseconds);
        const int n = ::ppoll(some, 2, &time, nullptr);
        if (n > 0 && (some[1].revents & POLLIN) == 0) sleep_ns(kMillisecond);
        return n > 0 && (some[1].revents & POLLIN) != 0;
    }

private:
    int fd_;
};

class BySelect : public Waiter {
public:
    explicit BySelect(int fd) : fd_(fd) {}
    bool wait(int milliseconds) override {
        fd_set in;
        FD_ZERO(&in);
        FD_SET(fd_, &in);
        timeval time{milliseconds / 1000, milliseconds % 1000 * 1000};
        return ::select(fd_ + 1, &in, nullptr, nullptr, &time) > 0 && FD_ISSET(fd_, &in);
    }

private:
    int fd_;
};

class ByNumber : public Waiter {
public:
    explicit ByNumber(int fd) : fd_(fd) {}
    bool wait(int milliseconds) override {
        pollfd one{fd_, POLLIN, 0};
        timespec time = to_timespec(milliseconds);
        return ::syscall(SYS_ppoll, &one, 1, &time, nullptr, 8) > 0;
    }

private:
    int fd_;
};

class ByEpoll : public Waiter {
public:
    ByEpoll(int fd, std::uint32_t events) : epoll_(::epoll_create1(0)), fd_(fd), events_(events) {
        epoll_event event{events_, {.fd = fd}};
        ::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event);
    }
    bool wait(int milliseconds) override {
        epoll_event event{};
        const int n = ::epoll_wait(epoll_, &event, 1, milliseconds);
        if (n > 0 && (events_ & EPOLLONESHOT) != 0) spent_ = true;
        return n > 0 && event.data.fd == fd_ && (event.events & EPOLLIN) != 0;
    }
    void arm() {
        if (!spent_) return;
        spent_ = false;
        epoll_event event{events_, {.fd = fd_}};
        ::epoll_ctl(epoll_, EPOLL_CTL_MOD, fd_, &event);
    }
    bool is_edge() const { return (events_ & EPOLLET) != 0; }

private:
    Fd epoll_;
    int fd_;
    std::uint32_t events_;
    bool spent_ = false;
};

struct Way {
    const char* name;
    std::function<std::unique_ptr<Waiter>(int fd)> make;
    bool is_edge = false;
};

const Way kWays[] = {
    {"Poll", [](int fd) { return std::make_unique<ByPoll>(fd); }},
    {"PollForAll", [](int fd) { return std::make_unique<ByPpoll>(fd); }},
    {"Select", [](int fd) { return std::make_unique<BySelect>(fd); }},
    {"Number", [](int fd) { return std::make_unique<ByNumber>(fd); }},
    {"EpollByLevel", [](int fd) { return std::make_unique<ByEpoll>(fd, EPOLLIN); }},
    {"EpollByEdge", [](int fd) { return std::make_unique<ByEpoll>(fd, EPOLLIN | EPOLLET); }, true},
    {"EpollByEdgeForAll",
     [](int fd) { return std::make_unique<ByEpoll>(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET); }, true},
    {"EpollOnce", [](int fd) { return std::make_unique<ByEpoll>(fd, EPOLLIN | EPOLLONESHOT); }},
};

struct Weather {
    bool slow;
    std::size_t arriving;
    const char* padding;
    const char* limits;  // of keys: records of the stream's own come between the others
};

constexpr Weather kWeathers[] = {
    {false, kAll, "none", "1000000,1000000000"},
    {true, 1, "none", "1000000,1000000000"},
    {true, 30, "none", "3,1000000"},
    {true, 500, "padme:256", "4,1000000"},
    {true, 100'000, "none", "1000000,1000000000"},
};

class Readiness : public testing::TestWithParam<Way> {};

TEST_P(Readiness, IsTrueAndNeverSilent) {
    for (const Weather& weather : kWeathers) {
        for (std::uint64_t seed = 0; seed < 6; ++seed) {
            Options options;
            options.seed = seed;
            options.slow = weather.slow;
            options.most_arriving = weather.arriving;
            options.random_sizes = seed % 2 != 0;
            options.settings["CRYPTMPI_PADDING"] = weather.padding;
            options.settings["CRYPTMPI_INTERNAL_KEY_LIMITS"] = weather.limits;
            // One byte at a time takes long.
            const std::size_t size = weather.arriving == 1 ? 1500 : 40'000;
            Job job(options);
            Bytes got;
            int lies = 0;
            bool ended = false;
            job.program(1, [&] {
                const Fd listener = listen_at();
                const Fd fd = accept_from(listener, SOCK_NONBLOCK);
                const auto waiter = GetParam().make(fd);
                auto* const epoll = dynamic_cast<ByEpoll*>(waiter.get());
                bool told = false;
                Bytes room(5000);
                while (!ended) {
                    // By level, what was not read is told again; by edge, it is read until there is none.
                    const std::size_t most = 1 + below(below(2) == 0 ? 50 : room.size());
                    const ssize_t n = ::recv(fd, room.data(), most, 0);
                    if (n > 0) {
                        got.insert(got.end(), room.begin(), room.begin() + n);
                        told = false;
                        if (GetParam().is_edge) continue;
                    } else if (n == 0) {
                        ended = true;
                        continue;
                    } else if (errno != EAGAIN) {
                        return;
                    } else {
                        // An edge may come for what was read meanwhile, as Linux's does.
                        if (told && !GetParam().is_edge) ++lies;
                        told = false;
                    }
                    if (epoll != nullptr) epoll->arm();
                    while (!told) told = waiter->wait(60'000);
                }
            });
            job.program(0, [&] {
                const Fd fd = connected_to(address(1, kPort));
                const Bytes data = clear(size);
                for (std::size_t at = 0; at < size;) {
                    const std::size_t some = std::min(1 + below(size / 8), size - at);
                    send_all(fd, Bytes(data.begin() + static_cast<std::ptrdiff_t>(at),
                                       data.begin() + static_cast<std::ptrdiff_t>(at + some)));
                    at += some;
                    if (below(3) == 0) sleep_ns(static_cast<std::int64_t>(below(20)) * kMillisecond);
                }
                ::shutdown(fd, SHUT_WR);
            });
            const Ending ending = job.run();
            const std::string where =
                std::to_string(weather.arriving) + " at once, seed " + std::to_string(seed) + "\n" + ending.told();
            EXPECT_TRUE(ending.went_well() && ending.said.empty()) << where;
            EXPECT_TRUE(got == clear(size)) << where;
            EXPECT_TRUE(ended) << where;
            EXPECT_EQ(lies, 0) << where;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(By, Readiness, testing::ValuesIn(kWays),
                         [](const auto& one) { return std::string(one.param.name); });

/// What was read ahead is told at once by whoever is asked, and by all of them alike.
TEST(Readiness, OfWhatWeHoldIsToldAtOnce) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        Options options;
        options.seed = seed;
        options.slow = true;
        Job job(options);
        int told = 0;
        int asked = 0;
        job.program(1, [&] {
            const Fd listener = listen_at();
            const Fd fd = accept_from(listener, SOCK_NONBLOCK);
            ByPoll poll(fd);
            BySelect select(fd);
            ByEpoll level(fd, EPOLLIN);
            wait_for(fd, POLLIN);
            for (std::size_t left = 1000; left > 0;) {
                std::uint8_t room[90];
                const ssize_t n = ::recv(fd, room, std::min<std::size_t>(1 + below(90), left), 0);
                if (n < 0) break;
                left -= static_cast<std::size_t>(n);
                if (left == 0) break;
                int there = 0;
                ::ioctl(fd, FIONREAD, &there);
                if (there == 0) {  // the next record is still on its way
                    wait_for(fd, POLLIN);
                    continue;
                }
                asked += 3;
                told += (poll.wait(0) ? 1 : 0) + (select.wait(0) ? 1 : 0) + (level.wait(0) ? 1 : 0);
            }
        });
        job.program(0, [&] {
            const Fd fd = connected_to(address(1, kPort));
            send_all(fd, clear(1000), 400);
        });
        const Ending ending = job.run();
        EXPECT_TRUE(ending.went_well() && ending.said.empty()) << ending.told();
        EXPECT_EQ(told, asked) << seed;
        EXPECT_GT(asked, 20);
    }
}

/// Nothing is readable before the last byte of the record is there.
TEST(Readiness, WaitsForTheLastByteOfARecord) {
    Options options;
    options.settings["CRYPTMPI_PADDING"] = "none";
    Job job(options);
    std::size_t before = 0;
    int early = 0;
    bool then = false;
    int bytes = -1;
    Bytes got;
    std::vector<Bytes> pieces;
    job.on_wire = [&](const Unit& unit) {
        if (!unit.there || unit.number != 2) return std::vector<Bytes>{unit.bytes};
        return std::vector<Bytes>{};  // its bytes come one by one, by hand
    };
    Bytes record;
    const auto forward = job.on_wire;
    job.on_wire = [&, forward](const Unit& unit) {
        if (unit.there && unit.number == 2) record = unit.bytes;
        return forward(unit);
    };
    int client = -1;
    job.program(1, [&] {
        const Fd listener = listen_at();
        const Fd fd = accept_from(listener, SOCK_NONBLOCK);
        const Fd epoll(::epoll_create1(0));
        epoll_event event{EPOLLIN | EPOLLET, {.fd = fd}};
        ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
        while (record.empty()) sleep_ns(kMillisecond);
        for (const std::uint8_t byte : record) {
            std::uint8_t room[100];
            epoll_event found{};
            early += ::recv(fd, room, sizeof room, 0) > 0 ? 1 : 0;
            early += wait_for(fd, POLLIN, 0) != 0 ? 1 : 0;
            early += ::epoll_wait(epoll, &found, 1, 0) > 0 ? 1 : 0;
            int there = 0;
            ::ioctl(fd, FIONREAD, &there);
            early += there;
            deliver(client, {byte});
            ++before;
        }
        epoll_event found{};
        then = wait_for(fd, POLLIN, 0) != 0 && ::epoll_wait(epoll, &found, 1, 0) == 1;
        ::ioctl(fd, FIONREAD, &bytes);
        got = read_from(fd, 40).bytes;
    });
    job.program(0, [&] {
        const Fd fd = connected_to(address(1, kPort));
        client = fd;
        wait_for(fd, POLLOUT);
        send_all(fd, clear(40));
        sleep_ns(10 * kSecond);
    });
    const Ending ending = job.run();
    EXPECT_TRUE(ending.went_well() && ending.said.empty()) << ending.told();
    EXPECT_EQ(before, 40 + seal::kRecordOverhead);
    EXPECT_EQ(early, 0);
    EXPECT_TRUE(then);
    EXPECT_EQ(bytes, 40);
    EXPECT_EQ(got, clear(40));
}

/// Edge-triggered: an edge for each arrival, whether or not what came before was read.
TEST(Readiness, HasAnEdgeForEachArrival) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        Options options;
        options.seed = seed;
        options.slow = seed % 2 != 0;
        Job job(options);
        int edges = 0;
        int more = 0;
        constexpr int kRounds = 20;
        job.program(1, [&] {
            const Fd listener = listen_at();
            const Fd fd = accept_from(listener, SOCK_NONBLOCK);
            const Fd epoll(::epoll_create1(0));
            epoll_event event{EPOLLIN | EPOLLET, {.fd = fd}};
            ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
            for (int round = 0; round < kRounds; ++round) {
                epoll_event found{};
                if (::epoll_wait(epoll, &found, 1, 10'000) == 1) ++edges;
                std::uint8_t room[5];
                if (below(2) == 0) (void)::recv(fd, room, 1 + below(5), 0);
                sleep_ns(10 * kMillisecond);
                if (::epoll_wait(epoll, &found, 1, 0) > 0) ++more;
                send_all(fd, clear(1));  // the next one, please
            }
        });
        job.program(0, [&] {
            const Fd fd = connected_to(address(1, kPort));
            for (int round = 0; round < kRounds; ++round) {
                send_all(fd, clear(10));
                (void)read_from(fd, 1);
            }
        });
        const Ending ending = job.run();
        EXPECT_TRUE(ending.stuck.empty() && ending.complaints.empty() && ending.said.empty()) << ending.told();
        EXPECT_EQ(edges, kRounds) << seed;
        EXPECT_EQ(more, 0) << seed;
    }
}

/// A thread waits for the kernel, while another one takes all that came out of it, and leaves some of it with us.
void wakes_who_waits_while_another_reads(bool by_epoll) {
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
        Options options;
        options.seed = seed;
        options.slow = true;
        options.most_arriving = seed % 3 == 0 ? 40 : kAll;
        Job job(options);
        Bytes got;
        bool woken = false;
        job.program(1, [&] {
            const Fd listener = listen_at();
            const Fd fd = accept_from(listener);
            const Fd epoll(::epoll_create1(0));
            epoll_event event{EPOLLIN, {.fd = fd}};
            ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
            const auto wait = [&] {
                epoll_event found{};
                return by_epoll ? ::epoll_wait(epoll, &found, 1, -1) == 1 : wait_for(fd, POLLIN, -1) != 0;
            };
            std::thread reading([&] {
                std::uint8_t byte = 0;
                if (::recv(fd, &byte, 1, 0) == 1) got.push_back(byte);
            });
            woken = wait();
            reading.join();
            woken = woken && wait();
            const Bytes rest = read_from(fd, 99).bytes;
            got.insert(got.end(), rest.begin(), rest.end());
        });
        job.program(0, [&] {
            const Fd fd = connected_to(address(1, kPort));
            sleep_ns(100 * kMillisecond);
            send_all(fd, clear(100));
            (void)read_from(fd);
        });
        const Ending ending = job.run();
        EXPECT_TRUE(ending.went_well() && ending.said.empty()) << "seed " << seed << "\n" << ending.told();
        EXPECT_TRUE(woken) << seed;
        EXPECT_EQ(got, clear(100)) << seed;
    }
}

TEST(Readiness, WakesWhoWaitsWhileAnotherReads) {
    wakes_who_waits_while_another_reads(true);
}

/// A known limit (docs/layers.md): who polls sleeps until more comes.
TEST(Readiness, DISABLED_WakesWhoPollsWhileAnotherReads) {
    wakes_who_waits_while_another_reads(false);
}

/// The thread that hears whether the peer is there takes what the kernel called readable: an empty record. Who were
/// told of it and read would wait for what comes next.
TEST(Readiness, IsNotOfWhatOurOwnThreadTakes) {
    Options options;
    options.settings["CRYPTMPI_SILENCE_TIMEOUT_S"] = "8";
    options.renewed = true;
    Job job(options);
    bool waiting = false;
    bool glancing = false;
    // Its look at the front of what came takes a while.
    job.fails = [&](const Call& call) {
        if (waiting && call.node == 1 && std::string(call.name) == "recv" && !std::exchange(glancing, true)) {
            sleep_ns(5 * kMillisecond);
        }
        return 0;
    };
    bool readable = true;
    Read read;
    job.program(1, [&] {
        const Fd listener = listen_at();
        const Fd fd = accept_from(listener);
        pollfd one{fd, POLLIN, 0};
        (void)::poll(&one, 1, 100);
        sleep_ns(3 * kSecond);
        waiting = true;
        while (!glancing) sleep_ns(kMillisecond);
        readable = ::poll(&one, 1, 0) != 0;
        read = read_from(fd, 100);
    });
    job.program(0, [&] {
        const Fd fd = connected_to(address(1, kPort));
        sleep_ns(10 * kSecond);
        send_all(fd, clear(100));
    });
    const Ending ending = job.run();
    EXPECT_TRUE(ending.went_well() && ending.said.empty()) << ending.told();
    EXPECT_TRUE(glancing);
    EXPECT_FALSE(readable);
    EXPECT_EQ(read.bytes, clear(100));
}

/// A thread waits in a read: how much is there to be read is told at once, and a wait ends at its time.
TEST(Readiness, IsToldWhileAThreadWaitsInARead) {
    Job job;
    int bytes = -1;
    int ready = -1;
    std::int64_t took_ns = -1;
    Read read;
    job.program(1, [&] {
        const Fd listener = listen_at();
        const Fd fd = accept_from(listener);
        std::thread reading([&] { read = read_from(fd, 100); });
        sleep_ns(kSecond);
        const std::int64_t begun_ns = time_ns();
        ::ioctl(fd, FIONREAD, &bytes);
        pollfd one{fd, POLLIN, 0};
        ready = ::poll(&one, 1, 0);
        took_ns = time_ns() - begun_ns;
        reading.join();
    });
    job.program(0, [&] {
        const Fd fd = connected_to(address(1, kPort));
        sleep_ns(5 * kSecond);
        send_all(fd, clear(100));
    });
    const Ending ending = job.run();
    EXPECT_TRUE(ending.went_well() && ending.said.empty()) << ending.told();
    EXPECT_EQ(bytes, 0);
    EXPECT_EQ(ready, 0);
    EXPECT_LT(took_ns, kMillisecond);
    EXPECT_EQ(read.bytes, clear(100));
}

/// A full socket becomes writable again when the peer reads, and says so by level and by edge.
TEST(Readiness, OfAFullSocketComesBack) {
    for (const std::uint32_t events : {std::uint32_t{EPOLLOUT}, std::uint32_t{EPOLLOUT | EPOLLET}, std::uint32_t{0}}) {
        for (std::uint64_t seed = 0; seed < 20; ++seed) {
            Options options;
            options.seed = seed;
            options.slow = seed % 2 != 0;
            options.capacity = 20'000;
            options.most_sent = seed % 3 == 0 ? 3000 : kAll;
            options.random_sizes = true;
            constexpr std::size_t kSize = 200'000;
            Job job(options);
            Read read;
            int waits = 0;
            job.program(1, [&] {
                const Fd listener = listen_at();
                const Fd fd = accept_from(listener);
                sleep_ns(kSecond);
                read = read_from(fd, kAll, 3000);
            });
            job.program(0, [&] {
                const Fd fd = connected_to(address(1, kPort), false);
                const Fd epoll(::epoll_create1(0));
                epoll_event event{events, {.fd = fd}};
                if (events != 0) ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
                const Bytes data = clear(kSize);
                for (std::size_t at = 0; at < kSize;) {
                    const ssize_t n =
                        ::send(fd, data.data() + at, std::min<std::size_t>(10'000, kSize - at), MSG_NOSIGNAL);
                    if (n > 0) at += static_cast<std::size_t>(n);
                    if (n >= 0) continue;
                    if (errno != EAGAIN) return;
                    ++waits;
                    const bool writable =
                        events == 0 ? wait_for(fd, POLLOUT) != 0 : ::epoll_wait(epoll, &event, 1, 60'000) == 1;
                    if (!writable) return;
                }
            });
            const Ending ending = job.run();
            EXPECT_TRUE(ending.went_well() && ending.said.empty()) << seed << "\n" << ending.told();
            EXPECT_TRUE(read.bytes == clear(kSize)) << seed;
            EXPECT_TRUE(read.ended) << seed;
            EXPECT_GT(waits, 0) << seed;
        }
    }
}

/// What a write says that it took is what was sealed, and what the peer gets; after EAGAIN no byte of it is.
TEST(Readiness, AWriteClaimsWhatIsSealedAndNoMore) {
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
        Options options;
        options.seed = seed;
        options.slow = seed % 2 != 0;
        options.capacity = 10'000 + 3000 * (seed % 7);
        options.most_sent = seed % 3 == 0 ? 900 : kAll;
        options.random_sizes = true;
        options.settings["CRYPTMPI_PADDING"] = "none";
        options.settings["CRYPTMPI_THREADS"] = seed % 5 == 0 ? "4" : "1";
        Job job(options);
        Read read;
        Bytes claimed;
        int refused = 0;
        bool matches = true;
        job.program(1, [&] {
            const Fd listener = listen_at();
            const Fd fd = accept_from(listener);
            for (int round = 0; round < 10; ++round) {
                sleep_ns(kSecond / 10);
                const Read some = read_from(fd, 1 + below(30'000));
                read.bytes.insert(read.bytes.end(), some.bytes.begin(), some.bytes.end());
                if (some.ended) return;
            }
            const Read rest = read_from(fd);
            read.bytes.insert(read.bytes.end(), rest.bytes.begin(), rest.bytes.end());
            read.ended = rest.ended;
        });
        job.program(0, [&] {
            const Fd fd = connected_to(address(1, kPort), false);
            const Entry& entry = *Process::made()->table().find_sealed(fd);
            while (claimed.size() < 400'000) {
                // Other bytes than those that were refused, as a program may send.
                const Bytes data = clear(1 + below(below(4) == 0 ? 200'000 : 5000), static_cast<int>(below(200)));
                const ssize_t n = ::send(fd, data.data(), data.size(), MSG_NOSIGNAL);
                if (n < 0 && errno != EAGAIN) return;
                if (n > 0) claimed.insert(claimed.end(), data.begin(), data.begin() + n);
                matches = matches && entry.sealer->counters().bytes == claimed.size();
                if (n > 0) continue;
                ++refused;
                wait_for(fd, POLLOUT);
            }
            ::shutdown(fd, SHUT_WR);
        });
        const Ending ending = job.run();
        EXPECT_TRUE(ending.went_well() && ending.said.empty()) << seed << "\n" << ending.told();
        EXPECT_TRUE(matches) << seed;
        EXPECT_TRUE(read.bytes == claimed) << seed << ": " << read.bytes.size() << " of " << claimed.size();
        EXPECT_GT(refused, 0) << seed;
    }
}

/// A connect that does not wait: writable when both the connection and its handshake are there, and no error.
TEST(Readiness, OfAConnectComesWithTheHandshake) {
    for (const std::uint32_t events :
         {std::uint32_t{EPOLLOUT}, std::uint32_t{EPOLLOUT | EPOLLIN | EPOLLET}, std::uint32_t{0}}) {
        for (std::uint64_t seed = 0; seed < 20; ++seed) {
            Options options;
            options.seed = seed;
            options.slow = true;
            options.most_arriving = 60;
            Job job(options);
            bool was_open = false;
            int error = -1;
            int again = 0;
            Bytes got;
            job.program(1, [&] {
                const Fd listener = listen_at();
                const Fd fd = accept_from(listener);
                got = read_from(fd).bytes;
            });
            job.program(0, [&] {
                await_listener(address(1, kPort));
                const Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
                const Fd epoll(::epoll_create1(0));
                epoll_event event{events, {.fd = fd}};
                if (connect_to(fd, address(1, kPort)) != -1 || errno != EINPROGRESS) return;
                if (events != 0) ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
                const bool told = events == 0 ? wait_for(fd, POLLOUT) == POLLOUT
                                              : ::epoll_wait(epoll, &event, 1, 60'000) == 1 && event.events == EPOLLOUT;
                was_open = told && Process::made()->table().find_sealed(fd)->shared.load()->state.load() == State::open;
                error = error_of(fd);
                again = connect_to(fd, address(1, kPort)) == -1 ? errno : 0;
                send_all(fd, clear(100));
            });
            const Ending ending = job.run();
            EXPECT_TRUE(ending.went_well() && ending.said.empty()) << seed << "\n" << ending.told();
            EXPECT_TRUE(was_open) << seed;
            EXPECT_EQ(error, 0);
            EXPECT_EQ(again, EISCONN);
            EXPECT_EQ(got, clear(100));
        }
    }
}

/// A failed handshake is told as a failed connect is: writable, and its error once.
TEST(Readiness, OfARefusedConnectHasItsErrorOnce) {
    for (const bool by_epoll : {true, false}) {
        Options options;
        options.renewed = true;
        options.of_node[1] = {{"CRYPTMPI_KEY_FILE", "other.key"}};
        Job job(options);
        int errors[2] = {0, -1};
        unsigned events = 0;
        job.program(1, [&] {
            const Fd listener = listen_at();
            (void)read_from(accept_from(listener));
        });
        job.program(0, [&] {
            await_listener(address(1, kPort));
            const Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0));
            (void)connect_to(fd, address(1, kPort));
            const Fd epoll(::epoll_create1(0));
            epoll_event event{EPOLLOUT, {.fd = fd}};
            ::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event);
            if (by_epoll) {
                if (::epoll_wait(epoll, &event, 1, 60'000) == 1) events = event.events;
            } else {
                events = static_cast<unsigned>(wait_for(fd, POLLOUT));
            }
            for (int& error : errors) error = error_of(fd);
        });
        const Ending ending = job.run();
        EXPECT_TRUE(ending.went_well()) << ending.told();
        EXPECT_NE(events & EPOLLOUT, 0U) << event_names(events);
        EXPECT_NE(errors[0], 0);
        EXPECT_EQ(errors[1], 0);
    }
}

}  // namespace
}  // namespace cryptmpi::channel::fake
