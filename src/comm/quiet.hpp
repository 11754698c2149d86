// While MPI is asked something that may be wrong, which is nobody's error.
#pragma once

#include <mpi.h>

#include "comm/native.hpp"

namespace cryptmpi::comm {

/// The error handler of a communicator does not hear of what MPI is asked meanwhile.
class Quiet {
public:
    Quiet(const Native& native, MPI_Comm comm) : mpi_(native), comm_(comm) {
        mpi_.Comm_get_errhandler(comm_, &handler_);
        mpi_.Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    }
    ~Quiet() {
        mpi_.Comm_set_errhandler(comm_, handler_);
        mpi_.Errhandler_free(&handler_);
    }
    Quiet(const Quiet&) = delete;
    Quiet& operator=(const Quiet&) = delete;

private:
    const Native& mpi_;
    MPI_Comm comm_;
    MPI_Errhandler handler_ = MPI_ERRHANDLER_NULL;
};

}  // namespace cryptmpi::comm
