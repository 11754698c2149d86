// MPI_Allgather and MPI_Allgatherv: each rank seals its block once for all. The sealed blocks go to all ranks, or where
// that opens fewer of them, to one rank of each node, which passes on what is in them.
#include <algorithm>
#include <climits>
#include <type_traits>
#include <vector>

#include "comm/arguments.hpp"
#include "comm/bcast.hpp"
#include "comm/blocks.hpp"
#include "comm/calls.hpp"
#include "comm/meeting.hpp"
#include "comm/native_call.hpp"

namespace cryptmpi::comm {
namespace {

using seal::kMessageOverhead;

/// This rank's own block, where it may be larger than the room for it.
int copy_allgathered(Layer& layer, const Communicator& communicator, const UserBuffer& from, const UserBuffer& to) {
    return copy_own(layer, communicator, from, to, [](const auto& mpi, int* two, int* one, int, MPI_Comm alone) {
        return mpi.Allgather(two, 2, MPI_INT, one, 1, MPI_INT, alone);
    });
}

/// Each block goes to all ranks by MPI's own way, and each rank opens it.
int allgather_by_ranks(const Call& call, const UserBuffer& own, const std::vector<UserBuffer>& blocks,
                       const WireLayout& layout, bool uniform) {
    const MPI_Comm comm = call.communicator.handle();
    const int me = call.communicator.rank();
    const auto wires = call.layer.buffer(layout.total());
    int code = seal_block_for_all(call, own, wires.data() + layout.place(me));
    const int gathered =
        uniform ? call.layer.mpi.Allgather(MPI_IN_PLACE, 0, MPI_BYTE, wires.data(), layout.sizes()[me], MPI_BYTE, comm)
                : call.layer.mpi.Allgatherv(MPI_IN_PLACE, 0, MPI_BYTE, wires.data(), layout.sizes(), layout.places(),
                                            MPI_BYTE, comm);
    if (gathered != MPI_SUCCESS) return first_of(code, gathered);
    return first_of(code, open_blocks_of_all(call, blocks_of_others(me, blocks, wires.data(), layout)));
}

/// What all ranks have, by the place that a rank has on its node: the share that the rank at that place brings to its
/// node and says of, in a byte after it, whether it is whole.
class Shares {
public:
    Shares(const Nodes& nodes, const std::vector<UserBuffer>& blocks) : places_(blocks.size()) {
        for (std::size_t place = 0; place < nodes.on_node().size(); ++place) {
            members_.push_back(nodes.at_place(static_cast<int>(place)));
            begins_.push_back(static_cast<int>(total_));
            for (const int rank : members_.back()) {
                places_[static_cast<std::size_t>(rank)] = total_;
                total_ += blocks[static_cast<std::size_t>(rank)].size();
            }
            words_.push_back(total_++);
            sizes_.push_back(static_cast<int>(total_) - begins_.back());
        }
    }
    std::size_t total() const { return total_; }
    const std::vector<int>& members(int share) const { return members_[static_cast<std::size_t>(share)]; }
    const int* begins() const { return begins_.data(); }
    const int* sizes() const { return sizes_.data(); }
    std::size_t word(int share) const { return words_[static_cast<std::size_t>(share)]; }
    std::size_t place(int rank) const { return places_[static_cast<std::size_t>(rank)]; }

private:
    std::vector<std::vector<int>> members_;
    std::vector<std::size_t> places_;
    std::vector<int> begins_;
    std::vector<int> sizes_;
    std::vector<std::size_t> words_;
    std::size_t total_ = 0;
};

/// The blocks of the ranks at this rank's place on their nodes come to `all`, sealed on their way.
int gather_share(const Call& call, const UserBuffer& own, const std::vector<UserBuffer>& blocks, const Shares& shares,
                 std::uint8_t* all) {
    const Nodes& nodes = nodes_of(call.layer, call.communicator);
    const int me = call.communicator.rank();
    std::vector<int> sizes;
    std::vector<int> places;
    int total = 0;
    const std::vector<int>& members = shares.members(nodes.place_on_node(me));
    for (const int rank : members) {
        sizes.push_back(static_cast<int>(blocks[static_cast<std::size_t>(rank)].size() + kMessageOverhead));
        places.push_back(total);
        total += sizes.back();
    }
    const auto at = static_cast<std::size_t>(std::find(members.begin(), members.end(), me) - members.begin());
    const auto wires = call.layer.buffer(static_cast<std::size_t>(total));
    std::uint8_t* const mine = all + shares.place(me);
    int code = own.pack(mine);
    if (code == MPI_SUCCESS) code = seal_bytes_for_all(call, mine, own.size(), wires.data() + places[at]);
    if (code != MPI_SUCCESS) void_block(wires.data() + places[at], own.size());
    const int gathered = call.layer.mpi.Allgatherv(MPI_IN_PLACE, 0, MPI_BYTE, wires.data(), sizes.data(), places.data(),
                                                   MPI_BYTE, nodes.peers());
    code = first_of(code, call.layer.pass_on(nodes.peers(), call.communicator.handle(), gathered));
    for (std::size_t i = 0; i < members.size(); ++i) {
        if (i == at) continue;
        const std::size_t size = blocks[static_cast<std::size_t>(members[i])].size();
        std::uint8_t* const out = all + shares.place(members[i]);
        if (gathered != MPI_SUCCESS) std::fill_n(out, size, std::uint8_t{0});
        if (gathered == MPI_SUCCESS) {
            code = first_of(code, open_bytes_of_all(call, members[i], wires.data() + places[i], size, out));
        }
    }
    return code;
}

/// What each rank has comes to `blocks` of all others, sealed once and opened once on each node, where all nodes have
/// as many ranks: between nodes among those that have one place on their nodes, and then from each of these to its
/// node.
int allgather_by_nodes(const Call& call, const UserBuffer& own, const std::vector<UserBuffer>& blocks) {
    const Nodes& nodes = nodes_of(call.layer, call.communicator);
    const int me = call.communicator.rank();
    const Shares shares(nodes, blocks);
    const auto all = call.layer.buffer(shares.total());
    int code = gather_share(call, own, blocks, shares, all.data());
    all.data()[shares.word(nodes.place_on_node(me))] = code == MPI_SUCCESS ? 1 : 0;
    const int gathered = call.layer.mpi.Allgatherv(MPI_IN_PLACE, 0, MPI_BYTE, all.data(), shares.sizes(),
                                                   shares.begins(), MPI_BYTE, nodes.own());
    if (gathered != MPI_SUCCESS) {
        return first_of(code, call.layer.pass_on(nodes.own(), call.communicator.handle(), gathered));
    }
    for (const int rank : nodes.on_node()) {
        if (code == MPI_SUCCESS && all.data()[shares.word(nodes.place_on_node(rank))] == 0) {
            code = failed_on_node(call, rank);
        }
    }
    for (int rank = 0; rank < call.communicator.size(); ++rank) {
        if (rank == me) continue;
        const UserBuffer& block = blocks[static_cast<std::size_t>(rank)];
        code = first_of(code, block.unpack(all.data() + shares.place(rank), block.size()));
    }
    return code;
}

/// By nodes, each rank opens fewer blocks, and fewer bytes travel between nodes; for which each node has one operation
/// of MPI's more. What that costs, some ten microseconds, opens 64 KB. All ranks see the same sizes.
bool by_nodes_pays(const Nodes& nodes, const WireLayout& layout) {
    constexpr std::size_t kOperation = std::size_t{64} << 10;
    constexpr std::size_t kBlock = 1024;  // bytes that are opened in the time that any block costs
    if (!nodes.equal() || nodes.all_leaders().size() == layout.count()) return false;
    const std::size_t saved = layout.count() - nodes.all_leaders().size();
    return saved * kBlock + layout.total() / layout.count() * saved >= kOperation;
}

std::size_t total_of(const std::vector<UserBuffer>& blocks) {
    std::size_t total = 0;
    for (const UserBuffer& block : blocks) total += block.size() + kMessageOverhead;
    return total;
}

/// What each rank has, broadcast. All ranks see the same sizes.
int allgather_one_by_one(Layer& layer, Communicator& communicator, const UserBuffer& own, bool in_place,
                         const std::vector<UserBuffer>& blocks) {
    const auto me = static_cast<std::size_t>(communicator.rank());
    int code = in_place ? MPI_SUCCESS : copy_allgathered(layer, communicator, own, blocks[me]);
    for (int i = 0; i < communicator.size(); ++i) {
        const int come_with = i == communicator.rank() ? code : MPI_SUCCESS;
        code = first_of(code, broadcast(layer, communicator, blocks[static_cast<std::size_t>(i)], i, come_with));
    }
    return code;
}

int allgather(Layer& layer, Communicator& communicator, const UserBuffer& own, bool in_place,
              const std::vector<UserBuffer>& blocks, bool uniform) {
    if (total_of(blocks) > INT_MAX) {
        return allgather_one_by_one(layer, communicator, own, in_place, blocks);
    }
    const Call call = begin_call(layer, communicator, CollectiveKind::allgather);
    const WireLayout layout(blocks);
    const UserBuffer& mine = blocks[static_cast<std::size_t>(communicator.rank())];
    const UserBuffer& from = in_place ? mine : own;
    const int code = by_nodes_pays(nodes_of(layer, communicator), layout)
                         ? allgather_by_nodes(call, from, blocks)
                         : allgather_by_ranks(call, from, blocks, layout, uniform);
    return in_place ? code : first_of(code, copy_allgathered(layer, communicator, own, mine));
}

}  // namespace

int Allgather(Layer& layer, const void* out, MPI_Count out_count, MPI_Datatype out_type, void* in, MPI_Count in_count,
              MPI_Datatype in_type, MPI_Comm comm) {
    Communicator* communicator = find_sealed(layer, comm);
    const auto native = CRYPTMPI_NATIVE(Allgather, std::max(out_count, in_count), out, Count{out_count}, out_type, in,
                                        Count{in_count}, in_type, comm);
    if (communicator == nullptr) return native(layer.mpi);
    UserBuffer own;
    std::vector<UserBuffer> blocks;
    if (const int code = make_own(layer, comm, out, out_count, out_type, true, own); code != MPI_SUCCESS) {
        return code;
    }
    const int code = make_equal_blocks(layer, comm, communicator->size(), in, in_count, in_type, blocks);
    if (code != MPI_SUCCESS) return code;
    if (out_count == in_count && out_type == in_type) {
        const auto ask = [](const auto& mpi, int* number, int*, int many, MPI_Comm alone) {
            return mpi.Allgather(number, many, MPI_INT, number, many, MPI_INT, alone);
        };
        const UserBuffer& mine = blocks[static_cast<std::size_t>(communicator->rank())];
        const int aliased = check_alias(layer, comm, out, mine, ask);
        if (aliased != MPI_SUCCESS) return aliased;
    }
    return allgather(layer, *communicator, own, out == MPI_IN_PLACE, blocks, true);
}

// With int and with MPI_Count arrays.

template <class C, class D>
int Allgatherv(Layer& layer, const void* out, MPI_Count out_count, MPI_Datatype out_type, void* in, const C* counts,
               const D* places, MPI_Datatype in_type, MPI_Comm comm) {
    const auto native = [&](const auto& mpi) -> int {
        if constexpr (std::is_same_v<C, int>) {
            return mpi.Allgatherv(out, static_cast<int>(out_count), out_type, in, counts, places, in_type, comm);
        } else {
            return mpi.Allgatherv_c(out, static_cast<MPI_Count>(out_count), out_type, in, counts, places, in_type,
                                    comm);
        }
    };
    Communicator* communicator = find_sealed(layer, comm);
    if (communicator == nullptr) return native(layer.mpi);
    // As Open MPI tells it; others crash.
    if (counts == nullptr || places == nullptr) return raise_on_comm(layer, comm, MPI_ERR_BUFFER);
    UserBuffer own;
    std::vector<UserBuffer> blocks;
    if (const int code = make_own(layer, comm, out, out_count, out_type, true, own); code != MPI_SUCCESS) {
        return code;
    }
    const int code = make_v_blocks(layer, comm, communicator->size(), in, counts, places, in_type, blocks);
    if (code != MPI_SUCCESS) return code;
    return allgather(layer, *communicator, own, out == MPI_IN_PLACE, blocks, false);
}

template int Allgatherv(Layer&, const void*, MPI_Count, MPI_Datatype, void*, const int*, const int*, MPI_Datatype,
                        MPI_Comm);
template int Allgatherv(Layer&, const void*, MPI_Count, MPI_Datatype, void*, const MPI_Count*, const MPI_Aint*,
                        MPI_Datatype, MPI_Comm);

}  // namespace cryptmpi::comm
