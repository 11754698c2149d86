#include "comm/agreement_peers.hpp"

#include <sched.h>

#include <cerrno>

namespace cryptmpi::comm {
namespace {

// Any will do: no message of the program is on its way yet.
constexpr int kTag = 32767;

}  // namespace

Result<void> AgreementPeers::send(int rank, std::span<const std::uint8_t> message) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (mpi_.Isend(message.data(), static_cast<int>(message.size()), MPI_BYTE, rank, kTag, MPI_COMM_WORLD, &request) !=
        MPI_SUCCESS) {
        return fail(EIO, "key agreement: MPI could not send to rank " + std::to_string(rank));
    }
    MPI_Status status;
    return wait(rank, request, status);
}

Result<void> AgreementPeers::receive(int rank, std::span<std::uint8_t> message) {
    MPI_Request request = MPI_REQUEST_NULL;
    if (mpi_.Irecv(message.data(), static_cast<int>(message.size()), MPI_BYTE, rank, kTag, MPI_COMM_WORLD, &request) !=
        MPI_SUCCESS) {
        return fail(EIO, "key agreement: MPI could not receive from rank " + std::to_string(rank));
    }
    MPI_Status status;
    if (auto done = wait(rank, request, status); !done) return done;
    int count = 0;
    mpi_.Get_count(&status, MPI_BYTE, &count);
    if (static_cast<std::size_t>(count) != message.size()) {
        return fail(EPROTO, "key agreement: rank " + std::to_string(rank) + " sent " + std::to_string(count) +
                                " bytes where " + std::to_string(message.size()) +
                                " were expected: is it started under the same version of cryptmpi?");
    }
    return {};
}

Result<void> AgreementPeers::wait(int rank, MPI_Request& request, MPI_Status& status) {
    const auto end = std::chrono::steady_clock::now() + timeout_;
    for (;;) {
        int done = 0;
        if (mpi_.Test(&request, &done, &status) != MPI_SUCCESS) {
            return fail(EIO, "key agreement: MPI lost the message from or to rank " + std::to_string(rank));
        }
        if (done != 0) return {};
        if (std::chrono::steady_clock::now() > end) {
            return fail(ETIMEDOUT, "rank " + std::to_string(rank) +
                                       " did not answer in the key agreement: is it started under cryptmpi? "
                                       "(handshake_timeout_s sets how long ranks wait)");
        }
        sched_yield();
    }
}

}  // namespace cryptmpi::comm
