// The ranks of a job as a binomial tree with its root at 0: the parent of a rank is the rank without its lowest set
// bit, and the subtree of a rank is a run of ranks that begins with it.
#pragma once

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <vector>

namespace cryptmpi::keys {

/// Ranks that follow each other.
struct Run {
    int first;
    int count;
};

/// As lines for people name it.
inline std::string rank_text(int rank) {
    return fmt::format("rank {}", rank);
}

// protocol: A1
inline int parent_of(int rank) {
    return rank & (rank - 1);
}

inline Run subtree_of(int rank, int ranks) {
    const int lowest_bit = rank & -rank;
    const int left = ranks - rank;
    return {rank, rank == 0 ? left : std::min(lowest_bit, left)};
}

/// The smallest subtree first.
inline std::vector<int> children_of(int rank, int ranks) {
    const Run subtree = subtree_of(rank, ranks);
    std::vector<int> children;
    for (int step = 1; step < subtree.count; step *= 2) {
        children.push_back(rank + step);
    }
    return children;
}

}  // namespace cryptmpi::keys
