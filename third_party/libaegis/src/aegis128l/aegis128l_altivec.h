#ifndef aegis128l_altivec_H
#define aegis128l_altivec_H

#include "../common/common.h"
#include "implementations.h"

extern struct aegis128l_implementation aegis128l_altivec_implementation;

#endif