// The other ranks of a job, while they come to a key along the tree (tree.hpp).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.hpp"

namespace cryptmpi::keys {

/// The agreement's table stays within one key's limits, and its size within an int.
inline constexpr int kMaxRanks = 1 << 24;

/// How bytes get to them. Between two ranks they arrive in order, or they are refused. An error's line names the rank:
/// it is passed on as it is.
class Peers {
public:
    virtual ~Peers() = default;

    /// May wait until the peer receives.
    virtual Result<void> send(int rank, std::span<const std::uint8_t> message) = 0;

    /// The next message from `rank`, into the beginning of `room`; returns its size. Errors: nothing came in time, more
    /// than there is room for.
    ///
    /// How long to wait for a peer's first message: patience_for. What comes later may wait for any rank.
    virtual Result<std::size_t> receive_up_to(int rank, std::span<std::uint8_t> room) = 0;

    /// The same, of a message that must have this size.
    Result<void> receive(int rank, std::span<std::uint8_t> message);
};

/// How long `rank` waits for the first message of `peer`, its parent or its child, where a rank that is one of us is
/// given `first`. A child sends its first as soon as it begins: where it does not come, that rank is not one of us. A
/// parent's comes when it has heard from its own parent and from the children before, so each step down the tree has
/// more patience: the rank nearest to the one that is missing is the first to give up, and names the right one.
std::chrono::milliseconds patience_for(int rank, int peer, std::chrono::milliseconds first);

/// The error of a rank whose message has another size than is due.
tl::unexpected<Error> wrong_size(int rank, std::size_t sent, std::size_t due);

}  // namespace cryptmpi::keys
