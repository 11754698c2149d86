// What the operations that move data have in common (bcast.cpp, gather.cpp, scatter.cpp, allgather.cpp, alltoall.cpp):
// the buffers that they work on, and where the sealed blocks of all ranks lie.
//
// Each of them takes these steps:
//  1. It asks find_sealed for the communicator. Where there is none to seal for, MPI does it all.
//  2. The program's arguments become buffers (make_own, make_blocks). What is wrong with them is told here
//  (arguments.hpp).
//  3. begin_call takes the numbers that the blocks are sealed with.
//  4. Each block is sealed once: for one rank, or for all.
//  5. The sealed blocks travel by MPI's own operation, or in steps of ours (exchange.hpp). What is too large for MPI's
//     counts goes alone, as a message.
//  6. Whoever gets a block opens it.
//  7. The rank's own block never travels. It is copied.
// After an error of ours the steps go on, with blocks that do not open: others wait for them.
#pragma once

#include <mpi.h>

#include <climits>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/collective.hpp"
#include "comm/exchange.hpp"

namespace cryptmpi::comm {

/// MPI counts the bytes of its operations by int: a block of more than each rank's share of that goes alone, as a
/// message. Both of its ends see that, where only the root knows the sizes of all.
std::size_t largest_together(const Communicator& communicator);
bool goes_alone(const Communicator& communicator, const UserBuffer& block);

/// Where the sealed blocks of all ranks lie, one after the other. Those of more than `most` bytes do not.
class WireLayout {
public:
    explicit WireLayout(const std::vector<UserBuffer>& blocks, std::size_t most = INT_MAX);
    std::size_t total() const { return total_; }
    std::size_t count() const { return sizes_.size(); }
    const int* sizes() const { return sizes_.data(); }
    const int* places() const { return places_.data(); }
    int place(int rank) const { return places_[static_cast<std::size_t>(rank)]; }

private:
    std::vector<int> sizes_;
    std::vector<int> places_;
    std::size_t total_ = 0;
};

/// Each rank's block but that of `me` and those that go alone, and its place among `wires`.
std::vector<Block> blocks_of_others(int me, const std::vector<UserBuffer>& blocks, std::uint8_t* wires,
                                    const WireLayout& layout);

/// The blocks that go alone between this root and the others.
Blocks alone_of_root(const Communicator& communicator, const std::vector<UserBuffer>& blocks);
/// This rank's block, which goes alone between it and the root.
Blocks alone_with_root(const Communicator& communicator, const UserBuffer& block, int root);
Blocks no_blocks(const Communicator& communicator);
bool has_any(const Blocks& blocks);

// What is wrong with the program's arguments has been raised on `comm` when one of these returns an error.

/// This rank's part of what is sent or comes, which is not looked at where it is `in_place`, if that is allowed.
int make_own(Layer& layer, MPI_Comm comm, const void* at, MPI_Count count, MPI_Datatype type, bool may_be_in_place,
             UserBuffer& own);

/// The blocks of a buffer: `count(i)` elements at `place(i)` bytes, for each rank.
template <class CountOf, class PlaceOf, class TypeOf>
int make_blocks(Layer& layer, MPI_Comm comm, int ranks, void* at, CountOf count, PlaceOf place, TypeOf type,
                std::vector<UserBuffer>& blocks) {
    if (at == MPI_IN_PLACE) return refuse_in_place(layer, comm);
    blocks.resize(static_cast<std::size_t>(ranks));
    for (int i = 0; i < ranks; ++i) {
        UserBuffer& block = blocks[static_cast<std::size_t>(i)];
        const auto make = [&](void* from) { return make_buffer(layer, comm, from, count(i), type(i), false, block); };
        // A place in no memory looks like memory.
        if (at == nullptr) {
            if (const int code = make(at); code != MPI_SUCCESS) return code;
        }
        const int code = make(static_cast<std::uint8_t*>(at) + place(i));
        if (code != MPI_SUCCESS) return code;
    }
    return MPI_SUCCESS;
}

/// Equal blocks, one after the other.
int make_equal_blocks(Layer& layer, MPI_Comm comm, int ranks, void* at, MPI_Count count, MPI_Datatype type,
                      std::vector<UserBuffer>& blocks);

/// Blocks by counts and displacements in elements.
template <class C, class D>
int make_v_blocks(Layer& layer, MPI_Comm comm, int ranks, void* at, const C* counts, const D* places, MPI_Datatype type,
                  std::vector<UserBuffer>& blocks) {
    if (counts == nullptr || places == nullptr) return raise_on_comm(layer, comm, MPI_ERR_ARG);
    Shape shape;
    if (const int code = layer.types().find(type, comm, shape); code != MPI_SUCCESS) return code;
    return make_blocks(
        layer, comm, ranks, at, [&](int i) { return static_cast<MPI_Count>(counts[i]); },
        [&](int i) { return static_cast<MPI_Aint>(places[i]) * shape.extent; }, [&](int) { return type; }, blocks);
}

}  // namespace cryptmpi::comm
