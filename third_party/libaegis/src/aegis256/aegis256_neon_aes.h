#ifndef aegis256_neon_aes_H
#define aegis256_neon_aes_H

#include "../common/common.h"
#include "implementations.h"

extern struct aegis256_implementation aegis256_neon_aes_implementation;

#endif
