// A program with a crypto library of its own, OpenSSL or BoringSSL, whose functions have the same names, and modules
// beside it: everybody must get their own.
//
//   beside_... FOLDER before|after MODULE...     loads the modules in this order, before or after its own first use
#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "aead/registry.hpp"

namespace {

using namespace cryptmpi;

constexpr std::size_t kSize = 1000;
constexpr std::uint8_t kKey[32] = {1, 2, 3};
constexpr std::uint8_t kNonce[12] = {4, 5};
constexpr std::uint8_t kAssociated[8] = {6};

using Sealed = std::vector<std::uint8_t>;  // ciphertext and tag

const std::vector<std::uint8_t>& plain() {
    static const std::vector<std::uint8_t> text(kSize, 7);
    return text;
}

/// By the program's own library.
Sealed own() {
    Sealed out(kSize + 16);
    int size = 0;
    EVP_CIPHER_CTX* context = EVP_CIPHER_CTX_new();
    const bool good = EVP_EncryptInit_ex(context, EVP_aes_256_gcm(), nullptr, kKey, kNonce) == 1 &&
                      EVP_EncryptUpdate(context, nullptr, &size, kAssociated, sizeof kAssociated) == 1 &&
                      EVP_EncryptUpdate(context, out.data(), &size, plain().data(), kSize) == 1 &&
                      EVP_EncryptFinal_ex(context, out.data() + kSize, &size) == 1 &&
                      EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_GCM_GET_TAG, 16, out.data() + kSize) == 1;
    EVP_CIPHER_CTX_free(context);
    return good ? out : Sealed{};
}

Sealed by(const aead::Module& module) {
    const cryptmpi_aead& aead = *module.api->aead;
    Sealed out(kSize + 16);
    void* const context = aead.create(CRYPTMPI_AES_256_GCM, kKey);
    if (context == nullptr) return {};
    const iovec in{const_cast<std::uint8_t*>(plain().data()), kSize};
    const int status =
        aead.seal(context, kNonce, kAssociated, sizeof kAssociated, &in, 1, out.data(), out.data() + kSize);
    std::vector<std::uint8_t> opened(kSize);
    const iovec to{opened.data(), kSize};
    const int back =
        aead.open(context, kNonce, kAssociated, sizeof kAssociated, out.data(), kSize, &to, 1, out.data() + kSize);
    aead.destroy(context);
    return status == CRYPTMPI_OK && back == CRYPTMPI_OK && opened == plain() ? out : Sealed{};
}

/// RFC 7748, 6.1: Alice's.
bool agrees_on_keys(const cryptmpi_kex& kex) {
    constexpr std::uint8_t kPrivate[32] = {0x77, 0x07, 0x6d, 0x0a, 0x73, 0x18, 0xa5, 0x7d, 0x3c, 0x16, 0xc1,
                                           0x72, 0x51, 0xb2, 0x66, 0x45, 0xdf, 0x4c, 0x2f, 0x87, 0xeb, 0xc0,
                                           0x99, 0x2a, 0xb1, 0x77, 0xfb, 0xa5, 0x1d, 0xb9, 0x2c, 0x2a};
    constexpr std::uint8_t kPublic[4] = {0x85, 0x20, 0xf0, 0x09};
    std::uint8_t made[32];
    return kex.x25519_public(made, kPrivate) == CRYPTMPI_OK && std::memcmp(made, kPublic, sizeof kPublic) == 0;
}

bool is_own_library() {
    const std::string version = OpenSSL_version(OPENSSL_VERSION);
#ifdef OPENSSL_IS_BORINGSSL
    return version == "BoringSSL";
#else
    return version.starts_with("OpenSSL 3");
#endif
}

int wrong(const std::string& what) {
    std::fprintf(stderr, "wrong: %s\n", what.c_str());
    return 1;
}

}  // namespace

int main(int count, char** arguments) {
    if (count < 4) return wrong("beside_... FOLDER before|after MODULE...");
    const bool own_first = std::string(arguments[2]) == "after";
    if (own_first && (own().empty() || !is_own_library())) return wrong("the program's own library, at first");
    std::vector<aead::Module> modules;
    for (int i = 3; i < count; ++i) {
        auto module = aead::load(arguments[1], arguments[i]);
        if (!module) return wrong(module.error().line);
        modules.push_back(*module);
    }
    const Sealed expected = own();
    if (expected.empty() || !is_own_library()) return wrong("the program's own library, beside the modules");
    for (const aead::Module& module : modules) {
        if (module.offers(aead::Suite::aes_256_gcm) && by(module) != expected) return wrong(module.api->name);
        if (module.api->kex != nullptr && !agrees_on_keys(*module.api->kex)) return wrong("key agreement");
    }
    return own() == expected ? 0 : wrong("the program's own library, after the modules");
}
