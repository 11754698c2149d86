// This process: its settings, its keys, its sockets, and how it forks and ends. start.hpp makes it.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "aead/registry.hpp"
#include "base/result.hpp"
#include "channel/arena.hpp"
#include "channel/background.hpp"
#include "channel/covering.hpp"
#include "channel/doors.hpp"
#include "channel/policy.hpp"
#include "channel/process_report.hpp"
#include "channel/table.hpp"
#include "config/settings.hpp"
#include "engine/workers.hpp"
#include "keys/handshake.hpp"
#include "keys/report_key.hpp"

namespace cryptmpi::channel {

class Process {
public:
    /// The process if it was made (this_process); what the hot path looks at first.
    static Process* made() { return made_.load(std::memory_order_acquire); }
    /// Tests have several: this one is what the program's calls find from now on.
    static void stand_in(Process* process) { made_.store(process, std::memory_order_release); }
    using MakeBackground = std::function<std::unique_ptr<Background>(Process&)>;
    Process(const config::Environment& environment, const MakeBackground& make_background);

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
    Background& background() { return *background_; }
    ProcessReport& report() { return report_; }

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

    /// Lets nothing into a datagram socket that was on a wire, where roads are closed. False, after a line: it cannot
    /// be done.
    bool guard_datagrams(int fd);
    /// What a socket that our socket() did not make is to us, but for streams; nullopt: a stream, or nothing.
    std::optional<Kind> kind_of_foreign(int fd);

    /// As others that hold its connections know it.
    ProcessName name() const { return name_; }

    /// Handshakes on their way in this process: waits look at the clock while there are any.
    int handshakes() const { return handshakes_.load(std::memory_order_relaxed); }
    /// Held while this process becomes, or stops to be, a holder of a connection, and by a fork from the count of what
    /// the child will hold to its being there.
    std::mutex& holders_lock() { return holders_lock_; }
    /// How often connections have become another process's, too; 0: never.
    std::uint32_t shares() const { return shares_.load(std::memory_order_acquire); }
    /// When they are counted as that.
    void note_shared() { shares_.fetch_add(1); }
    /// How often another process has got descriptors of this one, or may have got them.
    std::uint32_t given() const { return given_.load(); }
    void note_given() { given_.fetch_add(1); }
    void handshake_started(Entry& entry);
    void handshake_settled(Entry& entry);
    /// What another process, or the program before this one, has left to do on a connection that this one holds, too.
    /// True: the handshake is on its way.
    bool carry_on(Entry& entry, const Shared& shared);

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

    /// fork, with no lock of ours held by a thread that the child does not have; `call` has those of instances of
    /// epoll.
    pid_t fork(const std::function<pid_t()>& call);
    bool is_rank() const { return identity_.role == "rank"; }
    bool finishing() const { return finished_.load(); }
    std::int64_t finishing_since_ns() const { return finishing_since_ns_; }
    /// How the process ends: by exit, which writes what libc's streams hold; by a call that leaves it, as _exit does;
    /// or after a failure.
    enum class Ending { by_exit, at_once, after_failure };
    /// Ends a sealed stream in order.
    using End = bool (*)(Process&, Entry&);
    /// Ends every sealed stream and writes the report part. After a failure nothing ends them: they are left without
    /// their close records, so that the peers see what happened and end too.
    void finish(Ending how, End end);
    /// A rank whose job began with a key of the key file has it from its start, before somebody takes it out of there.
    void hold_key();

    void self(keys::Identity& identity) const;

private:
    /// `mpi`: as the parent's report said it before the fork.
    void become_child(bool mpi);
    /// What the report's part is signed with.
    Result<keys::ReportKey> report_key() const;
    engine::Workers::Settings workers() const;
    template <class Work>
    auto counted(const Work& work) {
        return [this, &work](std::size_t record, std::size_t thread) {
            if (thread != 0) report_.count_by_worker();
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
    const std::unique_ptr<Background> background_;
    pid_t pid_;
    ProcessName name_;
    const std::string host_;
    const config::Process identity_;
    const std::size_t openmp_threads_;

    Result<void> make_local();

    std::mutex local_lock_;
    std::atomic<bool> local_ready_{false};
    std::unique_ptr<keys::KeyRing> ring_;
    std::unique_ptr<keys::Membership> members_;
    keys::Local local_;
    std::uint8_t job_hash_[32] = {};
    engine::Workers workers_;
    std::size_t seals_plainly_below_ = 0;

    std::atomic<int> handshakes_{0};
    std::mutex holders_lock_;
    std::atomic<std::uint32_t> shares_{0};
    std::atomic<std::uint32_t> given_{0};

    std::atomic<bool> ending_{false};
    std::atomic<bool> hides_{false};
    std::atomic<bool> finished_{false};
    std::int64_t finishing_since_ns_ = 0;
    std::atomic<bool> roads_checked_{false};
    bool roads_open_ = false;

    ProcessReport report_;
};

/// While another process is made, which gets descriptors of ours: also those that other threads open meanwhile.
class Giving {
public:
    explicit Giving(Process* process) : process_(process) { note(); }
    ~Giving() { note(); }
    Giving(const Giving&) = delete;
    Giving& operator=(const Giving&) = delete;

private:
    void note() const {
        if (process_ != nullptr) process_->note_given();
    }

    Process* process_;
};

}  // namespace cryptmpi::channel
