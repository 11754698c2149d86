/* A crypto module that fails: the module openssl beside it, of which the n-th sealing or opening of bytes that are no
 * key agreement's fails on one rank. Only what the MPI layer asks for counts: the channel library, which seals the
 * sockets under MPI, has tests of its own, and a rank that writes to a connection that ended so is ended by SIGPIPE.
 *
 *     FAULT_RANK=R FAULT_CALL=seal|open FAULT_AT=N */
#define _GNU_SOURCE
#include <cryptmpi/module.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct cryptmpi_module* real;
static int counts[2];

static int is_mpi_layer(const void* caller) {
    Dl_info info;
    return dladdr(caller, &info) != 0 && info.dli_fname != NULL && strstr(info.dli_fname, "cryptmpi-mpi-") != NULL;
}

static int fails(int opens, const void* caller) {
    if (!is_mpi_layer(caller)) return 0;
    const char *call = getenv("FAULT_CALL"), *at = getenv("FAULT_AT"), *of = getenv("FAULT_RANK");
    const char* mine = getenv("PMI_RANK") ? getenv("PMI_RANK") : getenv("OMPI_COMM_WORLD_RANK");
    const int number = __sync_add_and_fetch(&counts[opens], 1);
    if (!call || !at || !of || !mine || strcmp(mine, of) != 0) return 0;
    if (strcmp(call, opens ? "open" : "seal") != 0 || number != atoi(at)) return 0;
    fprintf(stderr, "faults: rank %s: %s fails\n", mine, call);
    return 1;
}

static int seal(void* context, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const struct iovec* in,
                size_t in_count, uint8_t* out, uint8_t tag[16]) {
    if (fails(0, __builtin_return_address(0))) return CRYPTMPI_FAILED;
    return real->aead->seal(context, nonce, aad, aad_size, in, in_count, out, tag);
}

static int open(void* context, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const uint8_t* in,
                size_t size, const struct iovec* out, size_t out_count, const uint8_t tag[16]) {
    if (fails(1, __builtin_return_address(0))) {
        for (size_t i = 0; i < out_count; i++) memset(out[i].iov_base, 0, out[i].iov_len);
        return CRYPTMPI_FAILED;
    }
    return real->aead->open(context, nonce, aad, aad_size, in, size, out, out_count, tag);
}

static void* create(int suite, const uint8_t* key) {
    return real->aead->create(suite, key);
}

static void destroy(void* context) {
    real->aead->destroy(context);
}

static const struct cryptmpi_aead aead = {1U << CRYPTMPI_AES_256_GCM, create, destroy, seal, open};

/* By no variable: the commands load it, too. */
static const char* start(void) {
    Dl_info own;
    char file[PATH_MAX];
    if (dladdr(&real, &own) == 0 || own.dli_fname == NULL) return "the loader does not know where this module is";
    const char* const slash = strrchr(own.dli_fname, '/');
    const int folder = slash ? (int)(slash - own.dli_fname) + 1 : 0;
    snprintf(file, sizeof file, "%.*scryptmpi-module-openssl.so", folder, own.dli_fname);
    void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    real = library ? dlsym(library, "cryptmpi_module") : NULL;
    if (!real) return "there is no module openssl beside it";
    if (real->start && real->start()) return "the module openssl does not start";
    return NULL;
}

static void tell(void) __attribute__((destructor));
static void tell(void) {
    const char* mine = getenv("PMI_RANK") ? getenv("PMI_RANK") : getenv("OMPI_COMM_WORLD_RANK");
    if (!mine) return;
    fprintf(stderr, "faults: rank %s made %d of seal\nfaults: rank %s made %d of open\n", mine, counts[0], mine,
            counts[1]);
}

const struct cryptmpi_module cryptmpi_module = {CRYPTMPI_MODULE_ABI, "faulty", "1", &aead, NULL, start};
