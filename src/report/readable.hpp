// Numbers for people.
#pragma once

#include <array>
#include <cstdint>
#include <cstdio>
#include <string>

namespace cryptmpi::report {

/// "12 B", "1.50 MB".
inline std::string readable_bytes(std::uint64_t bytes) {
    constexpr std::array kUnits = {"B", "KB", "MB", "GB", "TB", "PB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    while (value >= 1000 && unit + 1 < kUnits.size()) {
        value /= 1000;
        ++unit;
    }
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.2f %s", value, kUnits[unit]);
    return text.data();
}

}  // namespace cryptmpi::report
