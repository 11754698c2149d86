#ifndef aegis128x2_altivec_H
#define aegis128x2_altivec_H

#include "../common/common.h"
#include "implementations.h"

extern struct aegis128x2_implementation aegis128x2_altivec_implementation;

#endif