// MPI_Gather and MPI_Gatherv: each rank seals its block for the root, which opens them.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "comm/arguments.hpp"
#include "comm/blocks.hpp"
#include "comm/calls.hpp"
#include "comm/native_call.hpp"

namespace cryptmpi::comm {
namespace {

using seal::kMessageOverhead;

/// The root's own block, where it may be larger than the room for it.
int copy_gathered(Layer& layer, const Communicator& communicator, const UserBuffer& from, const UserBuffer& to) {
    return copy_own(layer, communicator, from, to, [](const auto& mpi, int* two, int* one, int, MPI_Comm alone) {
        return mpi.Gather(two, 2, MPI_INT, one, 1, MPI_INT, 0, alone);
    });
}

int gather_to_root(const Call& call, const UserBuffer& own, int root, bool uniform) {
    Layer& layer = call.layer;
    const MPI_Comm comm = call.communicator.handle();
    const bool alone = goes_alone(call.communicator, own);
    const auto wire = layer.buffer(alone ? 0 : own.size() + kMessageOverhead);
    const int code = alone ? MPI_SUCCESS : seal_block_for(call, root, own, wire.data());
    const auto size = static_cast<int>(wire.size());
    const int gathered =
        uniform ? layer.mpi.Gather(wire.data(), size, MPI_BYTE, nullptr, 0, MPI_BYTE, root, comm)
                : layer.mpi.Gatherv(wire.data(), size, MPI_BYTE, nullptr, nullptr, nullptr, MPI_BYTE, root, comm);
    if (!alone || gathered != MPI_SUCCESS) return first_of(code, gathered);
    return exchange(call, alone_with_root(call.communicator, own, root), no_blocks(call.communicator), Sealing::all);
}

int gather(Layer& layer, Communicator& communicator, const UserBuffer& own, bool in_place,
           const std::vector<UserBuffer>& blocks, int root, bool uniform) {
    const Call call = begin_call(layer, communicator, CollectiveKind::gather, root);
    communicator.prepare_addresses(layer.mpi);
    if (communicator.rank() != root) return gather_to_root(call, own, root, uniform);
    const MPI_Comm comm = communicator.handle();
    const WireLayout layout(blocks, largest_together(communicator));
    const auto wires = layer.buffer(layout.total());
    int code =
        uniform ? layer.mpi.Gather(MPI_IN_PLACE, 0, MPI_BYTE, wires.data(), layout.sizes()[root], MPI_BYTE, root, comm)
                : layer.mpi.Gatherv(MPI_IN_PLACE, 0, MPI_BYTE, wires.data(), layout.sizes(), layout.places(), MPI_BYTE,
                                    root, comm);
    if (code != MPI_SUCCESS) return code;
    if (!in_place) code = copy_gathered(layer, communicator, own, blocks[static_cast<std::size_t>(root)]);
    code = first_of(code, open_blocks_from(call, blocks_of_others(root, blocks, wires.data(), layout)));
    const Blocks alone = alone_of_root(communicator, blocks);
    return has_any(alone) ? first_of(code, exchange(call, no_blocks(communicator), alone, Sealing::all)) : code;
}

}  // namespace

int Gather(Layer& layer, const void* out, MPI_Count out_count, MPI_Datatype out_type, void* in, MPI_Count in_count,
           MPI_Datatype in_type, int root, MPI_Comm comm) {
    Communicator* communicator = find_sealed(layer, comm, root);
    const auto native = CRYPTMPI_NATIVE(Gather, std::max(out_count, in_count), out, Count{out_count}, out_type, in,
                                        Count{in_count}, in_type, root, comm);
    if (communicator == nullptr) return native(layer.mpi);
    UserBuffer own;
    std::vector<UserBuffer> blocks;
    if (const int code = make_own(layer, comm, out, out_count, out_type, communicator->rank() == root, own);
        code != MPI_SUCCESS) {
        return code;
    }
    if (communicator->rank() == root) {
        const int code = make_equal_blocks(layer, comm, communicator->size(), in, in_count, in_type, blocks);
        if (code != MPI_SUCCESS) return code;
    }
    if (communicator->rank() == root && out_count == in_count && out_type == in_type) {
        const auto ask = [](const auto& mpi, int* number, int*, int many, MPI_Comm alone) {
            return mpi.Gather(number, many, MPI_INT, number, many, MPI_INT, 0, alone);
        };
        const int code = check_alias(layer, comm, out, blocks[static_cast<std::size_t>(root)], ask);
        if (code != MPI_SUCCESS) return code;
    }
    return gather(layer, *communicator, own, out == MPI_IN_PLACE, blocks, root, true);
}

// With int and with MPI_Count arrays.

template <class C, class D>
int Gatherv(Layer& layer, const void* out, MPI_Count out_count, MPI_Datatype out_type, void* in, const C* counts,
            const D* places, MPI_Datatype in_type, int root, MPI_Comm comm) {
    const auto native = [&](const auto& mpi) -> int {
        if constexpr (std::is_same_v<C, int>) {
            return mpi.Gatherv(out, static_cast<int>(out_count), out_type, in, counts, places, in_type, root, comm);
        } else {
            return mpi.Gatherv_c(out, static_cast<MPI_Count>(out_count), out_type, in, counts, places, in_type, root,
                                 comm);
        }
    };
    Communicator* communicator = find_sealed(layer, comm, root);
    if (communicator == nullptr) return native(layer.mpi);
    UserBuffer own;
    std::vector<UserBuffer> blocks;
    if (const int code = make_own(layer, comm, out, out_count, out_type, communicator->rank() == root, own);
        code != MPI_SUCCESS) {
        return code;
    }
    if (communicator->rank() == root) {
        const int code = make_v_blocks(layer, comm, communicator->size(), in, counts, places, in_type, blocks);
        if (code != MPI_SUCCESS) return code;
    }
    return gather(layer, *communicator, own, out == MPI_IN_PLACE, blocks, root, false);
}

template int Gatherv(Layer&, const void*, MPI_Count, MPI_Datatype, void*, const int*, const int*, MPI_Datatype, int,
                     MPI_Comm);
template int Gatherv(Layer&, const void*, MPI_Count, MPI_Datatype, void*, const MPI_Count*, const MPI_Aint*,
                     MPI_Datatype, int, MPI_Comm);

}  // namespace cryptmpi::comm
