// Cipher suites by name and number.
#pragma once

#include <cryptmpi/module.h>

#include <optional>
#include <string_view>

namespace cryptmpi::aead {

enum class Suite : unsigned char {
    aes_128_gcm = CRYPTMPI_AES_128_GCM,
    aes_256_gcm = CRYPTMPI_AES_256_GCM,
};

inline constexpr Suite kAllSuites[] = {Suite::aes_128_gcm, Suite::aes_256_gcm};

constexpr std::size_t key_size(Suite suite) {
    return suite == Suite::aes_128_gcm ? 16 : 32;
}

/// "AES-256-GCM", as NIST writes it.
constexpr std::string_view name(Suite suite) {
    return suite == Suite::aes_128_gcm ? "AES-128-GCM" : "AES-256-GCM";
}

/// Any letter case; nullopt for an unknown name.
std::optional<Suite> suite_by_name(std::string_view text);
/// nullopt for a number that no suite has.
std::optional<Suite> suite_by_number(unsigned number);

}  // namespace cryptmpi::aead
