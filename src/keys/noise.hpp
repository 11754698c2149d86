// The functions of Noise's section 5, by their names there, over the state of a handshake.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "keys/handshake.hpp"

namespace cryptmpi::keys::noise {

inline constexpr std::size_t kHash = 32;

/// The crypto module's status as a result.
Result<void> primitive(int status, const char* name);

Result<void> mix_hash(const cryptmpi_kex& kex, HandshakeState& state, const void* data, std::size_t size);
/// HKDF(chaining_key, input, outputs): `outputs` blocks of 32 bytes, 2 or 3.
Result<void> hkdf(const cryptmpi_kex& kex, const std::uint8_t chaining_key[32], const void* input, std::size_t size,
                  std::uint8_t* out, int outputs);
Result<void> mix_key(const cryptmpi_kex& kex, HandshakeState& state, const void* input, std::size_t size);
Result<void> mix_key_and_hash(const cryptmpi_kex& kex, HandshakeState& state, const void* input, std::size_t size);
/// `out` has room for the tag, too.
Result<void> encrypt_and_hash(const Local& local, HandshakeState& state, std::span<const std::uint8_t> plain,
                              std::uint8_t* out);
/// `in` has a tag more than `plain`.
Result<void> decrypt_and_hash(const Local& local, HandshakeState& state, const std::uint8_t* in,
                              std::span<std::uint8_t> plain);
/// The token "e": in a handshake with a pre-shared key it is mixed into the key as well (section 9.2).
Result<void> mix_share(const cryptmpi_kex& kex, HandshakeState& state, const std::uint8_t share[32]);

}  // namespace cryptmpi::keys::noise
