// A module for the registry's tests: encrypts nothing, and is wrong in the one way that its ODD_ definitions say.
#include <cryptmpi/module.h>

#include <cstring>
#include <ctime>

#ifndef ODD_ABI
#define ODD_ABI CRYPTMPI_MODULE_ABI
#endif
#ifndef ODD_SYMBOL
#define ODD_SYMBOL cryptmpi_module
#endif
#ifndef ODD_OPEN
#define ODD_OPEN open
#endif
#ifndef ODD_OWN_NAME
#define ODD_OWN_NAME ODD_NAME
#endif
#ifndef ODD_SUITES
#define ODD_SUITES (1U << CRYPTMPI_AES_256_GCM)
#endif
#ifndef ODD_REFUSAL
#define ODD_REFUSAL nullptr
#endif
#ifndef ODD_KEX
#define ODD_KEX nullptr
#endif
#ifndef ODD_DELAY_US
#define ODD_DELAY_US 0
#endif

#ifdef ODD_NEEDS_LIBRARY
extern "C" int odd_library_answer();
#endif

namespace {

int context;

void* create(int, const uint8_t*) {
    return &context;
}

void destroy(void*) {}

void wait() {
    timespec start{}, now{};
    clock_gettime(CLOCK_MONOTONIC, &start);
    do {
        clock_gettime(CLOCK_MONOTONIC, &now);
    } while ((now.tv_sec - start.tv_sec) * 1000000000L + (now.tv_nsec - start.tv_nsec) < ODD_DELAY_US * 1000L);
}

int seal(void*, const uint8_t*, const uint8_t*, size_t, const iovec*, size_t, uint8_t*, uint8_t[16]) {
    wait();
    return CRYPTMPI_OK;
}

[[maybe_unused]] int open(void*, const uint8_t*, const uint8_t*, size_t, const uint8_t*, size_t, const iovec*, size_t,
                          const uint8_t[16]) {
    wait();
    return CRYPTMPI_OK;
}

// A second start of a loaded module is an error here.
const char* start() {
    static int starts = 0;
#ifdef ODD_NEEDS_LIBRARY
    if (odd_library_answer() != 42) return "wrong answer";
#endif
    return ++starts == 1 ? ODD_REFUSAL : "started twice";
}

[[maybe_unused]] constexpr cryptmpi_kex kKex = {
    .random = [](uint8_t*, size_t) -> int { return CRYPTMPI_FAILED; },
    .x25519_public = [](uint8_t*, const uint8_t*) -> int { return CRYPTMPI_FAILED; },
    .x25519_shared = [](uint8_t*, const uint8_t*, const uint8_t*) -> int { return CRYPTMPI_FAILED; },
    .ed25519_public = [](uint8_t*, const uint8_t*) -> int { return CRYPTMPI_FAILED; },
    .ed25519_sign = [](uint8_t*, const uint8_t*, const uint8_t*, size_t) -> int { return CRYPTMPI_FAILED; },
    .ed25519_verify = [](const uint8_t*, const uint8_t*, const uint8_t*, size_t) -> int { return CRYPTMPI_FAILED; },
    .sha256 = [](uint8_t*, const iovec*, size_t) -> int { return CRYPTMPI_FAILED; },
    .hmac_sha256 = [](uint8_t*, const uint8_t*, size_t, const iovec*, size_t) -> int { return CRYPTMPI_FAILED; },
};

constexpr cryptmpi_aead kAead = {
    .suites = ODD_SUITES, .create = create, .destroy = destroy, .seal = seal, .open = ODD_OPEN};

}  // namespace

extern "C" {
extern __attribute__((visibility("default"))) const struct cryptmpi_module ODD_SYMBOL;
const struct cryptmpi_module ODD_SYMBOL = {
    .abi = ODD_ABI, .name = ODD_OWN_NAME, .version = "0", .aead = &kAead, .kex = ODD_KEX, .start = start};
}
