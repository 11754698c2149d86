// A communicator's members by nodes: between nodes, only some ranks of each send what is sealed, often one, its leader;
// inside a node MPI does it, on data in clear.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <vector>

#include "comm/native.hpp"
#include "comm/voice.hpp"

namespace cryptmpi::comm {

/// Communicators of ours for some ranks of MPI_COMM_WORLD, each for all those communicators of the program in which it
/// has a use: MPI has few to give (MPICH 2,048 in all), and programs make many with the same members. The members of
/// one come to it in the same order, since they call blocking collective operations in the same order; not so where
/// several threads call MPI.
class SharedCommunicators {
public:
    using Ranks = std::vector<int>;  // of MPI_COMM_WORLD

    /// That of these ranks, which has one more user then; null: there is none.
    MPI_Comm take(const Ranks& ranks) {
        const auto found = all_.find(ranks);
        if (found == all_.end()) return MPI_COMM_NULL;
        ++found->second.users;
        return found->second.comm;
    }
    /// With one user.
    void add(const Ranks& ranks, MPI_Comm comm) { all_[ranks] = {comm, 1}; }
    /// Frees it after its last user.
    void give_back(const Native& mpi, const Ranks& ranks) {
        const auto found = all_.find(ranks);
        if (found == all_.end() || --found->second.users != 0) return;
        mpi.Comm_free(&found->second.comm);
        all_.erase(found);
    }

private:
    struct One {
        MPI_Comm comm;
        std::size_t users;
    };
    std::map<Ranks, One> all_;
};

class Nodes {
public:
    /// `node_of`: for each member of `comm`, in order, a number of its node; `world`: its rank in MPI_COMM_WORLD. Made
    /// by all members at the same time. `shared`: null where communicators are not to be shared.
    Nodes(Voice& voice, SharedCommunicators* shared, MPI_Comm comm, int rank, const std::vector<int>& world,
          std::vector<int> node_of);
    Nodes(const Nodes&) = delete;
    Nodes& operator=(const Nodes&) = delete;
    void free();

    /// Of the ranks of this rank's node, in their order; null where that is one.
    MPI_Comm own() const { return own_.comm; }
    /// Of the ranks that have this rank's place on their nodes, in their order; null where that is one.
    MPI_Comm peers() const { return peers_.comm; }
    /// Of the first rank of each node, for these.
    MPI_Comm leaders() const { return peers_.comm; }

    /// The first rank of each node, in the order of ranks.
    const std::vector<int>& all_leaders() const { return all_leaders_; }
    int leader_of(int rank) const { return leader_of_[static_cast<std::size_t>(rank)]; }
    bool is_leader(int rank) const { return leader_of(rank) == rank; }
    /// A leader's place among the leaders.
    int place_of_leader(int rank) const {
        return static_cast<int>(std::lower_bound(all_leaders_.begin(), all_leaders_.end(), rank) -
                                all_leaders_.begin());
    }
    /// A rank's place among those of its node.
    int place_on_node(int rank) const { return place_on_node_[static_cast<std::size_t>(rank)]; }
    /// The ranks of this rank's node, and those with this place on their nodes.
    const std::vector<int>& on_node() const { return own_.members; }
    std::vector<int> at_place(int place) const;
    bool alone() const { return own_.members.size() == 1; }
    /// Do all nodes have the same number of ranks?
    bool equal() const { return equal_; }

private:
    /// A communicator of ours, and its members.
    struct Part {
        std::vector<int> members;
        SharedCommunicators::Ranks world;
        MPI_Comm comm = MPI_COMM_NULL;
        bool ours = true;  // to be freed
        bool missing() const { return members.size() > 1 && comm == MPI_COMM_NULL; }
    };
    void sort(int rank, const std::vector<int>& world, const std::vector<int>& node_of);
    bool find_communicators(MPI_Comm comm, int rank);
    void make(Part& part, MPI_Comm comm, int color, int rank);

    Voice& voice_;
    const Native& mpi_;
    SharedCommunicators* shared_;
    bool equal_ = true;
    std::vector<int> leader_of_;
    std::vector<int> place_on_node_;
    std::vector<int> all_leaders_;
    Part own_;
    Part peers_;
};

}  // namespace cryptmpi::comm
