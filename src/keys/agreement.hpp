// The MPI layer's key agreement: the ranks of a job come to one fresh secret and one table of who is on which node.
//
// The ranks are a binomial tree with its root at 0: the parent of a rank is the rank without its lowest set bit, and
// the subtree of a rank is a run of ranks that begins with it. On every edge the handshake of keys/handshake.hpp, the
// child as initiator, gives a sealed stream in each direction. Then, five times along the tree:
//
//   join     down   the handshakes: a rank answers its children after its parent has answered it
//   gather   up     each rank's subtree: who is on which node, and a fresh key share of each
//   spread   down   the root's fresh secret, its terms, and the whole table
//   confirm  up     "all of my subtree hold this very secret, table, suite and version, and these terms"
//   go       down   nobody succeeds before it: one rank that sees something else stops all
//
// docs/protocol.md has the bytes. No MPI here: whoever calls moves the messages.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/secret.hpp"
#include "keys/handshake.hpp"

namespace cryptmpi::keys {

inline constexpr int kMaxRanks = 1 << 24;  // the table stays within one key's limits, and its size within an int

/// What tells nodes apart: the same for all ranks of a node.
using NodeId = std::array<std::uint8_t, 32>;

/// A fresh X25519 public key: two ranks make the secret of what they send each other of theirs.
using Share = std::array<std::uint8_t, 32>;

/// What the root decides for all ranks; the agreement carries it unread.
using Terms = std::array<std::uint8_t, 16>;

/// How bytes get to other ranks during the agreement. Between two ranks they arrive in order, or they are refused.
/// An error's line names the rank: it is passed on as it is.
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

struct Agreed {
    Secret<32> secret;              // the job's; fresh, and only for members that agreed on the same
    std::vector<NodeId> nodes;      // by rank
    std::vector<Share> shares;      // by rank, no two the same
    Secret<32> private_key;         // of this rank's share
    Terms terms{};                  // the root's
    std::set<std::string> members;  // who the ends of this rank's edges proved to be; empty: none was required
};

/// One rank's part, on every rank of the job at once. `local` has the suite and the job key, `self` the job, the host's
/// name and the process; addresses are not used; `terms` count where this is the root. When it succeeds, every rank
/// holds what `out` holds, though a rank that misses the last message fails. When it fails, `out` is empty and the job
/// cannot go on: the other ranks stand still until it ends. Each error is one line that completes "rank 3: ...", and
/// names the peer where it is about one.
Result<void> agree(const Local& local, int rank, int ranks, const NodeId& node, const Identity& self,
                   const Terms& terms, Peers& peers, Agreed& out);

}  // namespace cryptmpi::keys
