// What cryptmpi top shows of the processes that it has read, once and again.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "report/live_reader.hpp"

namespace cryptmpi::report {

/// At one time.
struct LiveLook {
    LiveProcesses found;
    std::chrono::steady_clock::time_point when;
    std::int64_t time = 0;  // seconds since 1970
};

/// A table for each job, for a terminal, or one line where there is none. `before`: what rates are since; null: there
/// are none yet.
std::string live_table(const LiveLook& now, const LiveLook* before);
nlohmann::ordered_json live_json(const LiveLook& now, const LiveLook* before);
/// In the text format of Prometheus, with the names that a report's numbers have there.
std::string live_metrics(const LiveLook& now);

}  // namespace cryptmpi::report
