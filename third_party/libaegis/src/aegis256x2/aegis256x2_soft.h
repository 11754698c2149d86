#ifndef aegis256x2_soft_H
#define aegis256x2_soft_H

#include "../common/common.h"
#include "implementations.h"

extern struct aegis256x2_implementation aegis256x2_soft_implementation;

#endif