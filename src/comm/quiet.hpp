// While MPI is asked something that may be wrong, which is nobody's error.
#pragma once

#include <mpi.h>

#include <optional>

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

/// The same of errors that belong to no communicator. MPI raises them on one of these two, by its version. Not for
/// several threads: another one may have errors of its own there.
class QuietElsewhere {
public:
    explicit QuietElsewhere(const Native& native) : world_(native, MPI_COMM_WORLD) {
        // MPICH 5 raises errors on MPI_COMM_SELF only once a handler was set there, and tells of this one while none
        // was: written back, it would end the job at the next error. A program that did set it ends in any case.
        MPI_Errhandler handler = MPI_ERRHANDLER_NULL;
        native.Comm_get_errhandler(MPI_COMM_SELF, &handler);
        const bool are_fatal = handler == MPI_ERRORS_ARE_FATAL;
        native.Errhandler_free(&handler);
        if (!are_fatal) self_.emplace(native, MPI_COMM_SELF);
    }

private:
    Quiet world_;
    std::optional<Quiet> self_;
};

}  // namespace cryptmpi::comm
