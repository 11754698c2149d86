// The papers' ways to give the ranks of a job one key, safe against passive attackers only:
//
//   rsa-oaep     C20: each rank draws an RSA pair, the public keys are gathered, rank 0 draws a key and scatters it,
//                wrapped for each. Nobody vouches for the public keys: who replaces them on the way has the key.
//   interchange  E12: the nodes have RSA pairs, the configuration their public keys, and rank 0 wraps the key for the
//                node of each rank. Nobody vouches for the wrapped keys: who sends others decides what the key is.
//
// Along the tree of keys/tree.hpp:
//
//   gather   up     an announcement, and the claims of the rank's subtree: public keys, or names of nodes
//   scatter  down   the wrapped keys of the child's subtree
//
// What comes of it takes the place of the job key in an agreement that follows. So the table, the terms and "go" are
// authenticated with it, and fresh shares keep what was sealed from who finds a private key later.
// docs/protocol.md has the bytes. No MPI here: whoever calls moves the messages.
#pragma once

#include <cryptmpi/module.h>

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>

#include "aead/suite.hpp"
#include "base/key_readers.hpp"
#include "base/result.hpp"
#include "keys/job_key.hpp"
#include "keys/peers.hpp"

namespace cryptmpi::keys {

enum class Transport : std::uint8_t { rsa_oaep = 1, interchange = 2 };

/// What a rank brings.
struct TransportLocal {
    Transport way = Transport::rsa_oaep;
    const cryptmpi_kex* kex = nullptr;
    const cryptmpi_rsa* rsa = nullptr;
    aead::Suite suite = aead::Suite::aes_256_gcm;
    std::array<std::uint8_t, 32> job{};  // SHA-256 of the job's id
    // By interchange:
    std::string node = {};                   // its name in the list
    std::filesystem::path key_file = {};     // of the node's private key: every rank but 0 reads it
    KeyReaders readers = KeyReaders::owner;  // who may read it, too
    std::filesystem::path list = {};         // of the public keys: rank 0 reads it
};

/// One rank's part, on every rank of the job at once. Errors are one line each that completes "rank 3: ...": as of
/// Peers; ranks that distribute keys in different ways, or with other suites; no key for a node; a wrapped key that
/// does not open. The other ranks stand still then until the job ends.
Result<std::unique_ptr<JobKey>> transport_key(const TransportLocal& local, int rank, int ranks, Peers& peers);

/// Is this a rank's first message to its parent in one of these ways? Says so to the agreement, which is another.
bool announces_transport(std::span<const std::uint8_t> message);

}  // namespace cryptmpi::keys
