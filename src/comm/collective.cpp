#include "comm/collective.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <utility>

#include "comm/meeting.hpp"
#include "report/verdict.hpp"

namespace cryptmpi::comm {
namespace {

std::string describe(int from) {
    return fmt::format("a block of rank {} in a collective operation", from);
}

constexpr int kOwn = -1;

int raise(const Call& call, int from, const std::string& line) {
    return call.layer.raise(call.communicator.handle(), from == kOwn ? line : describe(from) + " " + line);
}

template <class Seal>
int seal_bytes(const Call& call, std::size_t size, std::uint8_t* wire, Seal seal) {
    const auto done = [&] {
        // Flows are for one thread at a time; other threads may be at work on the communicator's messages.
        const auto guard = call.layer.guard();
        auto result = seal();
        if (result) call.layer.rank_report().count_sealed(size);
        return result;
    }();
    if (done) [[likely]] {
        return MPI_SUCCESS;
    }
    void_block(wire, size);
    return raise(call, kOwn, done.error().line);
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

// An Open here is Result<void>(int rank, const std::uint8_t* wire, std::size_t wire_size, void* out).

auto opener_from(const Call& call) {
    return [&call](int rank, const std::uint8_t* wire, std::size_t wire_size, void* out) {
        return call.communicator.open_from(rank, call.lane, call.number, wire, wire_size, out);
    };
}

auto opener_of_all(const Call& call) {
    return [&call](int rank, const std::uint8_t* wire, std::size_t wire_size, void* out) {
        return call.communicator.open_for_all(rank, call.lane, call.number, wire, wire_size, out);
    };
}

/// A block that did not open as one of `size` bytes.
struct Failed {
    int rank;
    const std::uint8_t* wire;
    std::size_t came;
    std::size_t size;
    std::string line;
};

/// The sizes that a block may have been sealed with whose size on its way is not known. Each is tried, so they are not
/// all: few bytes, a little less than was expected, or a part of it.
std::vector<std::size_t> sizes_to_try(std::size_t expected) {
    constexpr std::size_t kFew = 8192;
    constexpr std::size_t kLittle = 64;
    std::vector<std::size_t> sizes;
    for (std::size_t size = 0; size < std::min(expected, kFew); ++size) sizes.push_back(size);
    for (std::size_t less = 1; less <= std::min(expected, kLittle); ++less) sizes.push_back(expected - less);
    for (std::size_t parts = 2; parts <= kLittle; ++parts) sizes.push_back(expected / parts);
    return sizes;
}

/// The size that its sender sealed the block with, if it is authentic and that is another one than was expected. Only
/// after an error: then time does not matter.
template <class Open>
std::optional<std::size_t> sealed_size(const Call& call, const Failed& failed, Open open) {
    constexpr std::size_t kMostTried = std::size_t{64} << 20;  // bytes in all
    const auto scratch = call.layer.buffer(std::max(failed.came, failed.size));
    const auto opens = [&](std::size_t size) {
        const auto guard = call.layer.guard();
        return open(failed.rank, failed.wire, size + seal::kMessageOverhead, scratch.data()).has_value();
    };
    if (failed.came != kUnknown) {
        const bool other = failed.came >= seal::kMessageOverhead && failed.came != failed.size + seal::kMessageOverhead;
        const std::size_t size = failed.came - seal::kMessageOverhead;
        return other && opens(size) ? std::optional(size) : std::nullopt;
    }
    if (seal::parse_message_header(failed.wire).number != call.number) return std::nullopt;
    std::size_t tried = 0;
    for (const std::size_t size : sizes_to_try(failed.size)) {
        tried += size;
        if (tried > kMostTried) break;
        if (opens(size)) return size;
    }
    return std::nullopt;
}

int raise_other_size(const Call& call, const Failed& failed, std::optional<std::size_t> sealed) {
    call.layer.say(fmt::format("the ranks disagree in the size of {}: {}{} are expected", describe(failed.rank),
                               sealed ? fmt::format("{} bytes were sent, ", *sealed) : "", failed.size));
    return raise_on_comm(call.layer, call.communicator.handle(), MPI_ERR_TRUNCATE);
}

/// Where one block of a call has another size, so have those that MPI put into a wrong place for it.
template <class Open>
int raise_failed(const Call& call, const std::vector<Failed>& failed, Open open) {
    std::vector<std::optional<std::size_t>> sealed;
    for (const Failed& one : failed) sealed.push_back(sealed_size(call, one, open));
    const bool disagree = std::any_of(sealed.begin(), sealed.end(), [](const auto& size) { return size.has_value(); });
    int code = MPI_SUCCESS;
    for (std::size_t i = 0; i < failed.size(); ++i) {
        // Which of the two it is then, nobody can say: MPI may have put what it got over blocks that it had yet to
        // send.
        const std::string line = failed[i].line + (failed[i].came == kUnknown ? report::kOrOtherSizes : "");
        code =
            first_of(code, disagree ? raise_other_size(call, failed[i], sealed[i]) : raise(call, failed[i].rank, line));
    }
    return code;
}

/// One block, of which it may be known how many bytes came.
template <class Open>
Result<void> open_expected(int rank, const std::uint8_t* wire, std::size_t came, std::size_t size, void* out,
                           Open open) {
    const std::size_t expected = size + seal::kMessageOverhead;
    if (came == kUnknown || came == expected) [[likely]] {
        return open(rank, wire, expected, out);
    }
    std::fill_n(static_cast<std::uint8_t*>(out), size, std::uint8_t{0});
    return fail(EBADMSG, fmt::format("has {} bytes, where {} were expected, and does not open: altered, or not ours",
                                     came, expected));
}

template <class Open>
Result<void> open_counted(const Call& call, int rank, const std::uint8_t* wire, std::size_t came, std::size_t size,
                          void* out, Open open) {
    const auto guard = call.layer.guard();
    auto done = open_expected(rank, wire, came, size, out, open);
    if (done) call.layer.rank_report().count_opened(size);
    return done;
}

template <class Open>
int open_bytes(const Call& call, int rank, const std::uint8_t* wire, std::size_t size, std::uint8_t* out, Open open) {
    auto done = open_counted(call, rank, wire, kUnknown, size, out, open);
    if (done) [[likely]] {
        return MPI_SUCCESS;
    }
    return raise_failed(call, {{rank, wire, kUnknown, size, std::move(done.error().line)}}, open);
}

template <class Open>
int open_block(const Call& call, const Block& block, Open open, std::vector<Failed>& failed) {
    const UserBuffer& buffer = *block.buffer;
    engine::Buffer scratch;
    std::uint8_t* out = buffer.contiguous();
    if (out == nullptr) {
        scratch = call.layer.buffer(buffer.size());
        out = scratch.data();
    }
    auto done = open_counted(call, block.rank, block.wire, block.came, buffer.size(), out, open);
    if (!done) {
        failed.push_back({block.rank, block.wire, block.came, buffer.size(), std::move(done.error().line)});
    }
    return buffer.contiguous() != nullptr ? MPI_SUCCESS : buffer.unpack(out, buffer.size());  // zeros, after an error
}

template <class Open>
int open_alone(const Call& call, const Block& block, Open open) {
    std::vector<Failed> failed;
    const int code = open_block(call, block, open, failed);
    return failed.empty() ? code : raise_failed(call, failed, open);
}

}  // namespace

Communicator* find_sealed(Layer& layer, MPI_Comm comm, int root) {
    const auto guard = layer.guard();
    Communicator* communicator = layer.find(comm);
    const bool sealed = communicator != nullptr && communicator->crosses() && communicator->has(root);
    return sealed ? communicator : nullptr;
}

// protocol: M5
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

int open_bytes_of_all(const Call& call, int from, const std::uint8_t* wire, std::size_t size, std::uint8_t* out) {
    return open_bytes(call, from, wire, size, out, opener_of_all(call));
}

int seal_block_for(const Call& call, int to, const UserBuffer& buffer, std::uint8_t* wire) {
    return seal_block(call, buffer, wire,
                      [&](const std::uint8_t* at) { return seal_bytes_for(call, to, at, buffer.size(), wire); });
}

int seal_block_for_all(const Call& call, const UserBuffer& buffer, std::uint8_t* wire) {
    return seal_block(call, buffer, wire,
                      [&](const std::uint8_t* at) { return seal_bytes_for_all(call, at, buffer.size(), wire); });
}

int open_block_from(const Call& call, int from, const std::uint8_t* wire, const UserBuffer& buffer, std::size_t came) {
    return open_alone(call, {from, const_cast<std::uint8_t*>(wire), &buffer, came}, opener_from(call));
}

int open_block_of_all(const Call& call, int from, const std::uint8_t* wire, const UserBuffer& buffer) {
    return open_alone(call, {from, const_cast<std::uint8_t*>(wire), &buffer}, opener_of_all(call));
}

namespace {

// Bytes of all blocks together: of less, another thread is woken too late to help.
constexpr std::size_t kWorthSharing = std::size_t{128} << 10;

/// Those that the rank's threads work on together: MPI, which packs and unpacks, is for one of them.
std::vector<Block> shared_among_threads(const Call& call, const std::vector<Block>& blocks) {
    std::vector<Block> shared;
    if (call.layer.transport().workers.threads() == 1) return shared;
    std::size_t bytes = 0;
    for (const Block& block : blocks) {
        if (block.buffer->contiguous() == nullptr) continue;
        shared.push_back(block);
        bytes += block.buffer->size();
    }
    if (shared.size() < 2 || bytes < kWorthSharing) shared.clear();
    return shared;
}

/// `together(block)` for these, on any thread, then `count(size)`; `failed(block, line)` for those that it failed for.
template <class Count, class Together, class Failed>
int share_blocks(const Call& call, const std::vector<Block>& shared, Count count, Together together, Failed failed) {
    std::vector<Result<void>> done(shared.size());
    {
        const auto guard = call.layer.guard();
        call.layer.transport().workers.run(shared.size(), [&](std::size_t i, std::size_t) {
            done[i] = together(shared[i]);
            return shared[i].buffer->size();
        });
        for (std::size_t i = 0; i < shared.size(); ++i) {
            if (done[i]) count(shared[i].buffer->size());
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

template <class Open>
int open_blocks(const Call& call, const std::vector<Block>& blocks, Open open) {
    const std::vector<Block> shared = shared_among_threads(call, blocks);
    std::vector<Failed> failed;
    int code = share_blocks(
        call, shared, [&](std::size_t size) { call.layer.rank_report().count_opened(size); },
        [&](const Block& block) {
            return open_expected(block.rank, block.wire, block.came, block.buffer->size(), block.buffer->contiguous(),
                                 open);
        },
        [&](const Block& block, const std::string& line) {
            failed.push_back({block.rank, block.wire, block.came, block.buffer->size(), line});
            return MPI_SUCCESS;
        });
    code = each_of_the_others(blocks, shared, code,
                              [&](const Block& block) { return open_block(call, block, open, failed); });
    return failed.empty() ? code : first_of(code, raise_failed(call, failed, open));
}

}  // namespace

int seal_blocks_for(const Call& call, const std::vector<Block>& blocks) {
    const std::vector<Block> shared = shared_among_threads(call, blocks);
    const int code = share_blocks(
        call, shared, [&](std::size_t size) { call.layer.rank_report().count_sealed(size); },
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
    return open_blocks(call, blocks, opener_from(call));
}

int open_blocks_of_all(const Call& call, const std::vector<Block>& blocks) {
    return open_blocks(call, blocks, opener_of_all(call));
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
    const Nodes& nodes = nodes_of(call.layer, call.communicator);
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
        fmt::format("a collective operation failed on rank {} of the communicator, of this node", rank));
}

int copy(Layer& layer, const UserBuffer& from, const UserBuffer& to) {
    engine::Buffer scratch;
    const std::uint8_t* at = nullptr;
    if (const int code = plain_bytes(layer.pool(), from, scratch, at); code != MPI_SUCCESS) return code;
    return to.unpack(at, std::min(from.size(), to.size()));
}

int copy_own(Layer& layer, const Communicator& communicator, const UserBuffer& from, const UserBuffer& to,
             Question ask) {
    const int code = copy(layer, from, to);
    if (code != MPI_SUCCESS || from.size() <= to.size()) return code;
    const int answer = answer_to(layer, ask, 2);
    return answer == MPI_SUCCESS ? MPI_SUCCESS : raise_on_comm(layer, communicator.handle(), answer);
}

}  // namespace cryptmpi::comm
