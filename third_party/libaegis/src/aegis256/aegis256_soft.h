#ifndef aegis256_soft_H
#define aegis256_soft_H

#include "../common/common.h"
#include "implementations.h"

extern struct aegis256_implementation aegis256_soft_implementation;

#endif