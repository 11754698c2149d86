// MPI_Scatter and MPI_Scatterv: the root seals a block for each rank.
#include "comm/scatter.hpp"

#include <algorithm>
#include <type_traits>

#include "comm/arguments.hpp"
#include "comm/blocks.hpp"
#include "comm/calls.hpp"
#include "comm/native_call.hpp"

namespace cryptmpi::comm {
namespace {

using seal::kMessageOverhead;

/// The root's own block, where it may be larger than the room for it.
int copy_scattered(Layer& layer, const Communicator& communicator, const UserBuffer& from, const UserBuffer& to) {
    return copy_own(layer, communicator, from, to, [](const auto& mpi, int* two, int* one, int, MPI_Comm alone) {
        return mpi.Scatter(two, 2, MPI_INT, one, 1, MPI_INT, 0, alone);
    });
}

int scatter_from_root(const Call& call, const UserBuffer& mine, int root, bool uniform, int code) {
    Layer& layer = call.layer;
    const MPI_Comm comm = call.communicator.handle();
    const bool alone = goes_alone(call.communicator, mine);
    const auto wire = layer.buffer(alone ? 0 : mine.size() + kMessageOverhead);
    const auto size = static_cast<int>(wire.size());
    const int scattered =
        uniform ? layer.mpi.Scatter(nullptr, 0, MPI_BYTE, wire.data(), size, MPI_BYTE, root, comm)
                : layer.mpi.Scatterv(nullptr, nullptr, nullptr, MPI_BYTE, wire.data(), size, MPI_BYTE, root, comm);
    if (scattered != MPI_SUCCESS) return first_of(code, scattered);
    if (alone) {
        const Blocks from_root = alone_with_root(call.communicator, mine, root);
        return first_of(code, exchange(call, no_blocks(call.communicator), from_root, Sealing::all));
    }
    return code != MPI_SUCCESS ? code : open_block_from(call, root, wire.data(), mine);
}

}  // namespace

int scatter(Layer& layer, Communicator& communicator, const std::vector<UserBuffer>& blocks, const UserBuffer* mine,
            int root, bool uniform, int code) {
    const Call call = begin_call(layer, communicator, CollectiveKind::scatter, root);
    communicator.prepare_addresses(layer.mpi);
    if (communicator.rank() != root) return scatter_from_root(call, *mine, root, uniform, code);
    const MPI_Comm comm = communicator.handle();
    const WireLayout layout(blocks, largest_together(communicator));
    const auto wires = layer.buffer(layout.total());
    const std::vector<Block> others = blocks_of_others(root, blocks, wires.data(), layout);
    // After an error the others still get their blocks, which they wait for; nothing of the data is in them.
    for (const Block& block : others) {
        if (code != MPI_SUCCESS) void_block(block.wire, block.buffer->size());
    }
    if (code == MPI_SUCCESS) code = seal_blocks_for(call, others);
    const int scattered =
        uniform ? layer.mpi.Scatter(wires.data(), layout.sizes()[root], MPI_BYTE, MPI_IN_PLACE, 0, MPI_BYTE, root, comm)
                : layer.mpi.Scatterv(wires.data(), layout.sizes(), layout.places(), MPI_BYTE, MPI_IN_PLACE, 0, MPI_BYTE,
                                     root, comm);
    if (scattered != MPI_SUCCESS) return first_of(code, scattered);
    if (const Blocks alone = alone_of_root(communicator, blocks); has_any(alone)) {
        code = exchange(call, alone, no_blocks(communicator), Sealing::all, code);
    }
    if (code != MPI_SUCCESS || mine == nullptr) return code;
    return copy_scattered(layer, communicator, blocks[static_cast<std::size_t>(root)], *mine);
}

int Scatter(Layer& layer, const void* out, MPI_Count out_count, MPI_Datatype out_type, void* in, MPI_Count in_count,
            MPI_Datatype in_type, int root, MPI_Comm comm) {
    Communicator* communicator = find_sealed(layer, comm, root);
    const auto native = CRYPTMPI_NATIVE(Scatter, std::max(out_count, in_count), out, Count{out_count}, out_type, in,
                                        Count{in_count}, in_type, root, comm);
    if (communicator == nullptr) return native(layer.mpi);
    UserBuffer own;
    std::vector<UserBuffer> blocks;
    if (const int code = make_own(layer, comm, in, in_count, in_type, communicator->rank() == root, own);
        code != MPI_SUCCESS) {
        return code;
    }
    if (communicator->rank() == root) {
        const int code =
            make_equal_blocks(layer, comm, communicator->size(), const_cast<void*>(out), out_count, out_type, blocks);
        if (code != MPI_SUCCESS) return code;
    }
    if (communicator->rank() == root && out_count == in_count && out_type == in_type) {
        const auto ask = [](const auto& mpi, int* number, int*, int many, MPI_Comm alone) {
            return mpi.Scatter(number, many, MPI_INT, number, many, MPI_INT, 0, alone);
        };
        const int code = check_alias(layer, comm, in, blocks[static_cast<std::size_t>(root)], ask);
        if (code != MPI_SUCCESS) return code;
    }
    return scatter(layer, *communicator, blocks, in == MPI_IN_PLACE ? nullptr : &own, root, true);
}

// With int and with MPI_Count arrays.

template <class C, class D>
int Scatterv(Layer& layer, const void* out, const C* counts, const D* places, MPI_Datatype out_type, void* in,
             MPI_Count in_count, MPI_Datatype in_type, int root, MPI_Comm comm) {
    const auto native = [&](const auto& mpi) -> int {
        if constexpr (std::is_same_v<C, int>) {
            return mpi.Scatterv(out, counts, places, out_type, in, static_cast<int>(in_count), in_type, root, comm);
        } else {
            return mpi.Scatterv_c(out, counts, places, out_type, in, static_cast<MPI_Count>(in_count), in_type, root,
                                  comm);
        }
    };
    Communicator* communicator = find_sealed(layer, comm, root);
    if (communicator == nullptr) return native(layer.mpi);
    UserBuffer own;
    std::vector<UserBuffer> blocks;
    if (const int code = make_own(layer, comm, in, in_count, in_type, communicator->rank() == root, own);
        code != MPI_SUCCESS) {
        return code;
    }
    if (communicator->rank() == root) {
        const int code =
            make_v_blocks(layer, comm, communicator->size(), const_cast<void*>(out), counts, places, out_type, blocks);
        if (code != MPI_SUCCESS) return code;
    }
    return scatter(layer, *communicator, blocks, in == MPI_IN_PLACE ? nullptr : &own, root, false);
}

template int Scatterv(Layer&, const void*, const int*, const int*, MPI_Datatype, void*, MPI_Count, MPI_Datatype, int,
                      MPI_Comm);
template int Scatterv(Layer&, const void*, const MPI_Count*, const MPI_Aint*, MPI_Datatype, void*, MPI_Count,
                      MPI_Datatype, int, MPI_Comm);

}  // namespace cryptmpi::comm
