// An endpoint's peers, and its operations from their beginning to what the program is told of them.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>

#include "base/endian.hpp"
#include "fabric/libfabric/codes.hpp"
#include "fabric/libfabric/objects.hpp"

namespace cryptmpi::fabric::libfabric {
namespace {

// What an endpoint that is closed still owes, it tries to hand over so many times.
constexpr int kLastTries = 100'000;
// Between two looks of an endpoint that is closed, and still has what its peers want.
constexpr auto kPause = std::chrono::microseconds(50);

}  // namespace

void Endpoint::end(const std::string& what) const {
    around().end("libfabric, provider " + domain->fabric->provider + ": " + what);
    std::abort();  // not reached: GCC does not see that a virtual function does not return
}

void Endpoint::give_up(const std::string& why) const {
    around().give_up("libfabric, provider " + domain->fabric->provider + ": " + why);
    std::abort();  // not reached, as above
}

// protocol: F11
/// Immediate data that comes beside a message is authenticated with it, as far as the provider carries it.
std::array<std::uint8_t, 9> Endpoint::bound_of(Beside beside, std::uint64_t data) const {
    std::array<std::uint8_t, 9> bound = {};
    if (beside == Beside::nothing) return bound;
    bound[0] = static_cast<std::uint8_t>(beside);
    store_little(carried(data), bound.data() + 1);
    return bound;
}

std::uint64_t Endpoint::carried(std::uint64_t data) const {
    if (domain->data_size >= sizeof data) return data;
    return data & ((std::uint64_t{1} << (8 * domain->data_size)) - 1);
}

fi_addr_t Endpoint::address_of(const Peer* peer) const {
    return addresses == nullptr ? FI_ADDR_NOTAVAIL : addresses->place_of(share_of(*peer));
}

Peer* Endpoint::peer_of(fi_addr_t address) {
    if (addresses == nullptr) return nullptr;
    if (removals_seen_ != addresses->removals) {
        removals_seen_ = addresses->removals;
        met_.clear();
        known_peer_ = nullptr;
    }
    if (known_peer_ != nullptr && known_ == address) return known_peer_;
    Peer*& met = met_[address];
    if (met == nullptr) {
        const auto share = addresses->shares.find(address);
        if (share == addresses->shares.end()) return nullptr;
        const auto found = party->meet(share->second);
        if (!found) end(found.error().line);
        met = *found;
    }
    known_ = address;
    return known_peer_ = met;
}

Operation& Endpoint::take(Operation::Work work, void* context, bool wanted) {
    if (unused_ == nullptr) {
        all_.push_back(std::make_unique<Operation>());
        unused_ = all_.back().get();
    }
    Operation& operation = *unused_;
    unused_ = operation.next;
    operation.next = nullptr;
    operation.endpoint = this;
    operation.work = work;
    operation.context = context;
    operation.wanted = wanted;
    operation.discard = false;
    operation.from = nullptr;
    operation.filled = 0;
    operation.is_head = false;
    return operation;
}

void Endpoint::give_back(Operation& operation) {
    operation.posted.withdraw();
    if (operation.region != nullptr) operation.region->fid.ops->close(&operation.region->fid);
    operation.region = nullptr;
    operation.wire = {};
    operation.into.clear();
    operation.work = Operation::Work::unused;
    operation.next = unused_;
    unused_ = &operation;
}

/// A buffer of ours, which the network may reach by no more than this message.
int Endpoint::make_wire(Operation& operation, std::size_t size, std::uint64_t access) {
    operation.wire = domain->wires.take(size);
    operation.wire_size = size;
    return register_wire(operation, access);
}

int Endpoint::register_wire(Operation& operation, std::uint64_t access) {
    std::memset(operation.wire.data(), 0, std::min(operation.wire_size, kShareSize));
    if (!domain->registers_local) return 0;
    fid_domain* const memory = domain->real;
    return memory->mr->reg(&memory->fid, operation.wire.data(), operation.wire_size, access, 0, domain->regions++, 0,
                           &operation.region, nullptr);
}

void Endpoint::count(std::uint64_t what, HowToCount how) {
    for (Counter* const counter : counters) {
        for (const auto& counted : counter->counted) {
            if (counted.endpoint == this && (counted.what & what) != 0) (counter->real->ops->*how)(counter->real, 1);
        }
    }
}

void Endpoint::tell(std::uint64_t what, void* context, bool wanted) {
    count(what);
    const std::uint64_t flags = what == FI_SEND ? FI_SEND | FI_TAGGED : FI_RMA | what;
    if (wanted) sent->ready.push_back({{context, flags, 0, nullptr, 0, 0}, FI_ADDR_NOTAVAIL});
}

// HOT PATH
bool Endpoint::complete(Operation& operation, fi_cq_tagged_entry& entry, fi_addr_t& from) {
    entry.op_context = operation.context;
    const bool wanted = operation.wanted;
    switch (operation.work) {
        case Operation::Work::send:
            if (operation.kind == Kind::active) {
                remote.sent(operation.to_peer, operation.data);
            } else if (!operation.is_head) {
                count(FI_SEND);
            }
            give_back(operation);
            return wanted;
        case Operation::Work::peek:
        case Operation::Work::claimed:
            tell_peeked(operation, entry);
            return true;
        case Operation::Work::note:
            take_note(operation, entry);
            return false;
        case Operation::Work::piece:
            take_piece(operation, entry);
            return false;
        case Operation::Work::fetching:
            end("the provider completes a receive twice");
        case Operation::Work::tagged:
            if (is_head(entry)) {
                take_head(operation, entry);
                return false;
            }
            return deliver(operation, entry, from) && wanted;
        case Operation::Work::message:
            return deliver(operation, entry, from) && wanted;
        case Operation::Work::several:
            deliver_one_of_several(operation, entry, from);
            return wanted;
        case Operation::Work::unused:
            end("the provider completes a call twice");
    }
    end("the provider completes a call of a kind that there is not");
}

/// An error of the provider's, which the program gets: cut off, cancelled, not found, or worse.
bool Endpoint::fail(Operation& operation, fi_cq_err_entry& entry) {
    entry.op_context = operation.context;
    if (entry.err == FI_ETRUNC) excuse(operation, entry.tag);
    const bool is_leaving = remote.is_leaving();
    if (is_leaving && operation.work == Operation::Work::send && entry.err != FI_ECANCELED) {
        remote.lose(operation.to_peer);
    }
    if (operation.is_ours()) {
        // Longer than we made it: nobody of ours sent that. Else the network fails, or the peer is gone.
        if (entry.err == FI_ETRUNC) end("a message about memory is longer than CryptMPI makes it");
        if (entry.err != FI_ECANCELED && !is_leaving) {
            give_up("a message about memory goes wrong: " + text_of(-entry.err));
        }
        give_back(operation);
        return false;
    }
    if (operation.work == Operation::Work::send) count(FI_SEND, &fi_ops_cntr::adderr);
    if (entry.err == FI_ETRUNC) {
        around().say_cut_off("libfabric, provider " + domain->fabric->provider + ": a message");
        const std::size_t all = entry.len + entry.olen - std::min(entry.len + entry.olen, kOverhead);
        entry.len = std::min({entry.len - std::min(entry.len, kOverhead), all, total(operation.into)});
        entry.olen = all - entry.len;
        entry.buf = operation.into.empty() ? nullptr : operation.into[0].iov_base;
    }
    if (operation.work != Operation::Work::several || (entry.flags & FI_MULTI_RECV) != 0 || entry.err == FI_ECANCELED) {
        give_back(operation);
    }
    return true;
}

Peer* EndpointOfRemote::peer_of(std::uint64_t address) const {
    return endpoint_.peer_of(address);
}

std::uint64_t EndpointOfRemote::address_of(const Peer* peer) const {
    return endpoint_.address_of(peer);
}

std::size_t EndpointOfRemote::message_size() const {
    return endpoint_.message_size;
}

std::size_t EndpointOfRemote::most_pieces() const {
    return endpoint_.domain->fabric->most_pieces;
}

std::uint64_t EndpointOfRemote::note_tag() const {
    return endpoint_.note_tag;
}

std::uint64_t EndpointOfRemote::piece_tag(std::uint64_t id) const {
    return endpoint_.piece_tag(id);
}

std::optional<std::uint8_t*> EndpointOfRemote::memory_of(std::uint64_t key, std::uint64_t address, std::size_t size,
                                                         std::uint64_t access) const {
    const Region* const region = endpoint_.domain->region_of(key, address, size, access);
    return region != nullptr ? std::optional(region->at(address)) : std::nullopt;
}

std::int64_t EndpointOfRemote::send(std::uint64_t peer, std::uint64_t tag, std::uint64_t number,
                                    std::span<const iovec> parts) {
    return endpoint_.send({Kind::active, parts, peer, tag, number, 0, nullptr, false});
}

bool EndpointOfRemote::owes_to(const Peer* peer) const {
    return endpoint_.owes_to(peer);
}

std::int64_t EndpointOfRemote::expect_piece(std::uint64_t transfer, std::size_t at, std::size_t size,
                                            std::uint64_t id) {
    return endpoint_.expect_piece(transfer, at, size, id);
}

void EndpointOfRemote::tell(std::uint64_t what, void* context, bool wanted) {
    endpoint_.tell(what, context, wanted);
}

void EndpointOfRemote::end_fetching(Operation& receive) {
    endpoint_.end_fetching(receive);
}

void EndpointOfRemote::end(const std::string& what) const {
    endpoint_.end(what);
}

void EndpointOfRemote::give_up(const std::string& why) const {
    endpoint_.give_up(why);
}

/// The program may have given a long send up, and its receiver may take it much later: only its head has gone then.
/// Plain, the kernel would have the message by now, and bring it without us.
void Endpoint::wait_for_receivers(std::unique_lock<std::mutex>& domains_lock) {
    using Clock = std::chrono::steady_clock;
    const auto until = Clock::now() + domain->fabric->longest_leave;
    auto next_question = Clock::now() + domain->fabric->between_questions;
    while (received != nullptr && remote.has_messages() && Clock::now() < until) {
        ssize_t got = 0;
        while ((got = received->make_progress(SIZE_MAX)) > 0) {
        }
        const auto now = Clock::now();
        if ((got < 0 && got != -FI_EAGAIN) || now >= until) return;
        if (now >= next_question) {
            next_question = now + domain->fabric->between_questions;
            remote.ask_who_fetches();
        }
        domains_lock.unlock();
        std::this_thread::sleep_for(kPause);
        domains_lock.lock();
    }
}

void Endpoint::close(std::unique_lock<std::mutex>& domains_lock) {
    remote.leave();
    flush();
    for (int tries = 0; !owed_.empty() && tries < kLastTries; ++tries) {
        // The provider makes progress when its queue is read; what has come is nobody's any more.
        std::this_thread::yield();
        flush();
    }
    wait_for_receivers(domains_lock);
    around().end(*party);
}

void Endpoint::leave() {
    for (Queue* queue : {sent, received}) {
        if (queue != nullptr) std::erase(queue->endpoints, this);
    }
    for (Counter* const counter : counters) {
        std::erase_if(counter->counted, [this](const auto& counted) { return counted.endpoint == this; });
    }
    for (auto& operation : all_) {
        if (operation->work == Operation::Work::unused) continue;
        operation->posted.withdraw();
        operation->endpoint = nullptr;
        domain->orphans.push_back(std::move(operation));
    }
}

}  // namespace cryptmpi::fabric::libfabric
