#include "comm/hints.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "comm/status.hpp"

namespace cryptmpi::comm {
namespace {

// Of one sender: far more than messages in synchronous mode are on their way at a time, nearly each with a buffer of
// more than 64 KB.
constexpr std::size_t kMost = 4096;

Hint hint_of(const std::uint8_t* wire) {
    Hint hint;
    std::copy_n(wire, hint.size(), hint.begin());
    return hint;
}

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
        constexpr std::size_t kSize = seal::kAnnouncedWire;
        if (const std::size_t size = wire_size(mpi, status); size != kSize) {
            // No memory for what nobody of the job has sent, however long MPI is told that it is.
            voice_.end_job(fmt::format(
                "MPI has a message of {} bytes from rank {} where all have {}: MPI's own messages were altered", size,
                world_rank, kSize));
        }
        const auto wire = transport_.pool.take(kSize);
        const ByteCount bytes(mpi, kSize);
        const int code = mpi.Mrecv(wire.data(), bytes.count(), bytes.type(), &message, MPI_STATUS_IGNORE);
        if (code != MPI_SUCCESS) continue;
        const Hint hint = hint_of(wire.data());
        if (!take(sender.awaited, hint)) keep(sender.come, hint);
    }
}

bool Hints::take(std::list<Hint>& list, const Hint& hint) {
    const auto found = std::find(list.begin(), list.end(), hint);
    if (found == list.end()) return false;
    list.erase(found);
    return true;
}

const std::list<Hint>& Hints::of(int world_rank) {
    Sender& sender = senders_[world_rank];
    collect(world_rank, sender);
    return sender.come;
}

void Hints::drop(int world_rank, const std::uint8_t* announcement) {
    Sender& sender = senders_[world_rank];
    collect(world_rank, sender);
    const Hint hint = hint_of(announcement);
    if (!take(sender.come, hint)) keep(sender.awaited, hint);
}

void Hints::drop_if_come(int world_rank, const std::uint8_t* wire) {
    Sender& sender = senders_[world_rank];
    collect(world_rank, sender);
    take(sender.come, hint_of(wire));
}

}  // namespace cryptmpi::comm
