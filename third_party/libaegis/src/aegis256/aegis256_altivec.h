#ifndef aegis256_altivec_H
#define aegis256_altivec_H

#include "../common/common.h"
#include "implementations.h"

extern struct aegis256_implementation aegis256_altivec_implementation;

#endif