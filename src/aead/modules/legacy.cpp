// 3DES in CBC with HMAC-SHA-256, encrypt-then-MAC, on Mbed TLS' (once PolarSSL's) primitives: for those who must have
// 3DES. docs/protocol.md describes it, and says why it holds.
//
//   PRF(x)   = HMAC-SHA-256(key of 32 bytes, x)
//   section  = 4096 bytes of the message, the last one what is left; each has a 3DES key and an IV of its own:
//              PRF("key" | nonce (12) | number of the section, from 0 (8 bytes big endian)) = key (24) | IV (8)
//   text     = each section in CBC with its partial block taken from the block before (ciphertext stealing, CS1 of the
//              addendum to SP 800-38A); a section of less than a block is added to the first bytes of 3DES(IV)
//   tag      = the first 16 bytes of PRF("tag" | nonce (12) | size of the associated data (8 bytes big endian) |
//              associated data | text)
#include <cryptmpi/module.h>
#include <mbedtls/des.h>
#include <mbedtls/sha256.h>
#include <mbedtls/version.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/secret_memory.hpp"
#include "exported.hpp"
#include "one_piece.hpp"
#include "traces.hpp"

namespace {

using namespace cryptmpi::modules;

constexpr size_t kBlock = 8;
constexpr size_t kSection = 4096;
constexpr size_t kNonce = 12;
constexpr size_t kKey = 24;
constexpr size_t kHash = 32;
constexpr size_t kHashBlock = 64;
static_assert(kKey + kBlock == kHash, "a section's key and IV are one output");

// What a call works with. Here, and not on the stack, so that a core dump in the midst of it shows nothing either.
struct Scratch {
    mbedtls_sha256_context hash;
    mbedtls_des3_context des;
    uint8_t output[kHash];  // of the PRF
    uint8_t iv[kBlock];
    uint8_t last[2 * kBlock];
};

struct Context {
    mbedtls_sha256_context inner;  // HMAC's two hashes, after their key
    mbedtls_sha256_context outer;
    Scratch scratch;
};

void wipe_what_is_left() {
    wipe_traces<2560>();
}

bool update(mbedtls_sha256_context& hash, const void* at, size_t size) {
    return size == 0 || mbedtls_sha256_update_ret(&hash, static_cast<const uint8_t*>(at), size) == 0;
}

bool start_hmac(Context& c, const uint8_t key[kHash]) {
    const auto begin = [&](mbedtls_sha256_context& hash, uint8_t pad) {
        uint8_t block[kHashBlock];
        for (size_t i = 0; i < kHashBlock; ++i) block[i] = static_cast<uint8_t>((i < kHash ? key[i] : 0) ^ pad);
        mbedtls_sha256_init(&hash);
        const bool good = mbedtls_sha256_starts_ret(&hash, 0) == 0 && update(hash, block, sizeof block);
        explicit_bzero(block, sizeof block);
        return good;
    };
    return begin(c.inner, 0x36) && begin(c.outer, 0x5c);
}

bool begin_prf(Context& c, const char (&label)[4], const uint8_t* nonce, uint64_t number) {
    uint8_t big_endian[8];
    for (unsigned i = 0; i < 8; ++i) big_endian[i] = static_cast<uint8_t>(number >> (56 - 8 * i));
    mbedtls_sha256_clone(&c.scratch.hash, &c.inner);
    return update(c.scratch.hash, label, 3) && update(c.scratch.hash, nonce, kNonce) &&
           update(c.scratch.hash, big_endian, sizeof big_endian);
}

bool end_prf(Context& c) {
    if (mbedtls_sha256_finish_ret(&c.scratch.hash, c.scratch.output) != 0) return false;
    mbedtls_sha256_clone(&c.scratch.hash, &c.outer);
    return update(c.scratch.hash, c.scratch.output, kHash) &&
           mbedtls_sha256_finish_ret(&c.scratch.hash, c.scratch.output) == 0;
}

// protocol: L1
/// To c.scratch.output.
bool tag_of(Context& c, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const uint8_t* text, size_t size) {
    return begin_prf(c, "tag", nonce, aad_size) && update(c.scratch.hash, aad, aad_size) &&
           update(c.scratch.hash, text, size) && end_prf(c);
}

bool begin_section(Context& c, const uint8_t* nonce, uint64_t number, bool encrypt) {
    if (!begin_prf(c, "key", nonce, number) || !end_prf(c)) return false;
    std::memcpy(c.scratch.iv, c.scratch.output + kKey, kBlock);
    return (encrypt ? mbedtls_des3_set3key_enc(&c.scratch.des, c.scratch.output)
                    : mbedtls_des3_set3key_dec(&c.scratch.des, c.scratch.output)) == 0;
}

bool cbc(Scratch& s, int mode, size_t size, const uint8_t* in, uint8_t* out) {
    return size == 0 || mbedtls_des3_crypt_cbc(&s.des, mode, size, s.iv, in, out) == 0;
}

/// Less than a block, either way. The key is the one for encrypting.
bool add_stream(Scratch& s, size_t size, const uint8_t* in, uint8_t* out) {
    if (mbedtls_des3_crypt_ecb(&s.des, s.iv, s.last) != 0) return false;
    for (size_t i = 0; i < size; ++i) out[i] = in[i] ^ s.last[i];
    return true;
}

// protocol: L2
// At least a block each. `in` and `out` may be the same.

bool encrypt_section(Scratch& s, const uint8_t* in, size_t size, uint8_t* out) {
    const size_t partial = size % kBlock;
    if (partial == 0) return cbc(s, MBEDTLS_DES_ENCRYPT, size, in, out);
    // The last whole block and the partial one, with zeros behind; of the first one's ciphertext only the beginning
    // goes out, because the second one's has the rest of it.
    const size_t before = size - partial - kBlock;
    if (!cbc(s, MBEDTLS_DES_ENCRYPT, before, in, out)) return false;
    std::memset(s.last, 0, sizeof s.last);
    std::memcpy(s.last, in + before, kBlock + partial);
    if (!cbc(s, MBEDTLS_DES_ENCRYPT, sizeof s.last, s.last, s.last)) return false;
    std::memcpy(out + before, s.last, partial);
    std::memcpy(out + before + partial, s.last + kBlock, kBlock);
    return true;
}

bool decrypt_section(Scratch& s, const uint8_t* in, size_t size, uint8_t* out) {
    const size_t partial = size % kBlock;
    if (partial == 0) return cbc(s, MBEDTLS_DES_DECRYPT, size, in, out);
    const size_t before = size - partial - kBlock;
    if (!cbc(s, MBEDTLS_DES_DECRYPT, before, in, out)) return false;
    // What the last block holds, added to the zeros behind the partial one, is the rest of the block before.
    uint8_t* const second = s.last + kBlock;
    if (mbedtls_des3_crypt_ecb(&s.des, in + before + partial, second) != 0) return false;
    std::memcpy(s.last, in + before, partial);
    std::memcpy(s.last + partial, second + partial, kBlock - partial);
    for (size_t i = 0; i < partial; ++i) second[i] ^= s.last[i];
    if (!cbc(s, MBEDTLS_DES_DECRYPT, kBlock, s.last, s.last)) return false;
    std::memcpy(out + before, s.last, kBlock + partial);
    return true;
}

bool crypt(Context& c, const uint8_t* nonce, const uint8_t* in, size_t size, uint8_t* out, bool encrypt) {
    for (size_t at = 0; at < size; at += kSection) {
        const size_t part = std::min(size - at, kSection);
        const bool stream = part < kBlock;
        if (!begin_section(c, nonce, at / kSection, encrypt || stream)) return false;
        const bool done = stream    ? add_stream(c.scratch, part, in + at, out + at)
                          : encrypt ? encrypt_section(c.scratch, in + at, part, out + at)
                                    : decrypt_section(c.scratch, in + at, part, out + at);
        if (!done) return false;
    }
    return true;
}

void forget_call(Context& c) {
    explicit_bzero(&c.scratch, sizeof c.scratch);
    wipe_what_is_left();
}

void destroy(void* context) {
    cryptmpi::give_back_secret_memory(context, sizeof(Context));
}

void* create(int suite, const uint8_t* key) {
    if (suite != CRYPTMPI_3DES_CBC_HMAC_SHA_256) return nullptr;
    void* const memory = cryptmpi::take_secret_memory(sizeof(Context));
    if (memory == nullptr) return nullptr;
    auto* context = new (memory) Context{};
    const bool made = start_hmac(*context, key);
    wipe_what_is_left();
    if (made) return context;
    destroy(context);
    return nullptr;
}

int seal(void* opaque, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const iovec* in, size_t in_count,
         uint8_t* out, uint8_t tag[16]) {
    Context& c = *static_cast<Context*>(opaque);
    return seal_in_one(in, in_count, out, [&](const uint8_t* plain, size_t size, uint8_t* sealed) {
        const bool good = crypt(c, nonce, plain, size, sealed, true) && tag_of(c, nonce, aad, aad_size, sealed, size);
        if (good) std::memcpy(tag, c.scratch.output, CRYPTMPI_TAG_SIZE);
        forget_call(c);
        return good;
    });
}

int open(void* opaque, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const uint8_t* in, size_t size,
         const iovec* out, size_t out_count, const uint8_t tag[16]) {
    Context& c = *static_cast<Context*>(opaque);
    return open_in_one(size, out, out_count, [&](uint8_t* plain) {
        int status = CRYPTMPI_FAILED;
        if (tag_of(c, nonce, aad, aad_size, in, size)) {
            // protocol: L3
            // Nothing is decrypted that is not authentic.
            const bool authentic = equal_in_constant_time(c.scratch.output, tag);
            status = !authentic                                ? CRYPTMPI_FORGED
                     : crypt(c, nonce, in, size, plain, false) ? CRYPTMPI_OK
                                                               : CRYPTMPI_FAILED;
        }
        forget_call(c);
        return status;
    });
}

char version[32] = "Mbed TLS ";

const char* start() {
    mbedtls_version_get_string(version + std::strlen(version));
    return nullptr;
}

}  // namespace

CRYPTMPI_EXPORT_CIPHERS("legacy", version, 1U << CRYPTMPI_3DES_CBC_HMAC_SHA_256);
