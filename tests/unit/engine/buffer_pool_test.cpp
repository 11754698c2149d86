// Buffers that are used again, and not twice at once.
#include "engine/buffer_pool.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace {

int allocations = 0;  // of arrays, which is what buffers are

}  // namespace

void* operator new[](std::size_t size) {
    ++allocations;
    void* at = std::malloc(size);
    if (at == nullptr) throw std::bad_alloc();
    return at;
}

void operator delete[](void* at) noexcept {
    std::free(at);
}

void operator delete[](void* at, std::size_t) noexcept {
    std::free(at);
}

namespace cryptmpi::engine {
namespace {

using Buffer = BufferPool::Buffer;
constexpr std::size_t kSize = 1000;

/// How many new buffers `action` made.
template <class Action>
int made_by(const Action& action) {
    const int before = allocations;
    action();
    return allocations - before;
}

TEST(BufferPool, UsesABufferAgain) {
    BufferPool pool(kSize, 10 * kSize);
    EXPECT_EQ(made_by([&] { pool.take(kSize); }), 1);
    EXPECT_EQ(made_by([&] {
                  for (int i = 0; i < 5; ++i) pool.take(1);
              }),
              0);
}

TEST(BufferPool, GivesTwoAtOnceMemoryOfTheirOwn) {
    BufferPool pool(kSize, 10 * kSize);
    for (int round = 0; round < 3; ++round) {
        const Buffer first = pool.take(kSize);
        const Buffer second = pool.take(1);
        std::memset(first.data(), 1, kSize);
        std::memset(second.data(), 2, kSize);  // whole, whatever was asked for
        EXPECT_EQ(first.data()[kSize - 1], 1);
        EXPECT_EQ(second.data()[0], 2);
    }
}

TEST(BufferPool, KeepsNoMoreThanItMay) {
    BufferPool pool(kSize, 2 * kSize + kSize / 2);
    const auto three = [&] { const Buffer all[] = {pool.take(kSize), pool.take(kSize), pool.take(kSize)}; };
    EXPECT_EQ(made_by(three), 3);
    EXPECT_EQ(made_by(three), 1);
    EXPECT_EQ(made_by(three), 1);
}

TEST(BufferPool, DoesNotKeepLargerOnes) {
    BufferPool pool(kSize, 10 * kSize);
    const auto larger = [&] {
        const Buffer buffer = pool.take(kSize + 1);
        std::memset(buffer.data(), 3, kSize + 1);
    };
    EXPECT_EQ(made_by(larger), 1);
    EXPECT_EQ(made_by(larger), 1);
    EXPECT_EQ(made_by([&] { pool.take(kSize); }), 1);
}

TEST(BufferPool, TakesAMovedBufferBackOnce) {
    BufferPool pool(kSize, 10 * kSize);
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
    BufferPool pool(kSize, 10 * kSize);
    {
        Buffer kept = pool.take(kSize);
        kept = pool.take(kSize + 1);  // of no pool
        EXPECT_EQ(made_by([&] { pool.take(kSize); }), 0);
    }
    EXPECT_EQ(made_by([&] { pool.take(kSize); }), 0);
}

}  // namespace
}  // namespace cryptmpi::engine
