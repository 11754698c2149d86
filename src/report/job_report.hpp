// A whole job's report: made of its parts, and read.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "report/merging.hpp"
#include "report/signature.hpp"
#include "report/verdict.hpp"

namespace cryptmpi::report {

/// A job's report is its parts' sums, per rank and per node lists, and what is missing ("2 of 4 ranks reported"), as
/// JSON text. A part that is not signed with the job key is an error of the job.
///
/// Merges the parts of a job that somebody started, also where none came, into a report_file, and removes them. Parts
/// are signed under the job's key; the report under one that is still there when somebody checks it.
Result<Verdict> finish_job(const std::filesystem::path& report_file, const Started& started, const Sign& sign_of_parts,
                           const Sign& sign_of_report);

/// The nodes of the parts that are there and signed, and whether others wait there.
std::map<std::string, bool> nodes_of_parts(const std::filesystem::path& report_file, const Started& started,
                                           const Sign& sign);

/// Of a merged file, whose signature must be good, or of a report_file whose parts are not merged yet. Without `sign`
/// (nobody has the job key) signatures are not looked at, which the verdict says.
class Reading {
public:
    static Result<Reading> of(const std::filesystem::path& report_file, const Sign& sign);
    /// The same, signed by any of these; none: it cannot be verified.
    static Result<Reading> of(const std::filesystem::path& report_file, const std::vector<Sign>& signers);

    const Verdict& verdict() const { return verdict_; }
    /// Its signature, or those of its parts, were looked at; a merged report's is good.
    bool verified() const { return verified_; }
    /// The verdict and what it rests on, readable.
    const std::string& summary() const { return summary_; }
    /// The same as one page, which needs nothing else to be shown or printed.
    const std::string& html() const { return html_; }
    /// Its numbers for Prometheus.
    const std::string& metrics() const { return metrics_; }
    /// The whole report.
    const std::string& json() const { return json_; }

private:
    Verdict verdict_;
    bool verified_ = false;
    std::string summary_;
    std::string html_;
    std::string metrics_;
    std::string json_;
};

}  // namespace cryptmpi::report
