// The collective operations that move data: each block is sealed once and travels by MPI's own operation.
#include <algorithm>
#include <climits>
#include <type_traits>

#include "comm/arguments.hpp"
#include "comm/calls.hpp"
#include "comm/collective.hpp"
#include "comm/in_transit.hpp"
#include "comm/native_call.hpp"

namespace cryptmpi::comm {
namespace {

using seal::kMessageOverhead;

/// MPI counts the bytes of its operations by int: a block of more than each rank's share of that goes alone, as a
/// message. Both of its ends see that, where only the root knows the sizes of all.
std::size_t largest_together(const Communicator& communicator) {
    return static_cast<std::size_t>(INT_MAX / communicator.size());
}
bool goes_alone(const Communicator& communicator, const UserBuffer& block) {
    return block.size() + kMessageOverhead > largest_together(communicator);
}

/// Where the sealed blocks of all ranks lie, one after the other. Those of more than `most` bytes do not.
class Layout {
public:
    explicit Layout(const std::vector<UserBuffer>& blocks, std::size_t most = INT_MAX) {
        for (const UserBuffer& block : blocks) {
            const std::size_t whole = block.size() + kMessageOverhead;
            const std::size_t size = whole > most ? 0 : whole;
            sizes_.push_back(static_cast<int>(size));
            places_.push_back(static_cast<int>(total_));
            total_ += size;
        }
    }
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
                                    const Layout& layout) {
    std::vector<Block> others;
    for (int i = 0; i < static_cast<int>(blocks.size()); ++i) {
        if (i == me || layout.sizes()[i] == 0) continue;
        others.push_back({i, wires + layout.place(i), &blocks[static_cast<std::size_t>(i)]});
    }
    return others;
}

/// The blocks that go alone between this root and the others.
Blocks alone_of_root(const Communicator& communicator, const std::vector<UserBuffer>& blocks) {
    Blocks alone;
    for (const UserBuffer& block : blocks) alone.push_back(goes_alone(communicator, block) ? &block : nullptr);
    return alone;
}

Blocks alone_with_root(const Communicator& communicator, const UserBuffer& block, int root) {
    Blocks alone(static_cast<std::size_t>(communicator.size()), nullptr);
    alone[static_cast<std::size_t>(root)] = &block;
    return alone;
}

Blocks nothing(const Communicator& communicator) {
    return Blocks(static_cast<std::size_t>(communicator.size()), nullptr);
}

bool is_any(const Blocks& blocks) {
    return std::any_of(blocks.begin(), blocks.end(), [](const UserBuffer* block) { return block != nullptr; });
}

Blocks all(const std::vector<UserBuffer>& blocks) {
    Blocks all;
    for (const UserBuffer& block : blocks) all.push_back(&block);
    return all;
}

/// Not MPI's: the program's arguments are such that MPI has to say what is wrong with them.
constexpr int kForMpi = -1;

/// The code of making the buffers that a procedure works on, which is not good; `native` calls MPI's own.
template <class Native>
int say_what_is_wrong(Layer& layer, int code, Native native) {
    return code == kForMpi ? native(layer.mpi) : code;
}

int make_buffer(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, UserBuffer& out) {
    if (count < 0 || type == MPI_DATATYPE_NULL) return kForMpi;
    const int code = UserBuffer::make(layer.types(), at, count, type, false, out);
    return code == MPI_SUCCESS && out.is_wrong() ? kForMpi : code;
}

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

MPI_Aint extent_of(Layer& layer, MPI_Datatype type) {
    MPI_Aint lower = 0;
    MPI_Aint extent = 0;
    layer.mpi.Type_get_extent(type, &lower, &extent);
    return extent;
}

/// Equal blocks, one after the other.
int make_equal_blocks(Layer& layer, int ranks, void* at, MPI_Count count, MPI_Datatype type,
                      std::vector<UserBuffer>& blocks) {
    if (type == MPI_DATATYPE_NULL) return kForMpi;
    const MPI_Aint step = extent_of(layer, type) * static_cast<MPI_Aint>(count);
    return make_blocks(
        layer, ranks, at, [&](int) { return count; }, [&](int i) { return i * step; }, [&](int) { return type; },
        blocks);
}

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

// This rank's own block, where it may be larger than the room for it.

int copy_gathered(Layer& layer, const Communicator& communicator, const UserBuffer& from, const UserBuffer& to) {
    return copy_own(layer, communicator, from, to, [](const auto& mpi, int* two, int* one, int, MPI_Comm alone) {
        return mpi.Gather(two, 2, MPI_INT, one, 1, MPI_INT, 0, alone);
    });
}

int copy_scattered(Layer& layer, const Communicator& communicator, const UserBuffer& from, const UserBuffer& to) {
    return copy_own(layer, communicator, from, to, [](const auto& mpi, int* two, int* one, int, MPI_Comm alone) {
        return mpi.Scatter(two, 2, MPI_INT, one, 1, MPI_INT, 0, alone);
    });
}

int copy_allgathered(Layer& layer, const Communicator& communicator, const UserBuffer& from, const UserBuffer& to) {
    return copy_own(layer, communicator, from, to, [](const auto& mpi, int* two, int* one, int, MPI_Comm alone) {
        return mpi.Allgather(two, 2, MPI_INT, one, 1, MPI_INT, alone);
    });
}

int copy_exchanged(Layer& layer, const Communicator& communicator, const UserBuffer& from, const UserBuffer& to) {
    return copy_own(layer, communicator, from, to, [](const auto& mpi, int* two, int* one, int, MPI_Comm alone) {
        const int two_of_them = 2;
        const int one_of_them = 1;
        const int place = 0;
        return mpi.Alltoallv(two, &two_of_them, &place, MPI_INT, one, &one_of_them, &place, MPI_INT, alone);
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
    return exchange(call, alone_with_root(call.communicator, own, root), nothing(call.communicator), Sealing::all);
}

int gather(Layer& layer, Communicator& communicator, const UserBuffer& own, bool in_place,
           const std::vector<UserBuffer>& blocks, int root, bool uniform) {
    const Call call = begin_call(layer, communicator, CollectiveKind::gather, root);
    communicator.prepare_addresses(layer.mpi);
    if (communicator.rank() != root) return gather_to_root(call, own, root, uniform);
    const MPI_Comm comm = communicator.handle();
    const Layout layout(blocks, largest_together(communicator));
    const auto wires = layer.buffer(layout.total());
    int code =
        uniform ? layer.mpi.Gather(MPI_IN_PLACE, 0, MPI_BYTE, wires.data(), layout.sizes()[root], MPI_BYTE, root, comm)
                : layer.mpi.Gatherv(MPI_IN_PLACE, 0, MPI_BYTE, wires.data(), layout.sizes(), layout.places(), MPI_BYTE,
                                    root, comm);
    if (code != MPI_SUCCESS) return code;
    if (!in_place) code = copy_gathered(layer, communicator, own, blocks[static_cast<std::size_t>(root)]);
    code = first_of(code, open_blocks_from(call, blocks_of_others(root, blocks, wires.data(), layout)));
    const Blocks alone = alone_of_root(communicator, blocks);
    return is_any(alone) ? first_of(code, exchange(call, nothing(communicator), alone, Sealing::all)) : code;
}

/// Each block goes to all ranks by MPI's own way, and each rank opens it.
int allgather_by_ranks(const Call& call, const UserBuffer& own, const std::vector<UserBuffer>& blocks,
                       const Layout& layout, bool uniform) {
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

/// By nodes, each rank opens fewer blocks, and fewer bytes travel between nodes; for which each node has one operation
/// of MPI's more. What that costs, some ten microseconds, opens 64 KB. All ranks see the same sizes.
bool by_nodes_pays(const Nodes& nodes, const Layout& layout) {
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
    const Layout layout(blocks);
    const UserBuffer& mine = blocks[static_cast<std::size_t>(communicator.rank())];
    const UserBuffer& from = in_place ? mine : own;
    const int code = by_nodes_pays(communicator.nodes(layer.mpi), layout)
                         ? allgather_by_nodes(call, from, blocks)
                         : allgather_by_ranks(call, from, blocks, layout, uniform);
    return in_place ? code : first_of(code, copy_allgathered(layer, communicator, own, mine));
}

/// MPI decides the way, by which it may put blocks for several ranks in one message: all of them are sealed.
int alltoall_at_once(const Call& call, const std::vector<UserBuffer>& out, const std::vector<UserBuffer>& in) {
    const MPI_Comm comm = call.communicator.handle();
    const int me = call.communicator.rank();
    const Layout layout(in);
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
            code = first_of(code, UserBuffer::make(layer.types(), at, static_cast<MPI_Count>(size), MPI_BYTE, false,
                                                   out.blocks_[i]));
            at += size;
        }
        return code;
    }
    const std::vector<UserBuffer>& blocks() const { return blocks_; }

private:
    engine::Buffer memory_;
    std::vector<UserBuffer> blocks_;
};

// Up to so many bytes, MPIs have ways of Alltoall with fewer messages than one from each rank to each other one (MPICH
// up to 256, Open MPI up to 200, Intel MPI somewhat more). All ranks see the same size.
constexpr std::size_t kMostAtOnce = 1024;

int alltoall(Layer& layer, Communicator& communicator, const std::vector<UserBuffer>& out,
             const std::vector<UserBuffer>& in, bool in_place, bool uniform) {
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

/// The communicator, if its collective operations are sealed and the root is one of its members; else MPI does it, and
/// says what is wrong with the arguments.
Communicator* find_crossing(Layer& layer, MPI_Comm comm, int root = 0) {
    const auto guard = layer.guard();
    Communicator* communicator = layer.find(comm);
    return communicator != nullptr && communicator->has(root) ? communicator : nullptr;
}

}  // namespace

namespace {

/// Large broadcasts go in pieces, of which some are on their way while others are sealed and opened.
class Pieces {
public:
    Pieces(std::size_t size, std::size_t piece)
        : size_(size), piece_(size / 2 > piece ? piece : std::max(size, kLeast)) {}
    std::size_t total() const { return size_; }
    std::uint64_t count() const { return std::max<std::uint64_t>(1, (size_ + piece_ - 1) / piece_); }
    std::size_t offset(std::uint64_t i) const { return i * piece_; }
    std::size_t size(std::uint64_t i) const { return std::min(piece_, size_ - offset(i)); }

private:
    static constexpr std::size_t kLeast = 1;
    std::size_t size_;
    std::size_t piece_;
};

/// From the leader `from` to all others: sealed once, opened once on each node. `at` has the data, if `code` says so.
int broadcast_to_leaders(const Call& call, int from, std::uint8_t* at, const Pieces& pieces, int code) {
    constexpr std::uint64_t kInFlight = 4;
    const auto& mpi = call.layer.mpi;
    const Nodes& nodes = call.communicator.nodes(mpi);
    const int place = nodes.place_of_leader(from);
    const bool sends = call.communicator.rank() == from;
    InTransit travelling[kInFlight];
    const auto told = [&](int result) {
        return call.layer.pass_on(nodes.leaders(), call.communicator.handle(), result);
    };
    // After an error the others still get all pieces, which they wait for; nothing of the data is in them.
    const auto begin = [&](std::uint64_t i) {
        InTransit& one = travelling[i % kInFlight];
        one =
            InTransit(call.layer.left_with_mpi(), Transfer::send, call.layer.buffer(pieces.size(i) + kMessageOverhead));
        if (sends && code == MPI_SUCCESS) {
            code = seal_bytes_for_all(block_of(call, i), at + pieces.offset(i), pieces.size(i), one.wire.data());
        }
        if (sends && code != MPI_SUCCESS) void_block(one.wire.data(), pieces.size(i));
        const ByteCount bytes(mpi, one.wire.size());
        const int begun =
            pieces.count() == 1
                ? mpi.Bcast(one.wire.data(), bytes.count(), bytes.type(), place, nodes.leaders())
                : mpi.Ibcast(one.wire.data(), bytes.count(), bytes.type(), place, nodes.leaders(), &one.request);
        code = first_of(code, told(begun));
    };
    const auto end = [&](std::uint64_t i) {
        InTransit& one = travelling[i % kInFlight];
        code = first_of(code, told(mpi.Wait(&one.request, MPI_STATUS_IGNORE)));
        if (sends || code != MPI_SUCCESS) return;
        code = open_bytes_of_all(block_of(call, i), from, one.wire.data(), pieces.size(i), at + pieces.offset(i));
    };
    const std::uint64_t count = pieces.count();
    for (std::uint64_t i = 0; i < count + kInFlight - 1; ++i) {
        if (i >= kInFlight - 1 && i - (kInFlight - 1) < count) end(i - (kInFlight - 1));
        if (i < count) begin(i);
    }
    // Neither the pieces that came nor what was there before must look like the data.
    if (!sends && code != MPI_SUCCESS) std::fill_n(at, pieces.total(), std::uint8_t{0});
    return code;
}

}  // namespace

int broadcast(Layer& layer, Communicator& communicator, const UserBuffer& buffer, int root, int code) {
    const Pieces pieces(buffer.size(), layer.collectives().piece);
    const Call call = begin_call(layer, communicator, CollectiveKind::bcast, root, pieces.count());
    const Nodes& nodes = communicator.nodes(layer.mpi);
    const int me = communicator.rank();
    const int sender = nodes.leader_of(root);
    const bool has_it = me == root;
    engine::Buffer packed;
    std::uint8_t* at = buffer.contiguous();
    if (at == nullptr) {
        packed = layer.buffer(buffer.size());
        at = packed.data();
    }
    if (has_it && buffer.contiguous() == nullptr) code = first_of(code, buffer.pack(at));
    const bool at_root = nodes.leader_of(me) == sender;
    if (at_root && sender != root) code = share_on_node(call, root, at, buffer.size(), code);
    if (nodes.is_leader(me) && nodes.all_leaders().size() > 1) {
        code = broadcast_to_leaders(call, sender, at, pieces, code);
    }
    if (!at_root || sender == root) code = share_on_node(call, nodes.leader_of(me), at, buffer.size(), code);
    if (has_it || buffer.contiguous() != nullptr) return code;
    return first_of(code, buffer.unpack(at, buffer.size()));  // zeros, after an error
}

namespace {

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
        return first_of(code, exchange(call, nothing(call.communicator), from_root, Sealing::all));
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
    const Layout layout(blocks, largest_together(communicator));
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
    if (const Blocks alone = alone_of_root(communicator, blocks); is_any(alone)) {
        code = exchange(call, alone, nothing(communicator), Sealing::all, code);
    }
    if (code != MPI_SUCCESS || mine == nullptr) return code;
    return copy_scattered(layer, communicator, blocks[static_cast<std::size_t>(root)], *mine);
}

int Bcast(Layer& layer, void* at, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm) {
    Communicator* communicator = find_crossing(layer, comm, root);
    const auto native = CRYPTMPI_NATIVE(Bcast, count, at, Count{count}, type, root, comm);
    if (communicator == nullptr) return native(layer.mpi);
    UserBuffer buffer;
    if (const int code = make_buffer(layer, at, count, type, buffer); code != MPI_SUCCESS) {
        return say_what_is_wrong(layer, code, native);
    }
    return broadcast(layer, *communicator, buffer, root);
}

namespace {

/// This rank's part of what is sent. Not looked at where the root sends in place.
int make_own(Layer& layer, const void* at, MPI_Count count, MPI_Datatype type, UserBuffer& own) {
    return at == MPI_IN_PLACE ? MPI_SUCCESS : make_buffer(layer, at, count, type, own);
}

}  // namespace

int Gather(Layer& layer, const void* out, MPI_Count out_count, MPI_Datatype out_type, void* in, MPI_Count in_count,
           MPI_Datatype in_type, int root, MPI_Comm comm) {
    Communicator* communicator = find_crossing(layer, comm, root);
    const auto native = CRYPTMPI_NATIVE(Gather, std::max(out_count, in_count), out, Count{out_count}, out_type, in,
                                        Count{in_count}, in_type, root, comm);
    if (communicator == nullptr) return native(layer.mpi);
    UserBuffer own;
    std::vector<UserBuffer> blocks;
    if (const int code = make_own(layer, out, out_count, out_type, own); code != MPI_SUCCESS) {
        return say_what_is_wrong(layer, code, native);
    }
    if (communicator->rank() == root) {
        const int code = make_equal_blocks(layer, communicator->size(), in, in_count, in_type, blocks);
        if (code != MPI_SUCCESS) return say_what_is_wrong(layer, code, native);
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

int Scatter(Layer& layer, const void* out, MPI_Count out_count, MPI_Datatype out_type, void* in, MPI_Count in_count,
            MPI_Datatype in_type, int root, MPI_Comm comm) {
    Communicator* communicator = find_crossing(layer, comm, root);
    const auto native = CRYPTMPI_NATIVE(Scatter, std::max(out_count, in_count), out, Count{out_count}, out_type, in,
                                        Count{in_count}, in_type, root, comm);
    if (communicator == nullptr) return native(layer.mpi);
    UserBuffer own;
    std::vector<UserBuffer> blocks;
    if (const int code = make_own(layer, in, in_count, in_type, own); code != MPI_SUCCESS) {
        return say_what_is_wrong(layer, code, native);
    }
    if (communicator->rank() == root) {
        const int code =
            make_equal_blocks(layer, communicator->size(), const_cast<void*>(out), out_count, out_type, blocks);
        if (code != MPI_SUCCESS) return say_what_is_wrong(layer, code, native);
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

int Allgather(Layer& layer, const void* out, MPI_Count out_count, MPI_Datatype out_type, void* in, MPI_Count in_count,
              MPI_Datatype in_type, MPI_Comm comm) {
    Communicator* communicator = find_crossing(layer, comm);
    const auto native = CRYPTMPI_NATIVE(Allgather, std::max(out_count, in_count), out, Count{out_count}, out_type, in,
                                        Count{in_count}, in_type, comm);
    if (communicator == nullptr) return native(layer.mpi);
    UserBuffer own;
    std::vector<UserBuffer> blocks;
    if (const int code = make_own(layer, out, out_count, out_type, own); code != MPI_SUCCESS) {
        return say_what_is_wrong(layer, code, native);
    }
    const int code = make_equal_blocks(layer, communicator->size(), in, in_count, in_type, blocks);
    if (code != MPI_SUCCESS) return say_what_is_wrong(layer, code, native);
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

int Alltoall(Layer& layer, const void* out, MPI_Count out_count, MPI_Datatype out_type, void* in, MPI_Count in_count,
             MPI_Datatype in_type, MPI_Comm comm) {
    Communicator* communicator = find_crossing(layer, comm);
    const auto native = CRYPTMPI_NATIVE(Alltoall, std::max(out_count, in_count), out, Count{out_count}, out_type, in,
                                        Count{in_count}, in_type, comm);
    if (communicator == nullptr) return native(layer.mpi);
    const bool in_place = out == MPI_IN_PLACE;
    std::vector<UserBuffer> sent;
    std::vector<UserBuffer> received;
    const int ranks = communicator->size();
    if (!in_place) {
        const int code = make_equal_blocks(layer, ranks, const_cast<void*>(out), out_count, out_type, sent);
        if (code != MPI_SUCCESS) return say_what_is_wrong(layer, code, native);
    }
    if (const int code = make_equal_blocks(layer, ranks, in, in_count, in_type, received); code != MPI_SUCCESS) {
        return say_what_is_wrong(layer, code, native);
    }
    if (out_count == in_count && out_type == in_type) {
        const auto ask = [](const auto& mpi, int* number, int*, int many, MPI_Comm alone) {
            return mpi.Alltoall(number, many, MPI_INT, number, many, MPI_INT, alone);
        };
        const int code = check_alias(layer, comm, out, received.front(), ask);
        if (code != MPI_SUCCESS) return code;
    }
    return alltoall(layer, *communicator, sent, received, in_place, true);
}

// The v and w forms exist with int and with MPI_Count arrays.

namespace {

template <class C, class D, class Native>
int gatherv(Layer& layer, const void* out, MPI_Count out_count, MPI_Datatype out_type, void* in, const C* counts,
            const D* places, MPI_Datatype in_type, int root, MPI_Comm comm, Native native) {
    Communicator* communicator = find_crossing(layer, comm, root);
    if (communicator == nullptr) return native(layer.mpi);
    UserBuffer own;
    std::vector<UserBuffer> blocks;
    if (const int code = make_own(layer, out, out_count, out_type, own); code != MPI_SUCCESS) {
        return say_what_is_wrong(layer, code, native);
    }
    if (communicator->rank() == root) {
        const int code = make_v_blocks(layer, communicator->size(), in, counts, places, in_type, blocks);
        if (code != MPI_SUCCESS) return say_what_is_wrong(layer, code, native);
    }
    return gather(layer, *communicator, own, out == MPI_IN_PLACE, blocks, root, false);
}

template <class C, class D, class Native>
int scatterv(Layer& layer, const void* out, const C* counts, const D* places, MPI_Datatype out_type, void* in,
             MPI_Count in_count, MPI_Datatype in_type, int root, MPI_Comm comm, Native native) {
    Communicator* communicator = find_crossing(layer, comm, root);
    if (communicator == nullptr) return native(layer.mpi);
    UserBuffer own;
    std::vector<UserBuffer> blocks;
    if (const int code = make_own(layer, in, in_count, in_type, own); code != MPI_SUCCESS) {
        return say_what_is_wrong(layer, code, native);
    }
    if (communicator->rank() == root) {
        const int code =
            make_v_blocks(layer, communicator->size(), const_cast<void*>(out), counts, places, out_type, blocks);
        if (code != MPI_SUCCESS) return say_what_is_wrong(layer, code, native);
    }
    return scatter(layer, *communicator, blocks, in == MPI_IN_PLACE ? nullptr : &own, root, false);
}

template <class C, class D, class Native>
int allgatherv(Layer& layer, const void* out, MPI_Count out_count, MPI_Datatype out_type, void* in, const C* counts,
               const D* places, MPI_Datatype in_type, MPI_Comm comm, Native native) {
    Communicator* communicator = find_crossing(layer, comm);
    if (communicator == nullptr) return native(layer.mpi);
    UserBuffer own;
    std::vector<UserBuffer> blocks;
    if (const int code = make_own(layer, out, out_count, out_type, own); code != MPI_SUCCESS) {
        return say_what_is_wrong(layer, code, native);
    }
    const int code = make_v_blocks(layer, communicator->size(), in, counts, places, in_type, blocks);
    if (code != MPI_SUCCESS) return say_what_is_wrong(layer, code, native);
    return allgather(layer, *communicator, own, out == MPI_IN_PLACE, blocks, false);
}

template <class C, class D, class Native>
int alltoallv(Layer& layer, const void* out, const C* out_counts, const D* out_places, MPI_Datatype out_type, void* in,
              const C* in_counts, const D* in_places, MPI_Datatype in_type, MPI_Comm comm, Native native) {
    Communicator* communicator = find_crossing(layer, comm);
    if (communicator == nullptr) return native(layer.mpi);
    const bool in_place = out == MPI_IN_PLACE;
    std::vector<UserBuffer> sent;
    std::vector<UserBuffer> received;
    const int ranks = communicator->size();
    if (!in_place) {
        const int code = make_v_blocks(layer, ranks, const_cast<void*>(out), out_counts, out_places, out_type, sent);
        if (code != MPI_SUCCESS) return say_what_is_wrong(layer, code, native);
    }
    const int code = make_v_blocks(layer, ranks, in, in_counts, in_places, in_type, received);
    if (code != MPI_SUCCESS) return say_what_is_wrong(layer, code, native);
    return alltoall(layer, *communicator, sent, received, in_place, false);
}

/// Types and displacements in bytes, by rank.
template <class C, class D>
int make_w_blocks(Layer& layer, int ranks, void* at, const C* counts, const D* places, const MPI_Datatype* types,
                  std::vector<UserBuffer>& blocks) {
    if (counts == nullptr || places == nullptr || types == nullptr) return kForMpi;
    return make_blocks(
        layer, ranks, at, [&](int i) { return static_cast<MPI_Count>(counts[i]); },
        [&](int i) { return static_cast<MPI_Aint>(places[i]); }, [&](int i) { return types[i]; }, blocks);
}

template <class C, class D, class Native>
int alltoallw(Layer& layer, const void* out, const C* out_counts, const D* out_places, const MPI_Datatype* out_types,
              void* in, const C* in_counts, const D* in_places, const MPI_Datatype* in_types, MPI_Comm comm,
              Native native) {
    Communicator* communicator = find_crossing(layer, comm);
    if (communicator == nullptr) return native(layer.mpi);
    const bool in_place = out == MPI_IN_PLACE;
    std::vector<UserBuffer> sent;
    std::vector<UserBuffer> received;
    const int ranks = communicator->size();
    if (!in_place) {
        const int code = make_w_blocks(layer, ranks, const_cast<void*>(out), out_counts, out_places, out_types, sent);
        if (code != MPI_SUCCESS) return say_what_is_wrong(layer, code, native);
    }
    const int code = make_w_blocks(layer, ranks, in, in_counts, in_places, in_types, received);
    if (code != MPI_SUCCESS) return say_what_is_wrong(layer, code, native);
    return alltoall(layer, *communicator, sent, received, in_place, false);
}

}  // namespace

template <class C, class D>
int Gatherv(Layer& layer, const void* out, MPI_Count out_count, MPI_Datatype out_type, void* in, const C* counts,
            const D* places, MPI_Datatype in_type, int root, MPI_Comm comm) {
    return gatherv(
        layer, out, out_count, out_type, in, counts, places, in_type, root, comm, [&](const auto& mpi) -> int {
            if constexpr (std::is_same_v<C, int>) {
                return mpi.Gatherv(out, static_cast<int>(out_count), out_type, in, counts, places, in_type, root, comm);
            } else {
                return mpi.Gatherv_c(out, static_cast<MPI_Count>(out_count), out_type, in, counts, places, in_type,
                                     root, comm);
            }
        });
}

template <class C, class D>
int Scatterv(Layer& layer, const void* out, const C* counts, const D* places, MPI_Datatype out_type, void* in,
             MPI_Count in_count, MPI_Datatype in_type, int root, MPI_Comm comm) {
    return scatterv(
        layer, out, counts, places, out_type, in, in_count, in_type, root, comm, [&](const auto& mpi) -> int {
            if constexpr (std::is_same_v<C, int>) {
                return mpi.Scatterv(out, counts, places, out_type, in, static_cast<int>(in_count), in_type, root, comm);
            } else {
                return mpi.Scatterv_c(out, counts, places, out_type, in, static_cast<MPI_Count>(in_count), in_type,
                                      root, comm);
            }
        });
}

template <class C, class D>
int Allgatherv(Layer& layer, const void* out, MPI_Count out_count, MPI_Datatype out_type, void* in, const C* counts,
               const D* places, MPI_Datatype in_type, MPI_Comm comm) {
    return allgatherv(layer, out, out_count, out_type, in, counts, places, in_type, comm, [&](const auto& mpi) -> int {
        if constexpr (std::is_same_v<C, int>) {
            return mpi.Allgatherv(out, static_cast<int>(out_count), out_type, in, counts, places, in_type, comm);
        } else {
            return mpi.Allgatherv_c(out, static_cast<MPI_Count>(out_count), out_type, in, counts, places, in_type,
                                    comm);
        }
    });
}

template <class C, class D>
int Alltoallv(Layer& layer, const void* out, const C* out_counts, const D* out_places, MPI_Datatype out_type, void* in,
              const C* in_counts, const D* in_places, MPI_Datatype in_type, MPI_Comm comm) {
    return alltoallv(
        layer, out, out_counts, out_places, out_type, in, in_counts, in_places, in_type, comm,
        [&](const auto& mpi) -> int {
            if constexpr (std::is_same_v<C, int>) {
                return mpi.Alltoallv(out, out_counts, out_places, out_type, in, in_counts, in_places, in_type, comm);
            } else {
                return mpi.Alltoallv_c(out, out_counts, out_places, out_type, in, in_counts, in_places, in_type, comm);
            }
        });
}

template <class C, class D>
int Alltoallw(Layer& layer, const void* out, const C* out_counts, const D* out_places, const MPI_Datatype* out_types,
              void* in, const C* in_counts, const D* in_places, const MPI_Datatype* in_types, MPI_Comm comm) {
    return alltoallw(layer, out, out_counts, out_places, out_types, in, in_counts, in_places, in_types, comm,
                     [&](const auto& mpi) -> int {
                         if constexpr (std::is_same_v<C, int>) {
                             return mpi.Alltoallw(out, out_counts, out_places, out_types, in, in_counts, in_places,
                                                  in_types, comm);
                         } else {
                             return mpi.Alltoallw_c(out, out_counts, out_places, out_types, in, in_counts, in_places,
                                                    in_types, comm);
                         }
                     });
}

template int Gatherv(Layer&, const void*, MPI_Count, MPI_Datatype, void*, const int*, const int*, MPI_Datatype, int,
                     MPI_Comm);
template int Gatherv(Layer&, const void*, MPI_Count, MPI_Datatype, void*, const MPI_Count*, const MPI_Aint*,
                     MPI_Datatype, int, MPI_Comm);
template int Scatterv(Layer&, const void*, const int*, const int*, MPI_Datatype, void*, MPI_Count, MPI_Datatype, int,
                      MPI_Comm);
template int Scatterv(Layer&, const void*, const MPI_Count*, const MPI_Aint*, MPI_Datatype, void*, MPI_Count,
                      MPI_Datatype, int, MPI_Comm);
template int Allgatherv(Layer&, const void*, MPI_Count, MPI_Datatype, void*, const int*, const int*, MPI_Datatype,
                        MPI_Comm);
template int Allgatherv(Layer&, const void*, MPI_Count, MPI_Datatype, void*, const MPI_Count*, const MPI_Aint*,
                        MPI_Datatype, MPI_Comm);
template int Alltoallv(Layer&, const void*, const int*, const int*, MPI_Datatype, void*, const int*, const int*,
                       MPI_Datatype, MPI_Comm);
template int Alltoallv(Layer&, const void*, const MPI_Count*, const MPI_Aint*, MPI_Datatype, void*, const MPI_Count*,
                       const MPI_Aint*, MPI_Datatype, MPI_Comm);
template int Alltoallw(Layer&, const void*, const int*, const int*, const MPI_Datatype*, void*, const int*, const int*,
                       const MPI_Datatype*, MPI_Comm);
template int Alltoallw(Layer&, const void*, const MPI_Count*, const MPI_Aint*, const MPI_Datatype*, void*,
                       const MPI_Count*, const MPI_Aint*, const MPI_Datatype*, MPI_Comm);

}  // namespace cryptmpi::comm
