// Memory of ours that MPI works on. It never goes back to the pool before MPI is done with it: what the pool hands out
// next may be for plaintext, which MPI would then send.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <list>
#include <mutex>
#include <utility>

#include "comm/native.hpp"
#include "engine/buffer_pool.hpp"

namespace cryptmpi::comm {

enum class Transfer : std::uint8_t { send, receive };

/// What nobody waits for any more, after an error or because it is not needed, but MPI still has. A layer has one.
class LeftWithMpi {
public:
    explicit LeftWithMpi(const Native& mpi) : mpi_(mpi) {}
    LeftWithMpi(const LeftWithMpi&) = delete;
    LeftWithMpi& operator=(const LeftWithMpi&) = delete;

    /// A receive is cancelled, so that it takes no message that is meant for another one. Nobody may have cancelled it
    /// before: Open MPI 4.1.4 crashes in the second Cancel of a request.
    void take(Transfer transfer, MPI_Request request, engine::Buffer wire);
    /// Gives back what MPI is done with.
    void look();
    bool empty() const { return count_.load(std::memory_order_relaxed) == 0; }

private:
    struct One {
        MPI_Request request;
        engine::Buffer wire;
    };
    const Native& mpi_;
    std::mutex lock_;
    std::list<One> all_;
    std::atomic<std::size_t> count_{0};
};

/// A buffer and MPI's request on it. Who destroys it earlier than MPI is done leaves it with MPI.
struct InTransit {
    /// Nothing: its request is never set.
    InTransit() = default;
    InTransit(LeftWithMpi& left, Transfer kind, engine::Buffer memory)
        : left_with(&left), transfer(kind), wire(std::move(memory)) {}
    InTransit(InTransit&& other) noexcept
        : left_with(other.left_with),
          transfer(other.transfer),
          wire(std::move(other.wire)),
          request(std::exchange(other.request, MPI_REQUEST_NULL)) {}
    InTransit& operator=(InTransit&& other) noexcept {
        std::swap(left_with, other.left_with);
        std::swap(transfer, other.transfer);
        std::swap(wire, other.wire);
        std::swap(request, other.request);
        return *this;
    }
    ~InTransit() {
        if (request != MPI_REQUEST_NULL) [[unlikely]] {
            left_with->take(transfer, request, std::move(wire));
        }
    }

    LeftWithMpi* left_with = nullptr;
    Transfer transfer = Transfer::send;
    engine::Buffer wire;
    MPI_Request request = MPI_REQUEST_NULL;
};

}  // namespace cryptmpi::comm
