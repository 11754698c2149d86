// Messages that a probe had to take out of MPI's queue to tell a size: the announcements of large ones, and what was
// sent before them.
#pragma once

#include <mpi.h>

#include <list>
#include <memory>
#include <optional>

#include "comm/buffer.hpp"
#include "comm/posted.hpp"
#include "seal/segments.hpp"

namespace cryptmpi::comm {

/// A message that came and that no receive has taken: opened, or out of MPI's queue only, since to receive one in
/// synchronous mode is to end its send.
struct Held {
    int source = 0;
    int tag = 0;
    std::size_t size = 0;
    engine::Buffer plain;                    // whole
    std::optional<seal::Segments> segments;  // or on its way
    MPI_Message message = MPI_MESSAGE_NULL;  // or with MPI
    Posted posted = {};                      // then, since it has its place among the receives

    bool matches(int from, int with) const {
        return (from == MPI_ANY_SOURCE || from == source) && (with == MPI_ANY_TAG || with == tag);
    }
};

/// In the order of their coming. Of each sender, all that he sent before one of these has been received or is here.
using HeldList = std::list<std::unique_ptr<Held>>;

}  // namespace cryptmpi::comm
