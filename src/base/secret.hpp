// Bytes that are wiped when they go out of use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>

#include "base/secret_memory.hpp"
#include "base/wipe.hpp"

namespace cryptmpi {

/// N secret bytes, wiped by the destructor. On the stack for the length of a call; what stays is made by `new`, which
/// takes secret memory. Not copyable by accident.
template <std::size_t N>
struct Secret {
    std::uint8_t bytes[N] = {};

    Secret() = default;
    Secret(const Secret&) = delete;
    Secret& operator=(const Secret&) = delete;
    ~Secret() { wipe(bytes, N); }

    static void* operator new(std::size_t size) {
        void* const at = take_secret_memory(size);
        if (at == nullptr) throw std::bad_alloc();
        return at;
    }
    static void operator delete(void* at, std::size_t size) noexcept { give_back_secret_memory(at, size); }
    static void* operator new[](std::size_t) = delete;

    std::uint8_t* data() noexcept { return bytes; }
    const std::uint8_t* data() const noexcept { return bytes; }
    static constexpr std::size_t size() noexcept { return N; }
};

}  // namespace cryptmpi
