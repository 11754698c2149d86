// MPI_Bcast: sealed once for all, opened once on each node.
#include "comm/bcast.hpp"

#include <algorithm>

#include "comm/blocks.hpp"
#include "comm/calls.hpp"
#include "comm/in_transit.hpp"
#include "comm/meeting.hpp"
#include "comm/native_call.hpp"

namespace cryptmpi::comm {
namespace {

using seal::kMessageOverhead;

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
    const Nodes& nodes = nodes_of(call.layer, call.communicator);
    const int place = nodes.place_of_leader(from);
    const bool sends = call.communicator.rank() == from;
    InTransit travelling[kInFlight];
    const auto passed_on = [&](int result) {
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
        code = first_of(code, passed_on(begun));
    };
    const auto end = [&](std::uint64_t i) {
        InTransit& one = travelling[i % kInFlight];
        code = first_of(code, passed_on(mpi.Wait(&one.request, MPI_STATUS_IGNORE)));
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
    const Nodes& nodes = nodes_of(layer, communicator);
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

int Bcast(Layer& layer, void* at, MPI_Count count, MPI_Datatype type, int root, MPI_Comm comm) {
    Communicator* communicator = find_sealed(layer, comm, root);
    const auto native = CRYPTMPI_NATIVE(Bcast, count, at, Count{count}, type, root, comm);
    if (communicator == nullptr) return native(layer.mpi);
    UserBuffer buffer;
    if (const int code = make_own(layer, comm, at, count, type, false, buffer); code != MPI_SUCCESS) {
        return code;
    }
    return broadcast(layer, *communicator, buffer, root);
}

}  // namespace cryptmpi::comm
