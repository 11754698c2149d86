// Two ends of a sealed connection in one process, over a kernel that the test plays: every call cut short, refused,
// interrupted or the last one.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "channel/connection.hpp"
#include "fake_kernel.hpp"

// Entries live as long as the process. The table that knows them is mapped memory, where the check for leaks does not
// look.
extern "C" const char* __asan_default_options();  // NOLINT(bugprone-reserved-identifier)
extern "C" [[gnu::visibility("default")]] const char* __asan_default_options() {
    return "detect_leaks=0";
}

namespace cryptmpi::channel {
namespace {

using Bytes = std::vector<std::uint8_t>;

/// One end, and what its program does: writes `outgoing` in pieces, reads what comes, then closes.
class Program {
public:
    Program(Process& process, int fd, keys::Role role, Bytes outgoing, std::size_t most_at_once = 3000)
        : process_(process),
          entry_(*process.table().add(fd, Kind::fresh)),
          fd_(fd),
          outgoing_(std::move(outgoing)),
          most_at_once_(most_at_once) {
        const auto peer = Address::peer_of(fd);
        begun_ = peer && begin(process, entry_, role, *peer, Tcp::connected) == 0;
        if (!begun_) error_ = errno;
    }
    ~Program() {
        (void)channel::end(process_, entry_);
        process_.table().remove(fd_);
        process_.table().forget(fd_);
        process_.table().recycle(&entry_);
    }
    Program(const Program&) = delete;
    Program& operator=(const Program&) = delete;

    /// One round of its work. False: nothing moved.
    bool work(FakeKernel& kernel) {
        const std::size_t before = kernel.activity() + received_.size() + sent_;
        if (error_ == 0 && sent_ < outgoing_.size()) write();
        settle_debt(process_, entry_);
        if (error_ == 0 && !ended_) read();
        if (error_ == 0 && sent_ == outgoing_.size() && !closed_) {
            closed_ = close_sending(process_, entry_, 0);
            if (closed_) kernel.close_from(fd_);
        }
        return kernel.activity() + received_.size() + sent_ != before;
    }

    const Bytes& received() const { return received_; }
    int error() const { return error_; }
    /// The program was told that its peer ended the connection in order.
    bool ended() const { return ended_; }
    bool closed() const { return closed_; }
    Entry& entry() { return entry_; }

private:
    void write() {
        // Several pieces, none of a record's size.
        const std::size_t size = std::min(outgoing_.size() - sent_, most_at_once_);
        const iovec pieces[] = {{outgoing_.data() + sent_, size / 3},
                                {outgoing_.data() + sent_ + size / 3, size - size / 3}};
        note(transmit(process_, entry_, pieces, MSG_DONTWAIT | MSG_NOSIGNAL), sent_);
    }
    void read() {
        Bytes room(most_at_once_ / 3);
        const iovec to{room.data(), room.size()};
        std::size_t size = 0;
        const ssize_t n = receive(process_, entry_, {&to, 1}, MSG_DONTWAIT);
        note(n, size);
        received_.insert(received_.end(), room.begin(), room.begin() + static_cast<std::ptrdiff_t>(size));
        ended_ = n == 0;
    }
    void note(ssize_t n, std::size_t& sum) {
        if (n >= 0) {
            sum += static_cast<std::size_t>(n);
        } else if (errno != EAGAIN && errno != EINTR) {
            error_ = errno;
        }
    }

    Process& process_;
    Entry& entry_;
    int fd_;
    bool begun_ = false;
    Bytes outgoing_;
    std::size_t most_at_once_;  // to write; a third of that to read
    Bytes received_;
    std::size_t sent_ = 0;
    int error_ = 0;
    bool ended_ = false;
    bool closed_ = false;
};

Bytes pattern(std::size_t size, std::uint8_t first) {
    Bytes bytes(size);
    std::iota(bytes.begin(), bytes.end(), first);
    return bytes;
}

/// What came of an exchange.
struct Outcome {
    Bytes received[2];  // by the one that accepted, by the one that connected
    int error[2];
    bool ended[2];
};

constexpr std::size_t kThere = 7001;  // bytes from the one that connects
constexpr std::size_t kBack = 4003;

class Stream : public testing::Test {
protected:
    static void SetUpTestSuite() {
        folder_ = std::filesystem::temp_directory_path() / ("cryptmpi-stream-" + std::to_string(getpid()));
        std::filesystem::create_directories(folder_);
        const auto key = folder_ / "job.key";
        std::ofstream(key) << "cryptmpi-job-key-1 " << std::string(64, '7') << "\n";
        std::filesystem::permissions(key, std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
        setenv("CRYPTMPI_KEY_FILE", key.c_str(), 1);
        setenv("CRYPTMPI_MODULE_FOLDER", CRYPTMPI_MODULES, 1);
        setenv("CRYPTMPI_JOB_ID", "stream-test", 1);
        setenv("CRYPTMPI_THREADS", "3", 1);
    }
    static void TearDownTestSuite() { std::filesystem::remove_all(folder_); }

    /// Both programs do their work in turn until nothing moves any more.
    static Outcome exchange(FakeKernel& kernel, std::size_t there = kThere, std::size_t back = kBack,
                            std::size_t most_at_once = 3000) {
        EXPECT_TRUE(kernel.made());
        Process& process = Process::get();
        Program connects(process, kernel.ends[0], keys::Role::initiator, pattern(there, 1), most_at_once);
        Program accepts(process, kernel.ends[1], keys::Role::responder, pattern(back, 101), most_at_once);
        // A fault may cost a round in which nothing moves.
        for (int idle = 0; idle < 3;) {
            const bool first = connects.work(kernel);
            const bool second = accepts.work(kernel);
            idle = first || second ? 0 : idle + 1;
        }
        return {{accepts.received(), connects.received()},
                {accepts.error(), connects.error()},
                {accepts.ended(), connects.ended()}};
    }

    static void expect_whole(const Outcome& outcome, const std::string& where) {
        EXPECT_EQ(outcome.received[0], pattern(kThere, 1)) << where;
        EXPECT_EQ(outcome.received[1], pattern(kBack, 101)) << where;
        for (int i = 0; i < 2; ++i) {
            EXPECT_EQ(outcome.error[i], 0) << where << ": " << std::strerror(outcome.error[i]);
            EXPECT_TRUE(outcome.ended[i]) << where;
        }
    }

    /// Of what was sent a part may be missing; nothing else may have come, and no part that looks like the whole.
    static void expect_no_lie(const Outcome& outcome, const std::string& where) {
        const Bytes sent[] = {pattern(kThere, 1), pattern(kBack, 101)};
        for (int i = 0; i < 2; ++i) {
            const Bytes& came = outcome.received[i];
            ASSERT_LE(came.size(), sent[i].size()) << where;
            EXPECT_TRUE(std::equal(came.begin(), came.end(), sent[i].begin())) << where;
            if (outcome.ended[i]) {
                EXPECT_EQ(came.size(), sent[i].size()) << where;
            }
        }
    }

    static inline std::filesystem::path folder_;
};

TEST_F(Stream, ComesWholeHoweverLittleACallMoves) {
    for (const std::size_t most : {1, 2, 3, 7, 19, 20, 21, 100, 1001}) {
        for (const std::size_t capacity : {256, 257, 1024, 1 << 20}) {
            FakeKernel kernel;
            kernel.most = most;
            kernel.capacity = capacity;
            expect_whole(exchange(kernel), std::to_string(most) + " of " + std::to_string(capacity));
        }
    }
}

TEST_F(Stream, ComesWholeWhereverACallHasNothing) {
    for (const Fault fault : {Fault::again, Fault::interrupted}) {
        std::size_t place = 0;
        for (bool struck = true; struck; ++place) {
            FakeKernel kernel;
            kernel.most = 700;
            kernel.capacity = 1500;
            kernel.faulty = place;
            kernel.fault = fault;
            const Outcome outcome = exchange(kernel);
            struck = kernel.struck();
            // A hello and a confirm record go out whole or not at all: a fresh socket has room for them.
            const bool in_handshake = outcome.error[0] != 0 || outcome.error[1] != 0;
            if (!in_handshake) {
                expect_whole(outcome, "call " + std::to_string(place));
            } else {
                EXPECT_LT(place, 12U) << "call " << place;
                expect_no_lie(outcome, "call " + std::to_string(place));
                for (int i = 0; i < 2; ++i) EXPECT_TRUE(outcome.ended[i] || outcome.error[i] != 0) << "call " << place;
            }
        }
        EXPECT_GT(place, 50U);
    }
}

/// Long writes and reads, which several threads share.
TEST_F(Stream, LongOnesComeWholeHoweverLittleACallMoves) {
    constexpr std::size_t kLong = 700'001;
    for (const std::size_t most : {4093UL, 65536UL, 100'000UL, FakeKernel::kNever}) {
        for (const std::size_t capacity : {9000UL, 70'000UL, 300'000UL}) {
            FakeKernel kernel;
            kernel.most = most;
            kernel.capacity = capacity;
            const Outcome outcome = exchange(kernel, kLong, kLong / 3, 3 * kLong);
            EXPECT_EQ(outcome.error[0] | outcome.error[1], 0) << most << " of " << capacity;
            EXPECT_TRUE(outcome.ended[0] && outcome.ended[1]) << most << " of " << capacity;
            EXPECT_TRUE(outcome.received[0] == pattern(kLong, 1)) << most << " of " << capacity;
            EXPECT_TRUE(outcome.received[1] == pattern(kLong / 3, 101)) << most << " of " << capacity;
        }
    }
}

// protocol: R8, R9
TEST_F(Stream, IsNeverTakenForWholeWhereItWasCut) {
    for (const Fault fault : {Fault::reset, Fault::end}) {
        std::size_t place = 0;
        for (bool struck = true; struck; ++place) {
            FakeKernel kernel;
            kernel.most = 700;
            kernel.capacity = 1500;
            kernel.faulty = place;
            kernel.fault = fault;
            const Outcome outcome = exchange(kernel);
            struck = kernel.struck();
            expect_no_lie(outcome, "call " + std::to_string(place));
            // Who misses something is told.
            for (int i = 0; i < 2; ++i) EXPECT_TRUE(outcome.ended[i] || outcome.error[i] != 0) << "call " << place;
        }
        EXPECT_GT(place, 50U);
    }
}

// protocol: R10, R11, R15
TEST_F(Stream, EveryFlippedBitIsNoticedBeforeItsBytes) {
    FakeKernel whole;
    exchange(whole, 900, 300);
    for (std::size_t place = 0; place < whole.moved(); ++place) {
        FakeKernel kernel;
        kernel.flipped = place;
        const Outcome outcome = exchange(kernel, 900, 300);
        ASSERT_TRUE(kernel.struck()) << place;
        EXPECT_TRUE(outcome.error[0] != 0 || outcome.error[1] != 0) << "byte " << place;
        const Bytes sent[] = {pattern(900, 1), pattern(300, 101)};
        for (int i = 0; i < 2; ++i) {
            const Bytes& came = outcome.received[i];
            ASSERT_LE(came.size(), sent[i].size());
            EXPECT_TRUE(std::equal(came.begin(), came.end(), sent[i].begin())) << "byte " << place;
            EXPECT_FALSE(outcome.ended[i] && came.size() != sent[i].size()) << "byte " << place;
        }
    }
}

TEST_F(Stream, ReadableMeansThatAReadGetsSomething) {
    FakeKernel kernel;
    kernel.most = 13;
    Process& process = Process::get();
    Program connects(process, kernel.ends[0], keys::Role::initiator, {});
    Program accepts(process, kernel.ends[1], keys::Role::responder, {});
    Entry& from = connects.entry();
    Entry& to = accepts.entry();
    for (int i = 0; i < 100; ++i) {
        drive(process, from);
        drive(process, to);
    }
    ASSERT_EQ(drive(process, to), State::open);
    EXPECT_FALSE(verify_readable(process, to));
    EXPECT_EQ(bytes_readable(process, to), 0);
    Bytes message = pattern(40, 5);
    const iovec out{message.data(), message.size()};
    ASSERT_EQ(transmit(process, from, {&out, 1}, MSG_DONTWAIT | MSG_NOSIGNAL), 40);
    // The record comes in pieces of 13 bytes; before the last of them there is nothing to read.
    std::uint8_t room[64];
    const iovec in{room, sizeof room};
    int before = 0;
    while (!verify_readable(process, to)) {
        ++before;
        ASSERT_LT(before, 40);
    }
    EXPECT_GT(before, 1);
    EXPECT_EQ(bytes_readable(process, to), 40);
    ASSERT_EQ(receive(process, to, {&in, 1}, MSG_DONTWAIT), 40);
    EXPECT_TRUE(std::equal(message.begin(), message.end(), room));
    EXPECT_FALSE(verify_readable(process, to));
}

}  // namespace
}  // namespace cryptmpi::channel
