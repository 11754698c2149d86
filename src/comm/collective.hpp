// What collective operations on communicators that leave the node have in common.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <vector>

#include "comm/arguments.hpp"
#include "comm/lanes.hpp"
#include "comm/layer.hpp"

namespace cryptmpi::comm {

/// One call of a collective operation.
struct Call {
    Layer& layer;
    Communicator& communicator;
    std::uint32_t lane;
    std::uint64_t number;
};

constexpr int kNoRoot = 0;

/// The communicator, if its collective operations are sealed and the root is one of its members; else MPI does it, and
/// says what is wrong with the arguments.
Communicator* find_sealed(Layer& layer, MPI_Comm comm, int root = kNoRoot);

/// The first error of two steps that are both done.
inline int first_of(int code, int next) {
    return code != MPI_SUCCESS ? code : next;
}

/// All members take the same `how_many` numbers for it: one for each block that goes from one rank to the same other
/// one or to all.
inline Call begin_call(Layer& layer, Communicator& communicator, CollectiveKind kind, int root = kNoRoot,
                       std::uint64_t how_many = 1) {
    return {layer, communicator, lane_of(kind, root), communicator.next_call(how_many)};
}
// protocol: M4
/// The call's block after `before` others.
inline Call block_of(const Call& call, std::uint64_t before) {
    return {call.layer, call.communicator, call.lane, call.number + before};
}

/// Zeros, which do not open: what a rank sends after an error, since others wait for it.
void void_block(std::uint8_t* wire, std::size_t size);

/// Seals bytes at `wire`, for one member or for all. After an error a void block is there.
int seal_bytes_for(const Call& call, int to, const std::uint8_t* at, std::size_t size, std::uint8_t* wire);
int seal_bytes_for_all(const Call& call, const std::uint8_t* at, std::size_t size, std::uint8_t* wire);

/// The bytes of a block that came are not known: MPI moved it among others.
constexpr std::size_t kUnknown = 0;

/// Opens a block that has to hold exactly `size` bytes of data. Errors have been raised when it returns; `out` then
/// has zeros. A block that its sender sealed with another size is an error of the program's, not of its integrity.
int open_bytes_of_all(const Call& call, int from, const std::uint8_t* wire, std::size_t size, std::uint8_t* out);

/// The same of the data in a user's buffer.
int seal_block_for(const Call& call, int to, const UserBuffer& buffer, std::uint8_t* wire);
int seal_block_for_all(const Call& call, const UserBuffer& buffer, std::uint8_t* wire);
int open_block_from(const Call& call, int from, const std::uint8_t* wire, const UserBuffer& buffer,
                    std::size_t came = kUnknown);
int open_block_of_all(const Call& call, int from, const std::uint8_t* wire, const UserBuffer& buffer);

/// The user's data of one rank, and where it is sealed.
struct Block {
    int rank;
    std::uint8_t* wire;
    const UserBuffer* buffer;
    std::size_t came = kUnknown;  // bytes that came at `wire`
};
/// The same for blocks of several ranks, no rank twice, which the rank's threads work on together where they are large:
/// each sealed for its rank, opened from it, or opened as what it sent to all.
int seal_blocks_for(const Call& call, const std::vector<Block>& blocks);
int open_blocks_from(const Call& call, const std::vector<Block>& blocks);
int open_blocks_of_all(const Call& call, const std::vector<Block>& blocks);

/// What one rank of this node has, `code` saying whether it came whole, goes to all others of the node, which MPI
/// brings it to. Returns the code. `size` bytes at `at`, which become zeros where they did not come; what did not come
/// whole to `from` is not shared, and stays as it is there.
int share_on_node(const Call& call, int from, std::uint8_t* at, std::size_t size, int code);

/// The error of a rank that was told by another one of its node. It has been raised when this returns.
int failed_on_node(const Call& call, int rank);

/// From the user's buffer to another one of his, of the same size at least.
int copy(Layer& layer, const UserBuffer& from, const UserBuffer& to);
/// The same of this rank's own block. Where it does not fit, what fits, and the error that MPI would raise, if any:
/// `ask` has two numbers come where there is room for one.
int copy_own(Layer& layer, const Communicator& communicator, const UserBuffer& from, const UserBuffer& to,
             Question ask);

}  // namespace cryptmpi::comm
