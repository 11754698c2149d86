// A peer's memory, as the program names it to put there and to get from there.
#pragma once

#include <cstdint>

namespace cryptmpi::fabric::ucx {

/// What a remote key of UCX is here.
struct RemoteKey {
    std::uint64_t region;  // its number at the peer
};

}  // namespace cryptmpi::fabric::ucx
