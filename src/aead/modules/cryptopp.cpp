// AES-GCM from Crypto++.
//
// Its ciphers put their key schedules on the program's heap, with allocators that cannot be given others: a core dump
// shows them (docs/threat-model.md). They are wiped with the context.
#include <cryptmpi/module.h>
#include <cryptopp/aes.h>
#include <cryptopp/cpu.h>
#include <cryptopp/gcm.h>

#include <memory>

#include "exported.hpp"
#include "one_piece.hpp"
#include "traces.hpp"

namespace {

using namespace cryptmpi::modules;
using Gcm = CryptoPP::GCM<CryptoPP::AES>;

void wipe_what_is_left() {
    wipe_traces<4096>();
}

// Its classes work in one direction each. Whatever they throw ends here, as a failure: the interface is C's.
struct Context {
    Gcm::Encryption encryption;
    Gcm::Decryption decryption;
};

void* create(int suite, const uint8_t* key) {
    const size_t key_size = suite == CRYPTMPI_AES_128_GCM ? 16 : suite == CRYPTMPI_AES_256_GCM ? 32 : 0;
    if (key_size == 0) return nullptr;
    constexpr uint8_t kFirst[CRYPTMPI_GCM_NONCE_SIZE] = {};  // it wants a nonce with the key; no message has this one
    try {
        auto context = std::make_unique<Context>();
        context->encryption.SetKeyWithIV(key, key_size, kFirst, sizeof kFirst);
        context->decryption.SetKeyWithIV(key, key_size, kFirst, sizeof kFirst);
        wipe_what_is_left();
        return context.release();
    } catch (...) {
        return nullptr;
    }
}

void destroy(void* context) {
    delete static_cast<Context*>(context);  // wipes what it frees
}

void begin(CryptoPP::GCM_Base& cipher, const uint8_t* nonce, const uint8_t* aad, size_t aad_size) {
    cipher.Resynchronize(nonce, CRYPTMPI_GCM_NONCE_SIZE);
    if (aad_size > 0) cipher.Update(aad, aad_size);
}

int seal(void* opaque, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const iovec* in, size_t in_count,
         uint8_t* out, uint8_t tag[16]) {
    auto& cipher = static_cast<Context*>(opaque)->encryption;
    int status = CRYPTMPI_FAILED;
    try {
        begin(cipher, nonce, aad, aad_size);
        for (size_t i = 0; i < in_count; ++i) {
            if (in[i].iov_len == 0) continue;
            cipher.ProcessData(out, static_cast<const uint8_t*>(in[i].iov_base), in[i].iov_len);
            out += in[i].iov_len;
        }
        cipher.TruncatedFinal(tag, CRYPTMPI_TAG_SIZE);
        status = CRYPTMPI_OK;
    } catch (...) {
    }
    wipe_what_is_left();
    return status;
}

int open(void* opaque, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const uint8_t* in, size_t,
         const iovec* out, size_t out_count, const uint8_t tag[16]) {
    auto& cipher = static_cast<Context*>(opaque)->decryption;
    int status = CRYPTMPI_FAILED;
    try {
        begin(cipher, nonce, aad, aad_size);
        for (size_t i = 0; i < out_count; ++i) {
            if (out[i].iov_len == 0) continue;
            cipher.ProcessData(static_cast<uint8_t*>(out[i].iov_base), in, out[i].iov_len);
            in += out[i].iov_len;
        }
        status = cipher.TruncatedVerify(tag, CRYPTMPI_TAG_SIZE) ? CRYPTMPI_OK : CRYPTMPI_FORGED;  // in constant time
    } catch (...) {
    }
    wipe_what_is_left();
    if (status != CRYPTMPI_OK) zero(out, out_count);
    return status;
}

const char* start() {
#if defined(__x86_64__)
    // Without these it falls back to tables, which are slow and leak the key through the cache.
    if (!CryptoPP::HasAESNI() || !CryptoPP::HasCLMUL())
        return "this CPU lacks AES-NI or PCLMULQDQ, without which Crypto++ is no good";
#endif
    return nullptr;
}

}  // namespace

CRYPTMPI_EXPORT_CIPHERS(
    "cryptopp", CRYPTMPI_TEXT(CRYPTOPP_MAJOR) "." CRYPTMPI_TEXT(CRYPTOPP_MINOR) "." CRYPTMPI_TEXT(CRYPTOPP_REVISION),
    1U << CRYPTMPI_AES_128_GCM | 1U << CRYPTMPI_AES_256_GCM);
