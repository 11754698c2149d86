// MPI_Alltoall, MPI_Alltoallv and MPI_Alltoallw: each rank seals a block for each other one.
#include <algorithm>
#include <type_traits>
#include <vector>

#include "comm/arguments.hpp"
#include "comm/blocks.hpp"
#include "comm/calls.hpp"
#include "comm/native_call.hpp"

namespace cryptmpi::comm {
namespace {

/// This rank's own block, where it may be larger than the room for it.
int copy_exchanged(Layer& layer, const Communicator& communicator, const UserBuffer& from, const UserBuffer& to) {
    return copy_own(layer, communicator, from, to, [](const auto& mpi, int* two, int* one, int, MPI_Comm alone) {
        const int two_of_them = 2;
        const int one_of_them = 1;
        const int place = 0;
        return mpi.Alltoallv(two, &two_of_them, &place, MPI_INT, one, &one_of_them, &place, MPI_INT, alone);
    });
}

/// MPI decides the way, by which it may put blocks for several ranks in one message: all of them are sealed.
int alltoall_at_once(const Call& call, const std::vector<UserBuffer>& out, const std::vector<UserBuffer>& in) {
    const MPI_Comm comm = call.communicator.handle();
    const int me = call.communicator.rank();
    const WireLayout layout(in);
    const auto out_wires = call.layer.buffer(layout.total());
    const auto in_wires = call.layer.buffer(layout.total());
    int code = MPI_SUCCESS;
    for (int i = 0; i < call.communicator.size(); ++i) {
        if (i == me) continue;
        const UserBuffer& block = out[static_cast<std::size_t>(i)];
        code = first_of(code, seal_block_for(call, i, block, out_wires.data() + layout.place(i)));
    }
    // A rank's own block never travels: what MPI copies of it is not looked at.
    std::fill_n(out_wires.data() + layout.place(me), layout.sizes()[me], std::uint8_t{0});
    const int exchanged = call.layer.mpi.Alltoall(out_wires.data(), layout.sizes()[0], MPI_BYTE, in_wires.data(),
                                                  layout.sizes()[0], MPI_BYTE, comm);
    if (exchanged != MPI_SUCCESS) return first_of(code, exchanged);
    for (int i = 0; i < call.communicator.size(); ++i) {
        if (i == me) continue;
        const UserBuffer& block = in[static_cast<std::size_t>(i)];
        code = first_of(code, open_block_from(call, i, in_wires.data() + layout.place(i), block));
    }
    return code;
}

/// A copy of the blocks in memory of ours.
class Copied {
public:
    static int make(Layer& layer, const std::vector<UserBuffer>& from, Copied& out) {
        std::size_t total = 0;
        for (const UserBuffer& block : from) total += block.size();
        out.memory_ = layer.buffer(total);
        out.blocks_.resize(from.size());
        std::uint8_t* at = out.memory_.data();
        int code = MPI_SUCCESS;
        for (std::size_t i = 0; i < from.size(); ++i) {
            const std::size_t size = from[i].size();
            code = first_of(code, from[i].pack(at));
            code = first_of(code, UserBuffer::make(layer.types(), MPI_COMM_SELF, at, static_cast<MPI_Count>(size),
                                                   MPI_BYTE, false, out.blocks_[i]));
            at += size;
        }
        return code;
    }
    const std::vector<UserBuffer>& blocks() const { return blocks_; }

private:
    engine::Buffer memory_;
    std::vector<UserBuffer> blocks_;
};

Blocks all(const std::vector<UserBuffer>& blocks) {
    Blocks all;
    for (const UserBuffer& block : blocks) all.push_back(&block);
    return all;
}

// Up to so many bytes, MPIs have ways of Alltoall with fewer messages than one from each rank to each other one (MPICH
// up to 256, Open MPI up to 200, Intel MPI somewhat more). All ranks see the same size.
constexpr std::size_t kMostAtOnce = 1024;

/// A rank's blocks, by rank. In place, what is sent lies where the received blocks go.
struct BothWays {
    std::vector<UserBuffer> out;
    std::vector<UserBuffer> in;
    bool in_place = false;
};

template <class MakeOut, class MakeIn>
int make_both_ways(const void* at, const MakeOut& make_out, const MakeIn& make_in, BothWays& blocks) {
    blocks.in_place = at == MPI_IN_PLACE;
    const int code = blocks.in_place ? MPI_SUCCESS : make_out(blocks.out);
    return code != MPI_SUCCESS ? code : make_in(blocks.in);
}

int alltoall(Layer& layer, Communicator& communicator, const BothWays& blocks, bool uniform) {
    const auto& [out, in, in_place] = blocks;
    const Call call = begin_call(layer, communicator, CollectiveKind::alltoall);
    const auto me = static_cast<std::size_t>(communicator.rank());
    const bool at_once = uniform && in[me].size() <= kMostAtOnce && !goes_alone(communicator, in[me]);
    if (in_place && at_once) return alltoall_at_once(call, in, in);
    if (in_place) {
        Copied copied;
        const int code = Copied::make(layer, in, copied);
        return code != MPI_SUCCESS ? code : exchange(call, all(copied.blocks()), all(in));
    }
    const int code = at_once ? alltoall_at_once(call, out, in) : exchange(call, all(out), all(in));
    return first_of(code, copy_exchanged(layer, communicator, out[me], in[me]));
}

/// Types and displacements in bytes, by rank.
template <class C, class D>
int make_w_blocks(Layer& layer, MPI_Comm comm, int ranks, void* at, const C* counts, const D* places,
                  const MPI_Datatype* types, std::vector<UserBuffer>& blocks) {
    if (counts == nullptr || places == nullptr || types == nullptr) return raise_on_comm(layer, comm, MPI_ERR_ARG);
    return make_blocks(
        layer, comm, ranks, at, [&](int i) { return static_cast<MPI_Count>(counts[i]); },
        [&](int i) { return static_cast<MPI_Aint>(places[i]); }, [&](int i) { return types[i]; }, blocks);
}

}  // namespace

int Alltoall(Layer& layer, const void* out, MPI_Count out_count, MPI_Datatype out_type, void* in, MPI_Count in_count,
             MPI_Datatype in_type, MPI_Comm comm) {
    Communicator* communicator = find_sealed(layer, comm);
    const auto native = CRYPTMPI_NATIVE(Alltoall, std::max(out_count, in_count), out, Count{out_count}, out_type, in,
                                        Count{in_count}, in_type, comm);
    if (communicator == nullptr) return native(layer.mpi);
    const int ranks = communicator->size();
    BothWays blocks;
    const auto make_out = [&](auto& of) {
        return make_equal_blocks(layer, comm, ranks, const_cast<void*>(out), out_count, out_type, of);
    };
    const auto make_in = [&](auto& of) { return make_equal_blocks(layer, comm, ranks, in, in_count, in_type, of); };
    if (const int code = make_both_ways(out, make_out, make_in, blocks); code != MPI_SUCCESS) return code;
    if (out_count == in_count && out_type == in_type) {
        const auto ask = [](const auto& mpi, int* number, int*, int many, MPI_Comm alone) {
            return mpi.Alltoall(number, many, MPI_INT, number, many, MPI_INT, alone);
        };
        const int code = check_alias(layer, comm, out, blocks.in.front(), ask);
        if (code != MPI_SUCCESS) return code;
    }
    return alltoall(layer, *communicator, blocks, true);
}

// The v and w forms, with int and with MPI_Count arrays.

template <class C, class D>
int Alltoallv(Layer& layer, const void* out, const C* out_counts, const D* out_places, MPI_Datatype out_type, void* in,
              const C* in_counts, const D* in_places, MPI_Datatype in_type, MPI_Comm comm) {
    const auto native = [&](const auto& mpi) -> int {
        if constexpr (std::is_same_v<C, int>) {
            return mpi.Alltoallv(out, out_counts, out_places, out_type, in, in_counts, in_places, in_type, comm);
        } else {
            return mpi.Alltoallv_c(out, out_counts, out_places, out_type, in, in_counts, in_places, in_type, comm);
        }
    };
    Communicator* communicator = find_sealed(layer, comm);
    if (communicator == nullptr) return native(layer.mpi);
    const int ranks = communicator->size();
    BothWays blocks;
    const auto make_out = [&](auto& of) {
        return make_v_blocks(layer, comm, ranks, const_cast<void*>(out), out_counts, out_places, out_type, of);
    };
    const auto make_in = [&](auto& of) {
        return make_v_blocks(layer, comm, ranks, in, in_counts, in_places, in_type, of);
    };
    const int code = make_both_ways(out, make_out, make_in, blocks);
    return code != MPI_SUCCESS ? code : alltoall(layer, *communicator, blocks, false);
}

template <class C, class D>
int Alltoallw(Layer& layer, const void* out, const C* out_counts, const D* out_places, const MPI_Datatype* out_types,
              void* in, const C* in_counts, const D* in_places, const MPI_Datatype* in_types, MPI_Comm comm) {
    const auto native = [&](const auto& mpi) -> int {
        if constexpr (std::is_same_v<C, int>) {
            return mpi.Alltoallw(out, out_counts, out_places, out_types, in, in_counts, in_places, in_types, comm);
        } else {
            return mpi.Alltoallw_c(out, out_counts, out_places, out_types, in, in_counts, in_places, in_types, comm);
        }
    };
    Communicator* communicator = find_sealed(layer, comm);
    if (communicator == nullptr) return native(layer.mpi);
    const int ranks = communicator->size();
    BothWays blocks;
    const auto make_out = [&](auto& of) {
        return make_w_blocks(layer, comm, ranks, const_cast<void*>(out), out_counts, out_places, out_types, of);
    };
    const auto make_in = [&](auto& of) {
        return make_w_blocks(layer, comm, ranks, in, in_counts, in_places, in_types, of);
    };
    const int code = make_both_ways(out, make_out, make_in, blocks);
    return code != MPI_SUCCESS ? code : alltoall(layer, *communicator, blocks, false);
}

template int Alltoallv(Layer&, const void*, const int*, const int*, MPI_Datatype, void*, const int*, const int*,
                       MPI_Datatype, MPI_Comm);
template int Alltoallv(Layer&, const void*, const MPI_Count*, const MPI_Aint*, MPI_Datatype, void*, const MPI_Count*,
                       const MPI_Aint*, MPI_Datatype, MPI_Comm);
template int Alltoallw(Layer&, const void*, const int*, const int*, const MPI_Datatype*, void*, const int*, const int*,
                       const MPI_Datatype*, MPI_Comm);
template int Alltoallw(Layer&, const void*, const MPI_Count*, const MPI_Aint*, const MPI_Datatype*, void*,
                       const MPI_Count*, const MPI_Aint*, const MPI_Datatype*, MPI_Comm);

}  // namespace cryptmpi::comm
