// How many bytes of a message a status of MPI's tells.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstring>

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

/// A status that MPI is about to fill. MPICH 5 returns MPI_SUCCESS from a call that failed, once a handler of the
/// program's has heard of it: that the status was left as it was is all that tells.
class Unfilled {
public:
    explicit Unfilled(MPI_Status& status) : status_(status), before_(status) {
        // As the status of no message: nothing is as long as this says.
        std::memset(&marked_, 0x5E, sizeof marked_);
        marked_.MPI_ERROR = before_.MPI_ERROR;
        status_ = marked_;
    }
    Unfilled(const Unfilled&) = delete;
    Unfilled& operator=(const Unfilled&) = delete;

    /// Did MPI leave it? Then it is again as it was before.
    bool was_left() {
        const bool left = std::memcmp(&status_, &marked_, sizeof marked_) == 0;
        if (left) status_ = before_;
        return left;
    }

private:
    MPI_Status& status_;
    MPI_Status before_;
    MPI_Status marked_;
};

}  // namespace cryptmpi::comm
