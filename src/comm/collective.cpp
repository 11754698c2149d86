#include "comm/collective.hpp"

#include <algorithm>
#include <string>

namespace cryptmpi::comm {
namespace {

std::string describe(int from) {
    return "a block of rank " + std::to_string(from) + " in a collective operation";
}

constexpr int kOwn = -1;

report::Sizes& counted(const Call& call, int from) {
    return from == kOwn ? call.layer.part().sizes_sent : call.layer.part().sizes_received;
}

int raise(const Call& call, int from, const std::string& line) {
    return call.layer.raise(call.communicator.handle(), from == kOwn ? line : describe(from) + " " + line);
}

/// Work on `size` bytes of a block of the rank `from`, which are counted. Flows are for one thread at a time; other
/// threads may be at work on the communicator's messages.
template <class Work>
int guarded(const Call& call, int from, std::size_t size, Work work) {
    const auto done = [&] {
        const auto guard = call.layer.guard();
        auto result = work();
        if (result) counted(call, from).count(size);
        return result;
    }();
    if (done) [[likely]] {
        return MPI_SUCCESS;
    }
    return raise(call, from, done.error().line);
}

template <class Seal>
int seal_bytes(const Call& call, std::size_t size, std::uint8_t* wire, Seal seal) {
    const int code = guarded(call, kOwn, size, seal);
    if (code != MPI_SUCCESS) void_block(wire, size);
    return code;
}

template <class Seal>
int seal_block(const Call& call, const UserBuffer& buffer, std::uint8_t* wire, Seal seal) {
    engine::Buffer scratch;
    const std::uint8_t* at = nullptr;
    if (const int code = plain_bytes(call.layer.pool(), buffer, scratch, at); code != MPI_SUCCESS) {
        void_block(wire, buffer.size());
        return code;
    }
    return seal(at);
}

template <class Open>
int open_block(const Call& call, const UserBuffer& buffer, Open open) {
    if (buffer.contiguous() != nullptr) return open(buffer.contiguous());
    const auto scratch = call.layer.buffer(buffer.size());
    const int code = open(scratch.data());
    return first_of(code, buffer.unpack(scratch.data(), buffer.size()));  // zeros, after an error
}

}  // namespace

void void_block(std::uint8_t* wire, std::size_t size) {
    std::fill_n(wire, size + seal::kMessageOverhead, std::uint8_t{0});
}

int seal_bytes_for(const Call& call, int to, const std::uint8_t* at, std::size_t size, std::uint8_t* wire) {
    return seal_bytes(call, size, wire,
                      [&] { return call.communicator.seal_for(to, call.lane, call.number, at, size, wire); });
}

int seal_bytes_for_all(const Call& call, const std::uint8_t* at, std::size_t size, std::uint8_t* wire) {
    return seal_bytes(call, size, wire,
                      [&] { return call.communicator.seal_for_all(call.lane, call.number, at, size, wire); });
}

int open_bytes_from(const Call& call, int from, const std::uint8_t* wire, std::size_t size, std::uint8_t* out) {
    return guarded(call, from, size, [&] {
        return call.communicator.open_from(from, call.lane, call.number, wire, size + seal::kMessageOverhead, out);
    });
}

int open_bytes_of_all(const Call& call, int from, const std::uint8_t* wire, std::size_t size, std::uint8_t* out) {
    return guarded(call, from, size, [&] {
        return call.communicator.open_for_all(from, call.lane, call.number, wire, size + seal::kMessageOverhead, out);
    });
}

int seal_block_for(const Call& call, int to, const UserBuffer& buffer, std::uint8_t* wire) {
    return seal_block(call, buffer, wire,
                      [&](const std::uint8_t* at) { return seal_bytes_for(call, to, at, buffer.size(), wire); });
}

int seal_block_for_all(const Call& call, const UserBuffer& buffer, std::uint8_t* wire) {
    return seal_block(call, buffer, wire,
                      [&](const std::uint8_t* at) { return seal_bytes_for_all(call, at, buffer.size(), wire); });
}

int open_block_from(const Call& call, int from, const std::uint8_t* wire, const UserBuffer& buffer) {
    return open_block(call, buffer,
                      [&](std::uint8_t* out) { return open_bytes_from(call, from, wire, buffer.size(), out); });
}

int open_block_of_all(const Call& call, int from, const std::uint8_t* wire, const UserBuffer& buffer) {
    return open_block(call, buffer,
                      [&](std::uint8_t* out) { return open_bytes_of_all(call, from, wire, buffer.size(), out); });
}

namespace {

// Bytes of all blocks together: of less, another thread is woken too late to help.
constexpr std::size_t kWorthSharing = std::size_t{128} << 10;

/// Those that the rank's threads work on together: MPI, which packs and unpacks, is for one of them.
std::vector<Block> shared_among_threads(const Call& call, const std::vector<Block>& blocks) {
    std::vector<Block> shared;
    if (call.layer.ways().workers.threads() == 1) return shared;
    std::size_t bytes = 0;
    for (const Block& block : blocks) {
        if (block.buffer->contiguous() == nullptr) continue;
        shared.push_back(block);
        bytes += block.buffer->size();
    }
    if (shared.size() < 2 || bytes < kWorthSharing) shared.clear();
    return shared;
}

/// `together(block)` for these, on any thread, and `failed(block, line)` for those that it failed for.
template <class Together, class Failed>
int share_blocks(const Call& call, const std::vector<Block>& shared, report::Sizes& count, Together together,
                 Failed failed) {
    std::vector<Result<void>> done(shared.size());
    {
        const auto guard = call.layer.guard();
        call.layer.ways().workers.run(shared.size(), [&](std::size_t i, std::size_t) {
            done[i] = together(shared[i]);
            return shared[i].buffer->size();
        });
        for (std::size_t i = 0; i < shared.size(); ++i) {
            if (done[i]) count.count(shared[i].buffer->size());
        }
    }
    int code = MPI_SUCCESS;
    for (std::size_t i = 0; i < shared.size(); ++i) {
        if (!done[i]) code = first_of(code, failed(shared[i], done[i].error().line));
    }
    return code;
}

/// `alone(block)` for those that were not shared.
template <class Alone>
int each_of_the_others(const std::vector<Block>& blocks, const std::vector<Block>& shared, int code, Alone alone) {
    for (const Block& block : blocks) {
        if (shared.empty() || block.buffer->contiguous() == nullptr) code = first_of(code, alone(block));
    }
    return code;
}

template <class Open, class Alone>
int open_blocks(const Call& call, const std::vector<Block>& blocks, Open open, Alone alone) {
    const std::vector<Block> shared = shared_among_threads(call, blocks);
    const int code =
        share_blocks(call, shared, call.layer.part().sizes_received, open,
                     [&](const Block& block, const std::string& line) { return raise(call, block.rank, line); });
    return each_of_the_others(blocks, shared, code, alone);
}

}  // namespace

int seal_blocks_for(const Call& call, const std::vector<Block>& blocks) {
    const std::vector<Block> shared = shared_among_threads(call, blocks);
    const int code = share_blocks(
        call, shared, call.layer.part().sizes_sent,
        [&](const Block& block) {
            return call.communicator.seal_for(block.rank, call.lane, call.number, block.buffer->contiguous(),
                                              block.buffer->size(), block.wire);
        },
        [&](const Block& block, const std::string& line) {
            void_block(block.wire, block.buffer->size());
            return raise(call, kOwn, line);
        });
    return each_of_the_others(blocks, shared, code, [&](const Block& block) {
        return seal_block_for(call, block.rank, *block.buffer, block.wire);
    });
}

int open_blocks_from(const Call& call, const std::vector<Block>& blocks) {
    return open_blocks(
        call, blocks,
        [&](const Block& block) {
            return call.communicator.open_from(block.rank, call.lane, call.number, block.wire,
                                               block.buffer->size() + seal::kMessageOverhead,
                                               block.buffer->contiguous());
        },
        [&](const Block& block) { return open_block_from(call, block.rank, block.wire, *block.buffer); });
}

int open_blocks_of_all(const Call& call, const std::vector<Block>& blocks) {
    return open_blocks(
        call, blocks,
        [&](const Block& block) {
            return call.communicator.open_for_all(block.rank, call.lane, call.number, block.wire,
                                                  block.buffer->size() + seal::kMessageOverhead,
                                                  block.buffer->contiguous());
        },
        [&](const Block& block) { return open_block_of_all(call, block.rank, block.wire, *block.buffer); });
}

namespace {

constexpr std::size_t kSharedInOne = std::size_t{32}
                                     << 10;  // bytes: copying them costs less than another call of MPI's

/// What is told first: whether what follows came whole.
enum class Word : std::uint8_t { whole = 1, broken = 2 };

int share_small(const Call& call, const Nodes& nodes, int from, std::uint8_t* at, std::size_t size, Word& word) {
    const auto all = call.layer.buffer(1 + size);
    const bool mine = call.communicator.rank() == from;
    if (mine) {
        *all.data() = static_cast<std::uint8_t>(word);
        if (word == Word::whole) {
            std::copy_n(at, size, all.data() + 1);
        } else {
            std::fill_n(all.data() + 1, size, std::uint8_t{0});
        }
    }
    const int code =
        call.layer.mpi.Bcast(all.data(), static_cast<int>(1 + size), MPI_BYTE, nodes.place_on_node(from), nodes.own());
    if (code != MPI_SUCCESS || mine) return code;
    word = static_cast<Word>(*all.data());
    std::copy_n(all.data() + 1, size, at);
    return MPI_SUCCESS;
}

int share_large(const Call& call, const Nodes& nodes, int from, std::uint8_t* at, std::size_t size, Word& word) {
    const int place = nodes.place_on_node(from);
    const int code = call.layer.mpi.Bcast(&word, 1, MPI_BYTE, place, nodes.own());
    if (code != MPI_SUCCESS || word != Word::whole) return code;
    const ByteCount bytes(call.layer.mpi, size);
    return call.layer.mpi.Bcast(at, bytes.count(), bytes.type(), place, nodes.own());
}

}  // namespace

int share_on_node(const Call& call, int from, std::uint8_t* at, std::size_t size, int code) {
    const Nodes& nodes = call.communicator.nodes(call.layer.mpi);
    if (nodes.alone()) return code;
    Word word = code == MPI_SUCCESS ? Word::whole : Word::broken;
    const auto share = size <= kSharedInOne ? share_small : share_large;
    const int shared =
        call.layer.pass_on(nodes.own(), call.communicator.handle(), share(call, nodes, from, at, size, word));
    if (code != MPI_SUCCESS) return code;
    if (shared == MPI_SUCCESS && word == Word::whole) return MPI_SUCCESS;
    // What the receiver had must not look like the result.
    if (call.communicator.rank() != from) std::fill_n(at, size, std::uint8_t{0});
    if (shared != MPI_SUCCESS) return shared;
    return failed_on_node(call, from);
}

int failed_on_node(const Call& call, int rank) {
    return call.layer.raise(
        call.communicator.handle(),
        "a collective operation failed on rank " + std::to_string(rank) + " of the communicator, of this node");
}

int copy(Layer& layer, const UserBuffer& from, const UserBuffer& to) {
    engine::Buffer scratch;
    const std::uint8_t* at = nullptr;
    if (const int code = plain_bytes(layer.pool(), from, scratch, at); code != MPI_SUCCESS) return code;
    return to.unpack(at, std::min(from.size(), to.size()));
}

}  // namespace cryptmpi::comm
