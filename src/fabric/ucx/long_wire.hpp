// Long tagged messages: UCX asks functions of ours for the bytes that it sends, as it does for a datatype of the
// program's own, and gives those that come to others. So the first segments travel while the next ones are sealed, and
// are opened while others travel; and the message stays one, with one length, for matching, probing and cutting off.
#pragma once

#include <ucp/api/ucp.h>

#include "fabric/ucx/ends.hpp"

namespace cryptmpi::fabric::ucx {

/// Where the bytes of a receive go; before anything of it opens.
void make_places(Operation& operation);

/// The datatype of which one element, at the address of an operation, is that operation's wire.
ucp_datatype_t wire_of_operation();

}  // namespace cryptmpi::fabric::ucx
