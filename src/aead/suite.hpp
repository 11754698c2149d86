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
    aegis_128l = CRYPTMPI_AEGIS_128L,
    aegis_128x2 = CRYPTMPI_AEGIS_128X2,
    aegis_128x4 = CRYPTMPI_AEGIS_128X4,
    aegis_256 = CRYPTMPI_AEGIS_256,
    aegis_256x2 = CRYPTMPI_AEGIS_256X2,
    aegis_256x4 = CRYPTMPI_AEGIS_256X4,
    legacy_3des = CRYPTMPI_3DES_CBC_HMAC_SHA_256,
};

inline constexpr Suite kAllSuites[] = {Suite::aes_128_gcm, Suite::aes_256_gcm, Suite::aegis_128l,
                                       Suite::aegis_128x2, Suite::aegis_128x4, Suite::aegis_256,
                                       Suite::aegis_256x2, Suite::aegis_256x4, Suite::legacy_3des};

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
        case Suite::aegis_128l:
            return {"AEGIS-128L", 16, 16};
        case Suite::aegis_128x2:
            return {"AEGIS-128X2", 16, 16};
        case Suite::aegis_128x4:
            return {"AEGIS-128X4", 16, 16};
        case Suite::aegis_256:
            return {"AEGIS-256", 32, 32};
        case Suite::aegis_256x2:
            return {"AEGIS-256X2", 32, 32};
        case Suite::aegis_256x4:
            return {"AEGIS-256X4", 32, 32};
        case Suite::legacy_3des:
            return {"3DES-CBC-HMAC-SHA-256", 32, 12};
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

/// One that no default and no "auto" leads to, and that the settings must allow besides naming it.
constexpr bool is_legacy(Suite suite) {
    return suite == Suite::legacy_3des;
}

/// Any letter case; nullopt for an unknown name.
std::optional<Suite> suite_by_name(std::string_view text);
/// nullopt for a number that no suite has.
std::optional<Suite> suite_by_number(unsigned number);

}  // namespace cryptmpi::aead
