// An arbitrary hello to each role; the first byte chooses the role, whether addresses are checked, whether keys are
// exchanged by ML-KEM, too, and whether both sides prove which member they are.
//
// Most of what the fuzzer changes gets its prefix and its tags back: else few inputs would reach what is behind them.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "keys/handshake.hpp"
#include "toy_crypto.hpp"
#include "toy_members.hpp"

using namespace cryptmpi;

namespace {

enum Choice : std::uint8_t { initiator = 1, addresses = 2, hybrid = 4, members = 8 };

const keys::JobKey kJobKey;

keys::Role role_of(std::uint8_t choice) {
    return (choice & initiator) != 0 ? keys::Role::initiator : keys::Role::responder;
}

keys::Local local_of(std::uint8_t choice) {
    keys::Local local{fuzz::toy_crypto(), fuzz::toy_crypto().aead, &kJobKey, (choice & addresses) != 0};
    local.kem = (choice & hybrid) != 0 ? fuzz::toy_kem() : nullptr;
    local.members = (choice & members) != 0 ? &fuzz::toy_members() : nullptr;
    return local;
}

/// Prefix, and tags of zeros, where the peer's hello has them.
void repair(std::uint8_t choice, std::uint8_t* hello, std::size_t size) {
    const keys::Role sender = keys::other(role_of(choice));
    const auto id = keys::id_of(*fuzz::toy_crypto().kex, kJobKey);
    const bool is_hybrid = (choice & hybrid) != 0;
    const bool has_members = (choice & members) != 0;
    if (!id || size < keys::hello_size(sender, has_members, is_hybrid)) return;
    std::memcpy(hello, "CMPI", 4);
    hello[4] = keys::kProtocolVersion;
    hello[5] = static_cast<std::uint8_t>(sender);
    hello[6] = static_cast<std::uint8_t>(fuzz::toy_crypto().suite);
    hello[7] = static_cast<std::uint8_t>((has_members ? keys::kMembers : 0) | (is_hybrid ? keys::kHybrid : 0));
    std::copy(id->begin(), id->end(), hello + 8);
    const std::size_t payload = keys::kPrefixSize + 32 + (is_hybrid ? keys::kem_part_size(sender) : 0);
    if (is_hybrid) std::memset(hello + payload - CRYPTMPI_TAG_SIZE, 0, CRYPTMPI_TAG_SIZE);
    const std::size_t end = payload + keys::kIdentitySize + (has_members ? keys::kProofSize : 0);
    std::memset(hello + end, 0, CRYPTMPI_TAG_SIZE);
}

}  // namespace

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
    size = LLVMFuzzerMutate(data, size, most);
    if (size != 0 && seed % 4 != 0) repair(data[0], data + 1, size - 1);
    return size;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 1 + keys::kHelloSize) {
        return 0;
    }
    const auto role = role_of(data[0]);
    const keys::Local local = local_of(data[0]);
    const keys::Identity self{};
    keys::HandshakeState state{};
    std::vector<std::uint8_t> ours(local.hello_size(role));
    if (!keys::start(local, role, self, state) ||
        (role == keys::Role::initiator && !keys::write_hello(local, state, ours))) {
        std::abort();
    }
    // As many bytes are read as the peer's hello should have, or fewer, where it says that it is shorter.
    const std::vector<std::uint8_t> hello(data + 1, data + 1 + std::min(size - 1, local.hello_size(keys::other(role))));
    const auto done = keys::read_hello(local, state, hello);
    if (!done) {
        fuzz::require_one_line(done.error().line);
        const auto* bytes = reinterpret_cast<const std::uint8_t*>(&state);
        for (std::size_t i = 0; i < sizeof state; ++i) {
            if (bytes[i] != 0) {
                std::abort();
            }
        }
        return 0;
    }
    // Whom a peer proved to be is a member of our list, with that member's key; else it is nobody.
    const std::string_view member = state.peer_member;
    if (local.members == nullptr) {
        fuzz::require(member.empty());
    } else {
        fuzz::require(member == "alice" || member == "bob");
        const std::uint8_t* const key = hello.data() + hello.size() - CRYPTMPI_TAG_SIZE - keys::kProofSize;
        fuzz::require(std::all_of(key, key + 32, [&](std::uint8_t b) { return b == (member == "bob" ? 0x44 : 0x22); }));
    }
    seal::DirectionState send{};
    seal::DirectionState receive{};
    if ((role == keys::Role::responder && !keys::write_hello(local, state, ours)) ||
        !keys::finish(local, state, send, receive)) {
        std::abort();
    }
    return 0;
}
