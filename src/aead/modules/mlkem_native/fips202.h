/* What mlkem-native asks of SHA-3 (FIPS 202); mlkem_native.cpp has it of OpenSSL. */
#ifndef CRYPTMPI_FIPS202_H
#define CRYPTMPI_FIPS202_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { SHAKE128_RATE = 168 };

/* The longest input that ML-KEM gives its XOF: a seed and two indices. */
enum { CRYPTMPI_XOF_INPUT_SIZE = 34 };

/* OpenSSL gives an XOF's output once. Who wants more gets it all again, and what is new of it. */
typedef struct {
    uint8_t input[CRYPTMPI_XOF_INPUT_SIZE];
    size_t input_size;
    size_t squeezed; /* blocks */
} mlk_shake128ctx;

void mlk_shake128_init(mlk_shake128ctx* state);
void mlk_shake128_absorb_once(mlk_shake128ctx* state, const uint8_t* input, size_t size);
void mlk_shake128_squeezeblocks(uint8_t* output, size_t blocks, mlk_shake128ctx* state);
void mlk_shake128_release(mlk_shake128ctx* state);
void mlk_shake256(uint8_t* output, size_t output_size, const uint8_t* input, size_t size);
void mlk_sha3_256(uint8_t* output, const uint8_t* input, size_t size);
void mlk_sha3_512(uint8_t* output, const uint8_t* input, size_t size);

#ifdef __cplusplus
}
#endif
#endif
