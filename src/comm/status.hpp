// How many bytes of a message a status of MPI's tells.
#pragma once

#include <mpi.h>

#include <cstddef>

#include "comm/native.hpp"

namespace cryptmpi::comm {

/// The status says how many bytes the user got.
inline void set_size(const Native& mpi, MPI_Status& status, std::size_t size) {
    mpi.Status_set_elements_x(&status, MPI_BYTE, static_cast<MPI_Count>(size));
}

/// The bytes that came.
inline std::size_t wire_size(const Native& mpi, const MPI_Status& status) {
    MPI_Count size = 0;
    mpi.Get_elements_x(&status, MPI_BYTE, &size);
    return size < 0 ? 0 : static_cast<std::size_t>(size);
}

}  // namespace cryptmpi::comm
