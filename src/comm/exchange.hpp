// Blocks that ranks exchange in steps of ours rather than by MPI's one operation.
#pragma once

#include <mpi.h>

#include <vector>

#include "comm/collective.hpp"

namespace cryptmpi::comm {

/// For each rank a block, or null where nothing goes.
using Blocks = std::vector<const UserBuffer*>;
enum class Sealing { between_nodes, all };

/// The block `out[i]` goes to rank i, and what it has for this rank comes to `in[i]`, for all ranks but this one.
/// Between ranks of one node blocks go as they are, where neither the setting `scope` nor `sealing` has all sealed.
/// `code`: an error that the rank has come with; the others then get blocks that do not open (only where all are
/// sealed).
int exchange(const Call& call, const Blocks& out, const Blocks& in, Sealing sealing = Sealing::between_nodes,
             int code = MPI_SUCCESS);

}  // namespace cryptmpi::comm
