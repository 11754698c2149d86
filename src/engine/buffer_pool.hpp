// Buffers that are used again: an allocation costs more than sealing a small message, and the page faults of fresh
// memory more than the cipher does in it.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <utility>

namespace cryptmpi::engine {

/// Outlives its buffers. Used by one thread at a time, unless shared.
class BufferPool {
public:
    /// Keeps at most `most_kept` bytes of buffers that nobody uses.
    explicit BufferPool(std::size_t most_kept) : most_(most_kept) {}
    BufferPool(const BufferPool&) = delete;
    BufferPool& operator=(const BufferPool&) = delete;
    ~BufferPool() {
        for (Unused* first : unused_) {
            while (first != nullptr) free(std::exchange(first, first->next));
        }
    }

    /// From now on, several threads use it.
    void share() { shared_ = true; }

    /// Bytes without initial value.
    class Buffer {
    public:
        Buffer() = default;
        Buffer(Buffer&& other) noexcept
            : pool_(other.pool_), at_(std::exchange(other.at_, nullptr)), size_(other.size_) {}
        Buffer& operator=(Buffer&& other) noexcept {
            std::swap(pool_, other.pool_);
            std::swap(at_, other.at_);
            std::swap(size_, other.size_);
            return *this;
        }
        ~Buffer() {
            if (at_ != nullptr) pool_->give_back(at_, place_of(size_));
        }
        std::uint8_t* data() const { return at_; }
        std::size_t size() const { return size_; }
        /// How many bytes are there in truth: `size` or more.
        std::size_t room() const { return std::max(size_, place_of(size_) < kPlaces ? room_of(place_of(size_)) : 0); }

    private:
        friend class BufferPool;
        Buffer(BufferPool* pool, std::uint8_t* at, std::size_t size) : pool_(pool), at_(at), size_(size) {}
        BufferPool* pool_ = nullptr;
        std::uint8_t* at_ = nullptr;
        std::size_t size_ = 0;
    };

    // HOT PATH
    Buffer take(std::size_t size) {
        const std::size_t place = place_of(size);
        if (place < kPlaces) [[likely]] {
            const auto hold = lock();
            if (Unused* first = unused_[place]) {
                unused_[place] = first->next;
                kept_ -= room_of(place);
                return {this, reinterpret_cast<std::uint8_t*>(first), size};
            }
        }
        return {this, allocate(place < kPlaces ? room_of(place) : size), size};
    }

private:
    struct Unused {
        Unused* next;
    };
    // Powers of two from 256 bytes to 32 MiB, and room for what sealing adds to them. Larger ones are not kept.
    static constexpr unsigned kSmallest = 8;
    static constexpr std::size_t kPlaces = 18;
    static constexpr std::size_t kMore = 64;
    static constexpr std::align_val_t kAlignment{64};

    static std::size_t place_of(std::size_t size) {
        const std::size_t least = std::size_t{1} << kSmallest;
        return size <= least + kMore ? 0 : static_cast<std::size_t>(std::bit_width(size - kMore - 1)) - kSmallest;
    }
    static std::size_t room_of(std::size_t place) { return (std::size_t{1} << (place + kSmallest)) + kMore; }

    static std::uint8_t* allocate(std::size_t size) {
        return static_cast<std::uint8_t*>(::operator new(size, kAlignment));
    }
    static void free(void* at) { ::operator delete(at, kAlignment); }

    std::unique_lock<std::mutex> lock() { return shared_ ? std::unique_lock(lock_) : std::unique_lock<std::mutex>(); }
    void give_back(std::uint8_t* at, std::size_t place) {
        if (place >= kPlaces) {
            free(at);
            return;
        }
        const auto hold = lock();
        if (kept_ + room_of(place) > most_) {
            free(at);
            return;
        }
        kept_ += room_of(place);
        unused_[place] = new (at) Unused{unused_[place]};
    }

    std::size_t most_;
    std::size_t kept_ = 0;
    std::array<Unused*, kPlaces> unused_ = {};
    bool shared_ = false;
    std::mutex lock_;
};

using Buffer = BufferPool::Buffer;

}  // namespace cryptmpi::engine
