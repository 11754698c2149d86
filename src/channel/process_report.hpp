// What this process tells of itself: the lines that it prints, its part of the job's report, and the page that others
// see while it runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "base/result.hpp"
#include "base/traffic.hpp"
#include "channel/policy.hpp"
#include "config/settings.hpp"
#include "keys/report_key.hpp"
#include "report/live.hpp"
#include "report/part.hpp"
#include "seal/stream.hpp"

namespace cryptmpi::channel {

class Table;

/// The crypto libraries that this process uses, with their versions ("libsodium 1.0.18").
struct ModuleNames {
    std::string cipher;
    std::string handshakes;
    std::string kem;  // empty: the key exchange has no ML-KEM
};

class ProcessReport {
public:
    /// What the part is signed with, when one is written.
    using Key = std::function<Result<keys::ReportKey>()>;

    /// `name` is whom lines come from: "rank 3 on host". While the process is `finishing` it shows nothing.
    ProcessReport(std::string name, const config::Settings& settings, const Table& table,
                  const std::atomic<bool>& finishing, Key key);

    /// The settings have been read: from now on there is a part.
    void begin(const config::Environment& environment, const config::Process& process, const std::string& host);
    /// What the program that this process ran before an exec showed.
    void remove_leftovers() const;
    /// The keys and the modules have been loaded. `member`: whose member key it has, empty where none is required.
    void tell_of_keys(const ModuleNames& by, const std::string& member);
    /// Where the traffic of sealed connections is counted.
    TrafficCounter counter() { return traffic_; }

    /// Prints one line and keeps it for the report.
    void complain(const std::string& line);
    /// The same, once for each `topic`.
    void complain_once(const std::string& topic, const std::string& line);
    /// Prints one line, once for each `topic`, that is no error: a job that prints it may be good.
    void note_once(const std::string& topic, const std::string& line);
    /// A road between nodes that was closed to the job, or a program that was not started. Nothing went in clear, so it
    /// is no error of the job's: who tries one that is not needed goes on without; who needs it fails by itself.
    void tell_of_refused(const std::string& road, const std::string& line);
    /// The program calls MPI_Abort, after which it may be killed at any time.
    void tell_of_abort();
    /// The program has started so many ranks by MPI_Comm_spawn: each of them has to report.
    void tell_of_spawned(int ranks);

    void count_native();
    /// Asked before anything of it goes out. `allowed`: a setting of the user's says that it may be. False, after a
    /// line: the job's report has to name it, and cannot, so that it must not be. Waits for who writes the part.
    [[nodiscard]] bool count_unsealed(const std::string& why, bool allowed);
    /// A connection that is not sealed, as above; nothing for one that is.
    [[nodiscard]] bool count(Verdict verdict, const std::string& why);
    /// `member`: the peer's name in the list of members, empty where none is required.
    void count_sealed(const char* member);
    void count_refused_handshake();
    void count_failed_open();
    /// A record that another thread than the caller's sealed or opened.
    void count_by_worker() { records_by_workers_.fetch_add(1, std::memory_order_relaxed); }
    void add(const seal::StreamCounters& sent, const seal::StreamCounters& received);
    /// What it seals from now on can be seen while it runs.
    void go_live();

    /// Was MPI initialised in this process, or in one that it was forked from? Asked before a fork, and not inside it:
    /// another thread may have gone with a lock of the loader's.
    bool mpi_was_there() const;
    /// Around fork: no lock of ours may be held by a thread that the child does not have.
    void lock();
    void unlock();
    /// The parent reports what it did; this part begins with the child. `mpi`: what mpi_was_there() said.
    void after_fork_in_child(bool mpi);

    /// Nobody sees the page any more, and the part is written to its end: once more only for what other libraries'
    /// destructors do.
    void finish();

private:
    /// Prints one line, and writes what the report has by now.
    void say(const std::string& line);
    /// What nobody may miss in the job's report, should this process be killed: the part as it is by now.
    void report_early();
    /// Before something goes in clear of which the part tells for the first time.
    Result<void> report_before_it_happens();
    enum class Wait { no, yes };
    /// Nothing is written, and it is no error, where `wait` is no and another thread writes.
    Result<void> write_part(Wait wait);
    /// Under the locks. Empty: there is no need for a part of this process.
    std::optional<report::Part> whole_part();
    bool is_idle() const;
    std::string program_digest() const;
    /// What others see of the part while this process runs; under its lock. Before the first thing that is worth it,
    /// they see nothing.
    enum class Show { from_now_on, if_they_see };
    void show(Show when);

    const std::string name_;
    const config::Settings& settings_;
    const Table& table_;
    const std::atomic<bool>& finishing_;
    const Key key_;
    bool begun_ = false;
    bool has_rank_ = false;         // by its environment
    bool mpi_before_fork_ = false;  // in a forked child: its parent had initialised MPI

    std::mutex writing_lock_;  // one part at a time
    std::mutex lock_;          // taken after the other one
    report::Part part_;
    report::Live live_;
    const TrafficCounter traffic_ = live_.counter(TrafficCounter::Threads::several);
    struct Counted {
        report::Unsealed entry;
        bool told = false;  // the part that was written has it
    };
    std::map<std::string, Counted> unsealed_;
    std::map<std::string, bool> said_;
    std::atomic<std::uint64_t> records_by_workers_{0};
};

}  // namespace cryptmpi::channel
