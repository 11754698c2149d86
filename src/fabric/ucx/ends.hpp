// The program's workers and endpoints, as UCX's handles name them, with their parties and peers.
#pragma once

#include <ucp/api/ucp.h>

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <unordered_map>
#include <vector>

#include "engine/buffer_pool.hpp"
#include "fabric/flows.hpp"
#include "fabric/ucx/data.hpp"
#include "fabric/ucx/parts.hpp"
#include "fabric/ucx/remote.hpp"
#include "fabric/ucx/requests.hpp"
#include "fabric/ucx/segments.hpp"

namespace cryptmpi::fabric::ucx {

/// A send or a receive that UCX has not completed.
struct Operation {
    Operation* before = nullptr;  // among its worker's
    Operation* after = nullptr;
    struct Worker* worker = nullptr;
    void* request = nullptr;  // null: not known yet, or several threads may complete it
    bool* over = nullptr;     // of the call that starts it: UCX may complete it before that returns, in any thread
    engine::Buffer wire;
    // What the program gave.
    union {
        ucp_send_nbx_callback_t sent;
        ucp_tag_recv_nbx_callback_t received;
        ucp_send_callback_t sent_nb;
        ucp_tag_recv_callback_t received_nb;
    } callback = {nullptr};
    bool is_nb = false;  // of the older forms, without user_data
    void* user_data = nullptr;
    bool is_abandoned = false;  // the program has given up its request
    // Of a receive.
    Posted posted;
    std::unique_ptr<Data> data;
    std::unique_ptr<Segments> segments;  // of a message that goes in some, or may

    void abandon(bool but_call_back) {
        is_abandoned = true;
        if (!but_call_back) callback = {nullptr};
    }
};

/// A handler of active messages; kept as long as its worker, since UCX may be calling it when another takes its place.
struct Handler {
    Worker* worker;
    std::uint16_t id;
    ucp_am_recv_callback_t callback = nullptr;
    ucp_am_callback_t callback_nb = nullptr;  // of the older form
    void* argument = nullptr;
};

/// What opened of active messages: a part of one that is not complete, or all of one.
struct ActiveMessage {
    const Handler* handler = nullptr;
    std::optional<engine::Buffer> plain;
    ucp_ep_h reply = nullptr;  // as UCX says
};

/// MPICH takes it for granted that active messages come in order, and UCX does not promise it.
struct Turn {
    std::uint64_t next = 0;
    std::map<std::uint64_t, ActiveMessage> early;  // that have overtaken it
};

struct Worker {
    ucp_worker_h handle = nullptr;
    std::unique_ptr<Party> party;
    bool several_threads = false;
    std::unique_ptr<Remote> remote;  // where the program asked for remote memory, and not for active messages
    RequestKind requests;
    std::mutex lock;   // of the party
    std::mutex order;  // with several threads: numbers are given in the order in which UCX gets the calls
    std::vector<std::unique_ptr<Handler>> handlers;
    std::uint64_t long_active = 0;  // so many long active messages were sent
    Gathering gathering;            // those that come
    std::unordered_map<const Peer*, Turn> turns;

    explicit Worker(engine::BufferPool& pool) : gathering(pool) {}

    /// Its operations, where one thread uses it; those of other workers look for a request at each.
    void add(Operation& operation);
    void remove(Operation& operation);
    Operation* find(const void* request) const;

private:
    mutable std::mutex operations_lock_;
    Operation* first_ = nullptr;
};

struct Endpoint {
    Worker* worker = nullptr;
    Peer* peer = nullptr;
};

class Ends {
public:
    static Ends& get();

    /// What the program asked of UCX for a context.
    struct Asked {
        bool remote_memory = false;  // and no active messages
        RequestKind requests;
    };
    void note(ucp_context_h context, const Asked& asked);
    Asked asked_of(ucp_context_h context) const;

    void add(ucp_worker_h handle, std::unique_ptr<Worker> worker);
    /// Null: not made under us.
    Worker* find(ucp_worker_h handle) const;
    std::unique_ptr<Worker> take(ucp_worker_h handle);
    template <class Look>
    void each_worker(Look look) const {
        const std::shared_lock guard(lock_);
        for (const auto& [handle, worker] : workers_) look(*worker);
    }

    void add(ucp_ep_h handle, const Endpoint& endpoint);
    Endpoint find(ucp_ep_h handle) const;
    /// One that the program has for this peer, or null.
    ucp_ep_h find(const Worker& worker, const Peer* peer) const;
    void forget(ucp_ep_h handle);

    /// Messages that a probe took out of UCX's queue.
    void hold(ucp_tag_message_h message, std::unique_ptr<Operation> operation);
    std::unique_ptr<Operation> take(ucp_tag_message_h message);

    /// With several threads: an operation whose call has returned this request; `over`: unless it has ended since.
    void begin(const void* request, Operation& operation, const bool& over);
    /// It has been sent, or opened.
    void end(const void* request, Operation& operation);
    /// UCX may say that such a request is complete before we have opened what came, since it calls us back after that.
    bool is_under_way(const void* request) const;
    /// The program gives up its request before it has ended. False: it is not under way.
    bool abandon(const void* request, bool but_call_back);

    /// How an operation has ended, for who asks by its request, where UCX does not know that; nothing: as UCX says.
    void note(const void* request, std::optional<ucs_status_t> status);
    ucs_status_t status_of(const void* request, ucs_status_t of_ucx) const;

    /// Data of active messages that the program keeps.
    void keep(void* data, engine::Buffer buffer);
    bool release(void* data);

    GenericTypes& types() { return types_; }
    Regions& regions() { return regions_; }
    /// For what is open.
    engine::BufferPool& pool() { return pool_; }
    /// For what UCX gets, and nothing else: it keeps such memory registered with the network when a message is over,
    /// under a key that was on the wire in clear, until the kernel takes it back. The heap would give it to the
    /// program.
    engine::BufferPool& wires() { return wires_; }

private:
    Ends() {
        pool_.share();
        wires_.share();
    }

    mutable std::shared_mutex lock_;
    std::unordered_map<ucp_context_h, Asked> asked_;
    std::unordered_map<ucp_worker_h, std::unique_ptr<Worker>> workers_;
    std::unordered_map<ucp_ep_h, Endpoint> endpoints_;
    std::unordered_map<ucp_tag_message_h, std::unique_ptr<Operation>> held_;
    std::unordered_map<void*, engine::Buffer> kept_;
    mutable std::mutex under_way_lock_;
    std::atomic<std::size_t> under_way_count_{0};
    std::unordered_map<const void*, Operation*> under_way_;
    mutable std::mutex noted_lock_;
    std::atomic<std::size_t> noted_count_{0};
    std::unordered_map<const void*, ucs_status_t> noted_;
    GenericTypes types_;
    Regions regions_;
    static constexpr std::size_t kMostKept = std::size_t{64} << 20;  // of each
    engine::BufferPool pool_{kMostKept};
    engine::BufferPool wires_{kMostKept, engine::BufferPool::From::own_pages};
};

}  // namespace cryptmpi::fabric::ucx
