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
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/secret.hpp"
#include "keys/handshake.hpp"
#include "keys/peers.hpp"

namespace cryptmpi::keys {

/// What tells nodes apart: the same for all ranks of a node.
using NodeId = std::array<std::uint8_t, 32>;

/// A fresh X25519 public key: two ranks make the secret of what they send each other of theirs.
using Share = std::array<std::uint8_t, 32>;

/// What the root decides for all ranks; the agreement carries it unread.
using Terms = std::array<std::uint8_t, 16>;

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
