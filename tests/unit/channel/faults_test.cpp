// Each call of the kernel's fails once, and processes end where they stand: nothing crashes, nothing goes in clear,
// nothing is left, nobody is deceived and nobody waits for ever.
#include <gtest/gtest.h>

#include <string_view>
#include <thread>

#include "channel/connection.hpp"
#include "channel/process.hpp"
#include "programs.hpp"

namespace cryptmpi::channel::fake {
namespace {

constexpr std::size_t kThere = 3000;
constexpr std::size_t kBack = 2000;

/// An event loop over some connections, as an MPI has it: who accepts reads to the end, answers and closes.
void serve(int connections, std::vector<Read>& reads, bool& answered) {
    const Fd listener = listen_at();
    set_blocking(listener, false);
    const Fd epoll(::epoll_create1(0));
    epoll_event event{EPOLLIN, {.fd = listener}};
    if (epoll < 0 || ::epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event) != 0) return;
    std::map<int, Fd> fds;
    std::map<int, Read> by_fd;
    int accepted = 0;
    int failures = 0;
    while ((accepted < connections || !fds.empty()) && failures < 20) {
        const int n = ::epoll_wait(epoll, &event, 1, 2000);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            ++failures;  // a connection that never came
            continue;
        }
        if (event.data.fd == listener) {
            Fd fd(::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK));
            if (fd < 0) {
                failures += errno == EAGAIN ? 0 : 1;
                accepted += errno == EAGAIN ? 0 : 1;
                continue;
            }
            ++accepted;
            epoll_event of_it{EPOLLIN | EPOLLRDHUP, {.fd = fd}};
            if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &of_it) == 0) fds[fd] = std::move(fd);
            continue;
        }
        const int fd = event.data.fd;
        Read& read = by_fd[fd];
        std::uint8_t room[700];
        const ssize_t got = ::recv(fd, room, sizeof room, 0);
        if (got > 0) {
            read.bytes.insert(read.bytes.end(), room, room + got);
            continue;
        }
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
            if (++failures < 20) continue;
        }
        read.ended = got == 0;
        read.error = got < 0 ? errno : 0;
        if (read.ended) answered = send_all(fd, clear(kBack, 2)) == 0;
        fds.erase(fd);
        reads.push_back(std::move(by_fd[fd]));
        by_fd.erase(fd);
    }
}

struct Outcome {
    Ending ending;
    Read there;
    Read back;
    bool was_told = false;  // the client
    bool answered = false;  // the server has read to the end, and written all
};

/// A client that does not wait, over an event loop; and one that does.
Outcome exchange(const Options& options, bool blocking, const std::function<void(Job&)>& before) {
    Outcome outcome;
    std::vector<Read> reads;
    Job job(options);
    before(job);
    job.program(1, [&] { serve(1, reads, outcome.answered); });
    job.program(0, [&] {
        const Fd fd = connected_to(address(1, kPort), blocking);
        if (fd < 0) {
            outcome.was_told = true;
            return;
        }
        const Fd second(::dup(fd));
        const int error = send_all(fd, clear(kThere, 1), 900);
        ::shutdown(fd, SHUT_WR);
        outcome.back = read_from(fd);
        outcome.was_told = error != 0 || outcome.back.error != 0;
    });
    outcome.ending = job.run();
    if (!reads.empty()) outcome.there = std::move(reads.front());
    return outcome;
}

/// The beginning of it; where it was said to be all, it is, unless who sent it knows that it is not.
bool is_honest(const Read& read, const Bytes& sent, bool sender_knows) {
    return read.bytes.size() <= sent.size() && std::equal(read.bytes.begin(), read.bytes.end(), sent.begin()) &&
           (!read.ended || sender_knows || read.bytes.size() == sent.size());
}

struct Fault {
    const char* name;
    int error;
};

class Faults : public testing::TestWithParam<Fault> {};

TEST_P(Faults, OfEachCallAreSurvived) {
    for (const bool blocking : {true, false}) {
        std::map<std::string, int> failed;
        std::uint64_t place = 0;
        for (bool struck = true; struck; ++place) {
            struck = false;
            std::string name;
            Options options;
            options.seed = 3;
            options.slow = true;
            options.most_arriving = 900;
            options.capacity = 4000;
            const Outcome outcome = exchange(options, blocking, [&](Job& job) {
                job.fails = [&](const Call& call) {
                    if (call.number != place) return 0;
                    struck = true;
                    name = std::string(call.name) + "(" + std::to_string(call.fd) + ") of node " +
                           std::to_string(call.node);
                    ++failed[call.name];
                    return GetParam().error;
                };
            });
            const std::string where =
                name + ", call " + std::to_string(place) + (blocking ? ", blocking\n" : "\n") + outcome.ending.told();
            EXPECT_TRUE(outcome.ending.stuck.empty()) << where;
            EXPECT_TRUE(outcome.ending.complaints.empty()) << where;
            EXPECT_TRUE(outcome.ending.left.empty()) << where;
            EXPECT_TRUE(is_honest(outcome.there, clear(kThere, 1), outcome.was_told)) << where;
            EXPECT_TRUE(is_honest(outcome.back, clear(kBack, 2), !outcome.answered)) << where;
            EXPECT_TRUE(outcome.back.ended || outcome.was_told) << where;
            EXPECT_TRUE(struck || (outcome.back.ended && outcome.answered)) << where;
        }
        EXPECT_GT(place, 60U);
        for (const char* const call : {"socket", "connect", "accept4", "send", "recv", "getsockopt", "setsockopt",
                                       "shutdown", "close", "dup", "epoll_ctl", "epoll_wait"})
            EXPECT_GT(failed[call], 0) << call;
    }
}

INSTANTIATE_TEST_SUITE_P(With, Faults,
                         testing::Values(Fault{"Reset", ECONNRESET}, Fault{"NoBuffers", ENOBUFS},
                                         Fault{"BadDescriptor", EBADF}, Fault{"NoMemory", ENOMEM}),
                         [](const auto& one) { return std::string(one.param.name); });

/// A kernel that has no TCP_INFO, or a filter of system calls that lets nobody ask for it.
TEST(OtherKernel, ThatDoesNotTellTheStateOfAConnectionHasItSealed) {
    for (const bool blocking : {true, false}) {
        Options options;
        options.slow = true;
        bool asked = false;
        const Outcome outcome = exchange(options, blocking, [&](Job& job) {
            job.fails = [&](const Call& call) {
                if (std::string_view(call.name) != "getsockopt(TCP_INFO)") return 0;
                asked = true;
                return ENOPROTOOPT;
            };
        });
        EXPECT_TRUE(asked);
        EXPECT_TRUE(outcome.ending.went_well()) << outcome.ending.told();
        EXPECT_FALSE(outcome.was_told);
        EXPECT_EQ(outcome.there.bytes, clear(kThere, 1));
        EXPECT_EQ(outcome.back.bytes, clear(kBack, 2));
    }
}

// How a process ends.

/// What it wrote is out before it is gone, and so is its end, though the peer takes its time.
TEST(Endings, AnExitSendsWhatWasWritten) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        Options options;
        options.seed = seed;
        options.slow = seed % 2 != 0;
        options.capacity = 10'000;
        Job job(options);
        Read read;
        std::size_t written = 0;
        job.program(1, [&] {
            const Fd listener = listen_at();
            const Fd fd = accept_from(listener);
            sleep_ns(kSecond);
            read = read_from(fd);
        });
        job.program(0, [&] {
            const int fd = connected_to(address(1, kPort), false).release();
            const Bytes data = clear(60'000);
            const ssize_t n = ::send(fd, data.data(), data.size(), MSG_NOSIGNAL);
            written = n > 0 ? static_cast<std::size_t>(n) : 0;
            exit_process();
        });
        const Ending ending = job.run();
        EXPECT_TRUE(ending.went_well() && ending.said.empty()) << ending.told();
        EXPECT_GT(written, 10'000U) << seed;
        EXPECT_TRUE(read.bytes == clear(written)) << seed;
        EXPECT_TRUE(read.ended) << seed;
    }
}

/// A peer that does not read keeps nobody for long; it is not deceived either.
TEST(Endings, AnExitDoesNotWaitForEver) {
    Options options;
    options.capacity = 10'000;
    Job job(options);
    Read read;
    std::int64_t waited_ns = 0;
    job.program(1, [&] {
        const Fd listener = listen_at();
        const Fd fd = accept_from(listener);
        sleep_ns(60 * kSecond);
        read = read_from(fd);
    });
    std::int64_t began_ns = 0;
    job.program(0, [&] {
        const int fd = connected_to(address(1, kPort), false).release();
        const Bytes data = clear(60'000);
        (void)!::send(fd, data.data(), data.size(), MSG_NOSIGNAL);
        began_ns = time_ns();
        Process::made()->finish(Process::Ending::by_exit, end);
        waited_ns = time_ns() - began_ns;
        die();
    });
    const Ending ending = job.run();
    EXPECT_TRUE(ending.went_well()) << ending.told();
    EXPECT_LT(waited_ns, 10 * kSecond);
    EXPECT_FALSE(read.ended);
    EXPECT_EQ(read.error, ECONNRESET) << name_of(read.error);
    EXPECT_LT(read.bytes.size(), 60'000U);
    EXPECT_TRUE(read.bytes == clear(read.bytes.size()));
    EXPECT_EQ(ending.lines_with("without the authenticated close", 1), 1) << ending.told();
}

/// A process that was killed has not ended its streams, whatever the kernel says for it.
TEST(Endings, AKilledProcessIsNoEnd) {
    for (const std::size_t size : {0U, 1U, 1000U}) {
        for (std::uint64_t seed = 0; seed < 5; ++seed) {
            Options options;
            options.seed = seed;
            options.slow = seed != 0;
            Job job(options);
            Read read;
            job.program(1, [&] {
                const Fd listener = listen_at();
                read = read_from(accept_from(listener));
            });
            job.program(0, [&] {
                const int fd = connected_to(address(1, kPort)).release();
                wait_for(fd, POLLOUT);
                send_all(fd, clear(size));
                die();
            });
            const Ending ending = job.run();
            EXPECT_TRUE(ending.went_well()) << ending.told();
            EXPECT_FALSE(read.ended) << size;
            EXPECT_EQ(read.error, ECONNRESET) << name_of(read.error);
            EXPECT_EQ(read.bytes, clear(size));
            EXPECT_EQ(ending.lines_with("without the authenticated close", 1), 1) << ending.told();
        }
    }
}

/// What somebody gets who reads on and on after the peer was killed.
std::vector<Result> reads_in_vain(Job& job, std::size_t most, Ending& ending) {
    std::vector<Result> reads;
    job.program(1, [&] {
        const Fd listener = listen_at();
        const Fd fd = accept_from(listener);
        std::uint8_t byte = 0;
        while (reads.size() < most) reads.push_back(result(::recv(fd, &byte, 1, 0)));
    });
    job.program(0, [&] {
        const int fd = connected_to(address(1, kPort)).release();
        wait_for(fd, POLLOUT);
        die();
    });
    ending = job.run();
    for (const Result& read : reads) EXPECT_EQ(read.error, ECONNRESET);
    return reads;
}

// protocol: R8
/// The kernel tells of an error once, and then of the end, which nobody may take for that of a whole stream.
TEST(Endings, AFailedConnectionHasNoneHoweverOftenItIsAsked) {
    Job job;
    Ending ending;
    EXPECT_EQ(reads_in_vain(job, 300, ending).size(), 300U);
    EXPECT_TRUE(ending.went_well()) << ending.told();
}

/// A daemon of Open MPI 4.1 waits for that end, and its launcher for the daemon.
TEST(Endings, AProcessOfTheLauncherDoesNotReadInVainForEver) {
    Options options;
    options.of_node[1] = {{"CRYPTMPI_INTERNAL_ROLE", "launcher"}};
    Job job(options);
    Ending ending;
    const std::size_t reads = reads_in_vain(job, 10'000, ending).size();
    EXPECT_GE(reads, 100U);
    EXPECT_LT(reads, 10'000U);
    EXPECT_EQ(ending.exits[1], 125);
    EXPECT_EQ(ending.lines_with("reads on and on from a connection that has failed", 1), 1) << ending.told();
}

/// Of a process that is at its end nothing goes out any more, least of all in clear.
TEST(Endings, NothingIsWrittenAfterTheEnd) {
    Job job;
    Read read;
    Result after[2] = {};
    job.program(1, [&] {
        const Fd listener = listen_at();
        read = read_from(accept_from(listener));
    });
    job.program(0, [&] {
        const int fd = connected_to(address(1, kPort)).release();
        send_all(fd, clear(100));
        Process::made()->finish(Process::Ending::by_exit, end);
        after[0] = result(::write(fd, clear(100).data(), 100));
        std::uint8_t byte = 0;
        after[1] = result(::read(fd, &byte, 1));
        die();
    });
    const Ending ending = job.run();
    EXPECT_TRUE(ending.went_well() && ending.said.empty()) << ending.told();
    EXPECT_EQ(read.bytes, clear(100));
    EXPECT_TRUE(read.ended);
    EXPECT_EQ(after[0].error, EPIPE);
    EXPECT_EQ(after[1].error, EPIPE);
}

/// close() while another thread waits in a read of it: neither hangs, and nothing is left.
TEST(Endings, AReaderIsWokenByAClose) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        Options options;
        options.seed = seed;
        options.slow = seed % 2 != 0;
        Job job(options);
        bool returned = false;
        job.program(1, [&] {
            const Fd listener = listen_at();
            (void)read_from(accept_from(listener));
        });
        job.program(0, [&] {
            Fd fd = connected_to(address(1, kPort));
            std::thread reading([&, number = int{fd}] {
                std::uint8_t byte = 0;
                (void)!::recv(number, &byte, 1, 0);
                returned = true;
            });
            sleep_ns(kSecond);
            fd.close();
            reading.join();
        });
        const Ending ending = job.run();
        EXPECT_TRUE(ending.went_well()) << ending.told();
        EXPECT_TRUE(returned);
    }
}

/// SIGPIPE comes where a plain socket has it, and not where the caller asked for none.
TEST(Endings, ASignalForEachBrokenPipe) {
    for (const bool sealed : {true, false}) {
        Options options;
        options.sealed = sealed;
        Job job(options);
        int signals[3] = {};
        int errors[3] = {};
        job.program(1, [&] {
            const Fd listener = listen_at();
            (void)read_from(accept_from(listener));
        });
        job.program(0, [&] {
            const Fd fd = connected_to(address(1, kPort));
            ::shutdown(fd, SHUT_WR);
            errors[0] = result(::send(fd, "x", 1, MSG_NOSIGNAL)).error;
            signals[0] = broken_pipes();
            errors[1] = result(::write(fd, "x", 1)).error;
            signals[1] = broken_pipes();
            errors[2] = result(::send(fd, "x", 1, 0)).error;
            signals[2] = broken_pipes();
        });
        const Ending ending = job.run();
        EXPECT_TRUE(ending.went_well() && ending.said.empty()) << ending.told();
        for (int i = 0; i < 3; ++i) {
            EXPECT_EQ(errors[i], EPIPE) << i;
            EXPECT_EQ(signals[i], i) << i;
        }
    }
}

/// The program closes what the kernel has not taken yet: it goes on, and comes whole, without the program.
TEST(Endings, ACloseSendsWhatWasWritten) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        Options options;
        options.seed = seed;
        options.slow = seed % 2 != 0;
        options.capacity = 5000;
        options.most_sent = seed % 3 == 0 ? 900 : kAll;
        options.settings["CRYPTMPI_THREADS"] = seed % 4 == 0 ? "4" : "1";
        Job job(options);
        Read read;
        std::size_t written = 0;
        job.program(1, [&] {
            const Fd listener = listen_at();
            const Fd fd = accept_from(listener);
            sleep_ns(3 * kSecond);
            read = read_from(fd, kAll, 1000);
        });
        std::int64_t closed_in_ns = -1;
        job.program(0, [&] {
            Fd fd = connected_to(address(1, kPort), false);
            const Bytes data = clear(200'000);
            const ssize_t n = ::send(fd, data.data(), data.size(), MSG_NOSIGNAL);
            written = n > 0 ? static_cast<std::size_t>(n) : 0;
            const std::int64_t began_ns = time_ns();
            fd.close();
            closed_in_ns = time_ns() - began_ns;
            sleep_ns(10 * kSecond);
        });
        const Ending ending = job.run();
        EXPECT_TRUE(ending.went_well() && ending.said.empty()) << seed << ending.told();
        EXPECT_GT(written, 5000U);
        EXPECT_TRUE(read.bytes == clear(written)) << seed << ": " << read.bytes.size() << " of " << written;
        EXPECT_TRUE(read.ended) << seed;
        EXPECT_LT(closed_in_ns, kSecond / 10);
    }
}

}  // namespace
}  // namespace cryptmpi::channel::fake
