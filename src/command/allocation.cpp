#include "command/allocation.hpp"

#include <fmt/core.h>

#include <cerrno>
#include <fstream>
#include <sstream>

namespace cryptmpi::command {
namespace {

Result<std::vector<Host>> of_slurm(const std::string& nodes, const std::string& counts) {
    const auto names = expand_node_list(nodes);
    if (!names) return fail(EINVAL, "SLURM_JOB_NODELIST: " + names.error().line);
    const auto slots = expand_count_list(counts);
    if (!slots) return fail(EINVAL, "SLURM_TASKS_PER_NODE: " + slots.error().line);
    if (names->size() != slots->size()) {
        return fail(EINVAL,
                    fmt::format("SLURM_JOB_NODELIST has {} nodes, SLURM_TASKS_PER_NODE {}; give -n N and --hosts",
                                names->size(), slots->size()));
    }
    std::vector<Host> hosts;
    for (std::size_t i = 0; i < names->size(); ++i) hosts.push_back({(*names)[i], (*slots)[i]});
    return hosts;
}

Result<std::vector<Host>> of_file(const char* variable, const std::string& file) {
    std::ifstream stream(file);
    std::ostringstream text;
    text << stream.rdbuf();
    if (!stream) return fail(ENOENT, std::string(variable) + "=" + file + " cannot be read; give -n N and --hosts");
    auto hosts = count_lines(text.str());
    if (!hosts) return fail(EINVAL, std::string(variable) + "=" + file + ": " + hosts.error().line);
    return hosts;
}

}  // namespace

Result<std::vector<Host>> allocated_hosts(const config::Environment& environment) {
    const auto nodes = environment("SLURM_JOB_NODELIST");
    const auto counts = environment("SLURM_TASKS_PER_NODE");
    if (environment("SLURM_JOB_ID") && nodes && counts) return of_slurm(*nodes, *counts);
    // Both have a line for each rank.
    for (const char* variable : {"PBS_NODEFILE", "LSB_DJOB_HOSTFILE"}) {
        if (const auto file = environment(variable)) return of_file(variable, *file);
    }
    return std::vector<Host>();
}

}  // namespace cryptmpi::command
