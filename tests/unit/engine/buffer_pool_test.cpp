// Buffers that are used again, and not twice at once.
#include "engine/buffer_pool.hpp"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>
#include <utility>
#include <vector>

namespace {

std::atomic<int> allocations = 0;  // of aligned memory, which is what buffers are

}  // namespace

void* operator new(std::size_t size, std::align_val_t alignment) {
    ++allocations;
    void* at = std::aligned_alloc(static_cast<std::size_t>(alignment), (size + 63) / 64 * 64);
    if (at == nullptr) throw std::bad_alloc();
    return at;
}

void operator delete(void* at, std::align_val_t) noexcept {
    std::free(at);
}

namespace cryptmpi::engine {
namespace {

constexpr std::size_t kSize = 1000;
constexpr std::size_t kRoom = 1024 + 64;  // of a buffer of that size
constexpr std::size_t kTooLarge = std::size_t{33} << 20;

/// How many new buffers `action` made.
template <class Action>
int made_by(const Action& action) {
    const int before = allocations;
    action();
    return allocations - before;
}

TEST(BufferPool, UsesABufferAgainForWhatFits) {
    BufferPool pool(10 * kRoom);
    EXPECT_EQ(made_by([&] { pool.take(kSize); }), 1);
    EXPECT_EQ(made_by([&] {
                  for (std::size_t size = 600; size <= kRoom; ++size) pool.take(size);
              }),
              0);
    EXPECT_EQ(made_by([&] { pool.take(kRoom + 1); }), 1);
}

TEST(BufferPool, GivesRoomForEachSize) {
    BufferPool pool(std::size_t{64} << 20);
    for (std::size_t size = 0; size < 70000; size += size < 600 ? 1 : 61) {
        const Buffer buffer = pool.take(size);
        ASSERT_EQ(buffer.size(), size);
        ASSERT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0U);
        if (size != 0) std::memset(buffer.data(), 1, size);  // a sanitizer sees what is too small
    }
}

TEST(BufferPool, GivesTwoAtOnceMemoryOfTheirOwn) {
    BufferPool pool(10 * kRoom);
    for (int round = 0; round < 3; ++round) {
        const Buffer first = pool.take(kSize);
        const Buffer second = pool.take(kSize);
        std::memset(first.data(), 1, kSize);
        std::memset(second.data(), 2, kSize);
        EXPECT_EQ(first.data()[kSize - 1], 1);
        EXPECT_EQ(second.data()[0], 2);
    }
}

TEST(BufferPool, KeepsNoMoreThanItMay) {
    BufferPool pool(2 * kRoom + kRoom / 2);
    const auto three = [&] { const Buffer all[] = {pool.take(kSize), pool.take(kSize), pool.take(kSize)}; };
    EXPECT_EQ(made_by(three), 3);
    EXPECT_EQ(made_by(three), 1);
    EXPECT_EQ(made_by(three), 1);
}

TEST(BufferPool, DoesNotKeepVeryLargeOnes) {
    BufferPool pool(10 * kTooLarge);
    const auto larger = [&] {
        const Buffer buffer = pool.take(kTooLarge);
        std::memset(buffer.data(), 3, kTooLarge);
    };
    EXPECT_EQ(made_by(larger), 1);
    EXPECT_EQ(made_by(larger), 1);
}

TEST(BufferPool, TakesAMovedBufferBackOnce) {
    BufferPool pool(10 * kRoom);
    EXPECT_EQ(made_by([&] {
                  Buffer one = pool.take(kSize);
                  Buffer other = std::move(one);
                  Buffer third;
                  EXPECT_EQ(third.data(), nullptr);
                  third = std::move(other);
                  EXPECT_NE(third.data(), nullptr);
              }),
              1);
    EXPECT_EQ(made_by([&] {
                  const Buffer again = pool.take(kSize);
                  const Buffer fresh = pool.take(kSize);
                  EXPECT_NE(again.data(), fresh.data());
              }),
              1);
}

TEST(BufferPool, TakesBackWhatAnAssignmentReplaced) {
    BufferPool pool(10 * kRoom);
    {
        Buffer kept = pool.take(kSize);
        kept = pool.take(kTooLarge);
        EXPECT_EQ(made_by([&] { pool.take(kSize); }), 0);
    }
    EXPECT_EQ(made_by([&] { pool.take(kSize); }), 0);
}

/// As a forged packet writes into a buffer that a network card still knows.
TEST(BufferPool, BelievesNothingThatIsWrittenIntoABufferThatNobodyUses) {
    for (const auto from : {BufferPool::From::heap, BufferPool::From::own_pages}) {
        BufferPool pool(10 * kTooLarge, from);
        for (const std::size_t size : {kSize, std::size_t{100'000}}) {
            std::uint8_t* written = nullptr;
            {
                const Buffer one = pool.take(size);
                const Buffer other = pool.take(size);
                written = other.data();
            }
            std::memset(written, 0xEE, size);
            const Buffer all[] = {pool.take(size), pool.take(size), pool.take(size)};
            for (const Buffer& buffer : all) std::memset(buffer.data(), 1, size);
            EXPECT_TRUE(all[0].data() == written || all[1].data() == written);
        }
    }
}

class OwnPages : public testing::Test {
protected:
    void SetUp() override {
#ifdef __SANITIZE_ADDRESS__
        GTEST_SKIP() << "a sanitizer sees more on the heap";
#endif
    }
    static constexpr std::size_t kLarge = 100'000;
    static constexpr std::size_t kLargeRoom = (std::size_t{128} << 10) + 64;

    static std::uint8_t* page_of(const void* at) {
        const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGESIZE));
        return reinterpret_cast<std::uint8_t*>(reinterpret_cast<std::uintptr_t>(at) / page * page);
    }
    static bool is_mapped(const void* at) {
        return msync(page_of(at), 1, MS_ASYNC) == 0 || errno != ENOMEM;
    }
    static bool is_zero(const Buffer& buffer) {
        return std::all_of(buffer.data(), buffer.data() + buffer.size(), [](std::uint8_t byte) { return byte == 0; });
    }

    BufferPool pool{2 * kLargeRoom, BufferPool::From::own_pages};
};

TEST_F(OwnPages, AreNotTheHeaps) {
    EXPECT_EQ(made_by([&] {
                  for (const std::size_t size : {std::size_t{1}, kSize, std::size_t{20'000}, kLarge, kTooLarge}) {
                      const Buffer buffer = pool.take(size);
                      EXPECT_TRUE(is_zero(buffer)) << size;
                      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64, 0U);
                      std::memset(buffer.data(), 1, buffer.room());
                  }
              }),
              0);
}

TEST_F(OwnPages, GoBackToTheKernelWhenTheyAreTooMany) {
    std::vector<std::uint8_t*> were;
    {
        std::vector<Buffer> all;
        for (int i = 0; i < 5; ++i) all.push_back(pool.take(kLarge));
        for (const Buffer& buffer : all) were.push_back(buffer.data());
    }
    EXPECT_EQ(std::count_if(were.begin(), were.end(), is_mapped), 2);
    std::uint8_t* large = nullptr;
    {
        const Buffer buffer = pool.take(kTooLarge);
        large = buffer.data();
    }
    EXPECT_FALSE(is_mapped(large));
}

TEST_F(OwnPages, OfSmallBuffersAreKeptAndSharedByThemAlone) {
    std::vector<std::uint8_t*> were;
    {
        std::vector<Buffer> all;
        for (int i = 0; i < 1000; ++i) all.push_back(pool.take(kSize));
        for (const Buffer& buffer : all) std::memset(buffer.data(), 1, kRoom);
        for (const Buffer& buffer : all) were.push_back(buffer.data());
    }
    EXPECT_EQ(std::count_if(were.begin(), were.end(), is_mapped), 1000);
    std::vector<Buffer> again;
    for (int i = 0; i < 1000; ++i) again.push_back(pool.take(kSize));
    std::vector<std::uint8_t*> are;
    for (const Buffer& buffer : again) are.push_back(buffer.data());
    std::sort(are.begin(), are.end());
    EXPECT_EQ(
        std::adjacent_find(are.begin(), are.end(), [](auto* a, auto* b) { return b - a < std::ptrdiff_t{kRoom}; }),
        are.end());
}

TEST(BufferPool, IsSharedByThreads) {
    BufferPool pool(10 * kRoom);
    pool.share();
    std::vector<std::thread> threads;
    for (std::uint8_t mark = 1; mark <= 4; ++mark) {
        threads.emplace_back([&pool, mark] {
            for (int round = 0; round < 2000; ++round) {
                const Buffer buffer = pool.take(kSize);
                std::memset(buffer.data(), mark, kSize);
                ASSERT_EQ(buffer.data()[0], mark);
                ASSERT_EQ(buffer.data()[kSize - 1], mark);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace cryptmpi::engine
