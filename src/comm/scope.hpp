// Which of the job's ranks are on this node, and what therefore is sealed: all that a rank sends, or what leaves its
// node.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/settings.hpp"
#include "keys/agreement.hpp"
#include "report/part.hpp"

namespace cryptmpi::comm {

class Scope {
public:
    /// Everything is sealed.
    Scope() = default;
    /// `confined`: whether the channel library of this process lets nothing in but by sealed connections; none: it is
    /// not there.
    Scope(const config::Settings& settings, std::optional<bool> confined);

    /// What of it a report says.
    void tell(const config::Settings& settings, report::Part& part) const;
    /// Of keys::kSealsAll and keys::kOpenRoads, which all ranks must agree on.
    std::uint8_t terms() const;
    /// What the user of a job should know; empty: nothing.
    std::string note() const;

    /// The ranks have agreed: the nodes of those of MPI_COMM_WORLD, of which this process is `rank`.
    void place(std::vector<keys::NodeId> nodes, int rank);

    /// Messages inside a node are sealed, too. The same on all ranks: they have agreed on it.
    bool seals_all() const { return seals_all_; }
    /// What this rank sends itself is sealed where strangers can speak to MPI, as they can say that they are this rank.
    bool seals_own() const { return seals_own_; }
    /// Does what is sent to this rank of MPI_COMM_WORLD leave the node (or is everything sealed)?
    bool sealed_to(int world_rank) const { return sealed_to_[static_cast<std::size_t>(world_rank)]; }
    /// Does anything that this rank sends have to be sealed?
    bool seals_anything() const;
    const std::vector<keys::NodeId>& nodes() const { return nodes_; }

private:
    std::optional<bool> sockets_;  // the channel library's word
    bool confined_ = false;        // nothing comes from other nodes but by sealed sockets
    bool seals_all_ = true;
    bool seals_own_ = false;
    std::vector<keys::NodeId> nodes_;
    std::vector<bool> sealed_to_;
};

}  // namespace cryptmpi::comm
