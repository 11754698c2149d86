// Numbers in a given byte order.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

namespace cryptmpi {

static_assert(std::endian::native == std::endian::little, "these are written for little-endian machines");

inline void store_little(std::uint64_t value, std::uint8_t* out) {
    std::memcpy(out, &value, sizeof value);
}

inline std::uint64_t load_little(const std::uint8_t* in) {
    std::uint64_t value = 0;
    std::memcpy(&value, in, sizeof value);
    return value;
}

/// Bytes at `in` xor the number, big endian, at `out`.
inline void xor_big(const std::uint8_t* in, std::uint32_t value, std::uint8_t* out) {
    std::uint32_t word = 0;
    std::memcpy(&word, in, sizeof word);
    word ^= __builtin_bswap32(value);
    std::memcpy(out, &word, sizeof word);
}

inline void xor_big(const std::uint8_t* in, std::uint64_t value, std::uint8_t* out) {
    std::uint64_t word = load_little(in) ^ __builtin_bswap64(value);
    store_little(word, out);
}

}  // namespace cryptmpi
