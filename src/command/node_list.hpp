// The lists of nodes and ranks that users, launchers' files and batch systems write. Pure: text in, lists out.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"

namespace cryptmpi::command {

struct Host {
    std::string name;
    int slots = 0;  // 0: not said
};

/// What a list may expand to: more nodes than any machine has, and few enough to be held.
inline constexpr std::size_t kMostNodes = 1U << 17U;

/// Slurm's compressed list of nodes, in its order: "node[1-3,07-09],x" is node1, node2, node3, node07, node08, node09,
/// x. A name may have several brackets, and text behind them. Errors: brackets that do not match, a range that is none
/// or counts downwards, an empty name, or one that a command line would take for an option; over kMostNodes.
Result<std::vector<std::string>> expand_node_list(std::string_view text);

/// Slurm's compressed list of counts, one for each node: "2(x3),1" is 2, 2, 2, 1. Errors: a count that is no number
/// over 0, a repetition that is none; over kMostNodes.
Result<std::vector<int>> expand_count_list(std::string_view text);

/// Nodes by their names, in the order in which they come first, each with the number of lines that name it: the files
/// of PBS and LSF. Errors: a line that is no name, or none at all.
Result<std::vector<Host>> count_lines(std::string_view text);

/// "a,b:2,c:*,d[1-3]:2", as people give nodes to a launcher, and Slurm's lists. Error: what is no node.
Result<std::vector<Host>> parse_host_list(std::string_view text);

/// A file of nodes in Open MPI's syntax (node slots=2 max_slots=4) or Hydra's (node:2 binding=...). Error: what is no
/// node, with its line's number.
Result<std::vector<Host>> parse_host_file(std::string_view text);

}  // namespace cryptmpi::command
