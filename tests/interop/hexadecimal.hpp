// What the ends for the interoperability tests share: they speak lines of hexadecimal digits, and end at the first
// error.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <string>
#include <type_traits>
#include <vector>

#include "base/result.hpp"

namespace cryptmpi::test {

using Bytes = std::vector<std::uint8_t>;

inline Bytes from_hex(const std::string& text) {
    Bytes bytes;
    for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
        bytes.push_back(static_cast<std::uint8_t>(std::stoul(text.substr(i, 2), nullptr, 16)));
    }
    return bytes;
}

inline std::string to_hex(const std::uint8_t* at, std::size_t size) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string text;
    for (std::size_t i = 0; i < size; ++i) {
        text += kDigits[at[i] >> 4];
        text += kDigits[at[i] & 15];
    }
    return text;
}

template <class T>
T must(Result<T> result) {
    if (!result) {
        std::cout << "error " << result.error().line << std::endl;
        std::exit(1);
    }
    if constexpr (!std::is_void_v<T>) {
        return *std::move(result);
    }
}

}  // namespace cryptmpi::test
