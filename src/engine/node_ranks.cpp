#include "engine/node_ranks.hpp"

#include <dirent.h>
#include <fmt/core.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

namespace cryptmpi::engine {
namespace {

/// The other processes that our parent has started, whichever of its threads it was; none where the system does not
/// say.
std::vector<pid_t> siblings() {
    std::vector<pid_t> found;
    const std::string threads = fmt::format("/proc/{}/task", getppid());
    DIR* const folder = opendir(threads.c_str());
    if (folder == nullptr) return found;
    while (const dirent* const thread = readdir(folder)) {
        std::ifstream children(threads + "/" + thread->d_name + "/children");
        for (pid_t child = 0; children >> child;) {
            if (child != getpid()) found.push_back(child);
        }
    }
    closedir(folder);
    return found;
}

}  // namespace

PerHardwareThread ranks_of_node(const HardwareThreads& own, int node_ranks, const std::function<bool(pid_t)>& is_rank) {
    PerHardwareThread ranks = own.members();
    int unseen = node_ranks - 1;
    for (const pid_t sibling : siblings()) {
        if (!is_rank(sibling)) continue;
        const auto its = HardwareThreads::of_thread(sibling);
        if (its.count() == 0) continue;
        for (std::size_t i = 0; i < ranks.size(); ++i) ranks[i] += its.members()[i];
        --unseen;
    }
    for (int& number : ranks) number += unseen > 0 ? unseen : 0;
    return ranks;
}

}  // namespace cryptmpi::engine
