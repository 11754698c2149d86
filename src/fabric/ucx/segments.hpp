// Long tagged messages: UCX asks functions of ours for the bytes that it sends, as it does for a datatype of the
// program's own, and gives those that come to others. So the first segments travel while the next ones are sealed, and
// are opened while others travel; and the message stays one, with one length, for matching, probing and cutting off.
#pragma once

#include <sys/uio.h>
#include <ucp/api/ucp.h>

#include <vector>

#include "engine/buffer_pool.hpp"
#include "fabric/flows.hpp"

namespace cryptmpi::fabric::ucx {

struct Operation;

/// What an operation has beside its wire.
struct Segments {
    std::vector<iovec> pieces;  // of the program's memory, or of `room`
    engine::Buffer room;        // of bytes that the program's datatype packs, or unpacks
    LongSend send;
    LongReceive receive;
    std::size_t come = 0;  // so many first bytes of the wire are there
};

/// Where the bytes of a receive go; before anything of it opens.
void make_places(Operation& operation);

/// The datatype of which one element, at the address of an operation, is that operation's wire.
ucp_datatype_t wire_of_operation();

}  // namespace cryptmpi::fabric::ucx
