// AES-256-GCM from libsodium, where the CPU has AES instructions: it has no other, and no AES-128-GCM at all.
#include <cryptmpi/module.h>
#include <sodium.h>

#include <new>

#include "base/secret_memory.hpp"
#include "exported.hpp"
#include "pieces.hpp"
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

const char* start() {
    if (sodium_init() < 0) return "libsodium cannot be started";
    if (crypto_aead_aes256gcm_is_available() == 0)
        return "this CPU lacks AES-NI or PCLMULQDQ, without which libsodium has no AES-GCM";
    return nullptr;
}

}  // namespace

CRYPTMPI_EXPORT_CIPHERS("libsodium", SODIUM_VERSION_STRING, 1U << CRYPTMPI_AES_256_GCM);
