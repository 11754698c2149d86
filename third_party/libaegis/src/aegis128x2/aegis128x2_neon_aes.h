#ifndef aegis128x2_neon_aes_H
#define aegis128x2_neon_aes_H

#include "../common/common.h"
#include "implementations.h"

extern struct aegis128x2_implementation aegis128x2_neon_aes_implementation;

#endif
