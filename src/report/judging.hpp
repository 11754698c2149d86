// How a report's verdict is found. A rank counts when MPI was initialised in a process of its own under us, and that
// process came to its end: wrappers have a rank in their environment, too, and seal nothing.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "report/verdict.hpp"

namespace cryptmpi::report {

/// How many ranks there should be, and how many of them counted.
struct RankCount {
    int expected = -1;  // -1: nobody knows
    int counted = 0;
    bool all = false;
    int spawned_missing = 0;  // ranks that MPI_Comm_spawn started, by what its callers say
    std::set<int> half_told;  // ranks that told of their messages and not of their sockets
    bool is_known = false;    // how many the launcher started, by what it says
};

/// `started`: what the launcher's side says; -1: nothing. Ranks that a job spawns later are groups of their own, each
/// counted from zero.
RankCount count_ranks(const std::vector<nlohmann::ordered_json>& parts, int started);

/// Is this the part of the library that seals the job's data? Under the MPI layer the sockets below seal the same bytes
/// again, with the launcher's, which are counted by themselves.
bool is_of_the_layer(const nlohmann::ordered_json& part);

/// Did this part's process count as its rank?
bool counts_as_rank(const nlohmann::ordered_json& part);

/// Of what was not sealed: loopback never leaves the node, so it does not spoil the verdict; whatever else went in
/// clear does.
bool left_the_node(const nlohmann::ordered_json& entry);

/// "2 of 4 ranks reported, on 2 node(s)".
std::string ranks_text(const nlohmann::ordered_json& job);

/// Of a merged report.
Verdict verdict_of(const nlohmann::ordered_json& job);

}  // namespace cryptmpi::report
