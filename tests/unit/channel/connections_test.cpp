// Connections over the fake kernel: how they begin, what goes over them, and when they may not be.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>

#include <set>

#include "channel/connection.hpp"
#include "channel/process.hpp"
#include "channel/real.hpp"
#include "programs.hpp"

namespace cryptmpi::channel::fake {
namespace {

constexpr std::size_t kHello = keys::kHelloSize;
constexpr std::size_t kOverhead = seal::kRecordOverhead;

/// The sealed connection behind a descriptor of the program that asks.
const Entry& entry_of(int fd) {
    return *Process::made()->table().find_sealed(fd);
}

bool is_open(int fd) {
    return entry_of(fd).shared.load()->state.load() == State::open;
}

TEST(Connections, OpenHoweverLittleArrives) {
    for (const bool blocking : {true, false}) {
        for (const std::size_t arriving : {1, 2, 3, 7, 19, 20, 21, 100, 199, 200, 201, 219, 220, 221, 1000}) {
            Options options;
            options.slow = true;
            options.most_arriving = arriving;
            options.seed = arriving;
            const Talk done = talk(options, {300, 200, kAll, blocking});
            const std::string where = std::to_string(arriving) + " bytes at once\n" + done.told();
            EXPECT_TRUE(done.ending.went_well()) << where;
            EXPECT_TRUE(done.is_whole(300, 200)) << where;
            EXPECT_TRUE(done.ending.said.empty()) << where;
            if (std::getenv("CRYPTMPI_PADDING") != nullptr) continue;
            // A hello, the confirm record, data, the close record: nothing else.
            EXPECT_EQ(done.ending.moved[0], kHello + kOverhead + 300 + kOverhead + kOverhead) << where;
            EXPECT_EQ(done.ending.moved[1], kHello + 200 + kOverhead + kOverhead) << where;
        }
    }
}

TEST(Connections, OpenInAnyWeather) {
    for (std::uint64_t seed = 0; seed < 60; ++seed) {
        Options options;
        options.seed = seed;
        options.slow = seed % 4 != 0;
        options.random_sizes = true;
        if (seed % 2 != 0) options.most_arriving = 100;
        if (seed % 3 != 0) options.most_sent = 700;
        if (seed % 5 == 0) options.interrupting = 3;
        const Talk done = talk(options, {5000, 3000, 1500, seed % 2 == 0});
        const std::string where = "seed " + std::to_string(seed) + "\n" + done.told();
        EXPECT_TRUE(done.ending.went_well()) << where;
        EXPECT_TRUE(done.is_whole(5000, 3000)) << where;
        EXPECT_TRUE(done.ending.said.empty()) << where;
    }
}

TEST(Connections, ComeWholeHoweverLittleACallMoves) {
    for (const std::size_t most : {1, 2, 3, 7, 19, 20, 21, 100, 1001}) {
        for (const std::size_t capacity : {1500, 1501, 4000, 1 << 20}) {
            Options options;
            options.slow = true;
            options.most_sent = options.most_arriving = most;
            options.capacity = capacity;
            options.seed = most;
            const Talk done = talk(options, {2000, 1000, 700, capacity % 2 == 0});
            const std::string where = std::to_string(most) + " of " + std::to_string(capacity) + "\n" + done.told();
            EXPECT_TRUE(done.ending.went_well() && done.ending.said.empty()) << where;
            EXPECT_TRUE(done.is_whole(2000, 1000)) << where;
        }
    }
}

/// Long writes and reads, which several threads share.
TEST(Connections, LongOnesComeWholeHoweverLittleACallMoves) {
    constexpr std::size_t kLong = 700'001;
    for (const std::size_t most : {std::size_t{4093}, std::size_t{65536}, std::size_t{100'000}, kAll}) {
        for (const std::size_t capacity : {9000, 70'000, 300'000}) {
            Options options;
            options.slow = true;
            options.most_sent = options.most_arriving = most;
            options.capacity = capacity;
            options.settings["CRYPTMPI_THREADS"] = "3";
            Manner manner{kLong, kLong / 3};
            manner.most_read = kLong;
            const Talk done = talk(options, manner);
            const std::string where = std::to_string(most) + " of " + std::to_string(capacity) + "\n" + done.told();
            EXPECT_TRUE(done.ending.went_well() && done.ending.said.empty()) << where;
            EXPECT_TRUE(done.is_whole(kLong, kLong / 3)) << where;
        }
    }
}

/// A fresh socket has room for a hello. Where it has none, the connection is lost, and both ends are told.
TEST(Connections, AreRefusedWhereAHelloDoesNotFit) {
    for (const bool blocking : {true, false}) {
        for (std::size_t most = 1; most < kHello; most += 11) {
            Options options;
            options.cuts_hellos = true;
            options.most_sent = most;
            options.renewed = true;
            const Talk done = talk(options, {300, 200, kAll, blocking});
            const std::string where = std::to_string(most) + " bytes fit\n" + done.told();
            EXPECT_TRUE(done.ending.went_well()) << where;
            EXPECT_TRUE(done.client_was_told()) << where;
            EXPECT_TRUE(done.server_was_told()) << where;
            EXPECT_TRUE(done.there.bytes.empty() && done.back.bytes.empty()) << where;
            EXPECT_EQ(done.ending.lines_with("cannot send the handshake", 0), 1) << where;
        }
    }
}

/// The kernel opens a connection while the program does something else; so does the courier.
TEST(Connections, OpenWhileProgramsAreElsewhere) {
    for (std::uint64_t seed = 0; seed < 10; ++seed) {
        Options options;
        options.seed = seed;
        options.slow = seed != 0;
        options.most_arriving = 50;
        Job job(options);
        bool open[2] = {false, false};
        Read read;
        job.program(1, [&] {
            const Fd listener = listen_at();
            const Fd fd = accept_from(listener);
            sleep_ns(2 * kSecond);
            open[1] = is_open(fd);
            read = read_from(fd);
        });
        job.program(0, [&] {
            const Fd fd = connected_to(address(1, kPort));
            sleep_ns(2 * kSecond);
            open[0] = is_open(fd);
            send_all(fd, clear(100));
        });
        const Ending ending = job.run();
        EXPECT_TRUE(ending.went_well() && ending.said.empty()) << ending.told();
        EXPECT_TRUE(open[0] && open[1]) << seed;
        EXPECT_EQ(read.bytes, clear(100));
        EXPECT_TRUE(read.ended);
    }
}

/// Nobody has accepted yet: the kernel would take it, and so do we. None of it is in clear, and none is lost.
TEST(Connections, TakeWhatIsWrittenEarly) {
    for (const bool closes : {false, true}) {
        Job job;
        std::int64_t waited_ns = -1;
        Read read;
        Bytes answer;
        job.program(1, [&] {
            const Fd listener = listen_at();
            sleep_ns(3 * kSecond);
            const Fd fd = accept_from(listener);
            read = read_from(fd, closes ? kAll : 100);
            send_all(fd, clear(10));
        });
        job.program(0, [&] {
            Fd fd = connected_to(address(1, kPort));
            const std::int64_t began_ns = time_ns();
            send_all(fd, clear(100), 60);
            if (closes) fd.close();
            waited_ns = time_ns() - began_ns;
            if (!closes) answer = read_from(fd, 10).bytes;
        });
        const Ending ending = job.run();
        EXPECT_TRUE(ending.went_well() && ending.said.empty()) << ending.told();
        EXPECT_LT(waited_ns, kSecond / 10);
        EXPECT_EQ(read.bytes, clear(100));
        EXPECT_EQ(read.ended, closes);
        EXPECT_EQ(answer, closes ? Bytes() : clear(10));
    }
}

/// A process that shared the connection opened it, and was killed before it had sent what was written early: its end
/// must not look like the end of all that was written.
TEST(Connections, WhoseBeginningWasLostAreNotEndedInOrder) {
    for (const bool closes : {false, true}) {
        Options options;
        options.renewed = true;
        Job job(options);
        Read read;
        Result sent{};
        job.program(1, [&] {
            const Fd listener = listen_at();
            const Fd fd = accept_from(listener);
            read = read_from(fd);
        });
        job.program(0, [&] {
            const Fd fd = connected_to(address(1, kPort));
            sleep_ns(kSecond);
            entry_of(fd).shared.load()->early_size = 100;
            if (!closes) sent = result(::send(fd, clear(10).data(), 10, MSG_NOSIGNAL));
        });
        const Ending ending = job.run();
        EXPECT_EQ(ending.lines_with("was killed before it had sent what was written first", 0), 1) << ending.told();
        EXPECT_FALSE(read.ended);
        EXPECT_TRUE(read.bytes.empty());
        EXPECT_EQ(sent.error, closes ? 0 : ECONNRESET);
    }
}

/// The same in the middle of the handshake, which nobody can go on with.
TEST(Connections, WhoseHandshakeWasLeftByAProcessThatWasKilledFail) {
    Options options;
    options.renewed = true;
    Job job(options);
    Result got{};
    std::int64_t waited_ns = 0;
    job.program(1, [&] {
        const Fd listener = listen_at();
        sleep_ns(30 * kSecond);
    });
    job.program(0, [&] {
        const Fd fd = connected_to(address(1, kPort));
        entry_of(fd).shared.load()->hello_size = kHello;
        const std::int64_t began_ns = time_ns();
        std::uint8_t byte = 0;
        got = result(::recv(fd, &byte, 1, 0));
        waited_ns = time_ns() - began_ns;
    });
    const Ending ending = job.run();
    EXPECT_EQ(got.n, -1);
    EXPECT_EQ(got.error, ECONNRESET);
    EXPECT_LT(waited_ns, 10 * kSecond);
    EXPECT_EQ(ending.lines_with("was killed in the middle of the handshake", 0), 1) << ending.told();
}

/// A round of the courier may have brought a connection to its end before the courier is asked to carry it.
TEST(Connections, ThatHaveEndedAreNotCarried) {
    Job job;
    Read read;
    job.program(1, [&] {
        const Fd listener = listen_at();
        const Fd fd = accept_from(listener);
        read = read_from(fd);
    });
    job.program(0, [&] {
        static Entry ended;
        const Fd fd = connected_to(address(1, kPort));
        Process::made()->background().carry(ended);
        sleep_ns(2 * kSecond);
        send_all(fd, clear(100));
    });
    const Ending ending = job.run();
    EXPECT_TRUE(ending.went_well() && ending.said.empty()) << ending.told();
    EXPECT_EQ(read.bytes, clear(100));
}

/// A rank that computes answers when it next enters MPI. One note says whom its peer waits for, and it is no error.
TEST(Connections, WaitForAPeerThatComputes) {
    Options options;
    options.renewed = true;
    Job job(options);
    Read read;
    job.program(1, [&] {
        const Fd listener = listen_at();
        sleep_ns(20 * kSecond);
        const Fd fd = accept_from(listener);
        read = read_from(fd, 100);
        send_all(fd, clear(10));
    });
    Bytes answer;
    job.program(0, [&] {
        const Fd fd = connected_to(address(1, kPort));
        send_all(fd, clear(100));
        answer = read_from(fd, 10).bytes;
    });
    const Ending ending = job.run();
    EXPECT_TRUE(ending.went_well()) << ending.told();
    EXPECT_EQ(read.bytes, clear(100));
    EXPECT_EQ(answer, clear(10));
    EXPECT_EQ(ending.lines_with("", 0), 1) << ending.told();
    EXPECT_EQ(ending.lines_with("note: still waiting for the handshake of 198.18.0.2:", 0), 1) << ending.told();
    EXPECT_EQ(ending.lines_with("", 1), 0) << ending.told();
}

/// Whoever withholds the peer's hello until the program has ended makes what it wrote be lost, and that is an error.
TEST(Connections, TellOfWhatWasNeverSent) {
    Options options;
    options.renewed = true;
    Job job(options);
    job.on_wire = [](const Unit&) { return std::vector<Bytes>(); };
    job.program(1, [&] {
        const Fd listener = listen_at();
        sleep_ns(60 * kSecond);
    });
    job.program(0, [&] {
        const Fd fd = connected_to(address(1, kPort));
        send_all(fd, clear(100));
        Process::made()->finish(Process::Ending::by_exit, end);
    });
    const Ending ending = job.run();
    EXPECT_EQ(ending.lines_with("what was written was never sent", 0), 1) << ending.told();
}

/// More than is kept early waits for the peer, as for a full socket.
TEST(Connections, AWriteThatIsTooLongForEarlyWaits) {
    for (const bool blocking : {true, false}) {
        Job job;
        Read read;
        Result first{};
        job.program(1, [&] {
            const Fd listener = listen_at();
            sleep_ns(3 * kSecond);
            read = read_from(accept_from(listener));
        });
        job.program(0, [&] {
            await_listener(address(1, kPort));
            const Fd fd(::socket(AF_INET, SOCK_STREAM | (blocking ? 0 : SOCK_NONBLOCK), 0));
            (void)connect_to(fd, address(1, kPort));
            const Bytes data = clear(100'000);
            first = result(::send(fd, data.data(), data.size(), MSG_NOSIGNAL));
            if (first.n < 0) first.n = 0;
            send_all(fd, Bytes(data.begin() + first.n, data.end()));
        });
        const Ending ending = job.run();
        EXPECT_TRUE(ending.went_well() && ending.said.empty()) << ending.told();
        EXPECT_EQ(first.error, blocking ? 0 : EAGAIN);
        EXPECT_EQ(read.bytes, clear(100'000));
        EXPECT_TRUE(read.ended);
    }
}

struct Mismatch {
    const char* name;
    Settings of_client;
    const char* line;
    const char* says = "";  // who says that line
};

class Refused : public testing::TestWithParam<Mismatch> {};

// protocol: H16
TEST_P(Refused, AndToldWithoutAByte) {
    for (const int odd : {0, 1}) {
        Options options;
        options.renewed = true;
        options.of_node[odd] = GetParam().of_client;
        const Talk done = talk(options);
        EXPECT_TRUE(done.ending.went_well()) << done.told();
        EXPECT_TRUE(done.there.bytes.empty() && done.back.bytes.empty()) << done.told();
        EXPECT_FALSE(done.there.ended || done.back.ended) << done.told();
        EXPECT_TRUE(done.client_was_told() && done.server_was_told()) << done.told();
        EXPECT_EQ(done.ending.lines_with(GetParam().line), 1) << done.told();
        EXPECT_LE(done.ending.lines_with("", 0), 1) << done.told();
        EXPECT_LE(done.ending.lines_with("", 1), 1) << done.told();
    }
}

INSTANTIATE_TEST_SUITE_P(
    Connections, Refused,
    testing::Values(Mismatch{"Key", {{"CRYPTMPI_KEY_FILE", "other.key"}}, "job key"},
                    Mismatch{"Cipher", {{"CRYPTMPI_CIPHER", "AES-128-GCM"}}, "AES-128-GCM"},
                    Mismatch{"Job", {{"CRYPTMPI_JOB_ID", "another"}}, "another job"},
                    Mismatch{"KeyExchange", {{"CRYPTMPI_KEY_EXCHANGE", "x25519-mlkem768"}}, "key_exchange"}),
    [](const auto& one) { return std::string(one.param.name); });

/// What a peer that is no CryptMPI gets, and what a program hears of it.
TEST(Connections, WithWhoIsNotUnderUsAreRefused) {
    const std::vector<std::string> replies = {"",
                                              "x",
                                              "SSH-2.0-OpenSSH_9.2p1 Debian\r\n",
                                              std::string(300, '\0'),
                                              "HTTP/1.1 400 Bad Request\r\n\r\n",
                                              std::string("CMPI\x01\x02\x01\x00", 8) + std::string(184, '\0')};
    for (const bool client_is_plain : {false, true}) {
        for (const std::string& reply : replies) {
            Options options;
            options.renewed = true;
            options.of_node[client_is_plain ? 0 : 1] = {{"CRYPTMPI_ENABLED", "false"}};
            Job job(options);
            Result got{};
            Bytes heard;
            const auto plain = [&](const Fd& fd) {
                send_all(fd, Bytes(reply.begin(), reply.end()));
                heard = read_from(fd).bytes;
            };
            const auto ours = [&](const Fd& fd) {
                got = result(::send(fd, clear(20).data(), 20, MSG_NOSIGNAL));
                std::uint8_t byte = 0;
                if (got.n >= 0) got = result(::recv(fd, &byte, 1, 0));
            };
            job.program(1, [&] {
                const Fd listener = listen_at();
                const Fd fd = accept_from(listener);
                client_is_plain ? ours(fd) : plain(fd);
            });
            job.program(0, [&] {
                const Fd fd = connected_to(address(1, kPort));
                client_is_plain ? plain(fd) : ours(fd);
            });
            const Ending ending = job.run();
            const std::string where =
                "\"" + reply.substr(0, 10) + "\" " + std::to_string(client_is_plain) + "\n" + ending.told();
            EXPECT_TRUE(ending.went_well()) << where;
            EXPECT_EQ(got.n, -1) << where;
            const bool says_little = reply.size() < 2 || reply.size() == 28;
            EXPECT_TRUE(got.error == EPROTO || (says_little && got.error == ETIMEDOUT)) << name_of(got.error) << where;
            EXPECT_EQ(ending.lines_with("plaintext_peers") + ending.lines_with("protocol version 1"), 1) << where;
            EXPECT_EQ(ending.lines_with("refused"), 1) << where;
            // A responder answers nobody who has not shown that he is one of us.
            EXPECT_EQ(heard.size(), client_is_plain ? 0 : kHello) << where;
        }
    }
}

/// A port scan, or a health check: nobody is bothered with it.
TEST(Connections, ThatComeAndGoAreNoNews) {
    for (const bool resets : {false, true}) {
        for (const bool accepted_late : {false, true}) {
            Options options;
            options.of_node[0] = {{"CRYPTMPI_ENABLED", "false"}};
            Job job(options);
            Result got{};
            job.program(1, [&] {
                const Fd listener = listen_at();
                if (accepted_late) sleep_ns(kSecond);
                const Fd fd = accept_from(listener);
                std::uint8_t byte = 0;
                got = result(::recv(fd, &byte, 1, 0));
            });
            job.program(0, [&] {
                const Fd fd = connected_to(address(1, kPort));
                const linger now{1, 0};
                if (resets) ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
            });
            const Ending ending = job.run();
            EXPECT_TRUE(ending.went_well() && ending.said.empty()) << ending.told();
            EXPECT_EQ(got.error, ECONNRESET) << ending.told();
        }
    }
}

// protocol: H12
TEST(Connections, OfStrangersWhoSayNothingAreFew) {
    constexpr int kStrangers = 300;
    constexpr int kKept = 256;
    Options options;
    options.of_node[0] = {{"CRYPTMPI_ENABLED", "false"}};
    Job job(options);
    int ended = 0;
    Bytes of_friend;
    job.program(1, [&] {
        const Fd listener = listen_at();
        std::vector<Fd> accepted;
        for (int i = 0; i < kStrangers; ++i) accepted.push_back(accept_from(listener));
        for (const Fd& fd : accepted) {
            std::uint8_t byte = 0;
            const Result got = result(::recv(fd, &byte, 1, MSG_DONTWAIT));
            ended += got.error == ECONNRESET ? 1 : 0;
        }
        const Fd fd = accept_from(listener);
        of_friend = read_from(fd).bytes;
    });
    job.program(0, [&] {
        std::vector<Fd> all;
        for (int i = 0; i < kStrangers; ++i) all.push_back(connected_to(address(1, kPort)));
        sleep_ns(2 * kSecond);
    });
    job.program(2, [&] {
        await_listener(address(1, kPort));
        sleep_ns(kSecond);
        send_all(connected_to(address(1, kPort)), clear(50));
    });
    const Ending ending = job.run();
    EXPECT_TRUE(ending.stuck.empty() && ending.complaints.empty() && ending.said.empty()) << ending.told();
    EXPECT_EQ(ended, kStrangers - kKept);
    EXPECT_EQ(of_friend, clear(50));
}

// protocol: H12
TEST(Connections, OfWhoStopsAfterAWordEndsSoon) {
    for (const std::string& words : {std::string(), std::string("CMPI\x02\x01\x02\x00 and no more", 20)}) {
        Options options;
        options.renewed = true;
        options.settings["CRYPTMPI_HANDSHAKE_TIMEOUT_S"] = "600";
        options.of_node[0] = {{"CRYPTMPI_ENABLED", "false"}};
        Job job(options);
        Result got{};
        std::int64_t waited_ns = 0;
        job.program(1, [&] {
            const Fd listener = listen_at();
            const Fd fd = accept_from(listener);
            const std::int64_t began_ns = time_ns();
            std::uint8_t byte = 0;
            got = result(::recv(fd, &byte, 1, 0));
            waited_ns = time_ns() - began_ns;
        });
        job.program(0, [&] {
            const Fd fd = connected_to(address(1, kPort));
            send_all(fd, Bytes(words.begin(), words.end()));
            (void)read_from(fd);
        });
        const Ending ending = job.run();
        EXPECT_TRUE(ending.went_well()) << ending.told();
        EXPECT_EQ(got.error, ETIMEDOUT);
        EXPECT_NEAR(static_cast<double>(waited_ns), 20e9, 1e9);
        EXPECT_EQ(ending.lines_with("no handshake within"), 1) << ending.told();
        EXPECT_EQ(ending.lines_with(""), 1) << ending.told();
    }
}

/// Inside a node nothing is sealed, and whether it is inside is asked of the kernel.
TEST(Connections, StayNativeInsideANode) {
    for (const bool blocking : {true, false}) {
        for (const bool slow : {true, false}) {
            Options options;
            options.settings["CRYPTMPI_SCOPE"] = "between-nodes";
            options.clear_inside = true;
            options.slow = slow;
            Job job(options);
            Read read;
            Bytes back;
            bool is_sealed[2] = {true, true};
            job.program(1, [&] {
                const Fd listener = listen_at();
                const Fd fd = accept_from(listener);
                is_sealed[1] = Process::made()->table().find_sealed(fd) != nullptr;
                read = read_from(fd, 1000);
                send_all(fd, clear(1000));
            });
            job.program(1, [&] {
                const Fd fd = connected_to(loopback(kPort), blocking);
                send_all(fd, clear(1000));
                back = read_from(fd, 1000).bytes;
                is_sealed[0] = Process::made()->table().find_sealed(fd) != nullptr;
            });
            const Ending ending = job.run();
            EXPECT_TRUE(ending.went_well() && ending.said.empty()) << ending.told();
            EXPECT_EQ(read.bytes, clear(1000));
            EXPECT_EQ(back, clear(1000));
            EXPECT_FALSE(is_sealed[0] || is_sealed[1]);
            EXPECT_EQ(ending.moved[0], 1000U);
        }
    }
}

/// A setting of the user's lets one peer be spoken to in clear; nobody else.
TEST(Connections, WithAPlaintextPeerAreInClear) {
    for (const bool allowed : {true, false}) {
        Options options;
        options.renewed = true;
        options.settings["CRYPTMPI_PLAINTEXT_PEERS"] = allowed ? "198.18.0.2" : "198.18.0.77";
        options.of_node[1] = {{"CRYPTMPI_ENABLED", "false"}};
        Job job(options);
        Read read;
        int error = 0;
        const std::string words = "in clear";
        job.program(1, [&] {
            const Fd listener = listen_at();
            read = read_from(accept_from(listener));
        });
        job.program(0, [&] {
            const Fd fd = connected_to(address(1, kPort));
            error = send_all(fd, Bytes(words.begin(), words.end()));
            ::shutdown(fd, SHUT_WR);
            std::uint8_t byte = 0;
            if (error == 0 && ::recv(fd, &byte, 1, 0) < 0) error = errno;
        });
        const Ending ending = job.run();
        EXPECT_TRUE(ending.went_well()) << ending.told();
        EXPECT_EQ(read.bytes == Bytes(words.begin(), words.end()), allowed);
        EXPECT_EQ(error == 0, allowed);
    }
}

/// Both ends must see the same addresses, unless address translation is between them.
TEST(Connections, OfOtherAddressesAreRefused) {
    for (const bool checks : {true, false}) {
        Options options;
        options.renewed = true;
        options.settings["CRYPTMPI_CHECK_ADDRESSES"] = checks ? "true" : "false";
        Manner manner;
        manner.before = [](Job& job) { job.translates = true; };
        const Talk done = talk(options, manner);
        EXPECT_TRUE(done.ending.went_well()) << done.told();
        EXPECT_EQ(done.is_whole(1000, 500), !checks) << done.told();
        EXPECT_EQ(done.ending.lines_with("check_addresses"), checks ? 1 : 0) << done.told();
        EXPECT_EQ(done.there.bytes.size(), checks ? 0U : 1000U);
    }
}

/// Wherever a call says EAGAIN or is interrupted, the connection goes on, or is lost in the handshake and both ends
/// know. (The two hellos and the confirm record are taken whole by a socket of Linux.)
TEST(Connections, ComeWholeWhereverACallHasNothing) {
    for (const bool blocking : {true, false}) {
        for (const int error : {EAGAIN, EINTR}) {
            std::uint64_t place = 0;
            for (bool struck = true; struck; ++place) {
                struck = false;
                Options options;
                options.slow = true;
                options.seed = 7;
                options.most_arriving = 700;
                options.capacity = 3000;
                Manner manner{4000, 3000, 1500, blocking};
                std::string name;
                manner.before = [&](Job& job) {
                    job.fails = [&](const Call& call) {
                        const std::string called = call.name;
                        const bool moves = called == "send" || called == "recv" || called.ends_with("o") ||
                                           called.ends_with("from") || called == "ppoll" || called == "poll";
                        if (!moves || call.number < place || struck) return 0;
                        // poll() never says EAGAIN.
                        if (error == EAGAIN && called.ends_with("poll")) return 0;
                        place = call.number;
                        struck = true;
                        name = called;
                        return error;
                    };
                };
                const Talk done = talk(options, manner);
                const std::string where = name + ", call " + std::to_string(place) + "\n" + done.told();
                EXPECT_TRUE(done.ending.went_well()) << where;
                EXPECT_TRUE(done.is_honest(4000, 3000)) << where;
                if (done.is_whole(4000, 3000)) continue;
                EXPECT_EQ(name, "send") << where;
                EXPECT_TRUE(done.client_was_told() && done.server_was_told()) << where;
                EXPECT_TRUE(done.there.bytes.empty() && done.back.bytes.empty()) << where;
            }
            EXPECT_GT(place, 50U);
        }
    }
}

/// The kernel's dup2 is another one for a while.
class OtherDup2 {
public:
    explicit OtherDup2(int (*other)(int, int)) { real::dup2.replace(other); }
    ~OtherDup2() {
        real::dup2.replace([](int from, int to) { return from == to ? to : real::dup3(from, to, 0); });
    }
    OtherDup2(const OtherDup2&) = delete;
    OtherDup2& operator=(const OtherDup2&) = delete;
};

/// What another thread writes to a number while that becomes a connection's: in the kernel it is one already.
Result written_meanwhile;

TEST(Connections, NothingIsWrittenPastThemToANumberThatBecomesTheirs) {
    Job job;
    Read read;
    job.program(1, [&] {
        const Fd listener = listen_at();
        read = read_from(accept_from(listener));
    });
    job.program(0, [&] {
        const Fd fd = connected_to(address(1, kPort));
        const Fd number(::open("/dev/null", O_WRONLY | O_CLOEXEC));
        const OtherDup2 other([](int from, int to) {
            const int made = real::dup3(from, to, 0);
            written_meanwhile = result(::write(to, clear(10).data(), 10));
            return made;
        });
        EXPECT_EQ(::dup2(fd, number), int{number});
        EXPECT_EQ(send_all(number, clear(100)), 0);
    });
    const Ending ending = job.run();
    EXPECT_TRUE(ending.went_well() && ending.said.empty()) << ending.told();
    EXPECT_EQ(written_meanwhile.n, -1);
    EXPECT_EQ(read.bytes, clear(100));
    EXPECT_TRUE(read.ended);
}

/// The kernel does not do what we counted on: the number still is the connection's there.
TEST(Connections, NothingIsWrittenPastThemToANumberThatShouldHaveBeenTaken) {
    Job job;
    Read read;
    Result written{};
    job.program(1, [&] {
        const Fd listener = listen_at();
        read = read_from(accept_from(listener));
    });
    job.program(0, [&] {
        const Fd fd = connected_to(address(1, kPort));
        const Fd second(::dup(fd));
        const Fd other(::open("/dev/null", O_WRONLY | O_CLOEXEC));
        const OtherDup2 failing([](int, int) {
            errno = EINTR;
            return -1;
        });
        EXPECT_EQ(::dup2(other, second), -1);
        written = result(::write(second, clear(10).data(), 10));
        EXPECT_EQ(send_all(fd, clear(100)), 0);
    });
    const Ending ending = job.run();
    EXPECT_TRUE(ending.went_well() && ending.said.empty()) << ending.told();
    EXPECT_EQ(written.n, -1);
    EXPECT_EQ(read.bytes, clear(100));
    EXPECT_TRUE(read.ended);
}

TEST(Connections, ChangeTheirKeysOnTheWay) {
    for (const char* const threads : {"1", "4"}) {
        Options options;
        options.settings["CRYPTMPI_INTERNAL_KEY_LIMITS"] = "5,300000";
        options.settings["CRYPTMPI_THREADS"] = threads;
        options.slow = true;
        options.most_arriving = 5000;
        Job job(options);
        Read read;
        std::uint64_t rekeys = 0;
        std::uint64_t opened = 0;
        job.program(1, [&] {
            const Fd listener = listen_at();
            const Fd fd = accept_from(listener);
            read = read_from(fd, 1'000'000, 300'000);
            opened = entry_of(fd).opener->counters().rekeys;
        });
        job.program(0, [&] {
            const Fd fd = connected_to(address(1, kPort));
            send_all(fd, clear(1'000'000), 250'000);
            rekeys = entry_of(fd).sealer->counters().rekeys;
        });
        const Ending ending = job.run();
        EXPECT_TRUE(ending.went_well() && ending.said.empty()) << ending.told();
        EXPECT_TRUE(read.bytes == clear(1'000'000));
        EXPECT_GE(rekeys, 3U);
        EXPECT_EQ(rekeys, opened);
    }
}

/// What the size of a write is, the wire does not show: buckets are all there is.
TEST(Connections, ShowBucketsOnlyWhereTheyPad) {
    std::map<std::size_t, std::set<std::size_t>> seen;  // sizes of units, by the bucket that was written
    for (const std::size_t size : {1, 100, 200, 256, 257, 300, 500, 512, 5000, 8192}) {
        Options options;
        options.settings["CRYPTMPI_PADDING"] = "power-of-two:256";
        std::vector<std::size_t> sizes;
        Manner manner{size, 10};
        manner.before = [&](Job& job) {
            job.on_wire = [&](const Unit& unit) {
                if (unit.there && unit.number > 1) sizes.push_back(unit.bytes.size());
                return std::vector<Bytes>{unit.bytes};
            };
        };
        const Talk done = talk(options, manner);
        EXPECT_TRUE(done.ending.went_well() && done.is_whole(size, 10)) << done.told();
        ASSERT_EQ(sizes.size(), 2U) << size;  // and the close record
        std::size_t bucket = 256;
        while (bucket < size) bucket *= 2;
        seen[bucket].insert(sizes[0]);
    }
    for (const auto& [bucket, sizes] : seen) EXPECT_EQ(sizes.size(), 1U) << bucket;
    EXPECT_EQ(seen.size(), 3U);
}

/// The same talk twice: nothing of the one is in the other, whatever was said.
TEST(Connections, HaveNothingInCommon) {
    std::vector<Bytes> wires[2];
    for (auto& wire : wires) {
        Manner manner;
        manner.before = [&](Job& job) {
            job.on_wire = [&](const Unit& unit) {
                // Behind the prefix of a hello, and the header of a record, which say what they are.
                const std::size_t known = unit.number == 0 ? keys::kPrefixSize : seal::kHeaderSize;
                wire.emplace_back(unit.bytes.begin() + static_cast<std::ptrdiff_t>(known), unit.bytes.end());
                return std::vector<Bytes>{unit.bytes};
            };
        };
        ASSERT_TRUE(talk({}, manner).is_whole(1000, 500));
    }
    std::set<Bytes> blocks;
    for (const Bytes& unit : wires[0]) {
        for (std::size_t at = 0; at + 8 <= unit.size(); ++at)
            blocks.emplace(unit.begin() + static_cast<std::ptrdiff_t>(at),
                           unit.begin() + static_cast<std::ptrdiff_t>(at) + 8);
    }
    EXPECT_GT(blocks.size(), 1000U);
    for (const Bytes& unit : wires[1]) {
        for (std::size_t at = 0; at + 8 <= unit.size(); ++at)
            EXPECT_FALSE(blocks.contains(Bytes(unit.begin() + static_cast<std::ptrdiff_t>(at),
                                               unit.begin() + static_cast<std::ptrdiff_t>(at) + 8)));
    }
}

}  // namespace
}  // namespace cryptmpi::channel::fake
