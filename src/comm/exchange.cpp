// Blocks that ranks exchange in steps of ours rather than by MPI's one operation: sealed ones travel while others are
// sealed and opened, and those of one node go as they are.
#include <algorithm>
#include <numeric>
#include <vector>

#include "comm/collective.hpp"

namespace cryptmpi::comm {
namespace {

using seal::kMessageOverhead;

/// A block of each rank for each other one, or none where there is nothing to send. All ranks take their steps in one
/// order, in which step i brings a block to the i-th rank after this one: so a receive is posted for each message that
/// is sent, sooner or later.
class Exchange {
public:
    /// `voids`: the others get blocks with nothing of the data in them.
    Exchange(const Call& call, const Blocks& out, const Blocks& in, Sealing sealing, bool voids)
        : call_(call),
          out_(out),
          in_(in),
          sealing_(sealing),
          voids_(voids),
          at_once_(std::min(call.communicator.size() - 1, kMostAtOnce)),
          requests_(2 * static_cast<std::size_t>(at_once_), MPI_REQUEST_NULL),
          travelling_(requests_.size()) {}

    int run() {
        for (int i = 0; i < at_once_; ++i) begin_receive(i);
        for (int i = 0; i < at_once_; ++i) begin_send(at_once_ + i);
        for (;;) {
            int done = MPI_UNDEFINED;
            told(call_.layer.mpi.Waitany(2 * at_once_, requests_.data(), &done, MPI_STATUS_IGNORE));
            if (done == MPI_UNDEFINED) return code_;
            if (done < at_once_) {
                end_receive(done);
                begin_receive(done);
            } else {
                begin_send(done);
            }
        }
    }

private:
    static constexpr int kMostAtOnce = 32;  // each way, as MPICH's own

    struct Travelling {
        engine::Buffer memory;  // none where the user's is used
        int peer = 0;
    };

    void begin_receive(int at) {
        for (int from = 0; (from = next(received_, -1)) != kNobody;) {
            const UserBuffer* const block = of(in_, from);
            if (block == nullptr || block->size() == 0) continue;
            Travelling& one = prepare(at, from, *block);
            std::uint8_t* const to = one.memory.data() != nullptr ? one.memory.data() : block->contiguous();
            const ByteCount bytes(call_.layer.mpi, size_of(*block, from));
            const auto address = call_.communicator.address(call_.layer.mpi, from);
            told(call_.layer.mpi.Irecv(to, bytes.count(), bytes.type(), address.rank, address.tag, address.comm,
                                       &request(at)));
            return;
        }
    }

    void end_receive(int at) {
        const Travelling& one = travelling_[static_cast<std::size_t>(at)];
        const UserBuffer& block = *of(in_, one.peer);
        if (sealed(one.peer)) {
            code_ = first_of(code_, open_block_from(call_, one.peer, one.memory.data(), block));
        } else if (one.memory.data() != nullptr) {
            code_ = first_of(code_, block.unpack(one.memory.data(), block.size()));
        }
    }

    void begin_send(int at) {
        for (int to = 0; (to = next(sent_, 1)) != kNobody;) {
            const UserBuffer* const block = of(out_, to);
            if (block == nullptr || block->size() == 0) continue;
            Travelling& one = prepare(at, to, *block);
            const std::uint8_t* from = one.memory.data();
            if (voids_) {
                void_block(one.memory.data(), block->size());
            } else if (sealed(to)) {
                code_ = first_of(code_, seal_block_for(call_, to, *block, one.memory.data()));
            } else if (from != nullptr) {
                code_ = first_of(code_, block->pack(one.memory.data()));
            } else {
                from = block->contiguous();
            }
            const ByteCount bytes(call_.layer.mpi, size_of(*block, to));
            const auto address = call_.communicator.address(call_.layer.mpi, to);
            told(call_.layer.mpi.Isend(from, bytes.count(), bytes.type(), address.rank, address.tag, address.comm,
                                       &request(at)));
            return;
        }
    }

    static constexpr int kNobody = -1;
    /// The peer of the next step.
    int next(int& steps, int direction) const {
        const int ranks = call_.communicator.size();
        if (steps == ranks - 1) return kNobody;
        ++steps;
        return (call_.communicator.rank() + direction * steps + ranks) % ranks;
    }
    static const UserBuffer* of(const Blocks& blocks, int rank) { return blocks[static_cast<std::size_t>(rank)]; }
    bool sealed(int peer) const { return sealing_ == Sealing::all || call_.communicator.sealed(peer); }
    MPI_Request& request(int at) { return requests_[static_cast<std::size_t>(at)]; }
    /// As it travels.
    std::size_t size_of(const UserBuffer& block, int peer) const {
        return block.size() + (sealed(peer) ? kMessageOverhead : 0);
    }
    Travelling& prepare(int at, int peer, const UserBuffer& block) {
        Travelling& one = travelling_[static_cast<std::size_t>(at)];
        const bool as_it_is = !sealed(peer) && block.contiguous() != nullptr;
        one.memory = as_it_is ? engine::Buffer() : call_.layer.buffer(size_of(block, peer));
        one.peer = peer;
        return one;
    }
    void told(int code) {
        const auto address = call_.communicator.address(call_.layer.mpi, call_.communicator.rank());
        code_ = first_of(code_, call_.layer.pass_on(address.comm, call_.communicator.handle(), code));
    }

    const Call& call_;
    const Blocks& out_;
    const Blocks& in_;
    Sealing sealing_;
    bool voids_;
    int at_once_;
    int sent_ = 0;
    int received_ = 0;
    std::vector<MPI_Request> requests_;  // receives, then sends
    std::vector<Travelling> travelling_;
    int code_ = MPI_SUCCESS;
};

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
    const Nodes& nodes = call.communicator.nodes(call.layer.mpi);
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

}  // namespace

int allgather_by_nodes(const Call& call, const UserBuffer& own, const std::vector<UserBuffer>& blocks) {
    const Nodes& nodes = call.communicator.nodes(call.layer.mpi);
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

int exchange(const Call& call, const Blocks& out, const Blocks& in, Sealing sealing, int code) {
    return first_of(code, Exchange(call, out, in, sealing, code != MPI_SUCCESS).run());
}

}  // namespace cryptmpi::comm
