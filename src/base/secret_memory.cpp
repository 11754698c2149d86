#include "base/secret_memory.hpp"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <mutex>
#include <type_traits>

#include "base/wipe.hpp"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(at, size) (static_cast<void>(at), static_cast<void>(size))
#define ASAN_UNPOISON_MEMORY_REGION(at, size) (static_cast<void>(at), static_cast<void>(size))
#endif

namespace cryptmpi {
namespace {

// So small that some can be locked where the limit on locked memory is 64 KiB.
constexpr std::size_t kChunk = kMostSecretMemory;
// The program and the other libraries of ours live under the same limit: each takes a part.
constexpr rlim_t kPartsOfLimit = 4;

/// Blocks are multiples of the alignment, with a list of free ones for each size: there are few kinds of secrets, and
/// what one connection gave back the next one takes.
class SecretMemory {
public:
    constexpr SecretMemory() = default;

    /// Free blocks are left alone: their pages are copied.
    void wipe_in_children() {
        const std::lock_guard hold(lock_);
        wipe_in_children_ = true;
        left_ = 0;
        free_ = {};
    }

    void lock() { lock_.lock(); }
    void unlock() { lock_.unlock(); }

    void* take(std::size_t size) {
        if (size > kMostSecretMemory) return nullptr;
        const std::size_t block = block_of(size);
        const std::lock_guard hold(lock_);
        Free*& first = free_of(block);
        if (first == nullptr) return take_fresh(block);
        Free* const taken = first;
        ASAN_UNPOISON_MEMORY_REGION(taken, block);
        first = taken->next;
        taken->next = nullptr;
        return taken;
    }

    void give_back(void* at, std::size_t size) {
        wipe(at, size);
        const std::lock_guard hold(lock_);
        add_free(at, block_of(size));
    }

private:
    struct Free {
        Free* next;
    };

    static std::size_t block_of(std::size_t size) {
        return (std::max(size, std::size_t{1}) + kSecretAlignment - 1) / kSecretAlignment * kSecretAlignment;
    }

    Free*& free_of(std::size_t block) { return free_[block / kSecretAlignment - 1]; }

    void add_free(void* at, std::size_t block) {
        Free*& first = free_of(block);
        first = new (at) Free{first};
        ASAN_POISON_MEMORY_REGION(at, block);
    }

    void* take_fresh(std::size_t block) {
        if (left_ < block && !map_chunk()) return nullptr;
        std::uint8_t* const taken = fresh_;
        ASAN_UNPOISON_MEMORY_REGION(taken, block);
        fresh_ += block;
        left_ -= block;
        return taken;
    }

    bool map_chunk() {
        void* const at = mmap(nullptr, kChunk, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) return false;
        // Where the system has no such thing the job goes on all the same.
        madvise(at, kChunk, MADV_DONTDUMP);
        if (wipe_in_children_) madvise(at, kChunk, MADV_WIPEONFORK);
        rlimit limit{};
        if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && locked_ + kChunk <= limit.rlim_cur / kPartsOfLimit &&
            mlock(at, kChunk) == 0) {
            locked_ += kChunk;
        }
        if (left_ != 0) {
            ASAN_UNPOISON_MEMORY_REGION(fresh_, left_);
            add_free(fresh_, left_);
        }
        ASAN_POISON_MEMORY_REGION(at, kChunk);
        fresh_ = static_cast<std::uint8_t*>(at);
        left_ = kChunk;
        return true;
    }

    std::mutex lock_;
    std::array<Free*, kMostSecretMemory / kSecretAlignment> free_{};  // a free block begins with where the next one is
    std::uint8_t* fresh_ = nullptr;                                   // of the latest chunk, what was never taken
    std::size_t left_ = 0;
    rlim_t locked_ = 0;
    bool wipe_in_children_ = false;
};

// Not made at its first use: a child of another thread than the one that makes it would wait for that for ever. Never
// destroyed: connections are closed, with a sealed record, after exit handlers have run.
constinit SecretMemory memory;
static_assert(std::is_trivially_destructible_v<SecretMemory>);

// A child must not inherit the lock held by a thread that it does not have.
[[gnu::constructor]] void guard_forks() {
    pthread_atfork([] { memory.lock(); }, [] { memory.unlock(); }, [] { memory.unlock(); });
}

}  // namespace

void wipe_secret_memory_in_children() noexcept {
    memory.wipe_in_children();
}

void* take_secret_memory(std::size_t size) noexcept {
    return memory.take(size);
}

void give_back_secret_memory(void* at, std::size_t size) noexcept {
    if (at != nullptr) memory.give_back(at, size);
}

}  // namespace cryptmpi
