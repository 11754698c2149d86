// AES-GCM from BoringSSL. Its symbols have OpenSSL's names: the module's own reference goes to its own library because
// modules are loaded with local, deep binding.
#include <cryptmpi/module.h>
#include <openssl/aead.h>
#include <openssl/err.h>

#include <new>

#include "base/secret_memory.hpp"
#include "exported.hpp"
#include "one_piece.hpp"
#include "traces.hpp"

#ifndef OPENSSL_IS_BORINGSSL
#error "these are OpenSSL's headers: BORINGSSL_INCLUDE_DIR must name the folder above BoringSSL's openssl/"
#endif

namespace {

using namespace cryptmpi::modules;

void wipe_what_is_left() {
    wipe_traces<2560>();
}

// The key schedule is inside EVP_AEAD_CTX, so that it stands where the context does.
void* create(int suite, const uint8_t* key) {
    const EVP_AEAD* aead = suite == CRYPTMPI_AES_128_GCM   ? EVP_aead_aes_128_gcm()
                           : suite == CRYPTMPI_AES_256_GCM ? EVP_aead_aes_256_gcm()
                                                           : nullptr;
    if (aead == nullptr) return nullptr;
    void* const memory = cryptmpi::take_secret_memory(sizeof(EVP_AEAD_CTX));
    if (memory == nullptr) return nullptr;
    auto* context = new (memory) EVP_AEAD_CTX{};
    const bool made = EVP_AEAD_CTX_init(context, aead, key, EVP_AEAD_key_length(aead), CRYPTMPI_TAG_SIZE, nullptr) == 1;
    wipe_what_is_left();
    if (made) return context;
    cryptmpi::give_back_secret_memory(context, sizeof *context);
    return nullptr;
}

void destroy(void* opaque) {
    if (opaque == nullptr) return;
    EVP_AEAD_CTX_cleanup(static_cast<EVP_AEAD_CTX*>(opaque));
    cryptmpi::give_back_secret_memory(opaque, sizeof(EVP_AEAD_CTX));
}

int seal(void* opaque, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const iovec* in, size_t in_count,
         uint8_t* out, uint8_t tag[16]) {
    const auto* context = static_cast<const EVP_AEAD_CTX*>(opaque);
    return seal_in_one(in, in_count, out, [&](const uint8_t* plain, size_t size, uint8_t* sealed) {
        size_t tag_size = 0;
        const int done = EVP_AEAD_CTX_seal_scatter(context, sealed, tag, &tag_size, CRYPTMPI_TAG_SIZE, nonce,
                                                   CRYPTMPI_GCM_NONCE_SIZE, plain, size, nullptr, 0, aad, aad_size);
        wipe_what_is_left();
        return done == 1 && tag_size == CRYPTMPI_TAG_SIZE;
    });
}

int open(void* opaque, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const uint8_t* in, size_t size,
         const iovec* out, size_t out_count, const uint8_t tag[16]) {
    const auto* context = static_cast<const EVP_AEAD_CTX*>(opaque);
    return open_in_one(size, out, out_count, [&](uint8_t* plain) {
        // It compares tags in constant time.
        const int done = EVP_AEAD_CTX_open_gather(context, plain, nonce, CRYPTMPI_GCM_NONCE_SIZE, present(in), size,
                                                  tag, CRYPTMPI_TAG_SIZE, aad, aad_size);
        wipe_what_is_left();
        if (done == 1) return CRYPTMPI_OK;
        ERR_clear_error();
        return CRYPTMPI_FORGED;
    });
}

const char* start() {
    // Its AES without instructions for it runs in constant time, too, and so it may be used anywhere.
    return nullptr;
}

}  // namespace

// BoringSSL has no releases: this number of its interface is all that it says.
CRYPTMPI_EXPORT_CIPHERS("boringssl", "API " CRYPTMPI_TEXT(BORINGSSL_API_VERSION),
                        1U << CRYPTMPI_AES_128_GCM | 1U << CRYPTMPI_AES_256_GCM);
