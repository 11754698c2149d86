// An address as MPI passes it on: UCX's own, behind our share and the proof that both belong to this job.
//
//   "cmpF" (4) | length of UCX's address (4, little endian) | share (32) | proof (16) | UCX's address
#pragma once

#include <cstring>
#include <span>

#include "base/endian.hpp"
#include "fabric/flows.hpp"

namespace cryptmpi::fabric::ucx {

inline constexpr char kBlobMark[4] = {'c', 'm', 'p', 'F'};
inline constexpr std::size_t kBlobShareAt = 8;
inline constexpr std::size_t kBlobProofAt = kBlobShareAt + kShareSize;
inline constexpr std::size_t kBlobPrefix = kBlobProofAt + kProofSize;
inline constexpr std::size_t kMostAddress = 64 * 1024;  // UCX's have some hundred bytes

struct Blob {
    Share share;
    std::span<const std::uint8_t> address;
};

/// kBlobPrefix + address.size() bytes at `out`.
inline Result<void> write_blob(const Party& party, std::span<const std::uint8_t> address, std::uint8_t* out) {
    const auto size = static_cast<std::uint32_t>(address.size());
    std::memcpy(out, kBlobMark, sizeof kBlobMark);
    std::memcpy(out + sizeof kBlobMark, &size, sizeof size);
    std::memcpy(out + kBlobShareAt, party.share().data(), kShareSize);
    std::memcpy(out + kBlobPrefix, address.data(), address.size());
    return party.prove(address, party.share(), out + kBlobProofAt);
}

// protocol: F4
/// Nobody says how long it is but itself, so that a stranger's may say more than there is: up to kMostAddress bytes
/// behind it go into the check of its proof and nowhere else. At worst the process ends there, which it does without,
/// too: what is no address of the job ends it. Errors (EPROTO): not from this job.
inline Result<Blob> read_blob(const Party& party, const void* at) {
    const auto* const in = static_cast<const std::uint8_t*>(at);
    const auto refuse = [] {
        return fail(EPROTO,
                    "the address of a peer is none of this job's: it was altered, or the peer does not run under the "
                    "fabric layer of this job");
    };
    if (std::memcmp(in, kBlobMark, sizeof kBlobMark) != 0) return refuse();
    std::uint32_t size = 0;
    std::memcpy(&size, in + sizeof kBlobMark, sizeof size);
    if (size > kMostAddress) return refuse();
    Blob blob{{}, {in + kBlobPrefix, size}};
    std::memcpy(blob.share.data(), in + kBlobShareAt, kShareSize);
    auto proven = party.proves(blob.address, blob.share, in + kBlobProofAt);
    if (!proven) return tl::unexpected(std::move(proven.error()));
    if (!*proven) return refuse();
    return blob;
}

}  // namespace cryptmpi::fabric::ucx
