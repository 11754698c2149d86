// One direction's state used by several sealers, as processes that share a socket after fork do.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <mutex>
#include <thread>

#include "seal/stream.hpp"
#include "seal/support.hpp"

namespace cryptmpi::seal {
namespace {

using test::Bytes;
using test::Direction;
using test::open_record;
using test::random_bytes;
using test::records_of;
using test::seal_data;

TEST(SharedState, TwoSealersTakeTurnsAndFollowEachOthersEpochs) {
    const Limits limits{4, 1 << 20};
    Direction line(limits);
    StreamSealer second(test::crypto(), line.sending, limits);
    StreamOpener other_opener(test::crypto(), line.receiving, limits);
    for (int i = 0; i < 60; ++i) {
        const Bytes plain = random_bytes(20);
        StreamSealer& sealer = test::random_below(2) == 0 ? line.sealer : second;
        for (const Bytes& record : records_of(seal_data(sealer, plain))) {
            StreamOpener& opener = test::random_below(2) == 0 ? line.opener : other_opener;
            const auto opened = open_record(opener, record);
            ASSERT_TRUE(opened.type.has_value()) << opened.line();
            if (opened.is(RecordType::data)) {
                EXPECT_EQ(opened.plain, plain);
            }
        }
    }
    EXPECT_EQ(line.sending.epoch, 19U);
    EXPECT_EQ(line.sealer.counters().records + second.counters().records, 60U + 19U);
}

TEST(SharedState, OnesCloseIsTheOthersToo) {
    Direction line;
    StreamSealer second(test::crypto(), line.sending);
    seal_data(second, random_bytes(3));
    test::seal_control(line.sealer, RecordType::close);
    std::uint8_t byte = 0;
    Bytes wire(64);
    const iovec in = {&byte, 1};
    EXPECT_FALSE(second.seal({&in, 1}, 1, wire.data()).has_value());
}

TEST(SharedState, AChildContinuesWhereItsParentIs) {
    const Limits limits{5, 1 << 20};
    Direction unused(limits);
    auto* state = static_cast<DirectionState*>(
        mmap(nullptr, sizeof(DirectionState), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(state, MAP_FAILED);
    *state = unused.sending;
    DirectionState receiving = unused.receiving;
    StreamSealer sealer(test::crypto(), *state, limits);
    StreamOpener opener(test::crypto(), receiving, limits);
    for (int i = 0; i < 3; ++i) {
        ASSERT_TRUE(open_record(opener, seal_data(sealer, random_bytes(9))).is(RecordType::data));
    }
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        bool sent = true;
        for (int i = 0; i < 20; ++i) {
            const Bytes wire = seal_data(sealer, Bytes(9, 5));
            sent = sent && write(ends[1], wire.data(), wire.size()) == static_cast<ssize_t>(wire.size());
        }
        _exit(sent ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    Bytes wire(4096);
    const ssize_t got = read(ends[0], wire.data(), wire.size());
    ASSERT_GT(got, 0);
    wire.resize(static_cast<std::size_t>(got));
    const Bytes after = seal_data(sealer, Bytes(9, 6));  // the parent, which slept through the child's epochs
    wire.insert(wire.end(), after.begin(), after.end());
    int data = 0;
    for (const Bytes& record : records_of(wire)) {
        const auto opened = open_record(opener, record);
        ASSERT_TRUE(opened.type.has_value()) << opened.line();
        data += opened.is(RecordType::data) ? 1 : 0;
    }
    EXPECT_EQ(data, 21);
    close(ends[0]);
    close(ends[1]);
    munmap(state, sizeof *state);
}

// protocol: S2
TEST(SharedState, ThreadsUnderTheDirectionsLockNeverRepeatACounter) {
    const Limits limits{16, 1 << 20};
    Direction line(limits);
    std::mutex direction;
    std::vector<Bytes> wire;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
        threads.emplace_back([&] {
            StreamSealer sealer(test::crypto(), line.sending, limits);
            for (int i = 0; i < 200; ++i) {
                const std::lock_guard hold(direction);
                wire.push_back(seal_data(sealer, Bytes(5, 1)));
            }
        });
    }
    // Another connection's ends use the ledger meanwhile.
    Direction other;
    for (int i = 0; i < 500; ++i) {
        seal_data(other.sealer, Bytes(5, 2));
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    for (const Bytes& sealed : wire) {
        for (const Bytes& record : records_of(sealed)) {
            ASSERT_TRUE(open_record(line.opener, record).type.has_value());
        }
    }
}

#ifndef NDEBUG
TEST(SharedStateDeathTest, ASecondUseOfACounterAbortsADebugBuild) {
    Direction line;
    DirectionState copy = line.sending;
    seal_data(line.sealer, random_bytes(4));
    StreamSealer second(test::crypto(), copy);
    EXPECT_DEATH(seal_data(second, random_bytes(4)), "counter 0 was about to be used twice under one key");
}
#endif

}  // namespace
}  // namespace cryptmpi::seal
