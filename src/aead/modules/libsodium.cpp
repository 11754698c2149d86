// AES-256-GCM and the primitives of key agreement and signatures from libsodium. Where the CPU has no AES instructions
// it has no AES-256-GCM, and AES-128-GCM nowhere.
#include <cryptmpi/module.h>
#include <sodium.h>
#include <sys/random.h>

#include <cerrno>
#include <new>

#include "base/secret_memory.hpp"
#include "exported.hpp"
#include "one_piece.hpp"
#include "traces.hpp"

namespace {

using namespace cryptmpi::modules;
using State = crypto_aead_aes256gcm_state;  // the key schedule, and nothing outside it

void wipe_what_is_left() {
    wipe_traces<2560>();
}

void* create(int suite, const uint8_t* key) {
    if (suite != CRYPTMPI_AES_256_GCM) return nullptr;
    void* const memory = cryptmpi::take_secret_memory(sizeof(State));
    if (memory == nullptr) return nullptr;
    auto* state = new (memory) State{};
    const bool made = crypto_aead_aes256gcm_beforenm(state, key) == 0;
    wipe_what_is_left();
    if (made) return state;
    cryptmpi::give_back_secret_memory(state, sizeof *state);
    return nullptr;
}

void destroy(void* state) {
    cryptmpi::give_back_secret_memory(state, sizeof(State));
}

int seal(void* opaque, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const iovec* in, size_t in_count,
         uint8_t* out, uint8_t tag[16]) {
    const auto* state = static_cast<const State*>(opaque);
    return seal_in_one(in, in_count, out, [&](const uint8_t* plain, size_t size, uint8_t* sealed) {
        const int failed = crypto_aead_aes256gcm_encrypt_detached_afternm(sealed, tag, nullptr, plain, size, aad,
                                                                          aad_size, nullptr, nonce, state);
        wipe_what_is_left();
        return failed == 0;
    });
}

int open(void* opaque, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const uint8_t* in, size_t size,
         const iovec* out, size_t out_count, const uint8_t tag[16]) {
    const auto* state = static_cast<const State*>(opaque);
    return open_in_one(size, out, out_count, [&](uint8_t* plain) {
        // It compares tags in constant time, before it decrypts.
        const int forged = crypto_aead_aes256gcm_decrypt_detached_afternm(plain, nullptr, present(in), size, tag, aad,
                                                                          aad_size, nonce, state);
        wipe_what_is_left();
        return forged == 0 ? CRYPTMPI_OK : CRYPTMPI_FORGED;
    });
}

// What handles secrets below uses up to 2.7 KB of the stack (libsodium 1.0.18, the product of a point).
int status(bool ok) {
    wipe_traces<4096>();
    return ok ? CRYPTMPI_OK : CRYPTMPI_FAILED;
}

/// The kernel's: libsodium's own generator ends the process where the kernel gives none.
int random(uint8_t* out, size_t size) {
    while (size > 0) {
        const ssize_t drawn = getrandom(out, size, 0);
        if (drawn < 0 && errno == EINTR) continue;
        if (drawn <= 0) return CRYPTMPI_FAILED;
        out += drawn;
        size -= static_cast<size_t>(drawn);
    }
    return CRYPTMPI_OK;
}

int x25519_public(uint8_t public_key[32], const uint8_t private_key[32]) {
    return status(crypto_scalarmult_curve25519_base(public_key, private_key) == 0);
}

int x25519_shared(uint8_t shared[32], const uint8_t private_key[32], const uint8_t peer_public_key[32]) {
    // libsodium refuses some points, and so an all-zero result, by itself; the contract does not hang on that.
    return status(crypto_scalarmult_curve25519(shared, private_key, peer_public_key) == 0 &&
                  sodium_is_zero(shared, crypto_scalarmult_curve25519_BYTES) == 0);
}

/// libsodium's private key: the 32 bytes that the RFC calls so, and the public key.
struct SigningKey {
    uint8_t bytes[crypto_sign_ed25519_SECRETKEYBYTES];

    SigningKey() : bytes{} {}
    SigningKey(const SigningKey&) = delete;
    SigningKey& operator=(const SigningKey&) = delete;
    ~SigningKey() { sodium_memzero(bytes, sizeof bytes); }
};

int ed25519_public(uint8_t public_key[32], const uint8_t private_key[32]) {
    SigningKey key;
    return status(crypto_sign_ed25519_seed_keypair(public_key, key.bytes, private_key) == 0);
}

int ed25519_sign(uint8_t signature[64], const uint8_t private_key[32], const uint8_t* message, size_t size) {
    SigningKey key;
    uint8_t public_key[crypto_sign_ed25519_PUBLICKEYBYTES];
    return status(crypto_sign_ed25519_seed_keypair(public_key, key.bytes, private_key) == 0 &&
                  crypto_sign_ed25519_detached(signature, nullptr, message, size, key.bytes) == 0);
}

int ed25519_verify(const uint8_t signature[64], const uint8_t public_key[32], const uint8_t* message, size_t size) {
    return crypto_sign_ed25519_verify_detached(signature, message, size, public_key) == 0 ? CRYPTMPI_OK
                                                                                          : CRYPTMPI_FORGED;
}

int sha256(uint8_t out[32], const iovec* in, size_t in_count) {
    crypto_hash_sha256_state state;
    crypto_hash_sha256_init(&state);
    for (size_t i = 0; i < in_count; ++i)
        crypto_hash_sha256_update(&state, static_cast<const uint8_t*>(in[i].iov_base), in[i].iov_len);
    const bool done = crypto_hash_sha256_final(&state, out) == 0;
    sodium_memzero(&state, sizeof state);
    return status(done);
}

int hmac_sha256(uint8_t out[32], const uint8_t* key, size_t key_size, const iovec* in, size_t in_count) {
    crypto_auth_hmacsha256_state state;
    crypto_auth_hmacsha256_init(&state, present(key), key_size);
    for (size_t i = 0; i < in_count; ++i)
        crypto_auth_hmacsha256_update(&state, static_cast<const uint8_t*>(in[i].iov_base), in[i].iov_len);
    const bool done = crypto_auth_hmacsha256_final(&state, out) == 0;
    sodium_memzero(&state, sizeof state);
    return status(done);
}

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

const char* start() {
    // sodium_init draws some by itself, and may end the process.
    uint8_t drawn = 0;
    if (random(&drawn, sizeof drawn) != CRYPTMPI_OK)
        return "the kernel gives no random bytes (getrandom): let the filter of system calls allow it";
    if (sodium_init() < 0) return "libsodium cannot be started";
    if (crypto_aead_aes256gcm_is_available() == 0)
        return "this CPU lacks AES-NI or PCLMULQDQ, without which libsodium has no AES-GCM";
    return nullptr;
}

}  // namespace

CRYPTMPI_EXPORT_MODULE("libsodium", SODIUM_VERSION_STRING, 1U << CRYPTMPI_AES_256_GCM, &kKex);
