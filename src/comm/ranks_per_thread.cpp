#include "comm/ranks_per_thread.hpp"

namespace cryptmpi::comm {

engine::PerHardwareThread ranks_of_node(const Native& mpi, MPI_Comm comm, const engine::HardwareThreads& own) {
    MPI_Comm node = MPI_COMM_NULL;
    mpi.Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    engine::PerHardwareThread ranks = own.members();
    mpi.Allreduce(MPI_IN_PLACE, ranks.data(), static_cast<int>(ranks.size()), MPI_INT, MPI_SUM, node);
    mpi.Comm_free(&node);
    return ranks;
}

}  // namespace cryptmpi::comm
