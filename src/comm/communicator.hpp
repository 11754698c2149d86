// What we know of an intracommunicator: its identity, its members, the flows to and from them, the receives that wait.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "comm/held.hpp"
#include "comm/job_keys.hpp"
#include "comm/native.hpp"
#include "comm/nodes.hpp"
#include "comm/posted.hpp"
#include "comm/rank_report.hpp"
#include "comm/scope.hpp"
#include "comm/voice.hpp"
#include "keys/flow_secrets.hpp"
#include "seal/arrivals.hpp"
#include "seal/message.hpp"

namespace cryptmpi::comm {

/// The same on all members, and on no other communicator of the job: derived from the parent's, and how this one came
/// from it.
using keys::CommunicatorId;

/// What is kept for each tag; most messages have the tag of the one before.
template <class Value>
class Lanes {
public:
    Value& operator[](int tag) {
        if (recent_ == nullptr || recent_tag_ != tag) {
            recent_ = &values_[tag];
            recent_tag_ = tag;
        }
        return *recent_;
    }

private:
    std::unordered_map<int, Value> values_;
    Value* recent_ = nullptr;
    int recent_tag_ = 0;
};

/// What all communicators of a process share.
struct Job {
    Voice& voice;
    const Scope& scope;
    const JobKeys& keys;
    RankReport& rank_report;
    SharedCommunicators& shared_communicators;
    const int& world_rank;
    const bool& threads_somewhere;  // call MPI, several of a rank
    const MPI_Comm& own_traffic;    // the members of MPI_COMM_WORLD, in their order
};

/// The communicators of ours behind one of the program: shared with those of others where one thread of a rank calls
/// MPI. What is made of a group alone has its own: it may be a session's, whose threads call MPI beside those of
/// MPI_COMM_WORLD, and only the ranks that have such a session know.
enum class Ours : std::uint8_t { shared, its_own };

class Communicator {
public:
    Communicator(const Job& job, MPI_Comm handle, const CommunicatorId& id, std::vector<int> world_ranks, int rank,
                 Ours ours);

    MPI_Comm handle() const { return handle_; }
    const CommunicatorId& id() const { return id_; }
    Ours ours() const { return job_.threads_somewhere ? Ours::its_own : ours_; }
    int rank() const { return rank_; }
    int size() const { return static_cast<int>(world_.size()); }
    const std::vector<int>& world_ranks() const { return world_; }
    bool has(int rank) const { return rank >= 0 && rank < size(); }

    /// Are messages to and from this rank sealed?
    bool sealed(int rank) const { return sealed_[static_cast<std::size_t>(rank)]; }
    /// Do collective operations leave the node? All members give the same answer.
    bool crosses() const { return crosses_; }

    // Point to point. The tag is the lane; sender and receiver count its messages.

    /// Seals the message that is sent next to `to` with `tag`: kMessageOverhead + size bytes at `out`.
    Result<void> seal(int to, int tag, const void* at, std::size_t size, std::uint8_t* out);
    /// Announces it: kAnnouncedWire bytes at `out`.
    Result<seal::Segments> announce(int to, int tag, const seal::Announcement& announcement, std::uint8_t* out);
    /// Opens a message that a receive posted as `posted` matched, into `out` (the plaintext's size), and checks that it
    /// comes once, and that none before it was left out.
    Result<void> open(const Posted& posted, int from, int tag, const std::uint8_t* wire, std::size_t wire_size,
                      void* out);
    /// The same for the announcement of a message in segments.
    Result<seal::Segments> open_announcement(const Posted& posted, int from, int tag, const std::uint8_t* wire,
                                             std::size_t wire_size);
    /// The number of the first message of a lane that MPI still has in its queue; none where that is not certain.
    std::optional<std::uint64_t> first_in_queue(int from, int tag);
    /// How long message `number` of a lane is, if this is it or its announcement; nothing of it counts.
    std::optional<std::size_t> peek(int from, int tag, std::uint64_t number,
                                    const std::uint8_t wire[seal::kAnnouncedWire]);
    /// A message was cut off at a receive that was too small: it was there, and cannot be looked at.
    void came_truncated(const Posted& posted, int from, int tag);

    /// A receive begins to wait; in the order in which MPI gets them.
    void post(int source, int tag, Posted& posted) {
        PostedList& list = has(source) ? peer(source).receiving.posted : posted_for_any_;
        list.add(source, tag, ++posts_, posted);
    }

    HeldList& held() { return held_; }
    /// The first that such a receive matches, which no receive finds with MPI any more; null: none.
    std::unique_ptr<Held> take_held(int from, int tag) { return held_.empty() ? nullptr : find_held(from, tag); }

    /// Where a message of ours to or from a member of this communicator goes, which no receive of the program can
    /// match.
    struct Address {
        MPI_Comm comm;
        int rank;
        int tag;
    };
    Address address(const Native& mpi, int rank);
    /// Makes what address() needs, by all members: before an operation in which only some of them may need it.
    void prepare_addresses(const Native& mpi);
    /// Its members by nodes; null: not made yet (nodes_of).
    const Nodes* nodes() const { return nodes_.get(); }
    /// By all members, with what address() needs.
    void make_nodes(const Native& mpi);
    /// The secret of what is sealed for all among it has to come from one of its members.
    bool lacks_group_secret() const { return !group_ && !has_all_ranks(); }
    /// It is here.
    Result<void> take_group_secret(const Secret<32>& drawn);
    void free_own_traffic(const Native& mpi);

    // Collective operations. The lane tells the operation and its root, the number is that of the call.

    /// The first of `how_many` numbers.
    /// Whatever thread calls it, no number comes twice.
    std::uint64_t next_call(std::uint64_t how_many = 1) {
        return calls_.fetch_add(how_many, std::memory_order_relaxed);
    }
    std::uint64_t next_construction() { return constructions_++; }
    /// Of those constructor calls that only the members of a group make.
    std::uint64_t next_of_group(const std::vector<int>& world_ranks, const std::string& how) {
        return group_constructions_[{world_ranks, how}]++;
    }

    // These do not count for the report, since several threads may be at work on blocks of different ranks.

    /// From this rank to all others.
    Result<void> seal_for_all(std::uint32_t lane, std::uint64_t call, const void* at, std::size_t size,
                              std::uint8_t* out);
    /// From this rank to one other within a collective operation.
    Result<void> seal_for(int to, std::uint32_t lane, std::uint64_t call, const void* at, std::size_t size,
                          std::uint8_t* out);
    Result<void> open_for_all(int from, std::uint32_t lane, std::uint64_t call, const std::uint8_t* wire,
                              std::size_t wire_size, void* out);
    Result<void> open_from(int from, std::uint32_t lane, std::uint64_t call, const std::uint8_t* wire,
                           std::size_t wire_size, void* out);

    /// For the report.
    FlowTotals totals() const;

private:
    std::unique_ptr<Held> find_held(int from, int tag);
    struct Sending {
        std::unique_ptr<seal::MessageSealer> flow;
        Lanes<std::uint64_t> next;
    };
    struct Receiving {
        std::unique_ptr<seal::MessageOpener> flow;
        Lanes<seal::Arrivals> lanes;
        PostedList posted;  // receives that name this source
    };
    struct Peer {
        Sending sending;
        Receiving receiving;
        std::unique_ptr<seal::MessageSealer> collective_out;
        std::unique_ptr<seal::MessageOpener> collective_in;
        std::unique_ptr<seal::MessageOpener> all_in;
    };

    Peer& peer(int rank) {
        auto& one = peers_[static_cast<std::size_t>(rank)];
        if (!one) [[unlikely]] {
            one = std::make_unique<Peer>();
        }
        return *one;
    }
    bool has_all_ranks() const;
    Result<void> secret_to(int to, keys::Use use, Secret<32>& out);
    Result<void> secret_from(int from, keys::Use use, Secret<32>& out);
    Result<void> secret_for_all(int sender, Secret<32>& out);
    Result<void> begin_own_flow();
    Result<seal::MessageSealer*> sealer(std::unique_ptr<seal::MessageSealer>& flow, keys::Use use, int to);
    Result<seal::MessageOpener*> opener(std::unique_ptr<seal::MessageOpener>& flow, keys::Use use, int from);
    Result<seal::MessageSealer*> sealer_for_all();
    Result<seal::MessageOpener*> opener_of_all(int from);
    MPI_Comm own_traffic(const Native& mpi);
    bool take_next(const Posted& posted, Receiving& receiving, int tag, std::uint64_t number) const;
    Result<void> check_order_among(const Posted& posted, Receiving& receiving, int from, int tag, std::uint64_t number);

    const Job& job_;
    MPI_Comm handle_;
    CommunicatorId id_;
    std::vector<int> world_;
    int rank_;
    Ours ours_;
    std::vector<bool> sealed_;
    bool crosses_ = false;
    std::atomic<std::uint64_t> calls_ = 0;
    std::atomic<bool> numbering_ = false;  // a thread is at seal() or announce()
    std::uint64_t constructions_ = 0;
    std::map<std::pair<std::vector<int>, std::string>, std::uint64_t> group_constructions_;
    PostedList posted_for_any_;
    std::uint64_t posts_ = 0;
    HeldList held_;
    std::vector<std::unique_ptr<Peer>> peers_;
    std::unique_ptr<seal::MessageSealer> all_out_;
    std::mutex group_lock_;
    std::unique_ptr<keys::GroupSecret> group_;
    MPI_Comm own_traffic_ = MPI_COMM_NULL;
    std::unique_ptr<Nodes> nodes_;
};

}  // namespace cryptmpi::comm
