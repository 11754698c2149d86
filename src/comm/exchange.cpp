// Blocks that ranks exchange in steps of ours rather than by MPI's one operation: sealed ones travel while others are
// sealed and opened, and those of one node go as they are.
#include <algorithm>
#include <numeric>
#include <vector>

#include "comm/collective.hpp"

namespace cryptmpi::comm {
namespace {

using seal::kMessageOverhead;

/// A block of each rank for each other one. All ranks take their steps in one order, in which step i brings a block to
/// the i-th rank after this one: so a receive is posted for each message that is sent, sooner or later.
class Exchange {
public:
    Exchange(const Call& call, const std::vector<UserBuffer>& out, const std::vector<UserBuffer>& in)
        : call_(call),
          out_(out),
          in_(in),
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
            const UserBuffer& block = of(in_, from);
            if (block.size() == 0) continue;
            Travelling& one = prepare(at, from, block);
            std::uint8_t* const to = one.memory.data() != nullptr ? one.memory.data() : block.contiguous();
            const ByteCount bytes(call_.layer.mpi, size_of(block, from));
            const auto address = call_.communicator.address(call_.layer.mpi, from);
            told(call_.layer.mpi.Irecv(to, bytes.count(), bytes.type(), address.rank, address.tag, address.comm,
                                       &request(at)));
            return;
        }
    }

    void end_receive(int at) {
        const Travelling& one = travelling_[static_cast<std::size_t>(at)];
        const UserBuffer& block = of(in_, one.peer);
        if (call_.communicator.sealed(one.peer)) {
            code_ = first_of(code_, open_block_from(call_, one.peer, one.memory.data(), block));
        } else if (one.memory.data() != nullptr) {
            code_ = first_of(code_, block.unpack(one.memory.data(), block.size()));
        }
    }

    void begin_send(int at) {
        for (int to = 0; (to = next(sent_, 1)) != kNobody;) {
            const UserBuffer& block = of(out_, to);
            if (block.size() == 0) continue;
            Travelling& one = prepare(at, to, block);
            const std::uint8_t* from = one.memory.data();
            if (call_.communicator.sealed(to)) {
                code_ = first_of(code_, seal_block_for(call_, to, block, one.memory.data()));
            } else if (from != nullptr) {
                code_ = first_of(code_, block.pack(one.memory.data()));
            } else {
                from = block.contiguous();
            }
            const ByteCount bytes(call_.layer.mpi, size_of(block, to));
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
    static const UserBuffer& of(const std::vector<UserBuffer>& blocks, int rank) {
        return blocks[static_cast<std::size_t>(rank)];
    }
    MPI_Request& request(int at) { return requests_[static_cast<std::size_t>(at)]; }
    /// As it travels.
    std::size_t size_of(const UserBuffer& block, int peer) const {
        return block.size() + (call_.communicator.sealed(peer) ? kMessageOverhead : 0);
    }
    Travelling& prepare(int at, int peer, const UserBuffer& block) {
        Travelling& one = travelling_[static_cast<std::size_t>(at)];
        const bool as_it_is = !call_.communicator.sealed(peer) && block.contiguous() != nullptr;
        one.memory = as_it_is ? engine::Buffer() : call_.layer.buffer(size_of(block, peer));
        one.peer = peer;
        return one;
    }
    void told(int code) {
        const auto address = call_.communicator.address(call_.layer.mpi, call_.communicator.rank());
        code_ = first_of(code_, call_.layer.pass_on(address.comm, call_.communicator.handle(), code));
    }

    const Call& call_;
    const std::vector<UserBuffer>& out_;
    const std::vector<UserBuffer>& in_;
    int at_once_;
    int sent_ = 0;
    int received_ = 0;
    std::vector<MPI_Request> requests_;  // receives, then sends
    std::vector<Travelling> travelling_;
    int code_ = MPI_SUCCESS;
};

}  // namespace

int exchange(const Call& call, const std::vector<UserBuffer>& out, const std::vector<UserBuffer>& in) {
    return Exchange(call, out, in).run();
}

}  // namespace cryptmpi::comm
