#include "config/job_process.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <system_error>

#include "config/internal_variables.hpp"

namespace cryptmpi::config {
namespace {

std::optional<int> number_in(const Environment& environment, std::initializer_list<const char*> names) {
    for (const char* name : names) {
        const auto text = environment(name);
        if (!text) continue;
        int number = 0;
        const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
        if (error == std::errc{} && end == text->data() + text->size() && number >= 0) return number;
    }
    return std::nullopt;
}

/// Of a list as Slurm writes it, "2(x3),1" (2 tasks on each of three nodes, 1 on the fourth), that of one node.
std::optional<int> tasks_of_node(std::string_view list, int node) {
    while (!list.empty()) {
        const std::string_view entry = list.substr(0, list.find(','));
        list.remove_prefix(std::min(entry.size() + 1, list.size()));
        const char* const end = entry.data() + entry.size();
        int tasks = 0;
        auto [at, error] = std::from_chars(entry.data(), end, tasks);
        if (error != std::errc{}) return std::nullopt;
        int nodes = 1;
        if (at != end) {
            if (!std::string_view(at, end).starts_with("(x")) return std::nullopt;
            const auto [stop, wrong] = std::from_chars(at + 2, end, nodes);
            if (wrong != std::errc{} || std::string_view(stop, end) != ")") return std::nullopt;
        }
        if (node < nodes) return tasks;
        node -= nodes;
    }
    return std::nullopt;
}

std::optional<int> node_ranks(const Environment& environment) {
    const auto told =
        number_in(environment, {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "JSM_NAMESPACE_LOCAL_SIZE"});
    if (told) return told;
    const auto tasks = environment("SLURM_STEP_TASKS_PER_NODE");
    const auto node = number_in(environment, {"SLURM_NODEID"});
    return tasks && node ? tasks_of_node(*tasks, *node) : std::nullopt;
}

/// Is this process in a step that srun has started? A batch script and salloc's shell are in none, or in one with a
/// number that no int can hold.
bool is_in_slurm_step(const Environment& environment) {
    return number_in(environment, {"SLURM_STEP_ID"}).has_value();
}

/// What the batch system that started this process itself says of it.
struct Task {
    std::optional<int> rank;
    std::optional<int> ranks;
};

Task task_of(const Environment& environment, bool slurm_step) {
    // A batch script has SLURM_PROCID and SLURM_NTASKS, too: the job's, which its steps need not have.
    if (slurm_step)
        return {number_in(environment, {"SLURM_PROCID"}),
                number_in(environment, {"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"})};
    if (const auto rank = number_in(environment, {"FLUX_TASK_RANK"}))
        return {rank, number_in(environment, {"FLUX_JOB_SIZE"})};
    return {number_in(environment, {"JSM_NAMESPACE_RANK"}), number_in(environment, {"JSM_NAMESPACE_SIZE"})};
}

/// Open MPI counts a job's groups from one: in a number's low half, or behind the "@" of a name.
std::string spawned_group(const Environment& environment) {
    const auto name_space = environment("PMIX_NAMESPACE");
    if (!name_space) return environment("PMI_SPAWNED") ? "spawned" : "";
    std::string group = name_space->substr(name_space->rfind('@') + 1);
    if (name_space->find('@') == std::string::npos) {
        std::uint32_t number = 0;
        const char* end = name_space->data() + name_space->size();
        const auto [stop, error] = std::from_chars(name_space->data(), end, number);
        if (error != std::errc{} || stop != end) return "";
        group = std::to_string(number & 0xffffU);
    }
    return group == "1" ? "" : group;
}

/// The same for all ranks of a launch, those that they spawn included; empty: the launcher does not say.
std::string launch_of(const Environment& environment) {
    if (auto name_space = environment("PMIX_NAMESPACE")) {
        if (const auto at = name_space->rfind('@'); at != std::string::npos) return name_space->substr(0, at);
        // Open MPI 4 gives a number: the job's family in the high half, the count of spawned groups in the low.
        std::uint32_t number = 0;
        const char* end = name_space->data() + name_space->size();
        const auto [stop, error] = std::from_chars(name_space->data(), end, number);
        if (error == std::errc{} && stop == end) return std::to_string(number >> 16U);
        return *name_space;
    }
    return environment("I_MPI_HYDRA_UUID").value_or("");
}

/// Did a rank of the job, or what stands in its place, start the launcher of this one?
bool is_nested(const Environment& environment) {
    const auto place = environment(kPlaceVariable);
    const std::string own = launch_of_place(environment);
    return place && !own.empty() && own != *place;
}

std::string group_of(const Environment& environment) {
    std::string spawned = spawned_group(environment);
    if (!is_nested(environment)) return spawned;
    return "nested" + (spawned.empty() ? "" : " " + spawned);
}

}  // namespace

std::string launch_of_place(const Environment& environment) {
    const auto descriptor = number_in(environment, {"PMI_FD"});
    if (!descriptor || environment("PMIX_NAMESPACE")) return launch_of(environment);
    // Hydra gives its launches no names, and each rank a socket to its proxy, which the rank's place has until its end.
    std::error_code closed;
    return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(*descriptor), closed).string();
}

bool is_of_launcher(const Environment& environment) {
    return environment(kRoleVariable) == "launcher";
}

Process identify(const Environment& environment) {
    Process process;
    process.ranks = number_in(environment, {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE"});
    process.rank = number_in(environment, {"PMIX_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK"});
    const bool in_step = is_in_slurm_step(environment);
    const bool launcher = is_of_launcher(environment);
    const auto batch = task_of(environment, in_step);
    // A launcher inside a step is a task of the batch system, too, without being a rank.
    if (!process.rank && !launcher) process.rank = batch.rank;
    // The ranks that a launcher inside a step has started are others than the step's tasks.
    const auto name_space = environment("PMIX_NAMESPACE");
    const bool by_hydra = environment("MPI_LOCALNRANKS").has_value();
    const bool a_task = name_space ? name_space->starts_with("slurm.pmix.") : process.rank == batch.rank && !by_hydra;
    process.slurm_step = in_step && (a_task || !process.rank);
    if (process.rank && !process.ranks && a_task) process.ranks = batch.ranks;
    if (process.rank) process.node_ranks = node_ranks(environment);
    if (process.rank) process.group = group_of(environment);
    if (process.rank) process.launch = launch_of(environment);
    process.role = process.rank ? "rank" : launcher ? "launcher" : "process";
    return process;
}

std::string launched_job_id(const Environment& environment) {
    if (auto launch = launch_of(environment); !launch.empty()) return launch;
    auto job = environment("SLURM_JOB_ID");
    auto step = environment("SLURM_STEP_ID");
    if (job && step) return *job + "." + *step;
    for (const char* name : {"FLUX_JOB_ID", "PBS_JOBID"}) {
        if (auto id = environment(name)) return *id;
    }
    // LSF numbers the elements of a job array by themselves; 0: the job is none.
    auto lsf = environment("LSB_JOBID");
    if (!lsf) return "";
    const std::string element = environment("LSB_JOBINDEX").value_or("0");
    return element == "0" ? *lsf : *lsf + "[" + element + "]";
}

std::size_t openmp_threads(const Environment& environment) {
    constexpr std::size_t kMost = 4096;  // more than any node has
    const std::string text = environment("OMP_NUM_THREADS").value_or("");
    std::size_t all = 0;
    for (const char *at = text.data(), *const end = at + text.size(); at < end;) {
        std::size_t level = 0;
        const auto [stop, error] = std::from_chars(at, end, level);
        if (error != std::errc{} || level == 0) return 0;
        all = std::min(std::max(all, std::size_t{1}) * std::min(level, kMost), kMost);
        at = stop == end ? end : stop + 1;
    }
    return all;
}

std::string layer_reason(const Environment& environment, std::string_view layer) {
    const auto told = environment(kReasonVariable);
    const std::string lead = std::string(layer) + ": ";
    return told && told->starts_with(lead) ? told->substr(lead.size()) : "";
}

}  // namespace cryptmpi::config
