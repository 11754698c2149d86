// MPI_Session, also where an mpi.h is older than sessions, as Open MPI 4's: the MPI library that the program uses may
// have them. The same declaration again is none.
#pragma once

#include <mpi.h>

#ifdef OMPI_MAJOR_VERSION
using MPI_Session = struct ompi_instance_t*;
#elif !defined(MPI_ABI_VERSION)
using MPI_Session = int;
#endif
