/*
 * An example module: AES-256-GCM from libgcrypt. Slower than the modules that come with CryptMPI; it shows each thing
 * that a module has to do, and nothing else.
 */
#include <cryptmpi/module.h>
#include <gcrypt.h>
#include <string.h>

/* One key. libgcrypt's handle holds the key schedule, and wipes it when it is closed. */
static void* create(int suite, const uint8_t* key) {
    gcry_cipher_hd_t handle;
    if (suite != CRYPTMPI_AES_256_GCM) return NULL;
    if (gcry_cipher_open(&handle, GCRY_CIPHER_AES256, GCRY_CIPHER_MODE_GCM, 0) != 0) return NULL;
    if (gcry_cipher_setkey(handle, key, 32) == 0) return handle;
    gcry_cipher_close(handle);
    return NULL;
}

static void destroy(void* context) {
    gcry_cipher_close(context);
} /* NULL is allowed there too */

static int begin(gcry_cipher_hd_t handle, const uint8_t* nonce, const uint8_t* aad, size_t aad_size) {
    return gcry_cipher_reset(handle) == 0 && gcry_cipher_setiv(handle, nonce, CRYPTMPI_GCM_NONCE_SIZE) == 0 &&
           (aad_size == 0 || gcry_cipher_authenticate(handle, aad, aad_size) == 0);
}

/* The text comes in pieces, as writev takes it; a piece may be empty and its pointer NULL. */
static int seal(void* context, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const struct iovec* in,
                size_t in_count, uint8_t* out, uint8_t tag[16]) {
    if (!begin(context, nonce, aad, aad_size)) return CRYPTMPI_FAILED;
    for (size_t i = 0; i < in_count; i++) {
        const size_t size = in[i].iov_len;
        if (size == 0) continue;
        if (gcry_cipher_encrypt(context, out, size, in[i].iov_base, size) != 0) return CRYPTMPI_FAILED;
        out += size;
    }
    return gcry_cipher_gettag(context, tag, CRYPTMPI_TAG_SIZE) == 0 ? CRYPTMPI_OK : CRYPTMPI_FAILED;
}

static int decrypt(void* context, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const uint8_t* in,
                   const struct iovec* out, size_t out_count, const uint8_t* tag) {
    if (!begin(context, nonce, aad, aad_size)) return CRYPTMPI_FAILED;
    for (size_t i = 0; i < out_count; i++) {
        const size_t size = out[i].iov_len;
        if (size == 0) continue;
        if (gcry_cipher_decrypt(context, out[i].iov_base, size, in, size) != 0) return CRYPTMPI_FAILED;
        in += size;
    }
    /* Compares in constant time. */
    const gcry_error_t verdict = gcry_cipher_checktag(context, tag, CRYPTMPI_TAG_SIZE);
    if (verdict == 0) return CRYPTMPI_OK;
    return gcry_err_code(verdict) == GPG_ERR_CHECKSUM ? CRYPTMPI_FORGED : CRYPTMPI_FAILED;
}

/* Whatever goes wrong, no byte that was not authenticated stays in the output. */
static int open(void* context, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const uint8_t* in,
                size_t size, const struct iovec* out, size_t out_count, const uint8_t tag[16]) {
    (void)size; /* the sum of the pieces */
    const int status = decrypt(context, nonce, aad, aad_size, in, out, out_count, tag);
    if (status != CRYPTMPI_OK)
        for (size_t i = 0; i < out_count; i++)
            if (out[i].iov_len > 0) memset(out[i].iov_base, 0, out[i].iov_len);
    return status;
}

/* Called once, before everything else: set the library up, and refuse a CPU or a library that will not do. */
static const char* start(void) {
    if (gcry_check_version(GCRYPT_VERSION) == NULL) return "the installed libgcrypt is older than " GCRYPT_VERSION;
    if (!gcry_control(GCRYCTL_INITIALIZATION_FINISHED_P)) {
        gcry_control(GCRYCTL_DISABLE_SECMEM, 0);
        gcry_control(GCRYCTL_INITIALIZATION_FINISHED, 0);
    }
    return NULL;
}

static const struct cryptmpi_aead aead = {
    .suites = 1u << CRYPTMPI_AES_256_GCM,
    .create = create,
    .destroy = destroy,
    .seal = seal,
    .open = open,
};

__attribute__((visibility("default"))) const struct cryptmpi_module cryptmpi_module = {
    .abi = CRYPTMPI_MODULE_ABI,
    .name = "libgcrypt", /* as in the file's name: cryptmpi-module-libgcrypt.so */
    .version = GCRYPT_VERSION,
    .aead = &aead,
    .kex = NULL, /* the module openssl has the key agreement */
    .start = start,
};
