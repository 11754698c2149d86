// What is let show of a secret: where a branch or an index depends on one on purpose, it says so by this name. In
// the test of secret-dependent branches (tests/constant_time), memcheck is told; else it is nothing.
#pragma once

#ifdef CRYPTMPI_CONSTANT_TIME_TEST
#include <valgrind/memcheck.h>
#endif

namespace cryptmpi {

template <class T>
T declassified(T value) {
#ifdef CRYPTMPI_CONSTANT_TIME_TEST
    VALGRIND_MAKE_MEM_DEFINED(&value, sizeof value);
#endif
    return value;
}

}  // namespace cryptmpi
