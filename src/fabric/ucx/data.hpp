// The bytes that a datatype of UCX means: contiguous, a list of pieces, or packed by the program's own functions.
#pragma once

#include <sys/uio.h>
#include <ucp/api/ucp.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/buffer_pool.hpp"

namespace cryptmpi::fabric::ucx {

/// Datatypes whose bytes only the program's functions know.
class GenericTypes {
public:
    struct Generic {
        ucp_generic_dt_ops_t operations;
        void* context;
        /// Packed bytes of one element; 0: not known yet.
        mutable std::atomic<std::size_t> element = 0;
    };
    void add(ucp_datatype_t type, const ucp_generic_dt_ops_t& operations, void* context);
    void remove(ucp_datatype_t type);
    const Generic* find(ucp_datatype_t type) const;

private:
    mutable std::shared_mutex lock_;
    std::unordered_map<ucp_datatype_t, std::unique_ptr<Generic>> all_;
};

/// A buffer of the program with its datatype. Of functions that pack, one send calls start_pack and finish once, and
/// one receive start_unpack and finish, as UCX does: MPICH 4 gives up a reference to its datatype in each finish.
class Data {
public:
    enum class Use : std::uint8_t { send, receive };
    Data(const GenericTypes& types, void* at, std::size_t count, ucp_datatype_t type, Use use);
    bool is_known() const { return kind_ != Kind::unknown; }
    std::size_t size() const { return size_; }

    /// Its bytes where they lie, or packed into `room`, which lives as long as they are used.
    std::vector<iovec> pieces(engine::BufferPool& pool, engine::Buffer& room) const;
    /// Where the first `size` bytes of it go; nothing if they have to be unpacked.
    std::vector<iovec> places(std::size_t size) const;
    bool is_unpacked() const { return kind_ == Kind::generic; }
    ucs_status_t unpack(const std::uint8_t* from, std::size_t size) const;

private:
    enum class Kind : std::uint8_t { contiguous, list, generic, unknown };
    Kind kind_ = Kind::unknown;
    void* at_;
    std::size_t count_;
    std::size_t size_ = 0;
    const GenericTypes::Generic* generic_ = nullptr;
    void* packing_ = nullptr;  // of a send, until it is packed
};

}  // namespace cryptmpi::fabric::ucx
