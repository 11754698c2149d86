#include "comm/rank_report.hpp"

namespace cryptmpi::comm {
namespace {

void add(const FlowTotals& totals, report::Part& part) {
    part.sealed_connections += totals.flows;
    part.sealed_bytes_sent += totals.sent.bytes;
    part.sealed_bytes_received += totals.received.bytes;
    part.sealed_records_sent += totals.sent.messages;
    part.sealed_records_received += totals.received.messages;
    part.rekeys += totals.sent.rekeys + totals.received.rekeys;
}

}  // namespace

void RankReport::publish() {
    (void)live_.publish(report::own_live_folders(), part_);
}

void RankReport::count_failed_open() {
    ++part_.failed_opens;
    live_.tell(part_, 0);
}

void RankReport::count_flows(const FlowTotals& totals) {
    add(totals, part_);
}

void RankReport::add_error(const std::string& line) {
    part_.errors.push_back(line);
    live_.tell(part_, 0);
}

Result<void> RankReport::write(const std::string& report_file, const std::vector<FlowTotals>& so_far,
                               const report::Sign& sign) {
    report::Part part = part_;
    for (const FlowTotals& totals : so_far) add(totals, part);
    part.sizes_sent = sizes_->sent;
    part.sizes_received = sizes_->received;
    return report::write_part(report_file, part, sign);
}

}  // namespace cryptmpi::comm
