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

/// May something of this job go in clear, of which a part has to tell before?
bool may_leave_in_clear(const config::Settings& settings);

/// On a node that does not see the folder of cryptmpi run: the place of its own that the parts go to is there, and this
/// user's alone. Error: somebody else has it. `first`: no process of the job has come to this node before. It marks the
/// place, also on a node that sees the folder where something may go in clear: a process in a container may not see it.
Result<void> prepare_local_report(const config::Settings& settings, const config::Environment& environment, bool first);

/// Marks the place on the node of cryptmpi run.
void mark_local_report(const std::string& token);

/// Tells the processes that this one starts which folder of parts it has seen, unless one before it on this node has
/// told it. `first`: what it was told comes from another node.
void pass_on_seen_folder(const std::filesystem::path& report_file, const std::string& token, bool first);

/// Removes such places of this user's that nobody fetched in a month: longer than any job.
void sweep_local_reports();

/// Fetches the parts that wait on this node, and on nodes of which none is here, or one that tells of others which
/// wait, or on all: cryptmpi collect on each, by the remote shell. The job's agents have noted the nodes. What comes to
/// the place of such a node later finds no mark.
struct Collecting {
    std::filesystem::path report_file;
    report::Started started;
    std::string token;
    std::string rsh;
    std::filesystem::path key_file;  // on the other nodes; when it is gone, so is the job
    bool everywhere = false;         // something may have gone in clear, on any node and at any time
};
/// Returns what could not be had and why; empty: nothing.
std::string collect_parts(const Collecting& what, const report::Sign& sign);

/// What a report may be signed with: by each key of the key file. Errors: the key file's.
Result<std::vector<report::Sign>> report_signers(const config::Settings& settings, const cryptmpi_kex& kex);

}  // namespace cryptmpi::command
