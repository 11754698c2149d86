// Cipher suites by name and number, and what each needs.
#pragma once

#include <cryptmpi/module.h>

#include <cstddef>
#include <optional>
#include <string_view>

namespace cryptmpi::aead {

enum class Suite : unsigned char {
    aes_128_gcm = CRYPTMPI_AES_128_GCM,
    aes_256_gcm = CRYPTMPI_AES_256_GCM,
};

inline constexpr Suite kAllSuites[] = {Suite::aes_128_gcm, Suite::aes_256_gcm};

struct Shape {
    std::string_view name;   // as its authors write it: "AES-256-GCM"
    std::size_t key_size;    // bytes
    std::size_t nonce_size;  // bytes
};

constexpr Shape shape(Suite suite) {
    switch (suite) {
        case Suite::aes_128_gcm:
            return {"AES-128-GCM", 16, 12};
        case Suite::aes_256_gcm:
            return {"AES-256-GCM", 32, 12};
    }
    return {};
}

constexpr std::string_view name(Suite suite) {
    return shape(suite).name;
}

constexpr std::size_t key_size(Suite suite) {
    return shape(suite).key_size;
}

constexpr std::size_t nonce_size(Suite suite) {
    return shape(suite).nonce_size;
}

/// Any letter case; nullopt for an unknown name.
std::optional<Suite> suite_by_name(std::string_view text);
/// nullopt for a number that no suite has.
std::optional<Suite> suite_by_number(unsigned number);

}  // namespace cryptmpi::aead
