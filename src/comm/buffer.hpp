// Bytes of ours that travel, and the user's buffers as bytes.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <memory>

#include "native.hpp"

namespace cryptmpi::comm {

/// Memory without initial value.
class Bytes {
public:
    Bytes() = default;
    explicit Bytes(std::size_t size) : at_(new std::uint8_t[size]), size_(size) {}
    std::uint8_t* data() const { return at_.get(); }
    std::size_t size() const { return size_; }

private:
    std::unique_ptr<std::uint8_t[]> at_;
    std::size_t size_ = 0;
};

/// `count` elements of a datatype at an address, as MPI describes them. Derived types are packed, for which a duplicate
/// of the type is kept: the user may free his before the operation ends.
class UserBuffer {
public:
    UserBuffer() = default;
    UserBuffer(UserBuffer&& other) noexcept;
    UserBuffer& operator=(UserBuffer&& other) noexcept;
    ~UserBuffer();

    /// Returns MPI's error code for a bad type; MPI's error handler has then been called.
    static int make(const interpose::Native& mpi, const void* at, MPI_Count count, MPI_Datatype type, bool keep,
                    UserBuffer& out);

    std::size_t size() const { return size_; }  // bytes of data
    /// The bytes themselves where they lie without gaps; null for those that must be packed.
    std::uint8_t* contiguous() const { return contiguous_ ? at_ : nullptr; }
    /// Where the user's first element is.
    void* address() const { return at_; }
    /// Copies the data, packed, to `out` (size() bytes).
    int pack(std::uint8_t* out) const;
    /// Spreads the first `size` bytes of packed data over the user's buffer.
    int unpack(const std::uint8_t* in, std::size_t size) const;

private:
    /// MPI_BOTTOM, with a type of absolute addresses: MPICH's Pack takes no null pointer, so address and type both
    /// move.
    int leave_bottom();

    const interpose::Native* mpi_ = nullptr;
    std::uint8_t* at_ = nullptr;
    MPI_Count count_ = 0;
    MPI_Datatype type_ = MPI_DATATYPE_NULL;
    bool contiguous_ = true;
    bool owns_type_ = false;
    std::size_t size_ = 0;
};

/// The data as contiguous bytes: the user's own, or packed into `scratch`. An MPI error code otherwise.
int plain_bytes(const UserBuffer& buffer, Bytes& scratch, const std::uint8_t*& at);

/// A number of bytes as count and datatype: more than an int holds take a type made for them.
class ByteCount {
public:
    ByteCount(const interpose::Native& mpi, std::size_t size);
    ~ByteCount();
    ByteCount(const ByteCount&) = delete;
    ByteCount& operator=(const ByteCount&) = delete;
    int count() const { return count_; }
    MPI_Datatype type() const { return type_; }

private:
    const interpose::Native& mpi_;
    int count_;
    MPI_Datatype type_ = MPI_BYTE;
};

}  // namespace cryptmpi::comm
