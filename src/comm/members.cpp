#include "comm/members.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <numeric>

namespace cryptmpi::comm {

std::vector<int> world_ranks(const Native& mpi, MPI_Group group) {
    MPI_Group world = MPI_GROUP_NULL;
    mpi.Comm_group(MPI_COMM_WORLD, &world);
    int size = 0;
    mpi.Group_size(group, &size);
    std::vector<int> ranks(static_cast<std::size_t>(size));
    std::iota(ranks.begin(), ranks.end(), 0);
    std::vector<int> result(ranks.size());
    mpi.Group_translate_ranks(group, size, ranks.data(), world, result.data());
    mpi.Group_free(&world);
    return result;
}

std::vector<int> world_ranks_of(const Native& mpi, MPI_Comm comm) {
    MPI_Group group = MPI_GROUP_NULL;
    mpi.Comm_group(comm, &group);
    auto result = world_ranks(mpi, group);
    mpi.Group_free(&group);
    // MPICH 5.0.2 gives a grid or a graph with fewer places than its parent has ranks the whole group of the parent,
    // unless it may reorder the ranks. The first of them are in it.
    int size = 0;
    mpi.Comm_size(comm, &size);
    result.resize(std::min(result.size(), static_cast<std::size_t>(std::max(size, 0))));
    return result;
}

void end_for_other_members(Voice& voice, const std::string& by_what) {
    voice.end_job("the communicator that " + by_what +
                  " made has other members, or another order of them, than was asked for: MPI's own messages, by "
                  "which its ranks agree on that, were altered on their way");
    std::abort();  // GCC takes it that a virtual function may return
}

// protocol: M16
void require_members(Voice& voice, MPI_Comm made, const std::vector<int>& expected, const std::string& by_what) {
    if (made == MPI_COMM_NULL) voice.end_job("MPI did not make a communicator that " + by_what + " has to have");
    if (world_ranks_of(voice.mpi, made) != expected) end_for_other_members(voice, by_what);
}

}  // namespace cryptmpi::comm
