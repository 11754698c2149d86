// Bytes that are wiped when they go out of use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace cryptmpi {

inline void wipe(void* at, std::size_t size) noexcept {
    if (size != 0) explicit_bzero(at, size);  // what is empty may have no address
}

/// N secret bytes on the stack or inside an object; wiped by the destructor. Not copyable by accident.
template <std::size_t N>
struct Secret {
    std::uint8_t bytes[N] = {};

    Secret() = default;
    Secret(const Secret&) = delete;
    Secret& operator=(const Secret&) = delete;
    ~Secret() { wipe(bytes, N); }

    std::uint8_t* data() noexcept { return bytes; }
    const std::uint8_t* data() const noexcept { return bytes; }
    static constexpr std::size_t size() noexcept { return N; }
};

}  // namespace cryptmpi
