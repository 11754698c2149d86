#include "comm/nodes.hpp"

#include <map>

namespace cryptmpi::comm {

Nodes::Nodes(const interpose::Native& native, MPI_Comm comm, int rank, std::vector<int> node_of) : mpi_(native) {
    const auto mine = node_of[static_cast<std::size_t>(rank)];
    std::map<int, int> leaders;
    for (std::size_t i = 0; i < node_of.size(); ++i) {
        const int member = static_cast<int>(i);
        const auto [found, first] = leaders.emplace(node_of[i], member);
        leader_of_.push_back(found->second);
        if (first) all_leaders_.push_back(member);
        if (node_of[i] == mine) on_node_.push_back(member);
    }
    if (all_leaders_.size() == node_of.size()) {
        leaders_ = comm;
        return;
    }
    mpi_.Comm_split(comm, leader_of(rank), rank, &own_);
    mpi_.Comm_split(comm, is_leader(rank) ? 0 : MPI_UNDEFINED, rank, &leaders_);
}

void Nodes::free() {
    if (own_ == MPI_COMM_NULL) return;
    mpi_.Comm_free(&own_);
    if (leaders_ != MPI_COMM_NULL) mpi_.Comm_free(&leaders_);
}

}  // namespace cryptmpi::comm
