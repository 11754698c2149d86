// The functions of Noise's section 5, by their names there, over its symmetric state.
#pragma once

#include <cryptmpi/module.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/result.hpp"

namespace cryptmpi::keys::noise {

inline constexpr std::size_t kHash = 32;

struct SymmetricState {
    std::uint8_t chaining_key[kHash];
    std::uint8_t hash[kHash];
    std::uint8_t key[32];
    std::uint64_t nonce;
};

/// The crypto module's status as a result.
Result<void> primitive(int status, const char* name);

Result<void> mix_hash(const cryptmpi_kex& kex, SymmetricState& state, const void* data, std::size_t size);
/// HKDF(chaining_key, input, outputs): `outputs` blocks of 32 bytes, 2 or 3.
Result<void> hkdf(const cryptmpi_kex& kex, const std::uint8_t chaining_key[32], const void* input, std::size_t size,
                  std::uint8_t* out, int outputs);
Result<void> mix_key(const cryptmpi_kex& kex, SymmetricState& state, const void* input, std::size_t size);
Result<void> mix_key_and_hash(const cryptmpi_kex& kex, SymmetricState& state, const void* input, std::size_t size);
/// `out` has room for the tag, too. The cipher is AES-256-GCM.
Result<void> encrypt_and_hash(const cryptmpi_kex& kex, const cryptmpi_aead& aead, SymmetricState& state,
                              std::span<const std::uint8_t> plain, std::uint8_t* out);
/// `in` has a tag more than `plain`. Error (EKEYREJECTED): it does not open; the line calls the other side `peer`.
Result<void> decrypt_and_hash(const cryptmpi_kex& kex, const cryptmpi_aead& aead, SymmetricState& state,
                              const std::uint8_t* in, std::span<std::uint8_t> plain, std::string_view peer);
/// The token "e": in a handshake with a pre-shared key it is mixed into the key as well (section 9.2).
Result<void> mix_share(const cryptmpi_kex& kex, SymmetricState& state, const std::uint8_t share[32]);

}  // namespace cryptmpi::keys::noise
