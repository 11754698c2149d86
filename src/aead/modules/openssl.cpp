// AES-GCM and the primitives of key agreement and signatures from OpenSSL 3.
//
// Everything runs in a library context of our own: the program's OpenSSL settings (openssl.cnf, providers, FIPS mode)
// do not reach us, nor ours it.
#include <cryptmpi/module.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/params.h>
#include <openssl/provider.h>
#include <openssl/rand.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "pieces.hpp"

namespace {

struct Library {
    OSSL_LIB_CTX* context;
    EVP_CIPHER* aes_128_gcm;
    EVP_CIPHER* aes_256_gcm;
    EVP_MD* sha256;
    EVP_MAC* hmac;
};
Library library;

template <class T, void (*release)(T*)>
struct Owned {
    T* at;

    explicit Owned(T* made) : at(made) {}
    Owned(const Owned&) = delete;
    Owned& operator=(const Owned&) = delete;
    ~Owned() { release(at); }
    operator T*() const { return at; }
};
using Key = Owned<EVP_PKEY, EVP_PKEY_free>;
using KeyContext = Owned<EVP_PKEY_CTX, EVP_PKEY_CTX_free>;
using DigestContext = Owned<EVP_MD_CTX, EVP_MD_CTX_free>;
using MacContext = Owned<EVP_MAC_CTX, EVP_MAC_CTX_free>;

int status(bool ok) {
    return ok ? CRYPTMPI_OK : CRYPTMPI_FAILED;
}

// EVP counts in int; a null `out` makes the input associated data. Nothing is done for no bytes: EVP takes a null input
// for the end.
bool update(EVP_CIPHER_CTX* context, uint8_t* out, const uint8_t* in, size_t size) {
    constexpr size_t kPiece = size_t{1} << 30;
    while (size > 0) {
        const size_t piece = std::min(size, kPiece);
        int written = 0;
        if (EVP_CipherUpdate(context, out, &written, in, static_cast<int>(piece)) != 1) return false;
        if (out != nullptr) out += piece;
        in += piece;
        size -= piece;
    }
    return true;
}

bool begin(EVP_CIPHER_CTX* context, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, int encrypt) {
    return EVP_CipherInit_ex(context, nullptr, nullptr, nullptr, nonce, encrypt) == 1 &&
           update(context, nullptr, aad, aad_size);
}

void* create(int suite, const uint8_t* key) {
    const EVP_CIPHER* cipher = suite == CRYPTMPI_AES_128_GCM   ? library.aes_128_gcm
                               : suite == CRYPTMPI_AES_256_GCM ? library.aes_256_gcm
                                                               : nullptr;
    if (cipher == nullptr) return nullptr;
    EVP_CIPHER_CTX* context = EVP_CIPHER_CTX_new();
    // GCM uses the block cipher forwards in both directions, so that one key schedule serves both.
    if (context != nullptr && EVP_CipherInit_ex(context, cipher, nullptr, key, nullptr, 1) == 1) return context;
    EVP_CIPHER_CTX_free(context);
    return nullptr;
}

void destroy(void* context) {
    EVP_CIPHER_CTX_free(static_cast<EVP_CIPHER_CTX*>(context));  // wipes the key schedule
}

int seal(void* opaque, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const iovec* in, size_t in_count,
         uint8_t* out, uint8_t tag[16]) {
    auto* context = static_cast<EVP_CIPHER_CTX*>(opaque);
    if (!begin(context, nonce, aad, aad_size, 1)) return CRYPTMPI_FAILED;
    for (size_t i = 0; i < in_count; ++i) {
        if (!update(context, out, static_cast<const uint8_t*>(in[i].iov_base), in[i].iov_len)) return CRYPTMPI_FAILED;
        out += in[i].iov_len;
    }
    uint8_t nothing[16];
    int written = 0;
    return status(EVP_CipherFinal_ex(context, nothing, &written) == 1 &&
                  EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, CRYPTMPI_TAG_SIZE, tag) == 1);
}

int decrypt(EVP_CIPHER_CTX* context, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const uint8_t* in,
            const iovec* out, size_t out_count, const uint8_t* tag) {
    if (!begin(context, nonce, aad, aad_size, 0)) return CRYPTMPI_FAILED;
    for (size_t i = 0; i < out_count; ++i) {
        if (!update(context, static_cast<uint8_t*>(out[i].iov_base), in, out[i].iov_len)) return CRYPTMPI_FAILED;
        in += out[i].iov_len;
    }
    uint8_t expected[CRYPTMPI_TAG_SIZE];
    std::memcpy(expected, tag, sizeof expected);
    if (EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, sizeof expected, expected) != 1) return CRYPTMPI_FAILED;
    uint8_t nothing[16];
    int written = 0;
    return EVP_CipherFinal_ex(context, nothing, &written) == 1 ? CRYPTMPI_OK : CRYPTMPI_FORGED;
}

int open(void* opaque, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const uint8_t* in, size_t,
         const iovec* out, size_t out_count, const uint8_t tag[16]) {
    const int result = decrypt(static_cast<EVP_CIPHER_CTX*>(opaque), nonce, aad, aad_size, in, out, out_count, tag);
    if (result != CRYPTMPI_OK) cryptmpi::modules::zero(out, out_count);
    return result;
}

int random(uint8_t* out, size_t size) {
    return status(RAND_priv_bytes_ex(library.context, out, size, 0) == 1);
}

EVP_PKEY* private_x25519(const uint8_t bytes[32]) {
    return EVP_PKEY_new_raw_private_key_ex(library.context, "X25519", nullptr, bytes, 32);
}

int x25519_public(uint8_t public_key[32], const uint8_t private_key[32]) {
    const Key key(private_x25519(private_key));
    size_t size = 32;
    return status(key != nullptr && EVP_PKEY_get_raw_public_key(key, public_key, &size) == 1 && size == 32);
}

int x25519_shared(uint8_t shared[32], const uint8_t private_key[32], const uint8_t peer_public_key[32]) {
    const Key own(private_x25519(private_key));
    const Key peer(EVP_PKEY_new_raw_public_key_ex(library.context, "X25519", nullptr, peer_public_key, 32));
    if (own == nullptr || peer == nullptr) return CRYPTMPI_FAILED;
    const KeyContext context(EVP_PKEY_CTX_new_from_pkey(library.context, own, nullptr));
    size_t size = 32;
    constexpr uint8_t kZeros[32] = {};
    // OpenSSL refuses an all-zero result by itself; the contract does not hang on that.
    return status(context != nullptr && EVP_PKEY_derive_init(context) == 1 &&
                  EVP_PKEY_derive_set_peer(context, peer) == 1 && EVP_PKEY_derive(context, shared, &size) == 1 &&
                  size == 32 && CRYPTO_memcmp(shared, kZeros, 32) != 0);
}

int ed25519_public(uint8_t public_key[32], const uint8_t private_key[32]) {
    const Key key(EVP_PKEY_new_raw_private_key_ex(library.context, "ED25519", nullptr, private_key, 32));
    size_t size = 32;
    return status(key != nullptr && EVP_PKEY_get_raw_public_key(key, public_key, &size) == 1 && size == 32);
}

int ed25519_sign(uint8_t signature[64], const uint8_t private_key[32], const uint8_t* message, size_t size) {
    const Key key(EVP_PKEY_new_raw_private_key_ex(library.context, "ED25519", nullptr, private_key, 32));
    const DigestContext context(EVP_MD_CTX_new());
    size_t written = 64;
    return status(key != nullptr && context != nullptr &&
                  EVP_DigestSignInit_ex(context, nullptr, nullptr, library.context, nullptr, key, nullptr) == 1 &&
                  EVP_DigestSign(context, signature, &written, message, size) == 1 && written == 64);
}

int ed25519_verify(const uint8_t signature[64], const uint8_t public_key[32], const uint8_t* message, size_t size) {
    const Key key(EVP_PKEY_new_raw_public_key_ex(library.context, "ED25519", nullptr, public_key, 32));
    const DigestContext context(EVP_MD_CTX_new());
    if (key == nullptr || context == nullptr ||
        EVP_DigestVerifyInit_ex(context, nullptr, nullptr, library.context, nullptr, key, nullptr) != 1)
        return CRYPTMPI_FAILED;
    return EVP_DigestVerify(context, signature, 64, message, size) == 1 ? CRYPTMPI_OK : CRYPTMPI_FORGED;
}

int sha256(uint8_t out[32], const iovec* in, size_t in_count) {
    const DigestContext context(EVP_MD_CTX_new());
    if (context == nullptr || EVP_DigestInit_ex(context, library.sha256, nullptr) != 1) return CRYPTMPI_FAILED;
    for (size_t i = 0; i < in_count; ++i)
        if (EVP_DigestUpdate(context, in[i].iov_base, in[i].iov_len) != 1) return CRYPTMPI_FAILED;
    return status(EVP_DigestFinal_ex(context, out, nullptr) == 1);
}

int hmac_sha256(uint8_t out[32], const uint8_t* key, size_t key_size, const iovec* in, size_t in_count) {
    const MacContext context(EVP_MAC_CTX_new(library.hmac));
    char digest[] = "SHA2-256";
    const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, digest, 0),
                                     OSSL_PARAM_construct_end()};
    const uint8_t empty = 0;
    if (key_size == 0) key = &empty;  // a null key means "the one that was set before"
    if (context == nullptr || EVP_MAC_init(context, key, key_size, parameters) != 1) return CRYPTMPI_FAILED;
    for (size_t i = 0; i < in_count; ++i)
        if (in[i].iov_len > 0 &&
            EVP_MAC_update(context, static_cast<const uint8_t*>(in[i].iov_base), in[i].iov_len) != 1)
            return CRYPTMPI_FAILED;
    size_t size = 0;
    return status(EVP_MAC_final(context, out, &size, 32) == 1 && size == 32);
}

const char* start();

constexpr cryptmpi_aead kAead = {
    .suites = 1U << CRYPTMPI_AES_128_GCM | 1U << CRYPTMPI_AES_256_GCM,
    .create = create,
    .destroy = destroy,
    .seal = seal,
    .open = open,
};

constexpr cryptmpi_kex kKex = {
    .random = random,
    .x25519_public = x25519_public,
    .x25519_shared = x25519_shared,
    .ed25519_public = ed25519_public,
    .ed25519_sign = ed25519_sign,
    .ed25519_verify = ed25519_verify,
    .sha256 = sha256,
    .hmac_sha256 = hmac_sha256,
};

}  // namespace

extern "C" {
extern __attribute__((visibility("default"))) struct cryptmpi_module cryptmpi_module;
struct cryptmpi_module cryptmpi_module = {
    .abi = CRYPTMPI_MODULE_ABI,
    .name = "openssl",
    .version = OPENSSL_VERSION_STR,
    .aead = &kAead,
    .kex = &kKex,
    .start = start,
};
}

namespace {

const char* start() {
    // Connections are closed, with a sealed record, after exit handlers have run: OpenSSL must not tear itself down in
    // one.
    OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr);
    library.context = OSSL_LIB_CTX_new();
    if (library.context == nullptr || OSSL_PROVIDER_load(library.context, "default") == nullptr)
        return "OpenSSL cannot load its default provider";
    library.aes_128_gcm = EVP_CIPHER_fetch(library.context, "AES-128-GCM", nullptr);
    library.aes_256_gcm = EVP_CIPHER_fetch(library.context, "AES-256-GCM", nullptr);
    library.sha256 = EVP_MD_fetch(library.context, "SHA2-256", nullptr);
    library.hmac = EVP_MAC_fetch(library.context, "HMAC", nullptr);
    if (library.aes_128_gcm == nullptr || library.aes_256_gcm == nullptr || library.sha256 == nullptr ||
        library.hmac == nullptr)
        return "this OpenSSL lacks AES-GCM, SHA-256 or HMAC";
    cryptmpi_module.version = OpenSSL_version(OPENSSL_VERSION_STRING);
    return nullptr;
}

}  // namespace
