// This process under the fabric layer: its settings, its keys, its part of the report, and how it ends.
#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "config/settings.hpp"
#include "engine/workers.hpp"
#include "fabric/surroundings.hpp"
#include "keys/report_key.hpp"
#include "report/live.hpp"
#include "report/part.hpp"

namespace cryptmpi::fabric {

class Process final : public Surroundings {
public:
    /// Made by the first call that needs it, never destroyed: MPI may be called by other libraries' destructors.
    static Process& get();

    bool enabled() const { return settings_.enabled; }

    Result<const Job*> job() override;
    [[noreturn]] void end(const std::string& line) override;
    [[noreturn]] void give_up(const std::string& line) override;
    void refuse(const std::string& operation, const std::string& why) override;
    void say_cut_off(const std::string& message) override;
    void begin(Party& party) override;
    void end(const Party& party) override;
    void miss(const std::string& line) override;

    /// Before the process ends: its part of the report.
    void finish();

private:
    Process();
    void say(const std::string& line) const;
    void complain(const std::string& line);
    [[noreturn]] void stop(const std::string& line);
    void expect_whole(const Party& party);
    void count(const Counters& counters);
    void write_part(bool ended);
    Result<void> load_keys();
    void say_what_is_not_sealed();
    engine::Workers::Settings workers() const;

    config::Settings settings_;
    config::Process identity_;
    std::string name_;
    bool is_rank_ = false;
    std::mutex lock_;
    std::unique_ptr<keys::KeyRing> ring_;  // of job_
    engine::Workers workers_;              // of job_'s parties
    std::size_t openmp_threads_ = 0;
    std::optional<Job> job_;
    std::optional<keys::ReportKey> report_key_;
    std::map<const Party*, TrafficCounter> parties_;
    bool any_party_ = false;
    bool finished_ = false;
    std::set<std::string> refused_;
    report::Part part_;
    report::Live live_;
};

}  // namespace cryptmpi::fabric
