// Primitives that a fuzzer can satisfy: they check nothing but a tag and protect nothing. With real ones every input
// would end at its tag, and the code behind it would never run.
//
// A tag of zeros is good under every key. One that is 1 or 2 in its first byte, and zeros, is good under keys whose
// first byte is odd or even: so what is tried under several keys does not open under the first.
#pragma once

#include <cryptmpi/module.h>

#include <cstring>

#include "seal/key_schedule.hpp"

namespace cryptmpi::fuzz {

inline int toy_seal(void*, const std::uint8_t*, const std::uint8_t*, std::size_t, const iovec* in, std::size_t in_count,
                    std::uint8_t* out, std::uint8_t* tag) {
    for (std::size_t i = 0; i < in_count; ++i) {
        if (in[i].iov_len != 0) {
            std::memcpy(out, in[i].iov_base, in[i].iov_len);
            out += in[i].iov_len;
        }
    }
    std::memset(tag, 0, CRYPTMPI_TAG_SIZE);
    return CRYPTMPI_OK;
}

inline int toy_open(void* context, const std::uint8_t*, const std::uint8_t*, std::size_t, const std::uint8_t* in,
                    std::size_t, const iovec* out, std::size_t out_count, const std::uint8_t* tag) {
    static constexpr std::uint8_t kZeros[CRYPTMPI_TAG_SIZE] = {};
    const unsigned parity = *static_cast<std::uint8_t*>(context) % 2U;
    const bool of_key = tag[0] == 0 || (tag[0] == 1 && parity == 1) || (tag[0] == 2 && parity == 0);
    const bool good = of_key && std::memcmp(tag + 1, kZeros, sizeof kZeros - 1) == 0;
    for (std::size_t i = 0; i < out_count; ++i) {
        if (out[i].iov_len == 0) {
            continue;
        }
        if (good) {
            std::memcpy(out[i].iov_base, in, out[i].iov_len);
            in += out[i].iov_len;
        } else {
            std::memset(out[i].iov_base, 0, out[i].iov_len);
        }
    }
    return good ? CRYPTMPI_OK : CRYPTMPI_FORGED;
}

inline int toy_mix(std::uint8_t* out, const iovec* in, std::size_t in_count) {
    std::memset(out, 0x5a, 32);
    std::size_t at = 0;
    for (std::size_t i = 0; i < in_count; ++i) {
        for (std::size_t j = 0; j < in[i].iov_len; ++j, ++at) {
            out[at % 32] =
                static_cast<std::uint8_t>(out[at % 32] * 31 + static_cast<const std::uint8_t*>(in[i].iov_base)[j]);
        }
    }
    return CRYPTMPI_OK;
}

/// What is drawn in this thread: the ranks of a recorded job (seeds.cpp) must not all draw the same.
inline thread_local std::uint8_t toy_draw = 0x11;

inline seal::Crypto toy_crypto() {
    static const cryptmpi_aead aead = {
        1U << CRYPTMPI_AES_128_GCM | 1U << CRYPTMPI_AES_256_GCM,
        [](int, const std::uint8_t* key) -> void* { return new std::uint8_t(key[0]); },
        [](void* context) { delete static_cast<std::uint8_t*>(context); },
        toy_seal,
        toy_open,
    };
    static const cryptmpi_kex kex = {
        [](std::uint8_t* out, std::size_t size) -> int {
            std::memset(out, toy_draw, size);
            return CRYPTMPI_OK;
        },
        [](std::uint8_t* share, const std::uint8_t* secret) -> int {
            std::memcpy(share, secret, 32);
            return CRYPTMPI_OK;
        },
        [](std::uint8_t* shared, const std::uint8_t* secret, const std::uint8_t* share) -> int {
            for (int i = 0; i < 32; ++i) {
                shared[i] = secret[i] ^ share[i];
            }
            return share[0] == 1 ? CRYPTMPI_FAILED : CRYPTMPI_OK;
        },
        // A public key is the private one, and a signature of zeros is good.
        [](std::uint8_t* share, const std::uint8_t* secret) -> int {
            std::memcpy(share, secret, 32);
            return CRYPTMPI_OK;
        },
        [](std::uint8_t* signature, const std::uint8_t*, const std::uint8_t*, std::size_t) -> int {
            std::memset(signature, 0, 64);
            return CRYPTMPI_OK;
        },
        [](const std::uint8_t* signature, const std::uint8_t*, const std::uint8_t*, std::size_t) -> int {
            static constexpr std::uint8_t kGood[64] = {};
            return std::memcmp(signature, kGood, sizeof kGood) == 0 ? CRYPTMPI_OK : CRYPTMPI_FORGED;
        },
        [](std::uint8_t* out, const iovec* in, std::size_t in_count) -> int { return toy_mix(out, in, in_count); },
        [](std::uint8_t* out, const std::uint8_t*, std::size_t, const iovec* in, std::size_t in_count) -> int {
            return toy_mix(out, in, in_count);
        },
    };
    return {&aead, &kex, aead::Suite::aes_256_gcm};
}

/// A key whose first byte is 255 is none, and one byte makes decapsulation fail.
inline const cryptmpi_kem* toy_kem() {
    static const cryptmpi_kem kem = {
        []() -> const char* { return nullptr; },
        [](std::uint8_t* key, const std::uint8_t* seed) -> int {
            std::memset(key, 0, CRYPTMPI_KEM_PUBLIC_SIZE);
            std::memcpy(key, seed, CRYPTMPI_KEM_SEED_SIZE);
            return CRYPTMPI_OK;
        },
        [](std::uint8_t* ciphertext, std::uint8_t* shared, const std::uint8_t* key, const std::uint8_t* coins) -> int {
            std::memcpy(ciphertext, key, CRYPTMPI_KEM_CIPHERTEXT_SIZE);
            std::memcpy(shared, coins, CRYPTMPI_KEM_SHARED_SIZE);
            return key[0] == 255 ? CRYPTMPI_FORGED : CRYPTMPI_OK;
        },
        [](std::uint8_t* shared, const std::uint8_t*, const std::uint8_t* ciphertext) -> int {
            std::memcpy(shared, ciphertext, CRYPTMPI_KEM_SHARED_SIZE);
            return ciphertext[0] == 1 ? CRYPTMPI_FAILED : CRYPTMPI_OK;
        },
    };
    return &kem;
}

/// Every pair has the same modulus, a wrapped secret begins with the secret, and one whose last byte is not 0 is
/// forged.
inline const cryptmpi_rsa* toy_rsa() {
    static const cryptmpi_rsa rsa = {
        [](std::size_t) -> void* { return new char; },
        [](const std::uint8_t*, std::size_t size) -> void* { return size == 0 ? nullptr : new char; },
        [](void*, std::uint8_t* pem, std::size_t* size) -> int {
            pem[0] = 'k';
            *size = 1;
            return CRYPTMPI_OK;
        },
        [](void* key) { delete static_cast<char*>(key); },
        [](void*, std::uint8_t* modulus, std::size_t size) -> int {
            std::memset(modulus, 0x81, size);
            return CRYPTMPI_OK;
        },
        [](std::uint8_t* wrapped, const std::uint8_t* modulus, std::size_t size, const std::uint8_t*, std::size_t,
           const std::uint8_t* secret, std::size_t secret_size) -> int {
            if ((modulus[0] & 0x80) == 0) return CRYPTMPI_FAILED;
            std::memset(wrapped, 0, size);
            std::memcpy(wrapped, secret, secret_size);
            return CRYPTMPI_OK;
        },
        [](std::uint8_t* secret, std::size_t secret_size, void*, const std::uint8_t*, std::size_t,
           const std::uint8_t* wrapped, std::size_t size) -> int {
            std::memset(secret, 0, secret_size);
            if (wrapped[size - 1] != 0) return CRYPTMPI_FORGED;
            std::memcpy(secret, wrapped, secret_size);
            return CRYPTMPI_OK;
        },
    };
    return &rsa;
}

}  // namespace cryptmpi::fuzz
