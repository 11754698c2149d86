// What a long tagged message has beside its wire.
#pragma once

#include <sys/uio.h>

#include <vector>

#include "engine/buffer_pool.hpp"
#include "fabric/flows.hpp"

namespace cryptmpi::fabric::ucx {

/// Of one operation.
struct Segments {
    std::vector<iovec> pieces;  // of the program's memory, or of `room`
    engine::Buffer room;        // of bytes that the program's datatype packs, or unpacks
    LongSend send;
    LongReceive receive;
    std::size_t come = 0;  // so many first bytes of the wire are there
};

}  // namespace cryptmpi::fabric::ucx
