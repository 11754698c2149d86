#ifndef aegis128l_soft_H
#define aegis128l_soft_H

#include "../common/common.h"
#include "implementations.h"

extern struct aegis128l_implementation aegis128l_soft_implementation;

#endif