#include "comm/scope.hpp"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace cryptmpi::comm {

/// MPI says who sent a message. Where anybody but members of the job can speak to MPI, he can say that he is a rank of
/// this node: then nothing is taken unsealed from anybody.
Scope::Scope(const config::Settings& settings, std::optional<bool> confined)
    : sockets_(confined), confined_(confined.value_or(false)) {
    // protocol: W8
    // Who has put himself between ranks as they got their keys has a say in who is on which node, too: nothing is left
    // in clear for that.
    const bool all_where_open = settings.scope == config::Scope::automatic || settings.passive_only();
    seals_all_ = settings.scope == config::Scope::all || (all_where_open && !confined_);
}

void Scope::tell(const config::Settings& settings, report::Part& part) const {
    part.scope = seals_all_ ? "all" : "between-nodes";
    if (!sockets_) part.clear_packets = "the sockets are not sealed (seal_sockets = false)";
    if (settings.roads_open()) part.clear_packets = "they may take another network than TCP (network = any)";
    if (confined_ || seals_all_) return;
    part.not_sealed.push_back(
        {"what seems to come from a rank of the own node (scope = between-nodes, where strangers "
         "can speak to MPI)",
         0, 0, true});
}

std::uint8_t Scope::terms() const {
    return static_cast<std::uint8_t>((seals_all_ ? keys::kSealsAll : 0) | (confined_ ? 0 : keys::kOpenRoads));
}

std::string Scope::note() const {
    if (confined_ || seals_all_) return "";
    return "note: scope = between-nodes: whoever can speak to MPI on the network can pass a message off as one of a "
           "rank of the receiver's node; the default, scope = auto, seals these here";
}

void Scope::place(std::vector<keys::NodeId> nodes, int rank) {
    nodes_ = std::move(nodes);
    const auto self = static_cast<std::size_t>(rank);
    // protocol: M28
    seals_own_ = seals_all_ && !confined_ && nodes_.size() > 1;
    sealed_to_.resize(nodes_.size());
    for (std::size_t to = 0; to < nodes_.size(); ++to) {
        const bool crosses = seals_all_ || nodes_[to] != nodes_[self];
        sealed_to_[to] = to == self ? seals_own_ : crosses;
    }
}

bool Scope::seals_anything() const {
    return std::find(sealed_to_.begin(), sealed_to_.end(), true) != sealed_to_.end();
}

}  // namespace cryptmpi::comm
