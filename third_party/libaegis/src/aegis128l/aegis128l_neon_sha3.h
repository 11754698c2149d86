#ifndef aegis128l_neon_sha3_H
#define aegis128l_neon_sha3_H

#include "../common/common.h"
#include "implementations.h"

extern struct aegis128l_implementation aegis128l_neon_sha3_implementation;

#endif
