#include "interpose/clearing.hpp"

#include <array>
#include <cstdint>

#include "base/secret.hpp"

namespace cryptmpi::interpose {

// With 2048, memory showed under MPICH 3.4.3; with 4096, it did not.
constexpr std::size_t kDepth = 8192;

// AddressSanitizer would put the array elsewhere.
[[gnu::noinline, gnu::no_sanitize_address]] void clear_stack() {
    std::array<std::uint8_t, kDepth> below;
    wipe(below.data(), below.size());
}

bool seen_clean(std::string_view library_version) {
    // Those that tests/system/test_leaks.py runs; MPICH's device and not its release is what matters.
    constexpr std::array<std::string_view, 3> kSeen = {"ch4", "Open MPI", "Intel(R) MPI Library 202"};
    for (const auto one : kSeen) {
        if (library_version.find(one) != std::string_view::npos) return true;
    }
    return false;
}

}  // namespace cryptmpi::interpose
