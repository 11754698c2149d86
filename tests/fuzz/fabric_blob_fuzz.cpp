// An arbitrary address of a peer, as MPI passes it on for UCX. Half of what the fuzzer changes gets the mark and the
// proof that fit the rest of it.
#include <cstring>
#include <vector>

#include "fabric/ucx/blob.hpp"
#include "scratch.hpp"
#include "toy_crypto.hpp"

using namespace cryptmpi;
using namespace cryptmpi::fabric;

namespace {

const Party& party() {
    static const keys::JobKey job_key;
    static const auto job = Job::join(fuzz::toy_crypto(), job_key, "job");
    static const auto made = Party::make(*job);
    return **made;
}

/// Nobody tells a reader how long a blob is, so there is as much as the longest has.
std::vector<std::uint8_t> whole(const std::uint8_t* data, std::size_t size) {
    std::vector<std::uint8_t> blob(ucx::kBlobPrefix + ucx::kMostAddress);
    if (size != 0) std::memcpy(blob.data(), data, std::min(size, blob.size()));
    return blob;
}

std::vector<std::uint8_t> proof_of(const std::vector<std::uint8_t>& blob) {
    std::uint32_t length = 0;
    std::memcpy(&length, blob.data() + sizeof ucx::kBlobMark, sizeof length);
    Share share;
    std::memcpy(share.data(), blob.data() + ucx::kBlobShareAt, share.size());
    std::vector<std::uint8_t> proof(kProofSize);
    if (length > ucx::kMostAddress || !party().prove({blob.data() + ucx::kBlobPrefix, length}, share, proof.data()))
        proof.clear();
    return proof;
}

}  // namespace

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
    size = LLVMFuzzerMutate(data, size, most);
    if (size < ucx::kBlobPrefix || seed % 2 != 0) return size;
    std::memcpy(data, ucx::kBlobMark, sizeof ucx::kBlobMark);
    const auto proof = proof_of(whole(data, size));
    if (!proof.empty()) std::memcpy(data + ucx::kBlobProofAt, proof.data(), proof.size());
    return size;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const auto input = whole(data, size);
    const auto blob = ucx::read_blob(party(), input.data());
    if (!blob) {
        fuzz::require_one_line(blob.error().line);
        return 0;
    }
    const auto proof = proof_of(input);
    fuzz::require(!proof.empty() && std::memcmp(proof.data(), input.data() + ucx::kBlobProofAt, kProofSize) == 0);
    fuzz::require(blob->address.data() == input.data() + ucx::kBlobPrefix);
    fuzz::require(blob->address.size() <= ucx::kMostAddress);
    return 0;
}
