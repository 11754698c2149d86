// Which hosts a job has daemons on, as somebody of the job noted beside the parts of its report.
#pragma once

#include <filesystem>
#include <set>
#include <string>

#include "base/result.hpp"
#include "report/signature.hpp"

namespace cryptmpi::report {

/// Notes beside the parts that the job has a daemon on this host; and all that were noted by somebody of the job, since
/// a remote shell is given their names.
Result<void> note_host(const std::filesystem::path& report_file, const std::string& host, const std::string& job_id,
                       const Sign& sign);
std::set<std::string> noted_hosts(const std::filesystem::path& report_file, const std::string& job_id,
                                  const Sign& sign);

}  // namespace cryptmpi::report
