// A peer's memory, reached by sealed messages: put, get, atomic operations, flush and fence of an MPI that asks UCX for
// remote memory and for no messages (Open MPI's osc ucx). UCX is told of no memory, and is asked for active messages.
//
//   request = what | id | key of the region | address | size | length of the way (8 bytes each, little endian)
//             | the way: UCX's address of who asks, until the peer has answered once | bytes
//   answer  = id | 1: done, 0: the peer has no such memory for this access (8 bytes each, little endian) | bytes
//
// Each request has one answer, which the peer gives when it makes progress, as UCX's own emulation over sockets does.
// It goes the way that was sealed in a request: the endpoint that UCX offers for answers comes from a packet in clear,
// and UCX takes it for a pointer. (docs/protocol.md)
#pragma once

#include <ucp/api/ucp.h>

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <shared_mutex>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/buffer_pool.hpp"
#include "fabric/flows.hpp"
#include "fabric/ucx/requests.hpp"

namespace cryptmpi::fabric::ucx {

inline constexpr std::uint64_t kRemoteMemory = UCP_FEATURE_RMA | UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64;

/// The memory that the program has mapped, which peers may reach by requests. Used by several threads.
class Regions {
public:
    enum class Access : std::uint8_t { read, write };
    struct Region {
        std::uint8_t* at;
        std::size_t length;
        bool may_be_read;
        bool may_be_written;
    };

    /// Gives its key, which no other region of this process ever has.
    std::uint64_t add(const Region& region);
    void remove(std::uint64_t key);
    /// Calls `use` with the place, unless the region is not there or has not all of it for this access. The region
    /// stays as long as that takes.
    template <class Use>
    bool use(std::uint64_t key, std::uint64_t address, std::size_t size, Access access, const Use& use) const {
        const std::shared_lock guard(lock_);
        std::uint8_t* const at = find(key, address, size, access);
        if (at == nullptr) return false;
        use(at);
        return true;
    }

private:
    std::uint8_t* find(std::uint64_t key, std::uint64_t address, std::size_t size, Access access) const;

    mutable std::shared_mutex lock_;
    std::uint64_t last_ = 0;
    std::unordered_map<std::uint64_t, Region> all_;
};

/// What a request asks for. All but the first two are atomic operations on a number of 4 or 8 bytes.
enum class What : std::uint64_t { get = 1, put, add, bit_and, bit_or, bit_xor, swap, compare_and_swap };

/// What the program wishes of a peer's memory.
struct Wish {
    ucp_ep_h ep;
    What what;
    std::uint64_t key;
    std::uint64_t address;
    std::size_t size;
    /// The bytes of a put; where what comes of a get or of an atomic operation goes, or nothing.
    std::vector<iovec> local;
    /// Of an atomic operation: its operand; of compare_and_swap what is compared, then what is stored.
    std::array<std::uint64_t, 2> operands = {};
};

/// A worker, as its requests need it.
struct RemoteWorker {
    ucp_worker_h handle;
    Party& party;
    std::mutex& lock;  // of the party
    const Regions& regions;
    engine::BufferPool& pool;                          // for what is open
    engine::BufferPool& wires;                         // for what UCX gets
    std::function<ucp_ep_h(const Peer*)> endpoint_to;  // one that the program has, or null
};

/// The requests of one worker, and those of its peers. Used by several threads; UCX is never called under its lock,
/// since UCX calls back under its own.
class Remote {
public:
    explicit Remote(RemoteWorker worker) : worker_(std::move(worker)) {}
    /// Leads the peers' requests and answers here. Before all else.
    void listen();

    /// `peer`: at the endpoint of the wish. `request`, or null, is over when it has done all of it. False: some of it
    /// may still read `wish.local`.
    bool begin(const Wish& wish, Peer* peer, const std::shared_ptr<Request>& request);
    /// `request` is over when what was begun before has ended, at this endpoint, or (null) at all. False: it is over.
    bool flush(ucp_ep_h ep, const std::shared_ptr<Request>& request);
    /// What is begun from now on is sent when all before has ended that was begun at the same endpoint.
    void fence();
    /// Has something not ended that was begun at this endpoint, or (null) at any?
    bool is_under_way(ucp_ep_h ep) const;
    /// Nothing of this endpoint ends any more: its requests are cancelled.
    void drop(ucp_ep_h ep);

    // Called by UCX.
    void take_request(const std::uint8_t* wire, std::size_t wire_size);
    void take_answer(const std::uint8_t* wire, std::size_t wire_size);

private:
    /// A part of a wish that has one request and one answer.
    struct Piece {
        ucp_ep_h ep;
        Peer* peer;
        What what;
        std::uint64_t key;
        std::uint64_t address;
        std::size_t size;
        std::vector<iovec> local;
        std::array<std::uint64_t, 2> operands;
        std::uint64_t place;  // among those of its endpoint
        std::uint64_t fence;  // sent after all of its endpoint with ids up to this have ended
        std::shared_ptr<Request> request;
        bool is_sent = false;
    };
    struct Flush {
        ucp_ep_h ep;
        std::uint64_t up_to;
        std::shared_ptr<Request> request;
    };
    struct Outgoing {
        ucp_ep_h ep;
        engine::Buffer wire;
    };
    using Over = std::vector<std::shared_ptr<Request>>;
    /// What was begun at an endpoint and has not ended. A peer that makes no progress holds up no other's.
    struct Line {
        std::set<std::uint64_t> ids;
        std::deque<std::uint64_t> waiting;  // of these, those that are not sent
        std::size_t sent_bytes = 0;         // of the others
        std::uint64_t begun = 0;
    };

    /// Of this endpoint, and then of those that waited for the bytes of others.
    void send_what_may_be(ucp_ep_h ep);
    bool send_next(ucp_ep_h ep);
    std::optional<Outgoing> next_to_send(ucp_ep_h ep);
    std::optional<ucp_ep_h> next_crowded_out();
    bool has_room(Line& line, ucp_ep_h ep, std::size_t size);
    bool has_ended(const Flush& flush) const;
    void end(std::map<std::uint64_t, Piece>::iterator piece, Over& over);
    engine::Buffer seal(Peer& peer, const Envelope& envelope, std::span<const iovec> pieces) const;
    engine::Buffer answer(Peer& peer, std::span<const std::uint64_t> request, const std::uint8_t* bytes) const;
    ucp_ep_h way_to(Peer* peer, std::span<const std::uint8_t> told);

    const RemoteWorker worker_;
    mutable std::mutex lock_;
    std::uint64_t last_ = 0;                 // id
    std::uint64_t fence_ = 0;                // what came last before the fence
    std::map<std::uint64_t, Piece> pieces_;  // that have not ended, by id
    std::unordered_map<ucp_ep_h, Line> lines_;
    std::set<ucp_ep_h> crowded_out_;                          // those that wait for the bytes of others
    std::size_t sent_bytes_ = 0;                              // of all lines
    std::unordered_map<std::uint64_t, const Peer*> dropped_;  // sent, and of an endpoint that was closed by force
    std::vector<Flush> flushes_;
    std::vector<std::uint8_t> own_way_;         // UCX's address of the worker
    std::unordered_set<const Peer*> answered_;  // these know it
    /// To peers that have asked.
    struct Way {
        std::vector<std::uint8_t> address;
        ucp_ep_h ep = nullptr;  // null: not made yet, or closed since
    };
    std::unordered_map<const Peer*, Way> ways_;
};

}  // namespace cryptmpi::fabric::ucx
