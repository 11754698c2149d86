// What this rank does, as its part of the report says when the job ends, and as its page shows while it runs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "base/traffic.hpp"
#include "report/live.hpp"
#include "report/part.hpp"
#include "seal/message.hpp"

namespace cryptmpi::comm {

/// What the flows of a communicator have carried.
struct FlowTotals {
    seal::MessageCounters sent;
    seal::MessageCounters received;
    std::uint64_t flows = 0;
};

class RankReport {
public:
    report::Part& part() { return part_; }

    /// Lets others see this rank's page, where there can be one: nothing that a job depends on.
    void publish();
    /// Nobody sees it any more.
    void withdraw() { live_.withdraw(); }
    /// Where traffic of several threads is counted.
    TrafficCounter counter() { return live_.counter(TrafficCounter::Threads::several); }

    // Of messages and blocks, when they are sealed or opened, by the thread that has the guard.
    void count_sealed(std::size_t size) { sizes_->sent.count(size); }
    void count_opened(std::size_t size) { sizes_->received.count(size); }
    void count_failed_open();
    /// At a communicator's end, once.
    void count_flows(const FlowTotals& totals);
    void add_error(const std::string& line);

    /// Writes this rank's part, with what the communicators that are still there have carried so far; it may be written
    /// again. Error: one line.
    Result<void> write(const std::string& report_file, const std::vector<FlowTotals>& so_far, const report::Sign& sign);

private:
    report::Part part_;
    report::Live live_;
    report::LiveSizes* sizes_ = &live_.sizes();
};

}  // namespace cryptmpi::comm
