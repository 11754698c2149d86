// The keys of one rank's job: read from files as MPI starts, agreed on with all other ranks, and what messages get from
// them until MPI ends.
#pragma once

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "aead/registry.hpp"
#include "base/result.hpp"
#include "base/secret.hpp"
#include "comm/native.hpp"
#include "config/settings.hpp"
#include "keys/agreement.hpp"
#include "keys/flow_secrets.hpp"
#include "keys/key_ring.hpp"
#include "keys/membership.hpp"
#include "keys/node_token.hpp"
#include "keys/report_key.hpp"
#include "report/part.hpp"

namespace cryptmpi::comm {

using keys::CommunicatorId;

class JobKeys {
public:
    explicit JobKeys(const config::Settings& settings) : settings_(settings) {}

    /// Chooses the modules and reads the key files; `part` learns their names. `conduct`: what all ranks must do alike
    /// (keys::kSealsAll, keys::kOpenRoads).
    Result<void> load(std::uint8_t conduct, report::Part& part);

    /// A rank, as it agrees with the others.
    struct Rank {
        const Native& mpi;
        int rank;
        int ranks;
        const std::string& host;
        const keys::Surroundings& surroundings;
        const keys::Terms& terms;  // count on rank 0
        std::function<void(const std::string& line)> say;
    };
    /// What all ranks know after it.
    struct Table {
        std::vector<keys::NodeId> nodes;  // by rank of MPI_COMM_WORLD
        keys::Terms terms;                // of rank 0
        std::set<std::string> members;    // who the ends of this rank's edges proved to be
    };
    /// By all ranks at once, after load(). Then the files' keys are gone: they were for the agreement only.
    Result<Table> agree(const Rank& self);

    /// For the lines of the crypto module.
    const cryptmpi_kex& kex() const { return *local_.crypto.kex; }

    /// What flows are sealed with.
    const seal::Crypto& crypto() const { return local_.crypto; }
    /// Before the first flow begins.
    void count_traffic_in(TrafficCounter watched) { local_.crypto.watched = watched; }
    void seal_with_threads(std::size_t threads) { local_.crypto.threads = threads; }

    /// Of MPI_COMM_WORLD.
    const CommunicatorId& world_id() const { return world_id_; }
    Result<CommunicatorId> derive_id(const CommunicatorId& parent, std::string_view how, std::uint64_t call,
                                     const std::vector<int>& members) const;
    /// The secret of one flow between ranks of MPI_COMM_WORLD, and those by which all of them send to all. Once.
    /// Errors (EPIPE): the keys are wiped.
    Result<void> flow_secret(int sender, int receiver, keys::Use use, const CommunicatorId& id, Secret<32>& out) const;
    Result<std::unique_ptr<keys::GroupSecret>> group_of_all(const CommunicatorId& id) const;

    Result<std::string> sign_report(std::string_view text) const { return report_key_.sign(text); }

    void wipe();

private:
    /// The key under which the ranks agree, where key_distribution makes it another than the job key.
    Result<std::unique_ptr<keys::JobKey>> transported_key(const Rank& self, const keys::Identity& identity,
                                                          keys::Peers& peers) const;
    Result<void> agree_under_keys(const Rank& self, const keys::Identity& identity, keys::Peers& peers,
                                  keys::Agreed& agreed);
    void drop_files_keys();

    const config::Settings& settings_;
    keys::Local local_;
    keys::ReportKey report_key_;  // of the job key, which is gone when the report is written
    CommunicatorId world_id_{};
    std::unique_ptr<keys::FlowSecrets> flow_secrets_;  // while the job has any

    // For the agreement only.
    std::unique_ptr<keys::KeyRing> ring_;
    std::unique_ptr<keys::Membership> members_;
    const cryptmpi_rsa* rsa_ = nullptr;
};

}  // namespace cryptmpi::comm
