// What processes tell that reported when their job's report had been made: ranks and daemons may outlive their
// launcher.
#pragma once

#include <nlohmann/json_fwd.hpp>

namespace cryptmpi::report {

/// Does a part tell of what a verdict must not pass over: errors, records that did not open, traffic in clear?
bool has_trouble(const nlohmann::ordered_json& part);

/// Adds that to a merged report, but for what the report has already: a process that has written its part early, and
/// again at its end, may be in it.
void add_late(nlohmann::ordered_json& job, const nlohmann::ordered_json& part);

}  // namespace cryptmpi::report
