// This process: its settings, its crypto, its sockets, its counts, and how it ends.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "aead/registry.hpp"
#include "base/result.hpp"
#include "channel/arena.hpp"
#include "channel/courier.hpp"
#include "channel/covering.hpp"
#include "channel/doors.hpp"
#include "channel/policy.hpp"
#include "channel/pulse.hpp"
#include "channel/table.hpp"
#include "config/settings.hpp"
#include "engine/workers.hpp"
#include "keys/handshake.hpp"
#include "keys/report_key.hpp"
#include "report/live.hpp"
#include "report/part.hpp"

namespace cryptmpi::channel {

class Process {
public:
    /// Made by the first call that needs it, and never destroyed: other libraries' destructors still call us.
    static Process& get();
    /// The process if it was made; what the hot path looks at first.
    static Process* made() { return made_.load(std::memory_order_acquire); }
    /// Tests have several: this one is what the program's calls find from now on.
    static void stand_in(Process* process) { made_.store(process, std::memory_order_release); }
    explicit Process(const config::Environment& environment);

    bool enabled() const { return settings_.enabled; }
    /// Other roads between nodes than TCP are open: the MPI layer seals what a rank sends on them. A launcher has none.
    bool roads_open() const { return roads_open_; }
    /// What comes from another node comes by a sealed connection, or not at all.
    bool confined() const { return enabled() && !roads_open_ && settings_.plaintext_peers.empty(); }
    const config::Settings& settings() const { return settings_; }
    const Policy& policy() const { return *policy_; }
    const Covering& covering() const { return *covering_; }
    Doors& doors() { return *doors_; }
    Table& table() { return table_; }
    Arena& arena() { return arena_; }
    Courier& courier() { return courier_; }
    Pulse& pulse() { return pulse_; }

    /// The key and the modules, loaded when the first connection needs them. Errors: each of the key file, the module.
    Result<const keys::Local*> local();

    /// Are there other threads, to seal or open several records with? Once local() has been asked.
    bool has_workers() const { return workers_.threads() > 1; }
    /// Bytes of a write below which one thread seals what is not padded.
    std::size_t seals_plainly_below() const { return seals_plainly_below_; }
    /// As engine::Workers::run and run_beside, for records; those that others do are counted.
    template <class Work>
    void share(std::size_t records, const Work& work) {
        workers_.run(records, counted(work));
    }
    template <class Own, class Work>
    void share_beside(const Own& own, std::size_t records, const Work& work) {
        workers_.run_beside(own, records, counted(work));
    }

    /// False in a child of vfork, which has our memory but is not us.
    bool is_me() const;

    /// Prints one line and keeps it for the report.
    void complain(const std::string& line);
    /// The same, once for each `topic`.
    void complain_once(const std::string& topic, const std::string& line);
    /// A note: what a neighbour sent who had closed before he was accepted has not been read.
    void tell_of_left_out(const std::string& host);
    /// Lets nothing into a datagram socket that was on a wire, where roads are closed. False, after a line: it cannot
    /// be done.
    bool guard_datagrams(int fd);
    /// What a socket that our socket() did not make is to us, but for streams; nullopt: a stream, or nothing.
    std::optional<Kind> kind_of_foreign(int fd);

    /// A road between nodes that was closed to the job, or a program that was not started. Nothing went in clear, so it
    /// is no error of the job's: who tries one that is not needed goes on without; who needs it fails by itself.
    void refuse_road(const std::string& road, const std::string& line);

    void count_native();
    /// `allowed`: a setting of the user's says that it may be.
    void count_unsealed(const std::string& why, bool allowed);
    /// The program calls MPI_Abort, after which it may be killed at any time.
    void report_abort();
    /// A connection that is not sealed; nothing for one that is.
    void count(Verdict verdict, const std::string& why);
    /// `member`: the peer's name in the list of members, empty where none is required.
    void count_sealed(const char* member);
    void count_refused_handshake();
    void count_failed_open();
    void add(const seal::StreamCounters& sent, const seal::StreamCounters& received);
    /// What it seals from now on can be seen while it runs.
    void go_live();

    /// Handshakes on their way in this process: waits look at the clock while there are any.
    int handshakes() const { return handshakes_.load(std::memory_order_relaxed); }
    void handshake_started(Entry& entry);
    void handshake_settled(Entry& entry);

    /// A connection of a rank broke: if the launcher has not ended the process by abort_after, we do. None may hang.
    void expect_the_end();
    /// Somebody reads on and on from a connection that has failed. A daemon of Open MPI 4.1 does, whose connection
    /// breaks before its first answer: a process of the launcher is ended, and the job ends with it.
    void reads_in_vain();
    /// Of a connection that was open, and where the end is expected: calls that meet it do not return.
    void hide_what_broke() { hides_.store(ending_.load()); }
    /// Does not return in such a process: MPI learns nothing of what broke. MPICH over libfabric's provider tcp calls a
    /// receive complete whose bytes never came, and the program would go on with them.
    void stay_until_the_end() const;

    /// Looks for devices that carry messages around TCP, opened behind our back, and stops the process if there are
    /// any.
    void check_roads();

    /// fork, with no lock of ours held by a thread that the child does not have.
    pid_t fork(const std::function<pid_t()>& call);
    bool is_rank() const { return part_.role == "rank"; }
    bool finishing() const { return finished_.load(); }
    std::int64_t finishing_since_ns() const { return finishing_since_ns_; }
    /// How the process ends: by exit, which writes what libc's streams hold; by a call that leaves it, as _exit does;
    /// or after a failure.
    enum class Ending { by_exit, at_once, after_failure };
    /// Ends every sealed stream in order and writes the report part. After a failure the streams are left without their
    /// close records, so that the peers see what happened and end too.
    void finish(Ending how);

    std::string own_name() const { return name_; }
    void self(keys::Identity& identity) const;

private:
    /// Prints one line, and writes what the report has by now.
    void say(const std::string& line);
    /// A rank whose job began with a key of the key file has it from its start, before somebody takes it out of there.
    void hold_key();
    void look_at_auditors();
    void adopt_inherited();
    std::string adopt_arena();
    std::vector<Shared*> adopt_sockets();
    void adopt_unsealed(int fd);
    void become_child();
    /// What nobody may miss in the job's report, should this process be killed: the part as it is by now.
    void report_early();
    void write_part(bool ended);
    /// What others see of the part while this process runs; under its lock. Before the first thing that is worth it,
    /// they see nothing.
    enum class Show { from_now_on, if_they_see };
    void show(Show when);
    std::string program_digest() const;
    Result<keys::ReportKey> report_key() const;
    engine::Workers::Settings workers() const;
    template <class Work>
    auto counted(const Work& work) {
        return [this, &work](std::size_t record, std::size_t thread) {
            if (thread != 0) records_by_workers_.fetch_add(1, std::memory_order_relaxed);
            return work(record, thread);
        };
    }

    static std::atomic<Process*> made_;

    config::Settings settings_;
    std::unique_ptr<Policy> policy_;
    std::unique_ptr<Covering> covering_;
    std::unique_ptr<Doors> doors_;
    Table table_;
    Arena arena_{table_};
    Courier courier_;
    Pulse pulse_;
    pid_t pid_;
    config::Process identity_;
    std::size_t openmp_threads_ = 0;
    std::string name_;  // "rank 3 on host" for lines

    std::mutex local_lock_;
    std::atomic<bool> local_ready_{false};
    std::unique_ptr<keys::KeyRing> ring_;
    std::unique_ptr<keys::Membership> members_;
    keys::Local local_;
    std::uint8_t job_hash_[32] = {};
    engine::Workers workers_;
    std::atomic<std::uint64_t> records_by_workers_{0};
    std::size_t seals_plainly_below_ = 0;

    std::atomic<int> handshakes_{0};

    std::mutex report_lock_;
    report::Part part_;
    report::Live live_;
    std::map<std::string, report::Unsealed> unsealed_;
    std::map<std::string, bool> said_;
    bool mpi_before_fork_ = false;  // in a forked child: its parent had initialised MPI
    std::mutex writing_lock_;       // one part at a time
    std::atomic<bool> ending_{false};
    std::atomic<bool> hides_{false};
    std::atomic<bool> finished_{false};
    std::int64_t finishing_since_ns_ = 0;
    bool roads_checked_ = false;
    bool roads_open_ = false;
};

}  // namespace cryptmpi::channel
