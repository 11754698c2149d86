// Arbitrary answers to one rank's part of the ways of key distribution that are safe against passive attackers only;
// the first two bytes choose the way, the number of ranks, and the rank.
#include "input_peers.hpp"
#include "keys/interchange.hpp"
#include "keys/key_transport.hpp"
#include "keys/tree.hpp"
#include "scratch.hpp"
#include "toy_crypto.hpp"
#include "toy_transport.hpp"

using namespace cryptmpi;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) return 0;
    const int ranks = 1 + data[0] % 8;
    const int rank = data[1] % ranks;
    const auto way = (data[0] & 0x80) != 0 ? keys::Transport::interchange : keys::Transport::rsa_oaep;
    fuzz::InputPeers input(data + 2, size - 2);
    const auto local = fuzz::toy_transport(way);
    const auto key = keys::transport_key(local, rank, ranks, input);
    if (!key) {
        fuzz::require_one_line(key.error().line);
        return 0;
    }
    // Each child got what is wrapped for its subtree; the parent an announcement, and what this subtree claims.
    for (const int child : keys::children_of(rank, ranks)) {
        const auto below = static_cast<std::size_t>(keys::subtree_of(child, ranks).count);
        fuzz::require(input.sent_to(child) == keys::kModulusSize * below);
    }
    const auto claim = way == keys::Transport::rsa_oaep ? keys::kModulusSize : keys::kNodeNameSize;
    const auto own = static_cast<std::size_t>(keys::subtree_of(rank, ranks).count);
    fuzz::require(rank == 0 || input.sent_to(keys::parent_of(rank)) == keys::kHelloSize + claim * own);
    return 0;
}
