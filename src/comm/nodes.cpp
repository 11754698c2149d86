#include "comm/nodes.hpp"

#include <numeric>
#include <utility>

#include "comm/members.hpp"
#include "comm/quiet.hpp"

namespace cryptmpi::comm {

Nodes::Nodes(Voice& voice, SharedCommunicators* shared, MPI_Comm comm, int rank, const std::vector<int>& world,
             std::vector<int> node_of)
    : voice_(voice), mpi_(voice.mpi), shared_(shared) {
    sort(rank, world, node_of);
    if (all_leaders_.size() != node_of.size()) {
        if (find_communicators(comm, rank)) return;
        // MPI has none left for all of us. That each rank is a node by itself needs none.
        free();
        std::iota(node_of.begin(), node_of.end(), 0);
        sort(rank, world, node_of);
    }
    peers_.comm = comm;
    peers_.ours = false;
}

void Nodes::sort(int rank, const std::vector<int>& world, const std::vector<int>& node_of) {
    std::map<int, int> leaders;
    std::map<int, int> sizes;
    leader_of_.clear();
    all_leaders_.clear();
    place_on_node_.clear();
    for (std::size_t i = 0; i < node_of.size(); ++i) {
        const int member = static_cast<int>(i);
        const auto [found, first] = leaders.emplace(node_of[i], member);
        leader_of_.push_back(found->second);
        if (first) all_leaders_.push_back(member);
        place_on_node_.push_back(sizes[node_of[i]]++);
    }
    equal_ =
        std::all_of(sizes.begin(), sizes.end(), [&](const auto& node) { return node.second == sizes[node_of[0]]; });
    own_ = {};
    for (std::size_t i = 0; i < node_of.size(); ++i) {
        if (leader_of_[i] == leader_of(rank)) own_.members.push_back(static_cast<int>(i));
    }
    peers_ = {};
    peers_.members = at_place(place_on_node(rank));
    for (Part* part : {&own_, &peers_}) {
        for (const int member : part->members) part->world.push_back(world[static_cast<std::size_t>(member)]);
    }
}

std::vector<int> Nodes::at_place(int place) const {
    std::vector<int> ranks;
    for (std::size_t i = 0; i < place_on_node_.size(); ++i) {
        if (place_on_node_[i] == place) ranks.push_back(static_cast<int>(i));
    }
    return ranks;
}

/// Those that other communicators use, and the rest, which all members make together. Have all members theirs?
bool Nodes::find_communicators(MPI_Comm comm, int rank) {
    for (Part* part : {&own_, &peers_}) {
        if (shared_ != nullptr && part->missing()) part->comm = shared_->take(part->world);
    }
    int missing[] = {own_.missing() ? 1 : 0, peers_.missing() ? 1 : 0};
    mpi_.Allreduce(MPI_IN_PLACE, missing, 2, MPI_INT, MPI_MAX, comm);
    // The answer came in clear: whoever changed it makes ranks wait for each other, and none take what it has not.
    if (missing[0] == 0 && missing[1] == 0) return !own_.missing() && !peers_.missing();
    {
        const Quiet quiet(mpi_, comm);
        if (missing[0] != 0) make(own_, comm, leader_of(rank), rank);
        if (missing[1] != 0) make(peers_, comm, place_on_node(rank), rank);
    }
    int failed = own_.missing() || peers_.missing() ? 1 : 0;
    mpi_.Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, comm);
    return failed == 0 && !own_.missing() && !peers_.missing();
}

void Nodes::make(Part& part, MPI_Comm comm, int color, int rank) {
    const bool wanted = part.missing();
    MPI_Comm made = MPI_COMM_NULL;
    const int code = mpi_.Comm_split(comm, wanted ? color : MPI_UNDEFINED, rank, &made);
    if (code != MPI_SUCCESS || made == MPI_COMM_NULL) return;
    // Data go in clear in one of a node's ranks, so these must be those that the key agreement has on this node.
    require_members(voice_, made, part.world, "cryptmpi");
    part.comm = made;
    mpi_.Comm_set_errhandler(part.comm, MPI_ERRORS_RETURN);
    if (shared_ != nullptr) shared_->add(part.world, part.comm);
}

void Nodes::free() {
    for (Part* part : {&own_, &peers_}) {
        if (!part->ours || part->comm == MPI_COMM_NULL) continue;
        if (shared_ != nullptr) {
            shared_->give_back(mpi_, part->world);
        } else {
            mpi_.Comm_free(&part->comm);
        }
        part->comm = MPI_COMM_NULL;
    }
}

}  // namespace cryptmpi::comm
