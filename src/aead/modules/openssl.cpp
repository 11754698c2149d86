// AES-GCM, the primitives of key agreement and signatures, and RSA-OAEP from OpenSSL 3; ML-KEM where it is OpenSSL 3.5.
//
// Everything runs in a library context of our own: the program's OpenSSL settings (openssl.cnf, providers, FIPS mode)
// do not reach us, nor ours it.
#include <cryptmpi/module.h>
#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/param_build.h>
#include <openssl/params.h>
#include <openssl/pem.h>
#include <openssl/provider.h>
#include <openssl/rand.h>
#include <openssl/rsa.h>

#include <algorithm>
#include <climits>
#include <cstring>

#include "one_piece.hpp"
#include "traces.hpp"

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
using Number = Owned<BIGNUM, BN_free>;
using Parameters = Owned<OSSL_PARAM, OSSL_PARAM_free>;
using ParameterBuilder = Owned<OSSL_PARAM_BLD, OSSL_PARAM_BLD_free>;
using Stream = Owned<BIO, BIO_free_all>;
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

/// After a use of a secret: OpenSSL leaves it, and what it made of it, on the stack and in registers.
template <class Use>
int without_traces(Use use) {
    const int result = use();
    cryptmpi::modules::wipe_traces<8192>();
    return result;
}

EVP_PKEY* private_x25519(const uint8_t bytes[32]) {
    return EVP_PKEY_new_raw_private_key_ex(library.context, "X25519", nullptr, bytes, 32);
}

int x25519_public(uint8_t public_key[32], const uint8_t private_key[32]) {
    return without_traces([&] {
        const Key key(private_x25519(private_key));
        size_t size = 32;
        return status(key != nullptr && EVP_PKEY_get_raw_public_key(key, public_key, &size) == 1 && size == 32);
    });
}

int derive_x25519(uint8_t shared[32], const uint8_t private_key[32], const uint8_t peer_public_key[32]) {
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

int x25519_shared(uint8_t shared[32], const uint8_t private_key[32], const uint8_t peer_public_key[32]) {
    return without_traces([&] { return derive_x25519(shared, private_key, peer_public_key); });
}

int ed25519_public(uint8_t public_key[32], const uint8_t private_key[32]) {
    return without_traces([&] {
        const Key key(EVP_PKEY_new_raw_private_key_ex(library.context, "ED25519", nullptr, private_key, 32));
        size_t size = 32;
        return status(key != nullptr && EVP_PKEY_get_raw_public_key(key, public_key, &size) == 1 && size == 32);
    });
}

int sign_ed25519(uint8_t signature[64], const uint8_t private_key[32], const uint8_t* message, size_t size) {
    const Key key(EVP_PKEY_new_raw_private_key_ex(library.context, "ED25519", nullptr, private_key, 32));
    const DigestContext context(EVP_MD_CTX_new());
    size_t written = 64;
    return status(key != nullptr && context != nullptr &&
                  EVP_DigestSignInit_ex(context, nullptr, nullptr, library.context, nullptr, key, nullptr) == 1 &&
                  EVP_DigestSign(context, signature, &written, message, size) == 1 && written == 64);
}

int ed25519_sign(uint8_t signature[64], const uint8_t private_key[32], const uint8_t* message, size_t size) {
    return without_traces([&] { return sign_ed25519(signature, private_key, message, size); });
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

int make_hmac_sha256(uint8_t out[32], const uint8_t* key, size_t key_size, const iovec* in, size_t in_count) {
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

int hmac_sha256(uint8_t out[32], const uint8_t* key, size_t key_size, const iovec* in, size_t in_count) {
    return without_traces([&] { return make_hmac_sha256(out, key, key_size, in, in_count); });
}

constexpr unsigned kRsaExponent = 65537;
constexpr size_t kLargestModulus = 1024;  // bytes

void* rsa_generate(size_t bits) {
    const KeyContext context(EVP_PKEY_CTX_new_from_name(library.context, "RSA", nullptr));
    EVP_PKEY* key = nullptr;
    if (context == nullptr || EVP_PKEY_keygen_init(context) != 1 ||
        EVP_PKEY_CTX_set_rsa_keygen_bits(context, static_cast<int>(bits)) != 1 || EVP_PKEY_generate(context, &key) != 1)
        return nullptr;
    return key;
}

/// Nobody is asked for one.
int no_passphrase(char*, int, int, void*) {
    return -1;
}

void* rsa_read(const uint8_t* pem, size_t size) {
    const Stream text(BIO_new_mem_buf(pem, static_cast<int>(size)));  // makes no copy
    if (text == nullptr) return nullptr;
    EVP_PKEY* key = PEM_read_bio_PrivateKey_ex(text, nullptr, no_passphrase, nullptr, library.context, nullptr);
    if (key == nullptr || EVP_PKEY_is_a(key, "RSA") == 1) return key;
    EVP_PKEY_free(key);
    return nullptr;
}

int rsa_write(void* key, uint8_t* pem, size_t* size) {
    const Stream text(BIO_new(BIO_s_secmem()));  // wiped when it is freed
    char* at = nullptr;
    if (text == nullptr ||
        PEM_write_bio_PKCS8PrivateKey(text, static_cast<EVP_PKEY*>(key), nullptr, nullptr, 0, nullptr, nullptr) != 1)
        return CRYPTMPI_FAILED;
    const long written = BIO_get_mem_data(text, &at);
    if (written <= 0 || static_cast<size_t>(written) > *size) return CRYPTMPI_FAILED;
    *size = static_cast<size_t>(written);
    std::memcpy(pem, at, *size);
    return CRYPTMPI_OK;
}

void rsa_destroy(void* key) {
    EVP_PKEY_free(static_cast<EVP_PKEY*>(key));  // wipes the numbers that are secret
}

int rsa_modulus(void* opaque, uint8_t* modulus, size_t size) {
    const auto* key = static_cast<const EVP_PKEY*>(opaque);
    BIGNUM* n = nullptr;
    BIGNUM* e = nullptr;
    const bool found = EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_RSA_N, &n) == 1 &&
                       EVP_PKEY_get_bn_param(key, OSSL_PKEY_PARAM_RSA_E, &e) == 1;
    const Number own_n(n), own_e(e);
    return status(found && BN_num_bits(n) == static_cast<int>(8 * size) && BN_is_word(e, kRsaExponent) == 1 &&
                  BN_bn2binpad(n, modulus, static_cast<int>(size)) == static_cast<int>(size));
}

EVP_PKEY* rsa_public(const uint8_t* modulus, size_t size) {
    const Number n(BN_bin2bn(modulus, static_cast<int>(size), nullptr)), e(BN_new());
    const ParameterBuilder builder(OSSL_PARAM_BLD_new());
    if (n == nullptr || e == nullptr || builder == nullptr || BN_set_word(e, kRsaExponent) != 1 ||
        OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_N, n) != 1 ||
        OSSL_PARAM_BLD_push_BN(builder, OSSL_PKEY_PARAM_RSA_E, e) != 1)
        return nullptr;
    const Parameters parameters(OSSL_PARAM_BLD_to_param(builder));
    const KeyContext context(EVP_PKEY_CTX_new_from_name(library.context, "RSA", nullptr));
    EVP_PKEY* key = nullptr;
    if (parameters == nullptr || context == nullptr || EVP_PKEY_fromdata_init(context) != 1 ||
        EVP_PKEY_fromdata(context, &key, EVP_PKEY_PUBLIC_KEY, parameters) != 1)
        return nullptr;
    return key;
}

bool set_oaep(EVP_PKEY_CTX* context, const uint8_t* label, size_t label_size) {
    char digest[] = "SHA2-256";
    // OpenSSL only reads the label, and copies it.
    const OSSL_PARAM parameters[] = {OSSL_PARAM_construct_utf8_string(OSSL_ASYM_CIPHER_PARAM_OAEP_DIGEST, digest, 0),
                                     OSSL_PARAM_construct_utf8_string(OSSL_ASYM_CIPHER_PARAM_MGF1_DIGEST, digest, 0),
                                     // An empty one is the default, and OpenSSL takes no other way to say it.
                                     label_size == 0
                                         ? OSSL_PARAM_construct_end()
                                         : OSSL_PARAM_construct_octet_string(OSSL_ASYM_CIPHER_PARAM_OAEP_LABEL,
                                                                             const_cast<uint8_t*>(label), label_size),
                                     OSSL_PARAM_construct_end()};
    return EVP_PKEY_CTX_set_rsa_padding(context, RSA_PKCS1_OAEP_PADDING) == 1 &&
           EVP_PKEY_CTX_set_params(context, parameters) == 1;
}

int rsa_wrap(uint8_t* wrapped, const uint8_t* modulus, size_t size, const uint8_t* label, size_t label_size,
             const uint8_t* secret, size_t secret_size) {
    if (size > kLargestModulus) return CRYPTMPI_FAILED;
    const Key key(rsa_public(modulus, size));
    if (key == nullptr) return CRYPTMPI_FAILED;
    const KeyContext context(EVP_PKEY_CTX_new_from_pkey(library.context, key, nullptr));
    size_t written = size;
    return status(context != nullptr && EVP_PKEY_encrypt_init(context) == 1 && set_oaep(context, label, label_size) &&
                  EVP_PKEY_encrypt(context, wrapped, &written, secret, secret_size) == 1 && written == size);
}

int rsa_unwrap(uint8_t* secret, size_t secret_size, void* key, const uint8_t* label, size_t label_size,
               const uint8_t* wrapped, size_t size) {
    std::memset(secret, 0, secret_size);
    const KeyContext context(EVP_PKEY_CTX_new_from_pkey(library.context, static_cast<EVP_PKEY*>(key), nullptr));
    if (context == nullptr || EVP_PKEY_decrypt_init(context) != 1 || !set_oaep(context, label, label_size))
        return CRYPTMPI_FAILED;
    uint8_t plain[kLargestModulus];
    size_t written = sizeof plain;
    const bool opened = EVP_PKEY_decrypt(context, plain, &written, wrapped, size) == 1 && written == secret_size;
    if (opened) std::memcpy(secret, plain, secret_size);
    OPENSSL_cleanse(plain, sizeof plain);
    return opened ? CRYPTMPI_OK : CRYPTMPI_FORGED;
}

// OpenSSL has ML-KEM from 3.5, and this is built with the headers of an earlier one, too.
constexpr char kMlKem[] = "ML-KEM-768";

EVP_PKEY* ml_kem_private(const uint8_t seed[64]) {
    const KeyContext context(EVP_PKEY_CTX_new_from_name(library.context, kMlKem, nullptr));
    const OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_octet_string("seed", const_cast<uint8_t*>(seed), CRYPTMPI_KEM_SEED_SIZE),
        OSSL_PARAM_construct_end()};
    EVP_PKEY* key = nullptr;
    if (context == nullptr || EVP_PKEY_fromdata_init(context) != 1 ||
        EVP_PKEY_fromdata(context, &key, EVP_PKEY_KEYPAIR, const_cast<OSSL_PARAM*>(parameters)) != 1)
        return nullptr;
    return key;
}

int ml_kem_public(uint8_t public_key[1184], const uint8_t seed[64]) {
    const Key key(ml_kem_private(seed));
    size_t size = CRYPTMPI_KEM_PUBLIC_SIZE;
    return status(key != nullptr && EVP_PKEY_get_raw_public_key(key, public_key, &size) == 1 &&
                  size == CRYPTMPI_KEM_PUBLIC_SIZE);
}

int ml_kem_encapsulate(uint8_t ciphertext[1088], uint8_t shared[32], const uint8_t public_key[1184],
                       const uint8_t coins[32]) {
    const Key key(
        EVP_PKEY_new_raw_public_key_ex(library.context, kMlKem, nullptr, public_key, CRYPTMPI_KEM_PUBLIC_SIZE));
    if (key == nullptr) return CRYPTMPI_FORGED;
    const KeyContext context(EVP_PKEY_CTX_new_from_pkey(library.context, key, nullptr));
    const OSSL_PARAM parameters[] = {
        OSSL_PARAM_construct_octet_string("ikme", const_cast<uint8_t*>(coins), CRYPTMPI_KEM_COINS_SIZE),
        OSSL_PARAM_construct_end()};
    size_t size = CRYPTMPI_KEM_CIPHERTEXT_SIZE, shared_size = CRYPTMPI_KEM_SHARED_SIZE;
    return status(context != nullptr && EVP_PKEY_encapsulate_init(context, parameters) == 1 &&
                  EVP_PKEY_encapsulate(context, ciphertext, &size, shared, &shared_size) == 1 &&
                  size == CRYPTMPI_KEM_CIPHERTEXT_SIZE && shared_size == CRYPTMPI_KEM_SHARED_SIZE);
}

int ml_kem_decapsulate(uint8_t shared[32], const uint8_t seed[64], const uint8_t ciphertext[1088]) {
    const Key key(ml_kem_private(seed));
    if (key == nullptr) return CRYPTMPI_FAILED;
    const KeyContext context(EVP_PKEY_CTX_new_from_pkey(library.context, key, nullptr));
    size_t size = CRYPTMPI_KEM_SHARED_SIZE;
    return status(context != nullptr && EVP_PKEY_decapsulate_init(context, nullptr) == 1 &&
                  EVP_PKEY_decapsulate(context, shared, &size, ciphertext, CRYPTMPI_KEM_CIPHERTEXT_SIZE) == 1 &&
                  size == CRYPTMPI_KEM_SHARED_SIZE);
}

const char* ml_kem_start() {
    EVP_KEM* const found = EVP_KEM_fetch(library.context, kMlKem, nullptr);
    EVP_KEM_free(found);
    return found != nullptr ? nullptr : "this OpenSSL has no ML-KEM-768, which is in 3.5 and later";
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
extern __attribute__((visibility("default"))) const struct cryptmpi_rsa cryptmpi_rsa;
const struct cryptmpi_rsa cryptmpi_rsa = {
    .generate = rsa_generate,
    .read = rsa_read,
    .write = rsa_write,
    .destroy = rsa_destroy,
    .modulus = rsa_modulus,
    .wrap = rsa_wrap,
    .unwrap = rsa_unwrap,
};
extern __attribute__((visibility("default"))) const struct cryptmpi_kem cryptmpi_kem;
const struct cryptmpi_kem cryptmpi_kem = {
    .start = ml_kem_start,
    .public_key = ml_kem_public,
    .encapsulate = ml_kem_encapsulate,
    .decapsulate = ml_kem_decapsulate,
};
}

namespace {

const char* start() {
    // Connections are closed, with a sealed record, after exit handlers have run: OpenSSL must not tear itself down in
    // one.
    if (OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr) != 1)
        return "OpenSSL is not there any more: the program, which uses it too, has torn it down at its exit";
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
