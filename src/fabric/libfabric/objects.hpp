// What the program gets instead of libfabric's objects: each of ours holds the provider's. The provider never sees
// ours, the program never sees the provider's; so neither takes the other's calls, whatever either calls inside.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <rdma/fi_tagged.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/buffer_pool.hpp"
#include "fabric/flows.hpp"
#include "fabric/libfabric/remote.hpp"
#include "fabric/libfabric/surroundings.hpp"

namespace cryptmpi::fabric::libfabric {

/// `Fid` is what the program sees of it.
template <class Fid>
struct Object : Fid {
    Fid* real = nullptr;

    static Object& of(Fid* shown) { return *static_cast<Object*>(shown); }
};

struct Operation;
struct Region;
struct Endpoint;

struct Fabric : Object<fid_fabric> {
    Surroundings* around = nullptr;
    std::string provider;
    bool keeps_data = false;      // the program was shown a part of the immediate data: keep_data_for_lengths
    std::size_t most_pieces = 2;  // of memory, that may be under way to an endpoint at a time
    // How long an endpoint that is closed waits for who receives its long messages. A receiver that is there may come
    // to them as late as it likes; who is gone, or closes as well, is found out by the questions in between.
    std::chrono::milliseconds longest_leave = std::chrono::minutes(10);
    std::chrono::milliseconds between_questions = std::chrono::seconds(1);
};

struct Domain : Object<fid_domain> {
    Fabric* fabric = nullptr;
    // Held through each operation of its endpoints and queues: a message gets its number, a receive its place, in the
    // order in which the provider gets them.
    std::mutex lock;
    engine::BufferPool pool{std::size_t{64} << 20};  // for what is open
    /// For what the provider gets, which may keep it registered.
    engine::BufferPool wires{std::size_t{64} << 20, engine::BufferPool::From::own_pages};
    std::size_t name_size = 0;   // of the provider's names; 0: not known yet
    std::size_t data_size = 8;   // of immediate data that the provider carries
    bool tells_lengths = false;  // the half of it that the program does not use is ours
    bool registers_local = false;
    std::uint64_t regions = 0;                                 // of ours
    bool makes_keys = false;                                   // FI_MR_PROV_KEY: the program takes the key that it gets
    bool names_by_address = false;                             // FI_MR_VIRT_ADDR: not by the offset in the region
    std::unordered_map<std::uint64_t, Region*> shown_regions;  // by the key of the handle that the program has
    // Of endpoints that are closed: a queue that others share may still tell of them.
    std::vector<std::unique_ptr<Operation>> orphans;

    /// Of orphans: a provider closes no domain that has a region left.
    void close_regions();
    /// The program's region that holds this and is open to peers for `access`; nullptr: there is none.
    const Region* region_of(std::uint64_t key, std::uint64_t address, std::size_t size, std::uint64_t access) const;
};

/// Which share belongs to an address.
struct AddressVector : Object<fid_av> {
    Domain* domain = nullptr;
    std::unordered_map<fi_addr_t, Share> shares;
    std::unordered_map<Share, fi_addr_t, ShareHash> places;  // one of each
    std::uint64_t removals = 0;

    void add(fi_addr_t place, const Share& share);
    void remove(fi_addr_t place);
    /// FI_ADDR_NOTAVAIL: the program has none of it.
    fi_addr_t place_of(const Share& share) const;
};

/// Counts when a message has been opened, or a peer has said that it is done: the provider knows neither.
struct Counter : Object<fid_cntr> {
    Domain* domain = nullptr;
    struct Counted {
        Endpoint* endpoint;
        std::uint64_t what;  // of FI_SEND, FI_READ, FI_WRITE
    };
    std::vector<Counted> counted;
};

/// Memory that the program has registered: known to us, not to the network.
struct Region : fid_mr {
    Domain* domain = nullptr;
    std::uint8_t* memory = nullptr;
    std::size_t size = 0;
    std::uint64_t begin = 0;   // how a peer names its first byte
    std::uint64_t access = 0;  // of peers: FI_REMOTE_READ, FI_REMOTE_WRITE

    std::uint8_t* at(std::uint64_t address) const { return memory + (address - begin); }
};

struct Queue : Object<fid_cq> {
    struct Completion {
        fi_cq_tagged_entry entry;
        fi_addr_t from;
    };

    Domain* domain = nullptr;
    fi_cq_format format = FI_CQ_FORMAT_CONTEXT;
    std::vector<Endpoint*> endpoints;
    std::deque<Completion> ready;  // for the program, in the order in which it gets them

    std::deque<fi_cq_err_entry> failed;  // after those
    std::atomic<bool> is_signalled = false;
    bool has_descriptor = false;  // some thread may wait there for the provider to tell of something
    bool is_woken = false;        // who waits there, since somebody read this last

    /// HOT PATH. Opens up to `most` of what the provider has completed, and says what waits to be said. What the
    /// provider's queue says: how many it gave, or why none. What comes to the other queue of an endpoint may be for
    /// us: it is opened, too, and waits there for its reader.
    ssize_t make_progress(std::size_t most);
    /// After somebody else has moved here what was at the provider, whose descriptor tells of it no more.
    void wake();

private:
    ssize_t take(std::size_t most);
    ssize_t take_failure();
};

/// What one call of the program has in the provider's hands.
struct Operation {
    /// several: messages in one buffer. claimed: a message that was found, and is held for the receive that names it.
    /// note, piece: of ours, about memory. fetching: a receive whose message is longer than what came, and is being
    /// fetched.
    enum class Work : std::uint8_t { unused, send, tagged, message, several, peek, claimed, note, piece, fetching };

    fi_context2 providers = {};    // first: the provider gets this address as the call's context, and writes here
    Endpoint* endpoint = nullptr;  // null: closed
    Operation* next = nullptr;
    Work work = Work::unused;
    bool wanted = true;    // the program gets its completion
    bool discard = false;  // and nothing else
    void* context = nullptr;
    engine::Buffer wire;
    std::size_t wire_size = 0;
    fid_mr* region = nullptr;
    std::vector<iovec> into;
    const Peer* from = nullptr;  // of an untagged message: null: of anybody
    std::size_t filled = 0;      // of a buffer for several messages
    Posted posted;
    bool is_head = false;         // a send: of a long message, which ends later
    fi_cq_tagged_entry end = {};  // of one that is being fetched: what the program gets when it has ended
    fi_addr_t sender = FI_ADDR_NOTAVAIL;
    // Of a piece: where it belongs.
    std::uint64_t transfer = 0;
    std::size_t at = 0;
    // A send that the provider has not taken yet, or the tag of a piece. `data` of our messages is their number.
    Kind kind = Kind::tagged;
    std::uint64_t tag = 0;
    fi_addr_t to = FI_ADDR_UNSPEC;
    const Peer* to_peer = nullptr;
    std::uint64_t data = 0;
    std::uint64_t flags = 0;

    /// The program knows nothing of it.
    bool is_ours() const {
        return work == Work::note || work == Work::piece || (work == Work::send && (is_head || kind == Kind::active));
    }
};

/// A message to be sent, whichever call it came by.
struct Outgoing {
    Kind kind;
    std::span<const iovec> parts;
    fi_addr_t to;
    std::uint64_t tag;
    std::uint64_t data;
    std::uint64_t flags;
    void* context;
    bool inject;
    bool is_head = false;
};

/// A receive, whichever call it came by.
struct Incoming {
    Kind kind;
    std::span<const iovec> parts;
    fi_addr_t from;
    std::uint64_t tag;
    std::uint64_t ignore;
    std::uint64_t flags;
    void* context;
};

/// An endpoint, as its reads and writes see it.
class EndpointOfRemote final : public RemoteEndpoint {
public:
    explicit EndpointOfRemote(Endpoint& endpoint) : endpoint_(endpoint) {}

    Peer* peer_of(std::uint64_t address) const override;
    std::uint64_t address_of(const Peer* peer) const override;
    std::size_t message_size() const override;
    std::size_t most_pieces() const override;
    std::uint64_t note_tag() const override;
    std::uint64_t piece_tag(std::uint64_t id) const override;
    std::optional<std::uint8_t*> memory_of(std::uint64_t key, std::uint64_t address, std::size_t size,
                                           std::uint64_t access) const override;
    std::int64_t send(std::uint64_t peer, std::uint64_t tag, std::uint64_t number,
                      std::span<const iovec> parts) override;
    bool owes_to(const Peer* peer) const override;
    std::int64_t expect_piece(std::uint64_t transfer, std::size_t at, std::size_t size, std::uint64_t id) override;
    void tell(std::uint64_t what, void* context, bool wanted) override;
    void end_fetching(Operation& receive) override;
    [[noreturn]] void end(const std::string& what) const override;
    [[noreturn]] void give_up(const std::string& why) const override;

private:
    Endpoint& endpoint_;
};

struct Endpoint : Object<fid_ep> {
    Domain* domain = nullptr;
    AddressVector* addresses = nullptr;
    Queue* sent = nullptr;
    Queue* received = nullptr;
    std::unique_ptr<Party> party;
    bool directed = false;  // FI_DIRECTED_RECV: the source of a receive counts
    bool selective_sends = false;
    bool selective_receives = false;
    std::uint64_t send_flags = 0;  // of calls that have none of their own
    std::uint64_t receive_flags = 0;
    std::size_t inject_size = 0;  // of the program's bytes
    std::size_t message_size = 0;
    bool serves_memory = false;  // it has tagged messages, by which reads and writes go
    bool has_memory = false;     // the program was shown that it can read and write
    std::uint64_t note_tag = libfabric::note_tag(0);
    std::vector<Counter*> counters;
    EndpointOfRemote of_remote{*this};
    Remote remote{of_remote};

    // All under the domain's lock.
    ssize_t send(const Outgoing& message);
    ssize_t receive(const Incoming& wanted);
    ssize_t cancel(void* context);
    /// Hands the provider what it has not taken.
    void flush();
    /// Has it something to hand over that the provider did not take?
    bool owes() const { return !owed_.empty() || remote.has_to_say(); }
    bool owes_to(const Peer* peer) const {
        return std::any_of(owed_.begin(), owed_.end(), [&](const Operation* one) { return one->to_peer == peer; });
    }
    /// Null: it has one queue.
    Queue* other_than(const Queue& queue) const {
        return sent == received ? nullptr : sent == &queue ? received : sent;
    }
    /// Does it wait for what no queue but that for receives will tell of?
    bool waits_at_both() const { return sent != received && remote.has_begun(); }
    /// A completion of `operation`, in the provider's terms, becomes the program's. False: the program gets none.
    bool complete(Operation& operation, fi_cq_tagged_entry& entry, fi_addr_t& from);
    bool fail(Operation& operation, fi_cq_err_entry& entry);
    /// Before the provider's endpoint is closed. Others get the domain's lock in between.
    void close(std::unique_lock<std::mutex>& domains_lock);
    /// After that: nobody writes to its operations any more.
    void leave();

    /// Null: nobody of that address was inserted.
    Peer* peer_of(fi_addr_t address);
    fi_addr_t address_of(const Peer* peer) const;
    std::uint64_t piece_tag(std::uint64_t id) const { return note_tag | (id & kIdBits); }
    /// Receives for notes of peers, as many as there shall be. A provider that takes none serves no memory.
    void listen();
    /// A receive for the piece that the note `id` asks for.
    ssize_t expect_piece(std::uint64_t transfer, std::size_t at, std::size_t size, std::uint64_t id);
    /// A read (FI_READ), a write (FI_WRITE) or a long send (FI_SEND) of the program's has ended.
    void tell(std::uint64_t what, void* context, bool wanted);
    /// All of the message that this receive got has come.
    void end_fetching(Operation& operation);

    [[noreturn]] void end(const std::string& what) const;
    /// Where the network fails, or a peer is gone: nothing was altered.
    [[noreturn]] void give_up(const std::string& why) const;
    Surroundings& around() const { return *domain->fabric->around; }

private:
    Operation& take(Operation::Work work, void* context, bool wanted);
    void give_back(Operation& operation);
    int make_wire(Operation& operation, std::size_t size, std::uint64_t access);
    int register_wire(Operation& operation, std::uint64_t access);
    int make_room(Operation& operation, std::size_t size);
    ssize_t hand_over(Operation& operation);
    bool hand_over_owed(Operation& operation);
    bool flush(const Peer& peer);
    void wait_for_receivers(std::unique_lock<std::mutex>& domains_lock);
    ssize_t inject(Operation& operation);
    ssize_t peek(const Incoming& wanted);
    ssize_t claim(const Incoming& wanted);
    ssize_t post(Operation& operation, const Incoming& wanted, std::uint64_t flags);
    const std::uint8_t* wire_of(const Operation& operation, const fi_cq_tagged_entry& entry) const;
    Peer* open_into(Operation& operation, const fi_cq_tagged_entry& entry);
    Peer* open_ours(const Operation& operation, const fi_cq_tagged_entry& entry, std::span<const iovec> into);
    bool may_be_sent(const Outgoing& message) const;
    ssize_t send_whole(const Outgoing& message, std::size_t size, Peer& peer, bool wanted);
    bool goes_in_pieces(const Outgoing& message, std::size_t size, const Peer& peer) const;
    ssize_t send_in_pieces(const Outgoing& message, std::size_t size, bool wanted);
    void tell_peeked(Operation& operation, fi_cq_tagged_entry& entry);
    bool deliver(Operation& operation, fi_cq_tagged_entry& entry, fi_addr_t& from);
    void deliver_one_of_several(Operation& operation, fi_cq_tagged_entry& entry, fi_addr_t& from);
    bool is_head(const fi_cq_tagged_entry& entry) const;
    void take_head(Operation& operation, const fi_cq_tagged_entry& entry);
    void tell_cut_off(const Operation& operation, const fi_cq_tagged_entry& entry, std::size_t size);
    void excuse(Operation& operation, std::uint64_t tag);
    std::size_t wire_for(Operation::Work work, std::size_t size) const;
    void take_note(Operation& operation, const fi_cq_tagged_entry& entry);
    void take_piece(Operation& operation, const fi_cq_tagged_entry& entry);
    using HowToCount = int (*fi_ops_cntr::*)(fid_cntr*, std::uint64_t);
    void count(std::uint64_t what, HowToCount how = &fi_ops_cntr::add);
    /// What stands beside a message: no immediate data, the program's, or what the head of a long one has there.
    enum class Beside : std::uint8_t { nothing, data, length };
    std::array<std::uint8_t, 9> bound_of(Beside beside, std::uint64_t data) const;
    /// As much of immediate data as the provider carries, and as is authenticated.
    std::uint64_t carried(std::uint64_t data) const;
    static Beside beside(std::uint64_t flags) {
        return (flags & FI_REMOTE_CQ_DATA) != 0 ? Beside::data : Beside::nothing;
    }

    std::unordered_map<fi_addr_t, Peer*> met_;
    std::uint64_t removals_seen_ = 0;
    std::vector<std::unique_ptr<Operation>> all_;
    Operation* unused_ = nullptr;
    /// What the provider did not take, one message of each peer: nothing goes to that one before, and all to others.
    std::vector<Operation*> owed_;
    std::size_t listening_ = 0;
    fi_addr_t known_ = FI_ADDR_UNSPEC;  // whom the last message went to
    Peer* known_peer_ = nullptr;
};

/// The fabric for the program; the provider's is its own from now on. `keeps_data`: keep_data_for_lengths.
fid_fabric* show(fid_fabric* real, Surroundings& around, void* context, const char* provider, bool keeps_data);
/// Was it made here?
bool is_ours(const fid* object);

}  // namespace cryptmpi::fabric::libfabric
