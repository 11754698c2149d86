#include "command/placement.hpp"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <utility>

#include "command/allocation.hpp"

namespace cryptmpi::command {
namespace {

/// "a,b:2" with the slots that are not given made up so that the ranks fill one node after the other.
Result<std::vector<Host>> hosts_with_slots(const std::string& text, int ranks, int per_node) {
    if (text.empty()) return std::vector<Host>();
    auto hosts = parse_host_list(text);
    if (!hosts) return fail(EINVAL, "run: --hosts: " + hosts.error().line);
    const int count = static_cast<int>(hosts->size());
    for (auto& host : *hosts) {
        if (host.slots == 0) host.slots = per_node > 0 ? per_node : std::max(1, (ranks + count - 1) / count);
    }
    return hosts;
}

bool has(const std::vector<TypedOption>& options, std::initializer_list<Meaning> meanings) {
    return std::any_of(options.begin(), options.end(), [&](const TypedOption& option) {
        return std::find(meanings.begin(), meanings.end(), option.meaning()) != meanings.end();
    });
}

/// The nodes that the launcher's own options name. Error: a file or a list that names none.
Result<std::vector<Host>> hosts_of(const std::vector<TypedOption>& options) {
    std::vector<Host> all;
    for (const auto& option : options) {
        if (option.meaning() != Meaning::hosts && option.meaning() != Meaning::host_file) continue;
        const std::string& value = option.values.front();
        if (option.meaning() == Meaning::host_file && (value == "none" || value == "HYDRA_USE_LOCALHOST")) continue;
        std::string text = value;
        if (option.meaning() == Meaning::host_file) {
            std::ifstream stream(value);
            std::ostringstream content;
            content << stream.rdbuf();
            if (!stream) return fail(ENOENT, "run: " + option.name + " " + value + ": the file cannot be read");
            text = content.str();
        }
        auto hosts = option.meaning() == Meaning::hosts ? parse_host_list(text) : parse_host_file(text);
        if (!hosts) return fail(EINVAL, "run: " + option.name + " " + value + ": " + hosts.error().line);
        all.insert(all.end(), hosts->begin(), hosts->end());
    }
    return all;
}

/// How many ranks these nodes get where nobody says how many. -1: only the launcher knows.
int ranks_of_hosts(Mpi mpi, const std::vector<TypedOption>& options, const std::vector<Host>& hosts) {
    // Intel MPI fills the nodes' cores, as Open MPI does with nodes of a file that have no slots.
    const bool launcher_knows = mpi == Mpi::intel || has(options, {Meaning::places});
    const bool from_file = has(options, {Meaning::host_file});
    if (launcher_knows || (from_file && has(options, {Meaning::hosts}))) return -1;
    int ranks = 0;
    for (const auto& host : hosts) {
        if (host.slots == 0 && from_file && mpi == Mpi::open_mpi) return -1;
        ranks += std::max(1, host.slots);
    }
    return ranks > 0 ? ranks : -1;
}

int ranks_of(const std::vector<Context>& contexts) {
    int ranks = 0;
    for (const auto& context : contexts) ranks += context.ranks;
    return ranks;
}

}  // namespace

Result<int> place_ranks(const Places& places, Mpi mpi, const config::Environment& environment, Launch& launch) {
    const int others = ranks_of(launch.more);
    if (others != 0 && places.ranks == 0)
        return fail(EINVAL, "run: how many ranks of " + launch.command.front() + "? Give -n N");
    auto hosts = hosts_with_slots(places.hosts, places.ranks + others, places.per_node);
    if (!hosts) return tl::unexpected<Error>(hosts.error());
    const auto of_launcher = hosts_of(launch.options);
    if (!of_launcher) return tl::unexpected<Error>(of_launcher.error());
    launch.ranks = places.ranks;
    launch.per_node = places.per_node;
    const bool placed = has(launch.options, {Meaning::hosts, Meaning::host_file, Meaning::places});
    if (hosts->empty() && !placed) {
        hosts = allocated_hosts(environment);
        if (!hosts) return fail(EINVAL, "run: " + hosts.error().line);
        for (auto& host : *hosts) {
            if (places.per_node > 0) host.slots = places.per_node;
        }
    }
    launch.hosts = std::move(*hosts);
    if (launch.ranks > 0) return launch.ranks + others;
    for (const auto& host : launch.hosts) launch.ranks += host.slots;
    if (launch.ranks > 0) return launch.ranks;
    if (placed) return places.per_node > 0 ? -1 : ranks_of_hosts(mpi, launch.options, *of_launcher);
    return fail(EINVAL, "run: how many ranks? Give -n N, or --hosts with slots");
}

}  // namespace cryptmpi::command
