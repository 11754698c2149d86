#include "comm/hints.hpp"

#include <algorithm>

#include "comm/received.hpp"

namespace cryptmpi::comm {

// protocol: M30
void Hints::collect(int world_rank, Sender& sender) {
    const auto& mpi = transport_.mpi;
    for (;;) {
        int found = 0;
        MPI_Message message = MPI_MESSAGE_NULL;
        MPI_Status status;
        if (mpi.Improbe(world_rank, transport_.tag_of_hints, transport_.comm, &found, &message, &status) !=
                MPI_SUCCESS ||
            found == 0) {
            return;
        }
        const std::size_t size = wire_size(mpi, status);
        const auto wire = transport_.pool.take(size);
        const ByteCount bytes(mpi, size);
        const int code = mpi.Mrecv(wire.data(), bytes.count(), bytes.type(), &message, MPI_STATUS_IGNORE);
        Hint hint;
        if (code != MPI_SUCCESS || size != hint.size()) continue;
        std::copy_n(wire.data(), size, hint.begin());
        const auto taken = std::find(sender.awaited.begin(), sender.awaited.end(), hint);
        if (taken == sender.awaited.end()) {
            sender.come.push_back(hint);
        } else {
            sender.awaited.erase(taken);
        }
    }
}

const std::list<Hint>& Hints::of(int world_rank) {
    Sender& sender = senders_[world_rank];
    collect(world_rank, sender);
    return sender.come;
}

void Hints::drop(int world_rank, const std::uint8_t* announcement) {
    Sender& sender = senders_[world_rank];
    collect(world_rank, sender);
    Hint hint;
    std::copy_n(announcement, hint.size(), hint.begin());
    const auto come = std::find(sender.come.begin(), sender.come.end(), hint);
    if (come == sender.come.end()) {
        sender.awaited.push_back(hint);
    } else {
        sender.come.erase(come);
    }
}

}  // namespace cryptmpi::comm
