// A communicator's members by nodes: between nodes, only one rank of each, its leader, sends what is sealed; inside a
// node MPI does it, on data in clear.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "native.hpp"

namespace cryptmpi::comm {

class Nodes {
public:
    /// `node_of`: for each member, in order, a number of its node. Made by all members at the same time, from `comm`,
    /// which has the same members, nobody else's traffic, and lives longer.
    Nodes(const interpose::Native& native, MPI_Comm comm, int rank, std::vector<int> node_of);
    Nodes(const Nodes&) = delete;
    Nodes& operator=(const Nodes&) = delete;
    void free();

    /// Of the ranks of this rank's node, in their order (null where no node has two); that of the leaders, null on
    /// others.
    MPI_Comm own() const { return own_; }
    MPI_Comm leaders() const { return leaders_; }

    /// The first rank of each node, in the order of ranks.
    const std::vector<int>& all_leaders() const { return all_leaders_; }
    int leader_of(int rank) const { return leader_of_[static_cast<std::size_t>(rank)]; }
    bool is_leader(int rank) const { return leader_of(rank) == rank; }
    /// A leader's place among the leaders, and the place of one of this node's ranks among them.
    int place_of_leader(int rank) const { return place(all_leaders_, rank); }
    int place_on_node(int rank) const { return place(on_node_, rank); }
    bool alone() const { return on_node_.size() == 1; }

private:
    static int place(const std::vector<int>& ranks, int rank) {
        return static_cast<int>(std::lower_bound(ranks.begin(), ranks.end(), rank) - ranks.begin());
    }

    const interpose::Native& mpi_;
    std::vector<int> leader_of_;
    std::vector<int> all_leaders_;
    std::vector<int> on_node_;
    MPI_Comm own_ = MPI_COMM_NULL;
    MPI_Comm leaders_ = MPI_COMM_NULL;
};

}  // namespace cryptmpi::comm
