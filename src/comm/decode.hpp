// A datatype of the user's as the layout of his memory, read from how he made it: so a part of a message can be packed
// by itself, without MPI.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <memory>

#include "comm/native.hpp"
#include "engine/layout.hpp"

namespace cryptmpi::comm {

/// Of `count` elements at an address, which have `size` bytes of data. Null: MPI packs them, whole. That is so for
/// distributed arrays, pairs with gaps, and types whose description would be long for so few bytes.
std::unique_ptr<const engine::Layout> decode_layout(const Native& mpi, const void* at, MPI_Count count,
                                                    MPI_Datatype type, std::size_t size);

}  // namespace cryptmpi::comm
