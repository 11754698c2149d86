// How the key agreement's messages travel: MPI's own point-to-point calls on MPI_COMM_WORLD, before the program's
// first.
#pragma once

#include <mpi.h>

#include <chrono>

#include "keys/agreement.hpp"
#include "native.hpp"

namespace cryptmpi::comm {

class AgreementPeers final : public keys::Peers {
public:
    AgreementPeers(const interpose::Native& mpi, std::chrono::milliseconds timeout) : mpi_(mpi), timeout_(timeout) {}

    Result<void> send(int rank, std::span<const std::uint8_t> message) override;
    Result<void> receive(int rank, std::span<std::uint8_t> message) override;

private:
    Result<void> wait(int rank, MPI_Request& request, MPI_Status& status);

    const interpose::Native& mpi_;
    std::chrono::milliseconds timeout_;
};

}  // namespace cryptmpi::comm
