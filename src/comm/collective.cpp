#include "comm/collective.hpp"

#include <string>

namespace cryptmpi::comm {
namespace {

std::string describe(int from) {
    return "a block of rank " + std::to_string(from) + " in a collective operation";
}

/// Flows are for one thread at a time; other threads may be at work on the communicator's messages.
template <class Work>
Result<void> guarded(const Call& call, Work work) {
    const auto guard = call.layer.guard();
    return work();
}

template <class Open>
int open_block(const Call& call, int from, const UserBuffer& buffer, Open open) {
    engine::Buffer scratch;
    std::uint8_t* out = buffer.contiguous();
    if (out == nullptr) {
        scratch = call.layer.buffer(buffer.size());
        out = scratch.data();
    }
    if (auto done = guarded(call, [&] { return open(out); }); !done) {
        return call.layer.raise(call.communicator.handle(), describe(from) + " " + done.error().line);
    }
    return buffer.contiguous() != nullptr ? MPI_SUCCESS : buffer.unpack(out, buffer.size());
}

template <class Seal>
int seal_block(const Call& call, const UserBuffer& buffer, Seal seal) {
    engine::Buffer scratch;
    const std::uint8_t* at = nullptr;
    if (const int code = plain_bytes(call.layer.pool(), buffer, scratch, at); code != MPI_SUCCESS) return code;
    if (auto done = guarded(call, [&] { return seal(at); }); !done)
        return call.layer.raise(call.communicator.handle(), done.error().line);
    return MPI_SUCCESS;
}

}  // namespace

int seal_block_for(const Call& call, int to, const UserBuffer& buffer, std::uint8_t* wire) {
    return seal_block(call, buffer, [&](const std::uint8_t* at) {
        return call.communicator.seal_for(to, call.lane, call.number, at, buffer.size(), wire);
    });
}

int seal_block_for_all(const Call& call, const UserBuffer& buffer, std::uint8_t* wire) {
    return seal_block(call, buffer, [&](const std::uint8_t* at) {
        return call.communicator.seal_for_all(call.lane, call.number, at, buffer.size(), wire);
    });
}

int open_block_from(const Call& call, int from, const std::uint8_t* wire, const UserBuffer& buffer) {
    return open_block(call, from, buffer, [&](std::uint8_t* out) {
        return call.communicator.open_from(from, call.lane, call.number, wire, buffer.size() + seal::kMessageOverhead,
                                           out);
    });
}

int open_block_of_all(const Call& call, int from, const std::uint8_t* wire, const UserBuffer& buffer) {
    return open_block(call, from, buffer, [&](std::uint8_t* out) {
        return call.communicator.open_for_all(from, call.lane, call.number, wire,
                                              buffer.size() + seal::kMessageOverhead, out);
    });
}

int copy(Layer& layer, const UserBuffer& from, const UserBuffer& to) {
    engine::Buffer scratch;
    const std::uint8_t* at = nullptr;
    if (const int code = plain_bytes(layer.pool(), from, scratch, at); code != MPI_SUCCESS) return code;
    return to.unpack(at, std::min(from.size(), to.size()));
}

}  // namespace cryptmpi::comm
