// Arbitrary answers to one rank's part of the agreement; the first two bytes choose the number of ranks, whether they
// use ML-KEM, and the rank.
#include <cstdlib>

#include "input_peers.hpp"
#include "keys/agreement.hpp"
#include "toy_crypto.hpp"

using namespace cryptmpi;

namespace {

bool empty(const keys::Agreed& agreed) {
    for (const std::uint8_t byte : agreed.secret.bytes) {
        if (byte != 0) {
            return false;
        }
    }
    for (const std::uint8_t byte : agreed.private_key.bytes) {
        if (byte != 0) {
            return false;
        }
    }
    return agreed.nodes.empty() && agreed.shares.empty() && agreed.terms == keys::Terms{};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) {
        return 0;
    }
    const int ranks = 1 + data[0] % 8;
    const int rank = data[1] % ranks;
    const keys::JobKey job_key;
    keys::Local local{fuzz::toy_crypto(), fuzz::toy_crypto().aead, &job_key};
    local.kem = (data[0] & 0x80) != 0 ? fuzz::toy_kem() : nullptr;
    keys::NodeId node;
    node.fill(0x33);
    fuzz::InputPeers input(data + 2, size - 2);
    keys::Agreed agreed;
    if (!keys::agree(local, rank, ranks, node, keys::Identity{}, keys::Terms{}, input, agreed)) {
        if (!empty(agreed)) {
            std::abort();
        }
        return 0;
    }
    // Whoever the others say they are: the rank itself is where it said.
    if (agreed.nodes.size() != static_cast<std::size_t>(ranks) || agreed.shares.size() != agreed.nodes.size() ||
        agreed.nodes[static_cast<std::size_t>(rank)] != node) {
        std::abort();
    }
    return 0;
}
