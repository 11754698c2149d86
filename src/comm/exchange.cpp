// Sealed blocks travel while others are sealed and opened, and those of one node go as they are.
#include "comm/exchange.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "comm/in_transit.hpp"

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
          together_(call.layer.transport().workers.threads()),
          requests_(2 * static_cast<std::size_t>(at_once_), MPI_REQUEST_NULL),
          travelling_(requests_.size()) {}

    int run() {
        for (int i = 0; i < at_once_; ++i) begin_receive(i);
        std::vector<int> free(static_cast<std::size_t>(at_once_));
        std::iota(free.begin(), free.end(), at_once_);
        begin_sends(free);
        for (;;) {
            const std::vector<int> done = wait_for_some();
            if (done.empty()) {
                leave();
                return code_;
            }
            const auto sends = std::find_if(done.begin(), done.end(), [&](int at) { return at >= at_once_; });
            end_receives({done.begin(), sends});
            begin_sends({sends, done.end()});
        }
    }

private:
    static constexpr int kMostAtOnce = 32;    // each way, as MPICH's own
    static constexpr std::size_t kLeast = 1;  // of a block without a byte, it is known that none came

    struct Travelling {
        engine::Buffer memory;  // none where the user's is used
        int peer = 0;
        std::size_t came = 0;  // bytes, of a receive
        bool failed = false;   // MPI has said why
    };

    void begin_receive(int at) {
        for (int from = 0; (from = next(received_, -1)) != kNobody;) {
            const UserBuffer* const block = of(in_, from);
            if (block == nullptr || block->size() == 0) continue;
            Travelling& one = prepare(at, from, *block);
            std::uint8_t* const to = one.memory.data() != nullptr ? one.memory.data() : block->contiguous();
            const ByteCount bytes(call_.layer.mpi, size_of(*block, from));
            const auto address = call_.communicator.address(call_.layer.mpi, from);
            keep_error(call_.layer.mpi.Irecv(to, bytes.count(), bytes.type(), address.rank, address.tag, address.comm,
                                             &request(at)));
            return;
        }
    }

    /// MPI could not say what is done.
    void leave() {
        for (int at = 0; at < 2 * at_once_; ++at) {
            if (request(at) == MPI_REQUEST_NULL) continue;
            InTransit left(call_.layer.left_with_mpi(), at < at_once_ ? Transfer::receive : Transfer::send,
                           std::move(travelling_[static_cast<std::size_t>(at)].memory));
            left.request = request(at);
        }
    }

    /// Places of those that are done, receives first, as many as the threads work on together; none: all are.
    std::vector<int> wait_for_some() {
        const auto& mpi = call_.layer.mpi;
        std::vector<int> done;
        int at = MPI_UNDEFINED;
        MPI_Status status;
        int code = mpi.Waitany(2 * at_once_, requests_.data(), &at, &status);
        keep_error(code);
        // One that MPI has not ended is none, whatever it says.
        for (int any = 1; any != 0 && at != MPI_UNDEFINED && request(at) == MPI_REQUEST_NULL;) {
            note_end(at, status, code);
            done.push_back(at);
            if (done.size() == together_) break;
            code = mpi.Testany(2 * at_once_, requests_.data(), &at, &any, &status);
            keep_error(code);
        }
        std::sort(done.begin(), done.end());
        return done;
    }

    void note_end(int at, const MPI_Status& status, int code) {
        Travelling& one = travelling_[static_cast<std::size_t>(at)];
        one.failed = code != MPI_SUCCESS;
        if (at >= at_once_ || one.failed) return;
        MPI_Count size = 0;
        call_.layer.mpi.Get_elements_x(&status, MPI_BYTE, &size);
        one.came = static_cast<std::size_t>(size);
    }

    void end_receives(const std::vector<int>& places) {
        std::vector<Block> came;
        for (const int at : places) {
            const Travelling& one = travelling_[static_cast<std::size_t>(at)];
            const UserBuffer& block = *of(in_, one.peer);
            if (one.failed) {
                clear(block);
            } else if (sealed(one.peer)) {
                came.push_back({one.peer, one.memory.data(), &block, std::max(one.came, kLeast)});
            } else if (one.memory.data() != nullptr) {
                code_ = first_of(code_, block.unpack(one.memory.data(), std::min(one.came, block.size())));
            }
        }
        code_ = first_of(code_, open_blocks_from(call_, came));
        for (const int at : places) begin_receive(at);
    }

    /// What was there must not look like what should have come.
    void clear(const UserBuffer& block) {
        const auto zeros = call_.layer.buffer(block.size());
        std::fill_n(zeros.data(), zeros.size(), std::uint8_t{0});
        block.unpack(zeros.data(), zeros.size());
    }

    /// As many at a time as the threads seal together: those before them are on their way meanwhile.
    void begin_sends(const std::vector<int>& places) {
        for (std::size_t first = 0; first < places.size(); first += together_) {
            const std::size_t last = std::min(first + together_, places.size());
            std::vector<int> filled;
            std::vector<Block> to_seal;
            for (std::size_t i = first; i < last; ++i) {
                if (fill(places[i], to_seal)) filled.push_back(places[i]);
            }
            code_ = first_of(code_, seal_blocks_for(call_, to_seal));
            for (const int at : filled) send(at);
        }
    }

    /// The next block for another rank gets its place, and what is not to be sealed its bytes; false: there is none.
    bool fill(int at, std::vector<Block>& to_seal) {
        for (int to = 0; (to = next(sent_, 1)) != kNobody;) {
            const UserBuffer* const block = of(out_, to);
            if (block == nullptr || block->size() == 0) continue;
            std::uint8_t* const wire = prepare(at, to, *block).memory.data();
            if (voids_) {
                void_block(wire, block->size());
            } else if (sealed(to)) {
                to_seal.push_back({to, wire, block});
            } else if (wire != nullptr) {
                code_ = first_of(code_, block->pack(wire));
            }
            return true;
        }
        return false;
    }

    void send(int at) {
        const Travelling& one = travelling_[static_cast<std::size_t>(at)];
        const UserBuffer& block = *of(out_, one.peer);
        const std::uint8_t* const from = one.memory.data() != nullptr ? one.memory.data() : block.contiguous();
        const ByteCount bytes(call_.layer.mpi, size_of(block, one.peer));
        const auto address = call_.communicator.address(call_.layer.mpi, one.peer);
        keep_error(call_.layer.mpi.Isend(from, bytes.count(), bytes.type(), address.rank, address.tag, address.comm,
                                         &request(at)));
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
        one.failed = false;
        return one;
    }
    void keep_error(int code) {
        const auto address = call_.communicator.address(call_.layer.mpi, call_.communicator.rank());
        code_ = first_of(code_, call_.layer.pass_on(address.comm, call_.communicator.handle(), code));
    }

    const Call& call_;
    const Blocks& out_;
    const Blocks& in_;
    Sealing sealing_;
    bool voids_;
    int at_once_;
    std::size_t together_;
    int sent_ = 0;
    int received_ = 0;
    std::vector<MPI_Request> requests_;  // receives, then sends
    std::vector<Travelling> travelling_;
    int code_ = MPI_SUCCESS;
};

}  // namespace

int exchange(const Call& call, const Blocks& out, const Blocks& in, Sealing sealing, int code) {
    return first_of(code, Exchange(call, out, in, sealing, code != MPI_SUCCESS).run());
}

}  // namespace cryptmpi::comm
