// AES-GCM from Intel's Multi-Buffer Crypto for IPsec library, by its direct (single-buffer) calls.
#include <cryptmpi/module.h>
#include <intel-ipsec-mb.h>

#include <cstdio>
#include <cstring>
#include <new>

#include "base/secret_memory.hpp"
#include "exported.hpp"
#include "one_piece.hpp"

namespace {

using namespace cryptmpi::modules;

// The calls for one key size, as the library chose them for this CPU.
struct Calls {
    aes_gcm_pre_t expand_key;
    aes_gcm_enc_dec_t encrypt;
    aes_gcm_enc_dec_t decrypt;
    aes_gcm_init_t begin;
    aes_gcm_enc_dec_update_t encrypt_piece;
    aes_gcm_enc_dec_update_t decrypt_piece;
    aes_gcm_enc_dec_finalize_t encrypt_end;
    aes_gcm_enc_dec_finalize_t decrypt_end;
};
Calls aes_128;
Calls aes_256;

// The library loads its key data with aligned instructions of up to 64 bytes.
static_assert(cryptmpi::kSecretAlignment % 64 == 0);
struct Context {
    alignas(64) gcm_key_data key;
    alignas(64) gcm_context_data stream;
    const Calls* calls;
};

void* create(int suite, const uint8_t* key) {
    const Calls* calls = suite == CRYPTMPI_AES_128_GCM ? &aes_128 : suite == CRYPTMPI_AES_256_GCM ? &aes_256 : nullptr;
    if (calls == nullptr) return nullptr;
    void* const memory = cryptmpi::take_secret_memory(sizeof(Context));
    if (memory == nullptr) return nullptr;
    auto* context = new (memory) Context{};
    context->calls = calls;
    calls->expand_key(key, &context->key);
    return context;
}

void destroy(void* context) {
    cryptmpi::give_back_secret_memory(context, sizeof(Context));
}

int seal(void* opaque, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const iovec* in, size_t in_count,
         uint8_t* out, uint8_t tag[16]) {
    auto* c = static_cast<Context*>(opaque);
    aad = present(aad);  // the library refuses null pointers even where there are no bytes
    out = present(out);
    if (in_count <= 1) {
        const iovec whole = in_count == 1 ? in[0] : iovec{};
        c->calls->encrypt(&c->key, &c->stream, out, present(static_cast<const void*>(whole.iov_base)), whole.iov_len,
                          nonce, aad, aad_size, tag, CRYPTMPI_TAG_SIZE);
        return CRYPTMPI_OK;
    }
    c->calls->begin(&c->key, &c->stream, nonce, aad, aad_size);
    for (size_t i = 0; i < in_count; ++i) {
        if (in[i].iov_len == 0) continue;
        c->calls->encrypt_piece(&c->key, &c->stream, out, static_cast<const uint8_t*>(in[i].iov_base), in[i].iov_len);
        out += in[i].iov_len;
    }
    c->calls->encrypt_end(&c->key, &c->stream, tag, CRYPTMPI_TAG_SIZE);
    return CRYPTMPI_OK;
}

int open(void* opaque, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const uint8_t* in, size_t size,
         const iovec* out, size_t out_count, const uint8_t tag[16]) {
    auto* c = static_cast<Context*>(opaque);
    uint8_t computed[CRYPTMPI_TAG_SIZE] = {};
    aad = present(aad);
    in = present(in);
    if (out_count <= 1) {
        c->calls->decrypt(&c->key, &c->stream, present(out_count == 1 ? out[0].iov_base : nullptr), in, size, nonce,
                          aad, aad_size, computed, sizeof computed);
    } else {
        c->calls->begin(&c->key, &c->stream, nonce, aad, aad_size);
        for (size_t i = 0; i < out_count; ++i) {
            if (out[i].iov_len == 0) continue;
            c->calls->decrypt_piece(&c->key, &c->stream, static_cast<uint8_t*>(out[i].iov_base), in, out[i].iov_len);
            in += out[i].iov_len;
        }
        c->calls->decrypt_end(&c->key, &c->stream, computed, sizeof computed);
    }
    const bool authentic = equal_in_constant_time(computed, tag);
    if (authentic) return CRYPTMPI_OK;
    explicit_bzero(computed, sizeof computed);  // the right tag of a forgery is worth something to its forger
    zero(out, out_count);
    return CRYPTMPI_FORGED;
}

char version[64];

const char* start() {
    // The manager's job queues are not used, only its table of calls, so that threads share it freely.
    IMB_MGR* manager = alloc_mb_mgr(0);
    if (manager == nullptr) return "the ipsec-mb library cannot allocate its manager";
    init_mb_mgr_auto(manager, nullptr);
    const uint64_t features = manager->features;
    aes_128 = {manager->gcm128_pre,          manager->gcm128_enc,         manager->gcm128_dec,
               manager->gcm128_init,         manager->gcm128_enc_update,  manager->gcm128_dec_update,
               manager->gcm128_enc_finalize, manager->gcm128_dec_finalize};
    aes_256 = {manager->gcm256_pre,          manager->gcm256_enc,         manager->gcm256_dec,
               manager->gcm256_init,         manager->gcm256_enc_update,  manager->gcm256_dec_update,
               manager->gcm256_enc_finalize, manager->gcm256_dec_finalize};
    free_mb_mgr(manager);
    // Without these the library falls back to tables, which are slow and leak the key through the cache.
    if ((features & IMB_FEATURE_AESNI) == 0 || (features & IMB_FEATURE_PCLMULQDQ) == 0)
        return "this CPU lacks AES-NI or PCLMULQDQ, which ipsec-mb needs";
    if ((features & IMB_FEATURE_SELF_TEST) != 0 && (features & IMB_FEATURE_SELF_TEST_PASS) == 0)
        return "the ipsec-mb library fails its own self test";
    std::snprintf(version, sizeof version, "%s", imb_get_version_str());
    return nullptr;
}

}  // namespace

CRYPTMPI_EXPORT_CIPHERS("ipsec-mb", version, 1U << CRYPTMPI_AES_128_GCM | 1U << CRYPTMPI_AES_256_GCM);
