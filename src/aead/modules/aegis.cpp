// The AEGIS ciphers (draft-irtf-cfrg-aegis-aead) from libaegis, which is linked in: third_party/libaegis.
#include <aegis.h>
#include <cryptmpi/module.h>

#include <cstring>
#include <new>

#include "base/secret_memory.hpp"
#include "exported.hpp"
#include "one_piece.hpp"
#include "traces.hpp"

extern "C" {
#include <common/cpu.h>
}

namespace {

using namespace cryptmpi::modules;

// Its deepest frames have 1800 bytes (GCC 12).
void wipe_what_is_left() {
    wipe_traces<2560>();
}

// A message in one piece goes by `seal` and `open`, others by the functions that keep a state between the pieces. All
// that open leave zeros of a forgery.
struct Calls {
    size_t key_size;
    int (*seal)(uint8_t* out, uint8_t* tag, size_t tag_size, const uint8_t* in, size_t size, const uint8_t* aad,
                size_t aad_size, const uint8_t* nonce, const uint8_t* key);
    int (*open)(uint8_t* out, const uint8_t* in, size_t size, const uint8_t* tag, size_t tag_size, const uint8_t* aad,
                size_t aad_size, const uint8_t* nonce, const uint8_t* key);
    bool (*seal_pieces)(const uint8_t* key, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const iovec* in,
                        size_t in_count, uint8_t* out, uint8_t* tag);
    bool (*open_pieces)(const uint8_t* key, const uint8_t* nonce, const uint8_t* aad, size_t aad_size,
                        const uint8_t* in, const iovec* out, size_t out_count, const uint8_t* tag);
};

template <class State, auto kBegin, auto kUpdate, auto kEnd>
bool seal_pieces(const uint8_t* key, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const iovec* in,
                 size_t in_count, uint8_t* out, uint8_t* tag) {
    State state;
    kBegin(&state, aad, aad_size, nonce, key);
    bool good = true;
    for (size_t i = 0; i < in_count; ++i) {
        if (in[i].iov_len == 0) continue;
        good &= kUpdate(&state, out, static_cast<const uint8_t*>(in[i].iov_base), in[i].iov_len) == 0;
        out += in[i].iov_len;
    }
    good &= kEnd(&state, tag, CRYPTMPI_TAG_SIZE) == 0;
    wipe_what_is_left();
    explicit_bzero(&state, sizeof state);
    return good;
}

template <class State, auto kBegin, auto kUpdate, auto kEnd>
bool open_pieces(const uint8_t* key, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const uint8_t* in,
                 const iovec* out, size_t out_count, const uint8_t* tag) {
    State state;
    kBegin(&state, aad, aad_size, nonce, key);
    bool good = true;
    for (size_t i = 0; i < out_count; ++i) {
        if (out[i].iov_len == 0) continue;
        good &= kUpdate(&state, static_cast<uint8_t*>(out[i].iov_base), in, out[i].iov_len) == 0;
        in += out[i].iov_len;
    }
    good &= kEnd(&state, tag, CRYPTMPI_TAG_SIZE) == 0;  // in constant time
    wipe_what_is_left();
    explicit_bzero(&state, sizeof state);
    if (!good) zero(out, out_count);
    return good;
}

#define CALLS(cipher)                                                                       \
    {                                                                                       \
        cipher##_KEYBYTES, cipher##_encrypt_detached, cipher##_decrypt_detached,            \
            seal_pieces<cipher##_state, cipher##_state_init, cipher##_state_encrypt_update, \
                        cipher##_state_encrypt_final>,                                      \
            open_pieces<cipher##_state, cipher##_state_init, cipher##_state_decrypt_update, \
                        cipher##_state_decrypt_final>                                       \
    }
constexpr Calls kAegis128l = CALLS(aegis128l);
constexpr Calls kAegis128x2 = CALLS(aegis128x2);
constexpr Calls kAegis128x4 = CALLS(aegis128x4);
constexpr Calls kAegis256 = CALLS(aegis256);
constexpr Calls kAegis256x2 = CALLS(aegis256x2);
constexpr Calls kAegis256x4 = CALLS(aegis256x4);
#undef CALLS

const Calls* calls_of(int suite) {
    switch (suite) {
        case CRYPTMPI_AEGIS_128L:
            return &kAegis128l;
        case CRYPTMPI_AEGIS_128X2:
            return &kAegis128x2;
        case CRYPTMPI_AEGIS_128X4:
            return &kAegis128x4;
        case CRYPTMPI_AEGIS_256:
            return &kAegis256;
        case CRYPTMPI_AEGIS_256X2:
            return &kAegis256x2;
        case CRYPTMPI_AEGIS_256X4:
            return &kAegis256x4;
        default:
            return nullptr;
    }
}

// AEGIS has no key schedule. One cache line, and nobody else's.
static_assert(cryptmpi::kSecretAlignment % 64 == 0);
struct alignas(64) Context {
    uint8_t key[32];
    const Calls* calls;
};

void* create(int suite, const uint8_t* key) {
    const Calls* calls = calls_of(suite);
    if (calls == nullptr) return nullptr;
    void* const memory = cryptmpi::take_secret_memory(sizeof(Context));
    if (memory == nullptr) return nullptr;
    auto* context = new (memory) Context{};
    std::memcpy(context->key, key, calls->key_size);
    context->calls = calls;
    return context;
}

void destroy(void* context) {
    cryptmpi::give_back_secret_memory(context, sizeof(Context));
}

bool seal_whole(const Context& c, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const uint8_t* in,
                size_t size, uint8_t* out, uint8_t* tag) {
    const int failed = c.calls->seal(out, tag, CRYPTMPI_TAG_SIZE, in, size, aad, aad_size, nonce, c.key);
    wipe_what_is_left();
    return failed == 0;
}

bool open_whole(const Context& c, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const uint8_t* in,
                size_t size, uint8_t* out, const uint8_t* tag) {
    const int forged = c.calls->open(out, in, size, tag, CRYPTMPI_TAG_SIZE, aad, aad_size, nonce, c.key);
    wipe_what_is_left();
    return forged == 0;
}

// HOT PATH: a message of few bytes in several pieces is copied, which is quicker than to keep a state between them.
constexpr size_t kCopied = kSmall;

size_t total(const iovec* pieces, size_t count) {
    size_t size = 0;
    for (size_t i = 0; i < count; ++i) size += pieces[i].iov_len;
    return size;
}

bool seal_copied(const Context& c, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const iovec* in,
                 size_t in_count, size_t size, uint8_t* out, uint8_t* tag) {
    uint8_t copy[kCopied];
    gather(in, in_count, copy);
    const bool good = seal_whole(c, nonce, aad, aad_size, copy, size, out, tag);
    explicit_bzero(copy, size);
    return good;
}

bool open_copied(const Context& c, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const uint8_t* in,
                 size_t size, const iovec* out, size_t out_count, const uint8_t* tag) {
    uint8_t copy[kCopied];
    const bool good = open_whole(c, nonce, aad, aad_size, in, size, copy, tag);
    scatter(copy, out, out_count);  // zeros, if it was forged
    explicit_bzero(copy, size);
    return good;
}

int seal(void* opaque, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const iovec* in, size_t in_count,
         uint8_t* out, uint8_t tag[16]) {
    const Context& c = *static_cast<const Context*>(opaque);
    bool good;
    if (in_count <= 1) {
        const iovec whole = in_count == 1 ? in[0] : iovec{};
        good =
            seal_whole(c, nonce, aad, aad_size, static_cast<const uint8_t*>(whole.iov_base), whole.iov_len, out, tag);
    } else if (const size_t size = total(in, in_count); size <= kCopied) {
        good = seal_copied(c, nonce, aad, aad_size, in, in_count, size, out, tag);
    } else {
        good = c.calls->seal_pieces(c.key, nonce, aad, aad_size, in, in_count, out, tag);
    }
    return good ? CRYPTMPI_OK : CRYPTMPI_FAILED;
}

int open(void* opaque, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const uint8_t* in, size_t size,
         const iovec* out, size_t out_count, const uint8_t tag[16]) {
    const Context& c = *static_cast<const Context*>(opaque);
    bool good;
    if (out_count <= 1) {
        auto* const whole = out_count == 1 ? static_cast<uint8_t*>(out[0].iov_base) : nullptr;
        good = open_whole(c, nonce, aad, aad_size, in, size, whole, tag);
    } else if (size <= kCopied) {
        good = open_copied(c, nonce, aad, aad_size, in, size, out, out_count, tag);
    } else {
        good = c.calls->open_pieces(c.key, nonce, aad, aad_size, in, out, out_count, tag);
    }
    return good ? CRYPTMPI_OK : CRYPTMPI_FORGED;
}

const char* start() {
    if (aegis_init() != 0) return "libaegis cannot be started";
    // Without these the library falls back to AES in software, which is slow.
    const bool x86 = aegis_runtime_has_aesni() != 0 && aegis_runtime_has_avx() != 0;
    const bool arm = aegis_runtime_has_neon_aes() != 0;
    return x86 || arm ? nullptr : "this CPU lacks AES instructions (on x86 with AVX), which libaegis needs";
}

}  // namespace

CRYPTMPI_EXPORT_CIPHERS("aegis", LIBAEGIS_VERSION,
                        1U << CRYPTMPI_AEGIS_128L | 1U << CRYPTMPI_AEGIS_128X2 | 1U << CRYPTMPI_AEGIS_128X4 |
                            1U << CRYPTMPI_AEGIS_256 | 1U << CRYPTMPI_AEGIS_256X2 | 1U << CRYPTMPI_AEGIS_256X4);
