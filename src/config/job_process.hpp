// Which process of which job this is, and under what, as launchers, batch systems and cryptmpi run say in the
// environment.
#pragma once

#include <fmt/core.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "config/environment.hpp"

namespace cryptmpi::config {

/// Which process of the job this is, from the launcher's environment.
struct Process {
    // PMIX_RANK, OMPI_COMM_WORLD_RANK, PMI_RANK; by a batch system alone SLURM_PROCID, FLUX_TASK_RANK,
    // JSM_NAMESPACE_RANK (LSF's jsrun)
    std::optional<int> rank;
    // OMPI_COMM_WORLD_SIZE, PMI_SIZE; of a rank that the batch system started itself SLURM_STEP_NUM_TASKS,
    // FLUX_JOB_SIZE, JSM_NAMESPACE_SIZE
    std::optional<int> ranks;
    std::string role;  // "rank", "launcher" (CRYPTMPI_INTERNAL_ROLE), "process"
    // Ranks of its node: OMPI_COMM_WORLD_LOCAL_SIZE, MPI_LOCALNRANKS, JSM_NAMESPACE_LOCAL_SIZE,
    // SLURM_STEP_TASKS_PER_NODE
    std::optional<int> node_ranks = {};
    // Which of the job's groups of ranks it belongs to: empty for those that the launcher started, else those of one
    // MPI_Comm_spawn (by PMIX_NAMESPACE), or of all of them (PMI_SPAWNED).
    std::string group = {};
    // Which start of a launcher it belongs to, where that says so; the group of its ranks begins with "nested" where a
    // rank of the job has started that launcher.
    std::string launch = {};
    // srun has started it (SLURM_STEP_ID), or a process of the step that is no rank. Of a launcher that somebody has
    // started by hand in a step, the ranks are not srun's.
    bool slurm_step = false;

    /// Whom its lines come from: "rank 3 on node1", or its machine.
    std::string name_on(const std::string& host) const {
        return rank ? fmt::format("rank {} on {}", *rank, host) : host;
    }
};
Process identify(const Environment& environment);
/// What tells the launch apart that this process is in, whether it is a rank or a program in a rank's place; empty:
/// nothing does. Of Hydra's ranks, each has words of its own.
std::string launch_of_place(const Environment& environment);
/// A launcher that cryptmpi run started, its daemons, and what these start before a rank is one.
bool is_of_launcher(const Environment& environment);

/// One id for all of a job's processes, those that it spawns later included; empty: nobody says.
std::string launched_job_id(const Environment& environment);

/// OMP_NUM_THREADS, a number for each level of nesting, multiplied. 0: it says nothing.
std::size_t openmp_threads(const Environment& environment);

/// Why this process runs under `layer` ("channel", "mpi", "fabric"), as cryptmpi run or exec said in
/// CRYPTMPI_INTERNAL_LAYER_REASON; empty when they did not choose it.
std::string layer_reason(const Environment& environment, std::string_view layer);

}  // namespace cryptmpi::config
