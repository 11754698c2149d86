#include "comm/agreement_peers.hpp"

#include <fmt/core.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <sstream>

namespace cryptmpi::comm {
namespace {

// Any will do: no message of the program is on its way yet.
constexpr int kTag = 32767;

constexpr std::chrono::milliseconds kNotice{10'000};  // then one line says whom we are waiting for

}  // namespace

Result<void> AgreementPeers::send(int rank, std::span<const std::uint8_t> message) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (mpi_.Isend(message.data(), static_cast<int>(message.size()), MPI_BYTE, rank, kTag, MPI_COMM_WORLD, &request) !=
        MPI_SUCCESS) {
        return fail(EIO, fmt::format("key agreement: MPI could not send to rank {}", rank));
    }
    MPI_Status status;
    return wait(rank, request, status);
}

Result<std::size_t> AgreementPeers::receive_up_to(int rank, std::span<std::uint8_t> room) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (mpi_.Irecv(room.data(), static_cast<int>(room.size()), MPI_BYTE, rank, kTag, MPI_COMM_WORLD, &request) !=
        MPI_SUCCESS) {
        return fail(EIO, fmt::format("key agreement: MPI could not receive from rank {}", rank));
    }
    MPI_Status status;
    if (auto done = wait(rank, request, status); !done) return tl::unexpected(std::move(done.error()));
    heard_.insert(rank);
    int count = 0;
    mpi_.Get_count(&status, MPI_BYTE, &count);
    return static_cast<std::size_t>(count);
}

Result<void> AgreementPeers::wait(int peer, MPI_Request& request, MPI_Status& status) {
    const auto start = Clock::now();
    const auto end = start + patience_for(peer);
    auto notice = start + until_notice(peer);
    for (;;) {
        int done = 0;
        if (mpi_.Test(&request, &done, &status) != MPI_SUCCESS) {
            return fail(EIO, fmt::format("key agreement: MPI lost the message from or to rank {}", peer));
        }
        if (done != 0) return {};
        const auto now = Clock::now();
        if (now > end) return tl::unexpected(gave_up(peer));
        if (now > notice) {
            const std::string late = fmt::format(
                "rank {} has not come to the key agreement yet: it may be {}late, "
                "or run without cryptmpi or under another layer",
                peer, peer < rank_ ? "waiting for another rank (then its own line says so), " : "");
            say_(late);
            notice = end;
        }
        sched_yield();
    }
}

std::chrono::milliseconds AgreementPeers::patience_for(int peer) const {
    return heard_of(peer) ? patience_.later : keys::patience_for(rank_, peer, patience_.first);
}

/// One rank speaks for each that is missing: its parent; for rank 0, rank 1, later than rank 0 would speak of its own
/// children.
AgreementPeers::Clock::duration AgreementPeers::until_notice(int peer) const {
    const auto patience = patience_for(peer);
    const bool ours_to_say = !heard_of(peer) && (peer > rank_ || rank_ == 1);
    return ours_to_say ? std::min(kNotice, patience_.first / 2) * (peer > rank_ ? 1 : 2) : patience;
}

Error AgreementPeers::gave_up(int peer) const {
    const auto seconds = std::chrono::duration<double>(patience_for(peer)).count();
    const std::string who = fmt::format("rank {}", peer);
    std::ostringstream line;
    if (heard_of(peer)) {
        line << who << " stopped answering in the key agreement for " << seconds
             << " s: its own output may say why (handshake_timeout_s sets how long ranks wait)";
    } else {
        line << who << " did not come to the key agreement within " << seconds
             << " s: start all ranks under cryptmpi, with the same --layer (agreement_timeout_s gives late ranks more "
                "time)";
    }
    return {line.str(), ETIMEDOUT};
}

}  // namespace cryptmpi::comm
