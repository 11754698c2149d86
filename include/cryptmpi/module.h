/*
 * The C interface between CryptMPI and a crypto module: one shared object per crypto library.
 *
 * A module offers AEAD suites and, optionally, the primitives of key agreement and of signatures (X25519, Ed25519,
 * SHA-256, HMAC-SHA-256, random bytes). It sees bytes only: no message, no record, no socket, no MPI.
 *
 * A module is a shared object named `cryptmpi-module-NAME.so` that exports one symbol, `cryptmpi_module`, of the
 * type below, and perhaps others, `cryptmpi_rsa` and `cryptmpi_kem`. It is loaded with local binding, so two modules
 * may bring libraries whose symbols clash.
 */
#ifndef CRYPTMPI_MODULE_H
#define CRYPTMPI_MODULE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CRYPTMPI_MODULE_ABI 2u

/* Suites by number: these numbers travel in handshakes and never change their meaning. */
enum cryptmpi_suite {
    CRYPTMPI_AES_128_GCM = 1,
    CRYPTMPI_AES_256_GCM = 2,
    CRYPTMPI_AEGIS_128L = 3, /* draft-irtf-cfrg-aegis-aead, all with tags of 128 bits */
    CRYPTMPI_AEGIS_128X2 = 4,
    CRYPTMPI_AEGIS_128X4 = 5,
    CRYPTMPI_AEGIS_256 = 6,
    CRYPTMPI_AEGIS_256X2 = 7,
    CRYPTMPI_AEGIS_256X4 = 8,
    CRYPTMPI_3DES_CBC_HMAC_SHA_256 = 9, /* a construction of CryptMPI's own, docs/protocol.md; only where allowed */
};

enum {
    CRYPTMPI_GCM_NONCE_SIZE = 12, /* bytes, the AES-GCM suites and 3DES; AEGIS' nonces are as long as its keys */
    CRYPTMPI_MAX_NONCE_SIZE = 32, /* bytes, any suite */
    CRYPTMPI_TAG_SIZE = 16,       /* bytes, every suite */
};

/* What `open` says. Anything but OK leaves zeros in the output. */
enum cryptmpi_status {
    CRYPTMPI_OK = 0,
    CRYPTMPI_FORGED = 1, /* the tag does not belong to this key, nonce, associated data and ciphertext */
    CRYPTMPI_FAILED = 2, /* the library itself failed */
};

struct cryptmpi_aead {
    /* Bit (1 << suite) is set for each suite that this module offers on this CPU. */
    uint32_t suites;

    /* A cipher context for one key, or NULL. `key` has 16 or 32 bytes, as the suite says.
     * A context is used by one thread at a time. */
    void* (*create)(int suite, const uint8_t* key);

    /* Wipes and frees the context. NULL is allowed. */
    void (*destroy)(void* context);

    /* Encrypts the concatenation of `in[0..in_count)` to `out` (as many bytes) and writes the 16-byte tag. `nonce` has
     * as many bytes as the suite says. `out` must not overlap the input. Returns CRYPTMPI_OK or CRYPTMPI_FAILED. */
    int (*seal)(void* context, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const struct iovec* in,
                size_t in_count, uint8_t* out, uint8_t tag[16]);

    /* Decrypts `size` bytes at `in` into the pieces `out[0..out_count)`, whose lengths sum to `size` exactly.
     * On CRYPTMPI_FORGED or CRYPTMPI_FAILED every output byte has been set to zero. */
    int (*open)(void* context, const uint8_t* nonce, const uint8_t* aad, size_t aad_size, const uint8_t* in,
                size_t size, const struct iovec* out, size_t out_count, const uint8_t tag[16]);
};

/* Primitives of key agreement and of signatures. Each returns CRYPTMPI_OK or CRYPTMPI_FAILED. */
struct cryptmpi_kex {
    int (*random)(uint8_t* out, size_t size);
    int (*x25519_public)(uint8_t public_key[32], const uint8_t private_key[32]);
    /* Fails when the result is all zeros (RFC 7748, section 6.1). */
    int (*x25519_shared)(uint8_t shared[32], const uint8_t private_key[32], const uint8_t peer_public_key[32]);
    /* Ed25519 (RFC 8032). A private key is the 32 bytes that the RFC calls so. */
    int (*ed25519_public)(uint8_t public_key[32], const uint8_t private_key[32]);
    int (*ed25519_sign)(uint8_t signature[64], const uint8_t private_key[32], const uint8_t* message, size_t size);
    /* CRYPTMPI_FORGED when the signature is not of this key and message. */
    int (*ed25519_verify)(const uint8_t signature[64], const uint8_t public_key[32], const uint8_t* message,
                          size_t size);
    int (*sha256)(uint8_t out[32], const struct iovec* in, size_t in_count);
    int (*hmac_sha256)(uint8_t out[32], const uint8_t* key, size_t key_size, const struct iovec* in, size_t in_count);
};

/* RSAES-OAEP (RFC 8017) with SHA-256, for its mask, too, under keys whose public exponent is 65537: a module that has
 * it exports a second symbol, `cryptmpi_rsa`, of this type. It is for key_distribution (docs/keys.md) and nothing else.
 * A public key is its modulus, big endian. What returns an int returns CRYPTMPI_OK, CRYPTMPI_FAILED or CRYPTMPI_FORGED.
 */
struct cryptmpi_rsa {
    /* A fresh private key; NULL: the library failed. */
    void* (*generate)(size_t bits);
    /* The private key of a PEM text (PKCS #8, without a passphrase), of any size; NULL: it is none. */
    void* (*read)(const uint8_t* pem, size_t size);
    /* Such a text of at most `*size` bytes, which becomes its length. */
    int (*write)(void* key, uint8_t* pem, size_t* size);
    /* Wipes and frees it. NULL is allowed. */
    void (*destroy)(void* key);
    /* Fails where the modulus has not `size` bytes with the highest bit set, or the exponent is another. */
    int (*modulus)(void* key, uint8_t* modulus, size_t size);
    /* `wrapped` has `size` bytes, as the modulus. */
    int (*wrap)(uint8_t* wrapped, const uint8_t* modulus, size_t size, const uint8_t* label, size_t label_size,
                const uint8_t* secret, size_t secret_size);
    /* CRYPTMPI_FORGED, and zeros, where `wrapped` is not this key's and label's, or holds no `secret_size` bytes: which
     * of these it is shows in nothing. */
    int (*unwrap)(uint8_t* secret, size_t secret_size, void* key, const uint8_t* label, size_t label_size,
                  const uint8_t* wrapped, size_t size);
};

/* Sizes of ML-KEM-768, bytes. */
enum {
    CRYPTMPI_KEM_SEED_SIZE = 64,
    CRYPTMPI_KEM_COINS_SIZE = 32,
    CRYPTMPI_KEM_PUBLIC_SIZE = 1184,
    CRYPTMPI_KEM_CIPHERTEXT_SIZE = 1088,
    CRYPTMPI_KEM_SHARED_SIZE = 32,
};

/* ML-KEM-768 (FIPS 203): a module that has it exports another symbol, `cryptmpi_kem`, of this type. It is for
 * key_exchange (docs/keys.md) and nothing else. What is random comes from the caller. A private key is its seed, the
 * `d | z` of the standard. What returns an int returns CRYPTMPI_OK, CRYPTMPI_FAILED or CRYPTMPI_FORGED. */
struct cryptmpi_kem {
    /* Called after the module's own start and before the others, and perhaps again: whether the library that was found
     * has it. NULL if it has, else one line why not. */
    const char* (*start)(void);
    /* The encapsulation key of a private key (ML-KEM.KeyGen_internal). */
    int (*public_key)(uint8_t public_key[1184], const uint8_t seed[64]);
    /* ML-KEM.Encaps_internal, after the checks of section 7.2: CRYPTMPI_FORGED where they refuse `public_key`. */
    int (*encapsulate)(uint8_t ciphertext[1088], uint8_t shared[32], const uint8_t public_key[1184],
                       const uint8_t coins[32]);
    /* ML-KEM.Decaps_internal. What is no ciphertext of this key gives a secret that nobody else has, and CRYPTMPI_OK
     * (implicit rejection): who got another secret finds out by what it protects. */
    int (*decapsulate)(uint8_t shared[32], const uint8_t seed[64], const uint8_t ciphertext[1088]);
};

struct cryptmpi_module {
    uint32_t abi;                     /* CRYPTMPI_MODULE_ABI */
    const char* name;                 /* "openssl" */
    const char* version;              /* of the crypto library, for the report */
    const struct cryptmpi_aead* aead; /* never NULL */
    const struct cryptmpi_kex* kex;   /* NULL where the library has none */
    /* Called once after loading, before anything else: checks the CPU. NULL on success, else one line why not. */
    const char* (*start)(void);
};

#ifdef __cplusplus
}
#endif
#endif
