// What the members of a communicator do together before an operation, or beside it: in sealed messages, of which each
// that does not open ends the job.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "comm/layer.hpp"

namespace cryptmpi::comm {

/// Its members by nodes. The first collective operation that needs it makes it, with all else that such operations
/// need, the secret of what is sealed for all among it; by all members.
const Nodes& nodes_of(Layer& layer, Communicator& communicator);

/// What each member has, in the order of ranks. It goes up a binomial tree and down again, each message sealed for one
/// rank, inside nodes, too; one that does not open ends the job. By all members at the same time, with as many bytes
/// each.
std::vector<std::uint8_t> tell_all(Layer& layer, Communicator& communicator, std::span<const std::uint8_t> mine);

}  // namespace cryptmpi::comm
