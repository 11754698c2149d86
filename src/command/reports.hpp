// Where the parts of a job's report are, on nodes that see the folder of cryptmpi run and on those that do not.
#pragma once

#include <cryptmpi/module.h>

#include <chrono>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "command/subcommands.hpp"
#include "config/settings.hpp"
#include "report/job_report.hpp"
#include "report/signature.hpp"

namespace cryptmpi::command {

/// On a node that does not see the folder of cryptmpi run: the place of its own that the parts go to is there, and this
/// user's alone. Error: somebody else has it.
Result<void> prepare_local_report(const config::Settings& settings, const config::Environment& environment);

/// Removes such places of this user's that nobody fetched in a month: longer than any job.
void sweep_local_reports();

/// Fetches the parts that wait on this node, and on nodes of which none is here, or one that tells of others which
/// wait: cryptmpi collect on each, by the remote shell. The job's agents have noted the nodes.
struct Collecting {
    std::filesystem::path report_file;
    report::Started started;
    std::string token;
    std::string rsh;
    std::filesystem::path key_file;  // on the other nodes; when it is gone, so is the job
};
/// Returns what could not be had and why; empty: nothing.
std::string collect_parts(const Collecting& what, const report::Sign& sign);

/// What a report may be signed with: by each key of the key file. Errors: the key file's.
Result<std::vector<report::Sign>> report_signers(const config::Settings& settings, const cryptmpi_kex& kex);

}  // namespace cryptmpi::command
