#include "report/own_part.hpp"

#include <unistd.h>

#include "aead/suite.hpp"
#include "base/own_names.hpp"
#include "config/internal_variables.hpp"
#include "config/other_process.hpp"
#include "report/live.hpp"

namespace cryptmpi::report {

void tell_process(Part& part, const config::Environment& environment, const config::Settings& settings,
                  const config::Process& process, const std::string& node) {
    part.job_id = settings.job_id;
    part.report_token = environment(config::kReportTokenVariable).value_or("");
    part.folder_token = environment(config::kFolderTokenVariable).value_or("");
    part.seen_folder = environment(config::kSeenFolderVariable).value_or("");
    part.layer_reason = config::layer_reason(environment, part.layer);
    part.node = node;
    part.kernel = kernel_and_network();
    part.pid = getpid();
    part.pid_namespace = own_pid_namespace();
    part.role = process.role;
    part.slurm_step = process.slurm_step;
    part.launcher_here = process.rank && config::has_launcher_above();
    part.seals_sockets = settings.seal_sockets;
    part.program = program_name();
    part.user = geteuid();
    part.user_namespace = own_user_namespace();
    part.settings = settings.given_lines();
    part.suite = aead::name(settings.suite);
    part.key_exchange = config::name_of(settings.key_exchange);
}

void tell_rank(Part& part, const config::Process& process) {
    part.rank = process.rank.value_or(-1);
    part.ranks = process.ranks.value_or(-1);
    part.launch = process.launch;
    part.group = process.group;
}

}  // namespace cryptmpi::report
