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

inline void store_little_32(std::uint32_t value, std::uint8_t* out) {
    std::memcpy(out, &value, sizeof value);
}

inline std::uint32_t load_little_32(const std::uint8_t* in) {
    std::uint32_t value = 0;
    std::memcpy(&value, in, sizeof value);
    return value;
}

/// Bytes xor the number, big endian, in place.
inline void xor_big(std::uint8_t* at, std::uint32_t value) {
    std::uint32_t word = 0;
    std::memcpy(&word, at, sizeof word);
    word ^= __builtin_bswap32(value);
    std::memcpy(at, &word, sizeof word);
}

inline void xor_big(std::uint8_t* at, std::uint64_t value) {
    store_little(load_little(at) ^ __builtin_bswap64(value), at);
}

}  // namespace cryptmpi
