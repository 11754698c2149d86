// Which lane of a flow a block of a collective operation goes in.
#pragma once

#include <cstdint>

namespace cryptmpi::comm {

/// The operation that a sealed block belongs to: with the root, the lane. The numbers are part of the wire format.
enum class CollectiveKind : std::uint8_t {
    bcast = 1,
    gather = 2,
    scatter = 3,
    allgather = 4,
    alltoall = 5,
    reduce = 6,
    scan = 7,
    exscan = 8,
    allreduce = 9,
    reduce_scatter = 10,
    construction = 11,  // what members tell each other of a communicator that is being made
};

// protocol: M3
constexpr std::uint32_t lane_of(CollectiveKind kind, int root) {
    return static_cast<std::uint32_t>(kind) << 24 | static_cast<std::uint32_t>(root);
}

}  // namespace cryptmpi::comm
