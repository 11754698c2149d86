// What the operations that move data have in common (bcast.cpp, gather.cpp, scatter.cpp, allgather.cpp, alltoall.cpp):
// the buffers that they work on, and where the sealed blocks of all ranks lie.
//
// Each of them takes these steps:
//  1. It asks find_sealed for the communicator. Where there is none to seal for, MPI does it all.
//  2. The program's arguments become buffers (make_buffer and its kin). What is wrong with them, MPI says itself.
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

/// Not MPI's: the program's arguments are such that MPI has to say what is wrong with them.
constexpr int kForMpi = -1;

/// The code of making the buffers that a procedure works on, which is not good; `native` calls MPI's own.
template <class Native>
int say_what_is_wrong(Layer& layer, int code, Native native) {
    return code == kForMpi ? native(layer.mpi) : code;
}

int make_buffer(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, UserBuffer& out);
/// This rank's part of what is sent. Not looked at where the root sends in place.
int make_own(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, UserBuffer& own);

/// The blocks of a buffer: `count(i)` elements at `place(i)` bytes, for each rank.
template <class CountOf, class PlaceOf, class TypeOf>
int make_blocks(Layer& layer, int ranks, void* at, CountOf count, PlaceOf place, TypeOf type,
                std::vector<UserBuffer>& blocks) {
    blocks.resize(static_cast<std::size_t>(ranks));
    for (int i = 0; i < ranks; ++i) {
        const int code = make_buffer(layer, static_cast<std::uint8_t*>(at) + place(i), count(i), type(i),
                                     blocks[static_cast<std::size_t>(i)]);
        if (code != MPI_SUCCESS) return code;
    }
    return MPI_SUCCESS;
}

/// Equal blocks, one after the other.
int make_equal_blocks(Layer& layer, int ranks, void* at, MPI_Count count, MPI_Datatype type,
                      std::vector<UserBuffer>& blocks);

/// In bytes, as MPI steps from element to element.
MPI_Aint extent_of(Layer& layer, MPI_Datatype type);

/// Blocks by counts and displacements in elements.
template <class C, class D>
int make_v_blocks(Layer& layer, int ranks, void* at, const C* counts, const D* places, MPI_Datatype type,
                  std::vector<UserBuffer>& blocks) {
    if (counts == nullptr || places == nullptr || type == MPI_DATATYPE_NULL) return kForMpi;
    const MPI_Aint extent = extent_of(layer, type);
    return make_blocks(
        layer, ranks, at, [&](int i) { return static_cast<MPI_Count>(counts[i]); },
        [&](int i) { return static_cast<MPI_Aint>(places[i]) * extent; }, [&](int) { return type; }, blocks);
}

}  // namespace cryptmpi::comm
