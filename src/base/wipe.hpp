// Overwrites what nobody may read again.
#pragma once

#include <cstddef>
#include <cstring>

namespace cryptmpi {

inline void wipe(void* at, std::size_t size) noexcept {
    if (size != 0) explicit_bzero(at, size);  // what is empty may have no address
}

}  // namespace cryptmpi
