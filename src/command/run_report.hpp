// The report of a job that cryptmpi run starts: its place, its keys, and the verdict at the end.
#pragma once

#include <cryptmpi/module.h>

#include <filesystem>
#include <string>

#include "base/result.hpp"
#include "command/reports.hpp"
#include "config/settings.hpp"
#include "keys/report_key.hpp"

namespace cryptmpi::command {

/// Where a job's report goes that nobody asked for. Empty: there is no such place. The id may be any text: what would
/// be no plain name of a file, or a long one, is named by its SHA-256.
Result<std::filesystem::path> cache_file(const config::Environment& environment, const std::string& job,
                                         const cryptmpi_kex& kex);

/// Makes the report's folder. The token tells the job's processes that they see this very folder.
Result<void> make_place_of_report(const std::filesystem::path& file, bool private_folder, const std::string& token,
                                  bool fresh_key);

/// What a job's parts and its report are signed with: the same key, unless the job has one of its own.
struct Signing {
    keys::ReportKey parts;
    keys::ReportKey report;
};
Result<Signing> signing_of(const std::filesystem::path& job_key, const config::Settings& settings);

/// Merges the parts and says what came out, if that is not good or somebody wants to know. Returns the exit status.
int conclude(const Signing& keys, const Collecting& parts, bool wanted);

}  // namespace cryptmpi::command
