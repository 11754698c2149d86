// Bytes as hexadecimal digits. Not for secrets: these look digits up in a table (keys/secret_file.cpp does not).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace cryptmpi {

inline constexpr std::string_view kHexDigits = "0123456789abcdef";

inline std::string hex(std::span<const std::uint8_t> bytes) {
    std::string digits;
    digits.reserve(2 * bytes.size());
    for (const unsigned byte : bytes) {
        digits += kHexDigits[byte >> 4U];
        digits += kHexDigits[byte & 15U];
    }
    return digits;
}

/// nullopt: not just so many bytes' digits, in small letters.
template <std::size_t size>
std::optional<std::array<std::uint8_t, size>> from_hex(std::string_view digits) {
    if (digits.size() != 2 * size) return std::nullopt;
    std::array<std::uint8_t, size> bytes{};
    for (std::size_t i = 0; i < size; ++i) {
        const auto high = kHexDigits.find(digits[2 * i]), low = kHexDigits.find(digits[2 * i + 1]);
        if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
        bytes[i] = static_cast<std::uint8_t>(high << 4U | low);
    }
    return bytes;
}

}  // namespace cryptmpi
