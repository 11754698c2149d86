// The MPI layer of one rank: MPI's own procedures, settings and keys, the communicators and requests we know. A process
// has one (interpose/this_process.hpp); nothing in this room asks for it, all are given theirs. So tests have several.
//
// Everything in this room is compiled once per MPI ABI, against that ABI's mpi.h.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/exit_status.hpp"
#include "base/result.hpp"
#include "comm/answers.hpp"
#include "comm/communicator.hpp"
#include "comm/errors.hpp"
#include "comm/held.hpp"
#include "comm/hints.hpp"
#include "comm/in_transit.hpp"
#include "comm/job_keys.hpp"
#include "comm/large.hpp"
#include "comm/native.hpp"
#include "comm/operation.hpp"
#include "comm/rank_report.hpp"
#include "comm/scope.hpp"
#include "comm/tuned.hpp"
#include "comm/types.hpp"
#include "comm/voice.hpp"
#include "comm/waiting.hpp"
#include "config/settings.hpp"
#include "engine/buffer_pool.hpp"
#include "engine/workers.hpp"
#include "keys/node_token.hpp"

namespace cryptmpi::comm {

/// What a layer finds around it in its process.
struct Host {
    const Native& mpi;
    config::Environment environment;
    std::string name;                 // of the machine
    keys::Surroundings surroundings;  // that tell nodes apart
    /// Whether the channel library of this process lets nothing in but by sealed connections; none: it is not there.
    std::optional<bool> confined;
    DueBeforeWait& due_before_wait;
    int messages;  // the descriptor that lines for the user are written to
};

class Layer final : public Voice {
public:
    explicit Layer(Host host);

    DueBeforeWait& due_before_wait() { return host_.due_before_wait; }
    LeftWithMpi& left_with_mpi() { return left_with_mpi_; }
    Answers& answers() { return answers_; }
    Types& types() { return types_; }
    const config::Settings& settings() const { return settings_; }

    /// After MPI_Init: agrees on the job's secret with all ranks, or ends the job with one line.
    void begin(int thread_level);
    /// Before MPI's own end, in MPI_Finalize or with the last session: this rank's part of the report; some MPIs do not
    /// come back from there. What is complained of later comes into the part, too.
    void report();
    /// After an MPI_Finalize that was not MPI's end: what the report has if the program never ends its sessions.
    void report_so_far();
    /// After MPI's own end: the secrets are wiped.
    void end();
    bool begun() const { return begun_; }
    /// Does MPI tell us that it deletes the attributes of MPI_COMM_SELF? It is its end once MPI_Finalize was called
    /// (awaited), be it with a session that is open longer; then the program's traffic is over.
    enum class EndOfSelf : std::uint8_t { none, told, awaited, over };
    EndOfSelf end_of_self() const { return end_of_self_; }
    void set_end_of_self(EndOfSelf end) { end_of_self_ = end; }
    /// end(), of the two threads that may find the traffic over at the same time, by one.
    void end_if_over();

    /// The communicator behind a handle; null where nothing is ours to seal: MPI is told as if we were not there.
    Communicator* find(MPI_Comm handle) {
        if (handle == last_handle_) return last_;
        return look_up(handle);
    }
    std::shared_ptr<Communicator> share(MPI_Comm handle);
    /// Whose errors are those of an operation on it: the user may have freed it while the operation was on its way.
    MPI_Comm living(const std::shared_ptr<Communicator>& communicator) {
        if (!communicator || share(communicator->handle()) != communicator) return MPI_COMM_WORLD;
        return communicator->handle();
    }
    bool is_intercommunicator(MPI_Comm handle) const { return look_at(handle) == Handle::of_inter; }
    void add(MPI_Comm handle, const CommunicatorId& id, Ours ours = Ours::shared);
    /// After MPI has freed it. Another thread may have been given its handle since then, for another one.
    void forget(MPI_Comm handle, const std::shared_ptr<Communicator>& freed);

    const Scope& scope() const { return scope_; }
    int world_rank() const { return world_rank_; }
    /// Does MPI take a message that was sent out of its receiver's queue, where its send is cancelled?
    bool takes_back_sent() const { return takes_back_sent_; }

    const JobKeys& keys() const { return keys_; }

    Requests& requests() { return requests_; }

    /// For what travels.
    engine::BufferPool& pool() { return pool_; }
    engine::Buffer buffer(std::size_t size) { return pool_.take(size); }

    /// Of the members of MPI_COMM_WORLD in their order: for messages of collective operations; null while nothing of
    /// the job leaves the node.
    MPI_Comm own_traffic() const { return own_traffic_; }
    /// Whose errors are for us: what MPI is asked there, the program does not hear of.
    MPI_Comm quiet() const { return own_traffic_; }
    /// Of this rank alone: for questions that are collective operations; null with own_traffic().
    MPI_Comm alone() const { return alone_; }

    /// What large messages travel by; its communicator is null while nothing of the job leaves the node.
    const SegmentTransport& transport() const { return transport_; }
    /// How collective operations are done: rank 0 decided it, and it is the same on all ranks.
    const engine::CollectivePlan& collectives() const { return tuned_.collectives; }
    Hints& hints() { return hints_; }
    /// Tells a large message to this rank of MPI_COMM_WORLD from those before it, for as long as they can be on their
    /// way.
    std::uint32_t next_mark(int world_rank);
    /// Segments that go on without their operation: a send whose receiver is late, a receive that failed.
    struct Leftovers {
        std::list<std::unique_ptr<Outgoing>> outgoing;
        std::list<std::unique_ptr<Incoming>> incoming;
    };
    Leftovers& leftovers() { return leftovers_; }
    /// Is anything large on its way?
    bool anything_goes_on() const {
        return !requests_.unfinished.empty() || !leftovers_.outgoing.empty() || !leftovers_.incoming.empty() ||
               !left_with_mpi_.empty();
    }

    /// A message that Mprobe took out of MPI's queue, by MPI's handle; or that we took out and hold, by a handle of an
    /// empty message.
    struct Matched {
        std::shared_ptr<Communicator> communicator;
        Posted posted = {};
        std::unique_ptr<Held> held = nullptr;
    };
    std::unordered_map<MPI_Message, Matched>& matched() { return matched_; }

    /// Several threads call MPI: our state is for one at a time, and no lock is held while MPI blocks.
    bool threads() const { return threads_; }
    /// A session was given MPI_THREAD_MULTIPLE, whatever MPI_COMM_WORLD has.
    void take_session_of_threads();
    /// Such a session came when calls without locks may have been on their way: its threads must not use our state.
    bool lets_sessions_in() const { return !came_too_late_; }
    /// On one rank at least, which is what all ranks know.
    bool threads_somewhere() const { return threads_somewhere_; }
    std::unique_lock<std::recursive_mutex> guard() {
        return threads_ ? std::unique_lock(lock_) : std::unique_lock<std::recursive_mutex>();
    }

    void say(const std::string& line) const override;
    int messages() const override { return host_.messages; }
    /// Prints one line and keeps it for the report.
    void complain(const std::string& line);
    /// Complains that `procedure` is refused, once: a program whose error handler returns may call it for ever.
    void complain_of_refused(const std::string& procedure, const std::string& reason);
    /// The MPI error of a message that was not what its sender sent: says the line, and calls the communicator's error
    /// handler, as MPI does. Returns the error code.
    int raise(MPI_Comm handle, const std::string& line);
    /// The same without the handler: for one of several requests.
    int integrity_error(const std::string& line);
    /// MPI's code for a call on `ours`, whose errors are those of the program's communicator `handle`.
    int pass_on(MPI_Comm ours, MPI_Comm handle, int code) const {
        if (code != MPI_SUCCESS && ours != handle) [[unlikely]] {
            raise_on_comm(*this, handle, code);
        }
        return code;
    }
    /// The MPI error of a refused call; before MPI_Init, when there is no class of ours, MPI_ERR_OTHER.
    int refused_code() const { return refused_code_; }
    bool has_complained_of(int code) const override { return code == error_code_ || code == refused_code_; }
    RankReport& rank_report() { return rank_report_; }

    [[noreturn]] void end_job(const std::string& line) override;

private:
    enum class Handle : std::uint8_t { of_none, of_intra, of_inter };
    Handle look_at(MPI_Comm handle) const;
    Communicator* look_up(MPI_Comm handle);
    bool intercommunicators_allowed() const;
    void take_level(int thread_level);
    void share_state();
    Result<void> load_keys();
    Result<void> agree();
    void make_error_classes();
    void add_comm_self();
    void make_transport();
    void make_alone();
    void make_workers(const engine::Workers::Settings& workers);
    void leave_report();
    Result<void> write_report();

    Host host_;
    config::Settings settings_;
    Scope scope_;
    config::Process identity_;
    std::string name_;
    bool begun_ = false;
    bool ended_ = false;
    bool reported_ = false;
    std::atomic<EndOfSelf> end_of_self_{EndOfSelf::none};
    std::mutex level_lock_;         // for those who change what follows
    std::thread::id starter_ = {};  // the thread that called MPI_Init
    bool session_has_threads_ = false;
    std::atomic<bool> came_too_late_{false};
    bool threads_ = false;
    bool threads_somewhere_ = false;
    bool takes_back_sent_ = false;
    std::recursive_mutex lock_;
    std::mutex refused_lock_;  // also where no thread level is known, before MPI_Init
    std::set<std::string> refused_;
    JobKeys keys_{settings_};
    int world_rank_ = 0;
    int world_size_ = 1;
    int error_code_ = MPI_ERR_OTHER;
    int refused_code_ = MPI_ERR_OTHER;

    // What the others below work with: it goes after them.
    Answers answers_;
    Types types_;
    Tuned tuned_;
    engine::BufferPool pool_;
    engine::Workers workers_;
    Traffic traffic_;
    LeftWithMpi left_with_mpi_;

    MPI_Comm last_handle_ = MPI_COMM_NULL;
    Communicator* last_ = nullptr;
    std::unordered_map<MPI_Comm, std::shared_ptr<Communicator>> communicators_;
    Requests requests_;
    std::unordered_map<MPI_Message, Matched> matched_;
    SegmentTransport transport_;
    Hints hints_{*this, transport_};
    MPI_Comm own_traffic_ = MPI_COMM_NULL;
    MPI_Comm alone_ = MPI_COMM_NULL;
    SharedCommunicators shared_communicators_;
    std::unordered_map<int, std::uint32_t> marks_;  // by rank of MPI_COMM_WORLD
    std::uint32_t most_marks_ = 16383;              // with two tags each, which every implementation has
    Leftovers leftovers_;
    RankReport rank_report_;
    const Job job_{*this,       scope_, keys_, rank_report_, shared_communicators_, world_rank_, threads_somewhere_,
                   own_traffic_};
};

}  // namespace cryptmpi::comm
