// How the key agreement's messages travel: MPI's own point-to-point calls on MPI_COMM_WORLD, before the program's
// first.
#pragma once

#include <mpi.h>

#include <chrono>
#include <functional>
#include <set>
#include <string>

#include "comm/native.hpp"
#include "keys/agreement.hpp"

namespace cryptmpi::comm {

class AgreementPeers final : public keys::Peers {
public:
    /// How long to wait for a rank's first message (keys::patience_for), and for what comes after it.
    struct Patience {
        std::chrono::milliseconds first;
        std::chrono::milliseconds later;
    };
    /// Takes a line that says for whom this rank waits.
    using Say = std::function<void(const std::string& line)>;

    AgreementPeers(const Native& mpi, int rank, const Patience& patience, Say say)
        : mpi_(mpi), rank_(rank), patience_(patience), say_(std::move(say)) {}

    Result<void> send(int rank, std::span<const std::uint8_t> message) override;
    Result<std::size_t> receive_up_to(int rank, std::span<std::uint8_t> room) override;

private:
    using Clock = std::chrono::steady_clock;

    Result<void> wait(int peer, MPI_Request& request, MPI_Status& status);
    bool heard_of(int peer) const { return heard_.count(peer) > 0; }
    std::chrono::milliseconds patience_for(int peer) const;
    Clock::duration until_notice(int peer) const;
    Error gave_up(int peer) const;

    const Native& mpi_;
    int rank_;
    Patience patience_;
    Say say_;
    std::set<int> heard_;
};

}  // namespace cryptmpi::comm
