#include "command/remote_shell.hpp"

#include <algorithm>
#include <filesystem>

#include "command/shell.hpp"

namespace cryptmpi::command {

std::string default_remote_shell(const config::Environment& environment) {
    const bool in_slurm_job = environment("SLURM_JOB_ID") && environment("SLURM_JOB_NODELIST");
    return in_slurm_job && find_in_path("srun", environment) ? "srun" : "ssh";
}

bool is_srun(const Words& shell) {
    return std::any_of(shell.begin(), shell.end(),
                       [](const auto& word) { return std::filesystem::path(word).filename() == "srun"; });
}

Words remote_line(const Words& shell, const Words& options, const std::string& host, const std::string& command) {
    Words line = shell;
    if (!is_srun(shell)) {
        line.insert(line.end(), options.begin(), options.end());
        line.insert(line.end(), {host, command});
        return line;
    }
    // --overlap: beside the user's own steps, and the launcher's. A daemon is no rank: neither a PMI nor cores of its
    // own. What is said here beats what sbatch has left in the environment.
    line.insert(line.end(),
                {"--overlap", "--nodes=1", "--ntasks=1", "--ntasks-per-node=1", "--nodelist=" + host, "--mpi=none",
                 "--cpu-bind=none", "--distribution=block", "--unbuffered", "--quiet", "sh", "-c", command});
    return line;
}

}  // namespace cryptmpi::command
