#include "comm/communicator.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/pieces.hpp"
#include "comm/members.hpp"

namespace cryptmpi::comm {
namespace {

bool matches(const Posted& posted, int from, int tag) {
    return (posted.source == MPI_ANY_SOURCE || posted.source == from) &&
           (posted.tag == MPI_ANY_TAG || posted.tag == tag);
}

// protocol: M26
/// A block of a collective operation must belong to this very call.
Result<void> open_block(seal::MessageOpener& flow, std::uint32_t lane, std::uint64_t call, const std::uint8_t* wire,
                        std::size_t wire_size, void* out) {
    const std::size_t size = wire_size < seal::kMessageOverhead ? 0 : wire_size - seal::kMessageOverhead;
    const iovec to = piece(out, size);
    auto header = flow.open(lane, wire, wire_size, {&to, 1});
    if (!header) return tl::unexpected(header.error());
    if (header->number == call) return {};
    wipe(out, size);
    return fail(EBADMSG,
                fmt::format("belongs to collective call {}, not to {}: replayed or moved", header->number, call));
}

void add(const seal::MessageCounters& more, seal::MessageCounters& total, std::uint64_t& flows) {
    total.messages += more.messages;
    total.bytes += more.bytes;
    total.rekeys += more.rekeys;
    ++flows;
}

}  // namespace

Communicator::Communicator(const Job& job, MPI_Comm handle, const CommunicatorId& id, std::vector<int> world_ranks,
                           int rank, Ours ours)
    : job_(job),
      handle_(handle),
      id_(id),
      world_(std::move(world_ranks)),
      rank_(rank),
      ours_(ours),
      sealed_(world_.size()),
      peers_(world_.size()) {
    // From the table that all ranks agreed on, so that all members agree whether the communicator crosses nodes.
    const auto& nodes = job_.scope.nodes();
    const bool all = job_.scope.seals_all();
    for (std::size_t i = 0; i < world_.size(); ++i) {
        sealed_[i] = job_.scope.sealed_to(world_[i]);
        const bool elsewhere = nodes[static_cast<std::size_t>(world_[i])] != nodes[static_cast<std::size_t>(world_[0])];
        if (elsewhere || (all && world_.size() > 1)) crosses_ = true;
    }
}

Result<void> Communicator::secret_to(int to, keys::Use use, Secret<32>& out) {
    return job_.keys.flow_secret(job_.world_rank, world_[static_cast<std::size_t>(to)], use, id_, out);
}

Result<void> Communicator::secret_from(int from, keys::Use use, Secret<32>& out) {
    return job_.keys.flow_secret(world_[static_cast<std::size_t>(from)], job_.world_rank, use, id_, out);
}

bool Communicator::has_all_ranks() const {
    return world_.size() == job_.scope.nodes().size();
}

Result<void> Communicator::secret_for_all(int sender, Secret<32>& out) {
    {
        const std::lock_guard hold(group_lock_);
        if (!group_ && has_all_ranks()) {
            auto of_all = job_.keys.group_of_all(id_);
            if (!of_all) return tl::unexpected(std::move(of_all.error()));
            group_ = std::move(*of_all);
        }
        if (!group_) return fail(EINVAL, "a block for all was to be sealed or opened before its members met");
    }
    return group_->take(sender, out);
}

Result<void> Communicator::take_group_secret(const Secret<32>& drawn) {
    auto made = keys::GroupSecret::of_drawn(*job_.keys.crypto().kex, drawn, id_, world_.size());
    if (!made) return tl::unexpected(std::move(made.error()));
    group_ = std::move(*made);
    return {};
}

namespace {

template <class Flow, class TakeSecret, class... More>
Result<Flow*> begin_flow(std::unique_ptr<Flow>& flow, const seal::Crypto& crypto, TakeSecret take, More... more) {
    Secret<seal::kSecretSize> secret;
    if (auto done = take(secret); !done) return tl::unexpected(std::move(done.error()));
    flow = std::make_unique<Flow>(crypto, secret.data(), more...);
    crypto.watched.connection();
    return flow.get();
}

}  // namespace

/// Of messages to itself this rank has both ends, and their secret is given once.
Result<void> Communicator::begin_own_flow() {
    Secret<32> secret;
    if (auto done = secret_to(rank_, keys::Use::messages, secret); !done) return done;
    const auto copy = [&](Secret<32>& out) -> Result<void> {
        std::copy_n(secret.data(), secret.size(), out.data());
        return {};
    };
    seal::Crypto crypto = job_.keys.crypto();
    crypto.age = {};
    Peer& own = peer(rank_);
    if (auto begun = begin_flow(own.sending.flow, crypto, copy); !begun) return tl::unexpected(begun.error());
    if (auto begun = begin_flow(own.receiving.flow, crypto, copy); !begun) return tl::unexpected(begun.error());
    return {};
}

Result<seal::MessageSealer*> Communicator::sealer(std::unique_ptr<seal::MessageSealer>& flow, keys::Use use, int to) {
    if (flow) [[likely]] {
        return flow.get();
    }
    if (to == rank_) {
        if (auto done = begin_own_flow(); !done) return tl::unexpected(std::move(done.error()));
        return flow.get();
    }
    // A receiver of messages cannot know when an epoch is over but by its limits, and keeps it: age would gain nothing.
    seal::Crypto crypto = job_.keys.crypto();
    if (use == keys::Use::messages) crypto.age = {};
    return begin_flow(flow, crypto, [&](Secret<32>& secret) { return secret_to(to, use, secret); });
}

/// A member's blocks of collective operations are opened in the order of the calls, and of their places in a call.
Result<seal::MessageOpener*> Communicator::opener(std::unique_ptr<seal::MessageOpener>& flow, keys::Use use, int from) {
    if (flow) [[likely]] {
        return flow.get();
    }
    if (from == rank_) {
        if (auto done = begin_own_flow(); !done) return tl::unexpected(std::move(done.error()));
        return flow.get();
    }
    return begin_flow(
        flow, job_.keys.crypto(), [&](Secret<32>& secret) { return secret_from(from, use, secret); },
        use == keys::Use::messages ? seal::Opening::any_order : seal::Opening::in_order);
}

Result<seal::MessageSealer*> Communicator::sealer_for_all() {
    if (all_out_) return all_out_.get();
    return begin_flow(all_out_, job_.keys.crypto(), [&](Secret<32>& secret) { return secret_for_all(rank_, secret); });
}

Result<seal::MessageOpener*> Communicator::opener_of_all(int from) {
    auto& flow = peer(from).all_in;
    if (flow) return flow.get();
    return begin_flow(
        flow, job_.keys.crypto(), [&](Secret<32>& secret) { return secret_for_all(from, secret); },
        seal::Opening::in_order);
}

namespace {

/// HOT PATH. Numbers of messages are for one thread at a time, which a program promises that did not ask for
/// MPI_THREAD_MULTIPLE: if two come at once all the same, the second gets none.
class Alone {
public:
    explicit Alone(std::atomic<bool>& busy) : busy_(busy), alone_(!busy.exchange(true, std::memory_order_acquire)) {}
    Alone(const Alone&) = delete;
    Alone& operator=(const Alone&) = delete;
    ~Alone() {
        if (alone_) busy_.store(false, std::memory_order_release);
    }
    explicit operator bool() const { return alone_; }

private:
    std::atomic<bool>& busy_;
    bool alone_;
};

auto not_alone() {
    return fail(EPERM,
                "two threads send at the same time, which is allowed with MPI_THREAD_MULTIPLE only: ask "
                "MPI_Init_thread for it");
}

}  // namespace

Result<void> Communicator::seal(int to, int tag, const void* at, std::size_t size, std::uint8_t* out) {
    const Alone alone(numbering_);
    if (!alone) [[unlikely]] {
        return not_alone();
    }
    Sending& sending = peer(to).sending;
    auto flow = sealer(sending.flow, keys::Use::messages, to);
    if (!flow) return tl::unexpected(flow.error());
    job_.rank_report.count_sealed(size);
    const iovec in = piece(at, size);
    return (*flow)->seal(static_cast<std::uint32_t>(tag), sending.next[tag]++, {&in, 1}, size, out);
}

Result<seal::Segments> Communicator::announce(int to, int tag, const seal::Announcement& announcement,
                                              std::uint8_t* out) {
    const Alone alone(numbering_);
    if (!alone) return not_alone();
    Sending& sending = peer(to).sending;
    auto flow = sealer(sending.flow, keys::Use::messages, to);
    if (!flow) return tl::unexpected(flow.error());
    job_.rank_report.count_sealed(announcement.length);
    return (*flow)->announce(static_cast<std::uint32_t>(tag), sending.next[tag]++, announcement, out);
}

/// HOT PATH. Takes the message if it is the next of its lane and no receive that was posted earlier waits.
inline bool Communicator::take_next(const Posted& posted, Receiving& receiving, int tag, std::uint64_t number) const {
    seal::Arrivals& lane = receiving.lanes[tag];
    const bool first = !receiving.posted.has_before(posted.order) && !posted_for_any_.has_before(posted.order);
    if (!first || !lane.follows(number, posted.order)) [[unlikely]]
        return false;
    lane.follow(posted.order);
    return true;
}

Result<void> Communicator::open(const Posted& posted, int from, int tag, const std::uint8_t* wire,
                                std::size_t wire_size, void* out) {
    Receiving& receiving = peer(from).receiving;
    auto flow = opener(receiving.flow, keys::Use::messages, from);
    if (!flow) return tl::unexpected(flow.error());
    const std::size_t size = wire_size < seal::kMessageOverhead ? 0 : wire_size - seal::kMessageOverhead;
    const iovec to = piece(out, size);
    auto header = (*flow)->open(static_cast<std::uint32_t>(tag), wire, wire_size, {&to, 1});
    if (!header) {
        receiving.lanes[tag].fail();
        return tl::unexpected(header.error());
    }
    job_.rank_report.count_opened(size);
    // protocol: M25
    if (take_next(posted, receiving, tag, header->number)) [[likely]]
        return {};
    auto done = check_order_among(posted, receiving, from, tag, header->number);
    if (!done) wipe(out, size);
    return done;
}

Result<seal::Segments> Communicator::open_announcement(const Posted& posted, int from, int tag,
                                                       const std::uint8_t* wire, std::size_t wire_size) {
    Receiving& receiving = peer(from).receiving;
    auto flow = opener(receiving.flow, keys::Use::messages, from);
    if (!flow) return tl::unexpected(flow.error());
    auto segments = (*flow)->open_announcement(static_cast<std::uint32_t>(tag), wire, wire_size);
    if (!segments) {
        receiving.lanes[tag].fail();
        return segments;
    }
    job_.rank_report.count_opened(segments->announcement().length);
    const std::uint64_t number = segments->number();
    if (take_next(posted, receiving, tag, number)) return segments;
    if (auto done = check_order_among(posted, receiving, from, tag, number); !done) return tl::unexpected(done.error());
    return segments;
}

Result<void> Communicator::check_order_among(const Posted& posted, Receiving& receiving, int from, int tag,
                                             std::uint64_t number) {
    seal::Arrivals::Holders holders;
    const auto look = [&](const Posted& one) {
        if (!matches(one, from, tag)) return;
        holders.push_back({one.order, one.source == from && one.tag == tag && !one.may_be_cancelled});
    };
    receiving.posted.each(look);
    posted_for_any_.each(look);
    using Verdict = seal::Arrivals::Verdict;
    seal::Arrivals& lane = receiving.lanes[tag];
    const Verdict verdict = lane.take(number, posted.order, std::move(holders));
    if (verdict != Verdict::fits) lane.fail();
    switch (verdict) {
        case Verdict::fits:
            return {};
        case Verdict::repeated:
            return fail(EBADMSG, "came before: it was replayed");
        case Verdict::out_of_order:
            return fail(EBADMSG, "came to another receive than it was sent for: out of order");
        case Verdict::after_failure:
            return fail(EBADMSG, "came after one that was altered, lost, replayed or moved: none of them is taken");
        case Verdict::lost:
            break;
    }
    return fail(EBADMSG, "was sent after others that did not come: lost on the way, or out of order");
}

std::optional<std::uint64_t> Communicator::first_in_queue(int from, int tag) {
    Receiving& receiving = peer(from).receiving;
    std::uint64_t holders = 0;  // a receive that waits had its message before the first in the queue came
    // Not where one of them may have had a message of another lane, or none: announcements that would be the next may
    // be of a message that it has, and the first in the queue another one, of another length.
    bool certain = true;
    const auto look = [&](const Posted& one) {
        if (!matches(one, from, tag)) return;
        ++holders;
        certain = certain && one.source == from && one.tag == tag && !one.may_be_cancelled;
    };
    receiving.posted.each(look);
    posted_for_any_.each(look);
    const auto come = receiving.lanes[tag].come();
    if (!come || !certain) return std::nullopt;
    return *come + holders;
}

std::optional<std::size_t> Communicator::peek(int from, int tag, std::uint64_t number,
                                              const std::uint8_t wire[seal::kAnnouncedWire]) {
    if (seal::parse_message_header(wire).number != number) return std::nullopt;
    auto flow = opener(peer(from).receiving.flow, keys::Use::messages, from);
    if (!flow) return std::nullopt;
    auto length = (*flow)->peek(static_cast<std::uint32_t>(tag), wire);
    if (!length) return std::nullopt;
    return *length;
}

void Communicator::came_truncated(const Posted& posted, int from, int tag) {
    peer(from).receiving.lanes[tag].cut_off(posted.order);
}

std::unique_ptr<Held> Communicator::find_held(int from, int tag) {
    const auto found =
        std::find_if(held_.begin(), held_.end(), [&](const auto& held) { return held->matches(from, tag); });
    if (found == held_.end()) return nullptr;
    auto taken = std::move(*found);
    held_.erase(found);
    return taken;
}

Result<void> Communicator::seal_for_all(std::uint32_t lane, std::uint64_t call, const void* at, std::size_t size,
                                        std::uint8_t* out) {
    auto flow = sealer_for_all();
    if (!flow) return tl::unexpected(flow.error());
    const iovec in = piece(at, size);
    return (*flow)->seal(lane, call, {&in, 1}, size, out);
}

Result<void> Communicator::seal_for(int to, std::uint32_t lane, std::uint64_t call, const void* at, std::size_t size,
                                    std::uint8_t* out) {
    auto flow = sealer(peer(to).collective_out, keys::Use::collective, to);
    if (!flow) return tl::unexpected(flow.error());
    const iovec in = piece(at, size);
    return (*flow)->seal(lane, call, {&in, 1}, size, out);
}

Result<void> Communicator::open_for_all(int from, std::uint32_t lane, std::uint64_t call, const std::uint8_t* wire,
                                        std::size_t wire_size, void* out) {
    auto flow = opener_of_all(from);
    return flow ? open_block(**flow, lane, call, wire, wire_size, out) : tl::unexpected(flow.error());
}

Result<void> Communicator::open_from(int from, std::uint32_t lane, std::uint64_t call, const std::uint8_t* wire,
                                     std::size_t wire_size, void* out) {
    auto flow = opener(peer(from).collective_in, keys::Use::collective, from);
    return flow ? open_block(**flow, lane, call, wire, wire_size, out) : tl::unexpected(flow.error());
}

/// Members that call their operations in one order can all use one communicator; not so several threads.
Communicator::Address Communicator::address(const Native& mpi, int rank) {
    if (ours() == Ours::its_own) return {own_traffic(mpi), rank, 0};
    // What an operation that failed left behind is not for those of other communicators. MPI promises tags of 15 bits.
    const int tag = (id_[0] & 0x7f) << 8 | id_[1];
    return {job_.own_traffic, world_[static_cast<std::size_t>(rank)], tag};
}

void Communicator::prepare_addresses(const Native& mpi) {
    if (ours() == Ours::its_own) own_traffic(mpi);
}

MPI_Comm Communicator::own_traffic(const Native& mpi) {
    if (own_traffic_ == MPI_COMM_NULL) {
        // Not a duplicate: that would call the program's functions that copy attributes.
        MPI_Group group = MPI_GROUP_NULL;
        mpi.Comm_group(handle_, &group);
        mpi.Comm_create(handle_, group, &own_traffic_);
        mpi.Group_free(&group);
        require_members(job_.voice, own_traffic_, world_, "cryptmpi");
        mpi.Comm_set_errhandler(own_traffic_, MPI_ERRORS_RETURN);
    }
    return own_traffic_;
}

void Communicator::make_nodes(const Native& mpi) {
    // Where all is sealed, no rank trusts the network of its own node.
    const bool all = job_.scope.seals_all();
    std::map<keys::NodeId, int> numbers;
    std::vector<int> node_of;
    for (std::size_t i = 0; i < world_.size(); ++i) {
        const auto& node = job_.scope.nodes()[static_cast<std::size_t>(world_[i])];
        node_of.push_back(all ? static_cast<int>(i) : numbers.emplace(node, static_cast<int>(i)).first->second);
    }
    auto* const shared = ours() == Ours::its_own ? nullptr : &job_.shared_communicators;
    nodes_ = std::make_unique<Nodes>(job_.voice, shared, handle_, rank_, world_, std::move(node_of));
    prepare_addresses(mpi);
}

void Communicator::free_own_traffic(const Native& mpi) {
    if (nodes_) nodes_->free();
    nodes_.reset();
    if (own_traffic_ != MPI_COMM_NULL) mpi.Comm_free(&own_traffic_);
}

FlowTotals Communicator::totals() const {
    FlowTotals totals;
    const auto sent = [&](const auto& flow) {
        if (flow) add(flow->counters(), totals.sent, totals.flows);
    };
    const auto received = [&](const auto& flow) {
        if (flow) add(flow->counters(), totals.received, totals.flows);
    };
    sent(all_out_);
    for (const auto& peer : peers_) {
        if (!peer) continue;
        sent(peer->sending.flow);
        sent(peer->collective_out);
        received(peer->receiving.flow);
        received(peer->collective_in);
        received(peer->all_in);
    }
    return totals;
}

}  // namespace cryptmpi::comm
