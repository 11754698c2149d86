// ML-KEM-768 from mlkem-native, whose C code is proven free of undefined behaviour (third_party/mlkem-native). It asks
// for SHA-3, which OpenSSL has.
#include <cryptmpi/module.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/provider.h>
#include <strings.h>

#include <cstring>

#include "mlkem_native/fips202.h"

#define MLK_CONFIG_FILE "mlkem_native/config.h"
#include <mlkem_native.h>

namespace {

struct Library {
    OSSL_LIB_CTX* context;
    EVP_MD* shake128;
    EVP_MD* shake256;
    EVP_MD* sha3_256;
    EVP_MD* sha3_512;
};
Library library;

/// mlkem-native's SHA-3 cannot fail, and OpenSSL's can: the one that called looks here afterwards.
thread_local bool hash_failed;

void hash(EVP_MD* algorithm, bool of_any_length, uint8_t* output, size_t output_size, const uint8_t* input,
          size_t size) {
    EVP_MD_CTX* const context = EVP_MD_CTX_new();
    bool good = context != nullptr && EVP_DigestInit_ex2(context, algorithm, nullptr) == 1 &&
                EVP_DigestUpdate(context, input, size) == 1;
    good = good && (of_any_length ? EVP_DigestFinalXOF(context, output, output_size)
                                  : EVP_DigestFinal_ex(context, output, nullptr)) == 1;
    EVP_MD_CTX_free(context);  // wipes the state
    if (good) return;
    hash_failed = true;
    std::memset(output, 0, output_size);
}

}  // namespace

extern "C" {

void mlk_shake128_init(mlk_shake128ctx* state) {
    *state = {};
}

void mlk_shake128_absorb_once(mlk_shake128ctx* state, const uint8_t* input, size_t size) {
    if (size > sizeof state->input) {
        hash_failed = true;
        return;
    }
    std::memcpy(state->input, input, size);
    state->input_size = size;
}

void mlk_shake128_squeezeblocks(uint8_t* output, size_t blocks, mlk_shake128ctx* state) {
    const size_t before = state->squeezed * SHAKE128_RATE;
    const size_t more = blocks * SHAKE128_RATE;
    state->squeezed += blocks;
    if (before == 0) {
        hash(library.shake128, true, output, more, state->input, state->input_size);
        return;
    }
    // One time in a hundred; what comes out is public.
    auto* const all = static_cast<uint8_t*>(OPENSSL_malloc(before + more));
    if (all == nullptr) {
        hash_failed = true;
        std::memset(output, 0, more);
        return;
    }
    hash(library.shake128, true, all, before + more, state->input, state->input_size);
    std::memcpy(output, all + before, more);
    OPENSSL_free(all);
}

void mlk_shake128_release(mlk_shake128ctx* state) {
    *state = {};
}

void mlk_shake256(uint8_t* output, size_t output_size, const uint8_t* input, size_t size) {
    hash(library.shake256, true, output, output_size, input, size);
}

void mlk_sha3_256(uint8_t* output, const uint8_t* input, size_t size) {
    hash(library.sha3_256, false, output, 32, input, size);
}

void mlk_sha3_512(uint8_t* output, const uint8_t* input, size_t size) {
    hash(library.sha3_512, false, output, 64, input, size);
}
}

namespace {

static_assert(CRYPTMPI_KEM_PUBLIC_SIZE == MLKEM768_PUBLICKEYBYTES);
static_assert(CRYPTMPI_KEM_CIPHERTEXT_SIZE == MLKEM768_CIPHERTEXTBYTES);
static_assert(CRYPTMPI_KEM_SEED_SIZE == 2 * MLKEM_SYMBYTES);
static_assert(CRYPTMPI_KEM_COINS_SIZE == MLKEM_SYMBYTES);
static_assert(CRYPTMPI_KEM_SHARED_SIZE == MLKEM_BYTES);

/// The private key as the library has it. It is made of its seed when it is needed, and wiped.
struct Expanded {
    uint8_t public_key[MLKEM768_PUBLICKEYBYTES];
    uint8_t private_key[MLKEM768_SECRETKEYBYTES];

    Expanded() = default;
    Expanded(const Expanded&) = delete;
    Expanded& operator=(const Expanded&) = delete;
    ~Expanded() { explicit_bzero(this, sizeof *this); }

    bool make(const uint8_t seed[64]) { return cryptmpi_mlkem_keypair_derand(public_key, private_key, seed) == 0; }
};

int checked(bool good) {
    return good && !hash_failed ? CRYPTMPI_OK : CRYPTMPI_FAILED;
}

int public_key(uint8_t key[1184], const uint8_t seed[64]) {
    hash_failed = false;
    Expanded expanded;
    const bool made = expanded.make(seed);
    std::memcpy(key, expanded.public_key, sizeof expanded.public_key);
    return checked(made);
}

int encapsulate(uint8_t ciphertext[1088], uint8_t shared[32], const uint8_t key[1184], const uint8_t coins[32]) {
    hash_failed = false;
    const int made = cryptmpi_mlkem_enc_derand(ciphertext, shared, key, coins);
    if (made == MLK_ERR_INVALID_PK && !hash_failed) return CRYPTMPI_FORGED;
    return checked(made == 0);
}

int decapsulate(uint8_t shared[32], const uint8_t seed[64], const uint8_t ciphertext[1088]) {
    hash_failed = false;
    Expanded expanded;
    return checked(expanded.make(seed) && cryptmpi_mlkem_dec(shared, ciphertext, expanded.private_key) == 0);
}

const char* kem_start() {
    return nullptr;  // as the module: without SHA-3 there is none
}

void* create(int, const uint8_t*) {
    return nullptr;
}

void destroy(void*) {}

int seal(void*, const uint8_t*, const uint8_t*, size_t, const iovec*, size_t, uint8_t*, uint8_t[16]) {
    return CRYPTMPI_FAILED;
}

int open(void*, const uint8_t*, const uint8_t*, size_t, const uint8_t*, size_t, const iovec* out, size_t count,
         const uint8_t[16]) {
    for (size_t i = 0; i < count; ++i) std::memset(out[i].iov_base, 0, out[i].iov_len);
    return CRYPTMPI_FAILED;
}

const char* start() {
    // As the module openssl: connections are closed after exit handlers have run.
    if (OPENSSL_init_crypto(OPENSSL_INIT_NO_ATEXIT, nullptr) != 1)
        return "OpenSSL is not there any more: the program, which uses it too, has torn it down at its exit";
    library.context = OSSL_LIB_CTX_new();
    if (library.context == nullptr || OSSL_PROVIDER_load(library.context, "default") == nullptr)
        return "OpenSSL cannot load its default provider";
    library.shake128 = EVP_MD_fetch(library.context, "SHAKE128", nullptr);
    library.shake256 = EVP_MD_fetch(library.context, "SHAKE256", nullptr);
    library.sha3_256 = EVP_MD_fetch(library.context, "SHA3-256", nullptr);
    library.sha3_512 = EVP_MD_fetch(library.context, "SHA3-512", nullptr);
    const bool all = library.shake128 != nullptr && library.shake256 != nullptr && library.sha3_256 != nullptr &&
                     library.sha3_512 != nullptr;
    return all ? nullptr : "this OpenSSL lacks SHA-3";
}

/// No suite: the interface wants the table all the same.
constexpr cryptmpi_aead kAead = {
    .suites = 0,
    .create = create,
    .destroy = destroy,
    .seal = seal,
    .open = open,
};

}  // namespace

extern "C" {
extern __attribute__((visibility("default"))) const struct cryptmpi_module cryptmpi_module;
const struct cryptmpi_module cryptmpi_module = {
    .abi = CRYPTMPI_MODULE_ABI,
    .name = "mlkem-native",
    .version = MLKEM_NATIVE_VERSION,
    .aead = &kAead,
    .kex = nullptr,
    .start = start,
};
extern __attribute__((visibility("default"))) const struct cryptmpi_kem cryptmpi_kem;
const struct cryptmpi_kem cryptmpi_kem = {
    .start = kem_start,
    .public_key = public_key,
    .encapsulate = encapsulate,
    .decapsulate = decapsulate,
};
}
