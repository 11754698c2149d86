#include "comm/rank_report.hpp"

namespace cryptmpi::comm {

void RankReport::publish() {
    (void)live_.publish(report::own_live_folders(), part_);
}

void RankReport::count_failed_open() {
    ++part_.failed_opens;
    live_.tell(part_, 0);
}

void RankReport::count_flows(const FlowTotals& totals) {
    part_.sealed_connections += totals.flows;
    part_.sealed_bytes_sent += totals.sent.bytes;
    part_.sealed_bytes_received += totals.received.bytes;
    part_.sealed_records_sent += totals.sent.messages;
    part_.sealed_records_received += totals.received.messages;
    part_.rekeys += totals.sent.rekeys + totals.received.rekeys;
}

void RankReport::add_error(const std::string& line) {
    part_.errors.push_back(line);
    live_.tell(part_, 0);
}

Result<void> RankReport::write(const std::string& report_file, const report::Sign& sign) {
    part_.sizes_sent = sizes_->sent;
    part_.sizes_received = sizes_->received;
    return report::write_part(report_file, part_, sign);
}

}  // namespace cryptmpi::comm
