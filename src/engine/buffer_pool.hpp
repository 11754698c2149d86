// Buffers that are used again: an allocation costs more than sealing a small message, and the page faults of fresh
// memory more than the cipher does in it.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

namespace cryptmpi::engine {

/// Outlives its buffers. Used by one thread at a time, unless shared.
class BufferPool {
public:
    /// own_pages: from the kernel and back to it, so that nothing else was or will be there under an address that
    /// somebody was told of. Of such buffers small ones are all kept, and share pages with one another alone.
    enum class From : std::uint8_t { heap, own_pages };

    /// Keeps at most `most_kept` bytes of buffers that nobody uses.
    explicit BufferPool(std::size_t most_kept, From from = From::heap) : most_(most_kept), from_(from) {}
    BufferPool(const BufferPool&) = delete;
    BufferPool& operator=(const BufferPool&) = delete;
    ~BufferPool() {
        for (std::size_t place = 0; place < kPlaces; ++place) {
            while (std::uint8_t* const at = find(place)) {
                if (!is_in_chunks(place)) free(at, room_of(place));
            }
        }
        for (void* const chunk : chunks_) munmap(chunk, kChunk);
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
            if (at_ != nullptr) pool_->give_back(at_, size_);
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
            if (std::uint8_t* const at = shared_ ? find_shared(place) : find(place)) [[likely]] {
                return {this, at, size};
            }
        }
        return {this, make(place, size), size};
    }

private:
    /// Those of one size. Not noted in the buffers themselves, in some of which the network may write.
    struct Unused {
        std::vector<std::uint8_t*> at;
        std::size_t count = 0;  // the first ones of `at`; the others are room
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

    static void* map(std::size_t size) {
        void* const at = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (at == MAP_FAILED) throw std::bad_alloc();
        return at;
    }
    std::uint8_t* allocate(std::size_t size) const {
        return static_cast<std::uint8_t*>(from_ == From::own_pages ? map(size) : ::operator new(size, kAlignment));
    }
    void free(void* at, std::size_t size) const {
        from_ == From::own_pages ? static_cast<void>(munmap(at, size)) : ::operator delete(at, kAlignment);
    }

    /// Smaller than some pages, so that each cannot have its own.
    bool is_in_chunks(std::size_t place) const { return from_ == From::own_pages && room_of(place) < kChunk / 8; }

    // HOT PATH
    std::uint8_t* find(std::size_t place) {
        Unused& unused = unused_[place];
        return unused.count == 0 ? nullptr : unused.at[--unused.count];
    }
    bool keep(std::uint8_t* at, std::size_t place) {
        Unused& unused = unused_[place];
        if (unused.count == unused.at.size() && !may_keep_more(place)) [[unlikely]] {
            return false;
        }
        unused.at[unused.count++] = at;
        return true;
    }
    void give_back(std::uint8_t* at, std::size_t size) {
        const std::size_t place = place_of(size);
        if (place < kPlaces && (shared_ ? keep_shared(at, place) : keep(at, place))) [[likely]] {
            return;
        }
        drop(at, place, size);
    }

    [[gnu::noinline]] std::uint8_t* find_shared(std::size_t place) {
        const std::lock_guard hold(lock_);
        return find(place);
    }
    [[gnu::noinline]] bool keep_shared(std::uint8_t* at, std::size_t place) {
        const std::lock_guard hold(lock_);
        return keep(at, place);
    }
    /// Makes room for more buffers of a size, so that all that are kept and could be stay within most_.
    [[gnu::noinline]] bool may_keep_more(std::size_t place) {
        const std::size_t counted = is_in_chunks(place) ? 0 : room_of(place);
        if (most_ - may_be_kept_ < counted) give_up_room();
        Unused& unused = unused_[place];
        std::size_t more = std::max<std::size_t>(1, unused.at.size());
        if (counted != 0) more = std::min(more, (most_ - may_be_kept_) / counted);
        if (more == 0 || !make_room(unused, unused.at.size() + more)) return false;
        may_be_kept_ += more * counted;
        return true;
    }
    /// Room that no buffer is in, of all sizes.
    void give_up_room() {
        for (std::size_t place = 0; place < kPlaces; ++place) {
            Unused& unused = unused_[place];
            if (!is_in_chunks(place)) may_be_kept_ -= (unused.at.size() - unused.count) * room_of(place);
            unused.at.resize(unused.count);
        }
    }
    static bool make_room(Unused& unused, std::size_t count) {
        try {
            unused.at.resize(count);
            return true;
        } catch (const std::bad_alloc&) {
            return false;
        }
    }
    [[gnu::noinline]] std::uint8_t* make(std::size_t place, std::size_t size) {
        if (place >= kPlaces) return allocate(size);
        return is_in_chunks(place) ? cut_chunk(place) : allocate(room_of(place));
    }
    [[gnu::noinline]] void drop(std::uint8_t* at, std::size_t place, std::size_t size) {
        if (place >= kPlaces) {
            free(at, size);
        } else if (!is_in_chunks(place)) {
            free(at, room_of(place));
        }
    }
    /// One of the buffers of a new chunk; the others are kept.
    std::uint8_t* cut_chunk(std::size_t place) {
        const std::unique_lock hold = shared_ ? std::unique_lock(lock_) : std::unique_lock<std::mutex>();
        const std::size_t room = room_of(place);
        chunks_.reserve(chunks_.size() + 1);
        Unused& unused = unused_[place];
        unused.at.resize(std::max(unused.at.size(), unused.count + kChunk / room));
        auto* const chunk = static_cast<std::uint8_t*>(map(kChunk));
        chunks_.push_back(chunk);
        for (std::size_t at = room; at + room <= kChunk; at += room) unused.at[unused.count++] = chunk + at;
        return chunk;
    }

    static constexpr std::size_t kChunk = std::size_t{256} << 10;
    std::size_t most_;
    From from_;
    std::size_t may_be_kept_ = 0;  // bytes of the buffers that unused_ has room for
    std::array<Unused, kPlaces> unused_;
    std::vector<void*> chunks_;
    bool shared_ = false;
    std::mutex lock_;
};

using Buffer = BufferPool::Buffer;

}  // namespace cryptmpi::engine
