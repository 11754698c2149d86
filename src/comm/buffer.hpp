// The user's buffers as bytes.
#pragma once

#include <mpi.h>

#include <climits>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "comm/native.hpp"
#include "comm/types.hpp"
#include "engine/buffer_pool.hpp"
#include "engine/layout.hpp"

namespace cryptmpi::comm {

/// `count` elements of a datatype at an address, as MPI describes them. Derived types are packed, or decoded when their
/// message turns out to be large, for which a type of one such element is kept: the user may free his before the
/// operation ends.
class UserBuffer {
public:
    UserBuffer() = default;
    UserBuffer(UserBuffer&& other) noexcept { *this = std::move(other); }
    UserBuffer& operator=(UserBuffer&& other) noexcept {
        std::swap(mpi_, other.mpi_);
        std::swap(at_, other.at_);
        std::swap(count_, other.count_);
        std::swap(type_, other.type_);
        std::swap(contiguous_, other.contiguous_);
        std::swap(owns_type_, other.owns_type_);
        std::swap(size_, other.size_);
        return *this;
    }
    ~UserBuffer() {
        if (owns_type_) mpi_->Type_free(&type_);
    }

    /// Of no elements, the type is not looked at. Returns MPI's error code for a bad type; the error handler of `comm`
    /// has then been called.
    static int make(Types& types, MPI_Comm comm, const void* at, MPI_Count count, MPI_Datatype type, bool keep,
                    UserBuffer& out);

    /// Data without memory: MPI_BOTTOM with absolute addresses has some.
    bool is_wrong() const { return at_ == nullptr && size_ != 0; }
    std::size_t size() const { return size_; }  // bytes of data
    MPI_Count count() const { return count_; }
    /// The bytes themselves where they lie without gaps; null for those that must be packed.
    std::uint8_t* contiguous() const { return contiguous_ ? at_ : nullptr; }
    /// Where the user's first element is.
    void* address() const { return at_; }
    /// Where the bytes lie that have gaps between them; null: MPI has to pack them.
    std::unique_ptr<const engine::Layout> layout() const;
    /// Copies the data, packed, to `out` (size() bytes).
    int pack(std::uint8_t* out) const;
    /// Spreads the first `size` bytes of packed data over the user's buffer.
    int unpack(const std::uint8_t* in, std::size_t size) const;

private:
    int prepare_packing(bool keep);
    int keep_type();
    /// MPI_BOTTOM, with a type of absolute addresses: MPICH's Pack takes no null pointer, so address and type both
    /// move.
    int leave_bottom();
    std::size_t element() const { return size_ / static_cast<std::size_t>(count_); }  // bytes of data
    template <class Work>
    int by_runs(std::size_t bytes, Work work) const;

    const Native* mpi_ = nullptr;
    std::uint8_t* at_ = nullptr;
    MPI_Count count_ = 0;
    MPI_Datatype type_ = MPI_DATATYPE_NULL;
    bool contiguous_ = true;
    bool owns_type_ = false;
    std::size_t size_ = 0;
};

/// The data as contiguous bytes: the user's own, or packed into `scratch`. An MPI error code otherwise.
inline int plain_bytes(engine::BufferPool& pool, const UserBuffer& buffer, engine::Buffer& scratch,
                       const std::uint8_t*& at) {
    at = buffer.contiguous();
    if (at != nullptr || buffer.size() == 0) return MPI_SUCCESS;
    scratch = pool.take(buffer.size());
    at = scratch.data();
    return buffer.pack(scratch.data());
}

/// Where the bytes of a message are, or come to: next to each other, or spread over the user's memory. Without either:
/// nowhere.
struct Place {
    std::uint8_t* at = nullptr;
    std::unique_ptr<const engine::Layout> layout = nullptr;
    engine::Buffer packed = {};  // they are in this, since only MPI can pack or unpack them

    bool is_nowhere() const { return at == nullptr && layout == nullptr; }
    /// The first `size` bytes.
    void wipe(std::size_t size) const;
};

/// Of the first `size` bytes of a buffer: in the user's memory, if we know how they lie there.
Place find_place(engine::BufferPool& pool, const UserBuffer& buffer, std::size_t size);

/// A number of bytes as count and datatype: more than an int holds take a type made for them.
class ByteCount {
public:
    ByteCount(const Native& mpi, std::size_t size) : mpi_(mpi), count_(static_cast<int>(size)) {
        if (size > INT_MAX) [[unlikely]] {
            make_type(size);
        }
    }
    ~ByteCount() {
        if (type_ != MPI_BYTE) [[unlikely]] {
            mpi_.Type_free(&type_);
        }
    }
    ByteCount(const ByteCount&) = delete;
    ByteCount& operator=(const ByteCount&) = delete;
    int count() const { return count_; }
    MPI_Datatype type() const { return type_; }

private:
    void make_type(std::size_t size);

    const Native& mpi_;
    int count_;
    MPI_Datatype type_ = MPI_BYTE;
};

}  // namespace cryptmpi::comm
