// Buffers of one size that are used again: fresh memory costs more in page faults than the cipher does in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace cryptmpi::engine {

/// Used by one thread at a time. Outlives its buffers.
class BufferPool {
public:
    /// Keeps at most `most_kept` bytes of buffers that nobody uses.
    BufferPool(std::size_t size, std::size_t most_kept) : size_(size), most_(most_kept / size) {}
    BufferPool(const BufferPool&) = delete;
    BufferPool& operator=(const BufferPool&) = delete;

    class Buffer {
    public:
        Buffer() = default;
        Buffer(Buffer&& other) noexcept : pool_(other.pool_), at_(std::move(other.at_)) {}
        Buffer& operator=(Buffer&& other) noexcept {
            std::swap(pool_, other.pool_);
            std::swap(at_, other.at_);
            return *this;
        }
        ~Buffer() {
            if (pool_ != nullptr && at_) pool_->give_back(std::move(at_));
        }
        std::uint8_t* data() const { return at_.get(); }

    private:
        friend class BufferPool;
        Buffer(BufferPool* pool, std::unique_ptr<std::uint8_t[]> at) : pool_(pool), at_(std::move(at)) {}
        BufferPool* pool_ = nullptr;  // null: larger than the pool's
        std::unique_ptr<std::uint8_t[]> at_;
    };

    /// At least `size` bytes without initial value.
    Buffer take(std::size_t size) {
        if (size > size_) return {nullptr, std::unique_ptr<std::uint8_t[]>(new std::uint8_t[size])};
        if (kept_.empty()) return {this, std::unique_ptr<std::uint8_t[]>(new std::uint8_t[size_])};
        auto at = std::move(kept_.back());
        kept_.pop_back();
        return {this, std::move(at)};
    }

private:
    void give_back(std::unique_ptr<std::uint8_t[]> at) {
        if (kept_.size() < most_) kept_.push_back(std::move(at));
    }

    std::size_t size_;
    std::size_t most_;
    std::vector<std::unique_ptr<std::uint8_t[]>> kept_;
};

}  // namespace cryptmpi::engine
