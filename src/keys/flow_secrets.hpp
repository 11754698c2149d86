// The secrets of the MPI layer's flows, made of what the agreement gave this rank.
//
//   between two ranks   of the job's secret and an X25519 of both, at their first contact: no third rank has both. The
//                       peer's share is erased then, so that this rank cannot make the pair's secret again, either
//   to itself           drawn
//   to all members      of the job's secret where all ranks of the job are members. Where they are not, the members
//                       draw one, and tell each other under the secrets of their pairs
//
// What is kept gives each flow's secret once (seal/puncturable.hpp): the memory of a rank says nothing of flows that
// have ended. docs/protocol.md has the derivations.
#pragma once

#include <cryptmpi/module.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.hpp"
#include "base/secret.hpp"
#include "keys/agreement.hpp"
#include "seal/puncturable.hpp"

namespace cryptmpi::keys {

/// Of a communicator, the same on all its members.
using CommunicatorId = std::array<std::uint8_t, 32>;

/// By which a communicator's members send to all. Used by any number of threads.
class GroupSecret {
public:
    /// Of this communicator, whatever else `drawn` was drawn for.
    static Result<std::unique_ptr<GroupSecret>> of_drawn(const cryptmpi_kex& kex, const Secret<32>& drawn,
                                                         const CommunicatorId& id, std::size_t members);
    GroupSecret(const cryptmpi_kex& kex, const Secret<32>& secret, std::size_t members);

    /// Of what the member of this rank sends. Once: EEXIST.
    Result<void> take(int sender, Secret<32>& out);

private:
    std::mutex lock_;
    unsigned bits_;  // that tell the members apart
    seal::Puncturable senders_;
};

/// What two ranks send each other on a communicator.
enum class Use : std::uint8_t { messages = 0, collective = 1 };

/// Used by any number of threads.
class FlowSecrets {
public:
    /// Of rank `self`; `world` is the communicator of all ranks on which most flows are. What `agreed` has of secrets
    /// and shares is wiped.
    static Result<std::unique_ptr<FlowSecrets>> make(const cryptmpi_kex& kex, int self, const CommunicatorId& world,
                                                     Agreed& agreed);
    FlowSecrets(const FlowSecrets&) = delete;
    FlowSecrets& operator=(const FlowSecrets&) = delete;
    ~FlowSecrets();

    /// Of the flow from rank `sender` to rank `receiver` of the job, of which this one is one, or both. Once: EEXIST.
    /// EPROTO: the peer's share is none.
    Result<void> take(int sender, int receiver, Use use, const CommunicatorId& id, Secret<32>& out);
    /// That of a communicator whose members are all ranks of the job. Once: EEXIST.
    Result<std::unique_ptr<GroupSecret>> of_all(const CommunicatorId& id);

private:
    FlowSecrets(const cryptmpi_kex& kex, int self, const CommunicatorId& world, Agreed& agreed);
    Result<seal::Puncturable*> pair(int peer);
    Result<void> meet(int peer, Secret<32>& out);
    Result<void> draw(Secret<32>& out) const;
    seal::Path path_of(const CommunicatorId& id) const;

    const cryptmpi_kex& kex_;
    int self_;
    CommunicatorId world_;
    std::mutex lock_;
    std::unique_ptr<Secret<32>> pairs_ = std::make_unique<Secret<32>>();
    std::unique_ptr<Secret<32>> private_key_ = std::make_unique<Secret<32>>();
    std::vector<Share> shares_;  // by rank; zeros: that rank was met
    std::size_t to_meet_;
    std::vector<std::unique_ptr<seal::Puncturable>> met_;  // by rank; null: it was not met
    std::unique_ptr<seal::Puncturable> groups_;
};

}  // namespace cryptmpi::keys
