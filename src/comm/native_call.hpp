// MPI's own procedures by the width of their counts.
#pragma once

#include <mpi.h>

#include <climits>

namespace cryptmpi::comm {

/// A count for either form of a procedure.
struct Count {
    MPI_Count value;
    operator int() const { return static_cast<int>(value); }  // NOLINT(google-explicit-constructor)
    operator MPI_Count() const { return value; }              // NOLINT(google-explicit-constructor)
};

}  // namespace cryptmpi::comm

/// Calls MPI_`name`, or MPI_`name`_c where `count` needs it and this MPI has it, with the arguments that follow; counts
/// among them as Count.
#define CRYPTMPI_NATIVE(name, count, ...)                                                   \
    [&](const auto& mpi) -> int {                                                           \
        if ((count) > INT_MAX && mpi.name##_c != nullptr) return mpi.name##_c(__VA_ARGS__); \
        return mpi.name(__VA_ARGS__);                                                       \
    }
