// Memory for secrets: aligned, its own, in no core dump, wiped when it is given back, of any thread and any child.
#include "base/secret_memory.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <list>
#include <memory>
#include <random>
#include <span>
#include <thread>
#include <vector>

#include "base/secret.hpp"
#include "mapping.hpp"

namespace cryptmpi {
namespace {

/// Taken, and given back by the destructor.
class Block {
public:
    explicit Block(std::size_t size) : size_(size), at_(static_cast<std::uint8_t*>(take_secret_memory(size))) {}
    Block(Block&& other) noexcept : size_(other.size_), at_(std::exchange(other.at_, nullptr)) {}
    Block& operator=(Block&& other) noexcept {
        std::swap(size_, other.size_);
        std::swap(at_, other.at_);
        return *this;
    }
    ~Block() { give_back_secret_memory(at_, size_); }

    std::uint8_t* at() const { return at_; }
    std::span<std::uint8_t> bytes() const { return {at_, size_}; }
    void fill(std::uint8_t with) const { std::ranges::fill(bytes(), with); }
    bool all(std::uint8_t value) const {
        return std::ranges::all_of(bytes(), [&](std::uint8_t byte) { return byte == value; });
    }

private:
    std::size_t size_;
    std::uint8_t* at_;
};

constexpr std::size_t kSizes[] = {
    1, 12, 32, 63, 64, 65, 100, 1408, 4096, 5000, kMostSecretMemory - 1, kMostSecretMemory};

TEST(SecretMemory, IsAlignedAndZero) {
    for (int round = 0; round < 2; ++round) {  // fresh, and used before
        for (const std::size_t size : kSizes) {
            const Block block(size);
            ASSERT_NE(block.at(), nullptr) << size;
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block.at()) % kSecretAlignment, 0) << size;
            EXPECT_TRUE(block.all(0)) << size;
            block.fill(0xa5);
        }
    }
}

TEST(SecretMemory, IsInNoCoreDump) {
    for (const std::size_t size : kSizes) {
        const Block block(size);
        EXPECT_TRUE(has_flag(block.at(), "dd")) << size;
        EXPECT_TRUE(has_flag(block.at() + size - 1, "dd")) << size;
    }
    const auto elsewhere = std::make_unique<int>(0);
    EXPECT_FALSE(has_flag(elsewhere.get(), "dd"));
}

TEST(SecretMemory, IsWipedWhenItIsGivenBack) {
    for (const std::size_t size : kSizes) {
        const std::uint8_t* was = nullptr;
        {
            const Block block(size);
            block.fill(0xa5);
            was = block.at();
        }
        const auto left = bytes_at(was, size);
        ASSERT_EQ(left.size(), size);
        // Where the next free block is may stand at its beginning.
        const auto secret = std::ranges::count(left, 0xa5);
        EXPECT_LT(secret, 8) << size;
        EXPECT_TRUE(std::all_of(left.begin() + static_cast<std::ptrdiff_t>(std::min<std::size_t>(size, 8)), left.end(),
                                [](std::uint8_t byte) { return byte == 0; }))
            << size;
    }
}

TEST(SecretMemory, IsUsedAgain) {
    const std::uint8_t* first = nullptr;
    {
        const Block block(300);
        first = block.at();
    }
    const Block same_kind(320);
    EXPECT_EQ(same_kind.at(), first);
    const Block another(300);
    EXPECT_NE(another.at(), first);
}

TEST(SecretMemory, GivesNobodyWhatSomebodyHas) {
    std::mt19937 random(1);
    std::vector<std::pair<Block, std::uint8_t>> held;
    for (int step = 0; step < 5000; ++step) {
        if (held.size() < 200 && random() % 5 < 3) {
            const auto mark = static_cast<std::uint8_t>(1 + random() % 255);
            Block block(1 + random() % (random() % 10 == 0 ? kMostSecretMemory : 600));
            ASSERT_TRUE(block.all(0));
            block.fill(mark);
            held.emplace_back(std::move(block), mark);
        } else if (!held.empty()) {
            std::swap(held[random() % held.size()], held.back());
            EXPECT_TRUE(held.back().first.all(held.back().second));
            held.pop_back();
        }
    }
    for (const auto& [block, mark] : held) EXPECT_TRUE(block.all(mark));
}

TEST(SecretMemory, IsForSecretsNotForMore) {
    EXPECT_EQ(take_secret_memory(kMostSecretMemory + 1), nullptr);
    EXPECT_EQ(take_secret_memory(static_cast<std::size_t>(-1)), nullptr);
    give_back_secret_memory(nullptr, 64);
    SecretAllocator<std::uint64_t> allocator;
    EXPECT_THROW(allocator.allocate(kMostSecretMemory), std::bad_alloc);
    EXPECT_THROW(allocator.allocate(static_cast<std::size_t>(-1) / 4), std::bad_alloc);
    const Block nothing(0);
    EXPECT_NE(nothing.at(), nullptr);
}

TEST(SecretMemory, ServesThreads) {
    std::atomic<int> wrong{0};
    const auto work = [&](unsigned seed) {
        std::mt19937 random(seed);
        std::vector<Block> held;
        for (int step = 0; step < 3000; ++step) {
            if (held.size() < 20 && random() % 2 == 0) {
                held.emplace_back(1 + random() % 300);
                if (!held.back().all(0)) ++wrong;
                held.back().fill(static_cast<std::uint8_t>(seed));
            } else if (!held.empty()) {
                if (!held.back().all(static_cast<std::uint8_t>(seed))) ++wrong;
                held.pop_back();
            }
        }
    };
    std::vector<std::thread> threads;
    for (unsigned seed = 1; seed <= 4; ++seed) threads.emplace_back(work, seed);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
}

/// 0 if the child's work was done.
template <class Work>
int in_a_child(const Work& work) {
    const pid_t child = fork();
    if (child == 0) _exit(work() ? 0 : 1);
    int status = -1;
    waitpid(child, &status, 0);
    return status;
}

TEST(SecretMemory, IsAChildsToo) {
    const Block block(32);
    block.fill(7);
    EXPECT_EQ(in_a_child([&] { return block.all(7) && has_flag(block.at(), "dd"); }), 0);
    EXPECT_EQ(in_a_child([&] {
                  block.fill(8);
                  return true;
              }),
              0);
    EXPECT_TRUE(block.all(7));
}

TEST(SecretMemory, ServesTheChildrenOfThreads) {
    std::atomic<bool> enough{false};
    std::thread other([&] {
        while (!enough) const Block block(100);
    });
    for (int child = 0; child < 50; ++child) {
        EXPECT_EQ(in_a_child([] {
                      const Block block(100);
                      return block.at() != nullptr && block.all(0);
                  }),
                  0);
    }
    enough = true;
    other.join();
}

TEST(Secret, MadeByNewIsInSecretMemory) {
    const std::uint8_t* was = nullptr;
    {
        const auto secret = std::make_unique<Secret<48>>();
        std::ranges::fill(secret->bytes, 0xa5);
        was = secret->data();
        EXPECT_TRUE(has_flag(was, "dd"));
    }
    EXPECT_EQ(std::ranges::count(bytes_at(was, 48), 0xa5), 0);
}

TEST(SecretAllocator, KeepsWhatAContainerHolds) {
    struct alignas(64) Key {
        std::uint8_t bytes[1000] = {};
    };
    std::list<Key, SecretAllocator<Key>> keys;
    for (int i = 0; i < 100; ++i) keys.emplace_back();
    for (const Key& key : keys) EXPECT_TRUE(has_flag(key.bytes, "dd"));
    const auto shared = std::allocate_shared<Key>(SecretAllocator<Key>());
    EXPECT_TRUE(has_flag(shared.get(), "dd"));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(shared.get()) % 64, 0);
}

}  // namespace
}  // namespace cryptmpi
