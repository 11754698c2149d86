// AES-GCM from Mbed TLS 2.28, which was PolarSSL.
#include <cryptmpi/module.h>
#include <mbedtls/aes.h>
#include <mbedtls/aesni.h>
#include <mbedtls/cipher_internal.h>
#include <mbedtls/gcm.h>
#include <mbedtls/version.h>

#include <new>
#include <utility>

#include "base/secret_memory.hpp"
#include "exported.hpp"
#include "one_piece.hpp"
#include "traces.hpp"

namespace {

using namespace cryptmpi::modules;

// The library allocates the key schedule by itself, on the program's heap: it is brought here, to secret memory.
struct Context {
    mbedtls_gcm_context gcm;
    mbedtls_aes_context aes;
};

void wipe_what_is_left() {
    wipe_traces<2560>();
}

void bring_key_here(Context& context) {
    mbedtls_cipher_context_t& cipher = context.gcm.cipher_ctx;
    auto* const heap = static_cast<mbedtls_aes_context*>(std::exchange(cipher.cipher_ctx, &context.aes));
    context.aes = *heap;
    context.aes.rk = context.aes.buf + (heap->rk - heap->buf);  // it points into its own array
    cipher.cipher_info->base->ctx_free_func(heap);              // wipes it
}

void destroy(void* opaque) {
    if (opaque == nullptr) return;
    auto* const context = static_cast<Context*>(opaque);
    mbedtls_cipher_context_t& cipher = context->gcm.cipher_ctx;
    if (cipher.cipher_ctx == &context->aes) cipher.cipher_ctx = nullptr;  // not the library's to free
    mbedtls_gcm_free(&context->gcm);
    cryptmpi::give_back_secret_memory(context, sizeof *context);
}

void* create(int suite, const uint8_t* key) {
    const unsigned bits = suite == CRYPTMPI_AES_128_GCM ? 128 : suite == CRYPTMPI_AES_256_GCM ? 256 : 0;
    if (bits == 0) return nullptr;
    void* const memory = cryptmpi::take_secret_memory(sizeof(Context));
    if (memory == nullptr) return nullptr;
    auto* context = new (memory) Context{};
    mbedtls_gcm_init(&context->gcm);
    const bool made = mbedtls_gcm_setkey(&context->gcm, MBEDTLS_CIPHER_ID_AES, key, bits) == 0;
    if (made) bring_key_here(*context);
    wipe_what_is_left();
    if (made) return context;
    destroy(context);
    return nullptr;
}

int seal(void* opaque, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const iovec* in, size_t in_count,
         uint8_t* out, uint8_t tag[16]) {
    mbedtls_gcm_context& gcm = static_cast<Context*>(opaque)->gcm;
    return seal_in_one(in, in_count, out, [&](const uint8_t* plain, size_t size, uint8_t* sealed) {
        const int failed = mbedtls_gcm_crypt_and_tag(&gcm, MBEDTLS_GCM_ENCRYPT, size, nonce, CRYPTMPI_GCM_NONCE_SIZE,
                                                     present(aad), aad_size, plain, sealed, CRYPTMPI_TAG_SIZE, tag);
        wipe_what_is_left();
        return failed == 0;
    });
}

int open(void* opaque, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const uint8_t* in, size_t size,
         const iovec* out, size_t out_count, const uint8_t tag[16]) {
    mbedtls_gcm_context& gcm = static_cast<Context*>(opaque)->gcm;
    return open_in_one(size, out, out_count, [&](uint8_t* plain) {
        // It compares tags in constant time.
        const int failed = mbedtls_gcm_auth_decrypt(&gcm, size, nonce, CRYPTMPI_GCM_NONCE_SIZE, present(aad), aad_size,
                                                    tag, CRYPTMPI_TAG_SIZE, present(in), plain);
        wipe_what_is_left();
        return failed == 0 ? CRYPTMPI_OK : failed == MBEDTLS_ERR_GCM_AUTH_FAILED ? CRYPTMPI_FORGED : CRYPTMPI_FAILED;
    });
}

char version[16];

const char* start() {
    mbedtls_version_get_string(version);
    // Without these it falls back to tables, which are slow and leak the key through the cache.
#if defined(MBEDTLS_AESNI_C) && defined(MBEDTLS_HAVE_X86_64)
    if (mbedtls_aesni_has_support(MBEDTLS_AESNI_AES) == 0 || mbedtls_aesni_has_support(MBEDTLS_AESNI_CLMUL) == 0)
        return "this CPU lacks AES-NI or PCLMULQDQ, without which Mbed TLS is no good";
#else
    return "this Mbed TLS has no AES instructions of this CPU";
#endif
    // The first key fills the library's own tables, which it does not guard against threads.
    constexpr uint8_t kKey[32] = {};
    void* const first = create(CRYPTMPI_AES_256_GCM, kKey);
    if (first == nullptr) return "Mbed TLS cannot set up AES-GCM";
    destroy(first);
    return nullptr;
}

}  // namespace

CRYPTMPI_EXPORT_CIPHERS("mbedtls", version, 1U << CRYPTMPI_AES_128_GCM | 1U << CRYPTMPI_AES_256_GCM);
