#include "comm/hints.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "comm/status.hpp"

namespace cryptmpi::comm {
namespace {

// Of one sender: far more than messages in synchronous mode are on their way at a time, each with a buffer of more than
// 64 KB.
constexpr std::size_t kMost = 4096;

void keep(std::list<Hint>& list, const Hint& hint) {
    list.push_back(hint);
    if (list.size() > kMost) list.pop_front();
}

}  // namespace

// protocol: M30
void Hints::collect(int world_rank, Sender& sender) {
    const auto& mpi = voice_.mpi;
    // No more at a time, so that who sends them without end holds up nobody.
    for (std::size_t i = 0; i < kMost; ++i) {
        int found = 0;
        MPI_Message message = MPI_MESSAGE_NULL;
        MPI_Status status;
        if (mpi.Improbe(world_rank, transport_.tag_of_hints, transport_.comm, &found, &message, &status) !=
                MPI_SUCCESS ||
            found == 0) {
            return;
        }
        Hint hint;
        if (const std::size_t size = wire_size(mpi, status); size != hint.size()) {
            // No memory for what nobody of the job has sent, however long MPI is told that it is.
            voice_.end_job(fmt::format(
                "MPI has a message of {} bytes from rank {} where all have {}: MPI's own messages were altered", size,
                world_rank, hint.size()));
        }
        const auto wire = transport_.pool.take(hint.size());
        const ByteCount bytes(mpi, hint.size());
        const int code = mpi.Mrecv(wire.data(), bytes.count(), bytes.type(), &message, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS) continue;
        std::copy_n(wire.data(), hint.size(), hint.begin());
        const auto taken = std::find(sender.awaited.begin(), sender.awaited.end(), hint);
        if (taken == sender.awaited.end()) {
            keep(sender.come, hint);
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
        keep(sender.awaited, hint);
    } else {
        sender.come.erase(come);
    }
}

}  // namespace cryptmpi::comm
