#include "fabric/ucx/remote.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "base/endian.hpp"
#include "base/pieces.hpp"
#include "fabric/opening.hpp"
#include "fabric/slice.hpp"
#include "fabric/ucx/around.hpp"
#include "fabric/ucx/blob.hpp"
#include "fabric/ucx/callback.hpp"
#include "fabric/ucx/real.hpp"
#include "fabric/ucx/sending.hpp"

namespace cryptmpi::fabric::ucx {
namespace {

// The program has asked for no active messages here: these are the only handlers.
constexpr unsigned kRequests = 0;
constexpr unsigned kAnswers = 1;
// What the flows bind: no handler of the program's has this number, and no message of the program's is of this kind.
constexpr Envelope kRequest = {Kind::active, std::uint64_t{1} << 32};
constexpr Envelope kAnswer = {Kind::message, std::uint64_t{1} << 32};

constexpr std::size_t kNumber = sizeof(std::uint64_t);
constexpr std::size_t kRequestHeader = 6 * kNumber;
constexpr std::size_t kAnswerHeader = 2 * kNumber;
constexpr std::size_t kLongestPiece = std::size_t{256} << 10;
// Of an endpoint: how many requests may be after the oldest that has no answer, which is less than what a flow allows;
// and how many bytes may be under way, since UCX keeps what it cannot send. Of all together there are no more than
// kMostOfAll bytes, but for one request of each.
constexpr std::uint64_t kMostAhead = kMostEarly / 4;
constexpr std::size_t kMostBytes = std::size_t{16} << 20;
constexpr std::size_t kMostOfAll = std::size_t{64} << 20;
// So little is read from a region at once, as other threads may write there.
constexpr std::size_t kShort = 256;

bool is_atomic(What what) {
    return what != What::get && what != What::put;
}

std::size_t operand_count(What what) {
    return !is_atomic(what) ? 0 : what == What::compare_and_swap ? 2 : 1;
}

template <class Number>
std::uint64_t change(Number* at, What what, Number operand, Number other) {
    switch (what) {
        case What::add:
            return __atomic_fetch_add(at, operand, __ATOMIC_SEQ_CST);
        case What::bit_and:
            return __atomic_fetch_and(at, operand, __ATOMIC_SEQ_CST);
        case What::bit_or:
            return __atomic_fetch_or(at, operand, __ATOMIC_SEQ_CST);
        case What::bit_xor:
            return __atomic_fetch_xor(at, operand, __ATOMIC_SEQ_CST);
        case What::swap:
            return __atomic_exchange_n(at, operand, __ATOMIC_SEQ_CST);
        default: {
            Number found = operand;
            __atomic_compare_exchange_n(at, &found, other, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
            return found;
        }
    }
}

/// What was there before.
std::uint64_t change(std::uint8_t* at, std::size_t size, What what, std::uint64_t operand, std::uint64_t other) {
    if (size == sizeof(std::uint64_t)) return change(reinterpret_cast<std::uint64_t*>(at), what, operand, other);
    return change(reinterpret_cast<std::uint32_t*>(at), what, static_cast<std::uint32_t>(operand),
                  static_cast<std::uint32_t>(other));
}

void give_up_sending(ucs_status_t status) {
    around().give_up(
        fmt::format("UCX cannot send a message about a peer's memory: status {}", static_cast<int>(status)));
}

/// A flush would wait for the answer for ever. Where an endpoint was closed by force, or with its worker, nobody waits.
void request_fails(ucs_status_t status) {
    if (status != UCS_ERR_CANCELED) give_up_sending(status);
}

/// Whether an answer came, its peer knows: at the end of a job it may have gone with it.
void send(ucp_ep_h ep, unsigned handler, engine::Buffer wire) {
    const WhenItFails when_it_fails = handler == kRequests ? request_fails : nullptr;
    const ucs_status_t status = send_and_forget(ep, handler, std::move(wire), when_it_fails);
    if (status != UCS_OK) give_up_sending(status);
}

ucs_status_t request_came(void* argument, const void*, std::size_t header_size, void* wire, std::size_t wire_size,
                          const ucp_am_recv_param_t* param) {
    const InCallback callback;
    if (header_size != 0 || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0)
        around().end("a request for memory is none that CryptMPI sends: it was sent without it, or altered");
    static_cast<Remote*>(argument)->take_request(static_cast<const std::uint8_t*>(wire), wire_size);
    return UCS_OK;
}

ucs_status_t answer_came(void* argument, const void*, std::size_t header_size, void* wire, std::size_t wire_size,
                         const ucp_am_recv_param_t* param) {
    const InCallback callback;
    if (header_size != 0 || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0)
        around().end("an answer about memory is none that CryptMPI sends: it was sent without it, or altered");
    static_cast<Remote*>(argument)->take_answer(static_cast<const std::uint8_t*>(wire), wire_size);
    return UCS_OK;
}

/// What has opened, and whose it is.
struct Opened {
    engine::Buffer plain;
    Peer* from;
    std::uint64_t number(std::size_t place) const { return load_little(plain.data() + place * kNumber); }
};

Opened open(const RemoteWorker& worker, const Envelope& envelope, const std::uint8_t* wire, std::size_t wire_size,
            std::size_t least, const char* name) {
    const auto refuse = [&](const std::string& why) {
        around().end(fmt::format("{} with {} bytes on the wire {}", name, wire_size, why));
    };
    if (wire_size < kOverhead + least) refuse("is shorter than any: it was sent without CryptMPI, or altered");
    Opened opened{worker.pool.take(wire_size - kOverhead), nullptr};
    const iovec out{opened.plain.data(), opened.plain.size()};
    const std::lock_guard guard(worker.lock);
    auto from = worker.party.open(envelope, wire, wire_size, {&out, 1});
    if (!from) refuse(from.error().line);
    opened.from = *from;
    return opened;
}

}  // namespace

std::uint64_t Regions::add(const Region& region) {
    const std::unique_lock guard(lock_);
    all_.emplace(++last_, region);
    return last_;
}

void Regions::remove(std::uint64_t key) {
    const std::unique_lock guard(lock_);
    all_.erase(key);
}

// protocol: F9
std::uint8_t* Regions::find(std::uint64_t key, std::uint64_t address, std::size_t size, Access access) const {
    const auto found = all_.find(key);
    if (found == all_.end()) return nullptr;
    const Region& region = found->second;
    if (!(access == Access::read ? region.may_be_read : region.may_be_written)) return nullptr;
    const auto begin = reinterpret_cast<std::uint64_t>(region.at);
    if (address < begin || address - begin > region.length || size > region.length - (address - begin)) return nullptr;
    return region.at + (address - begin);
}

void Remote::listen() {
    const auto handle = [this](unsigned id, ucp_am_recv_callback_t callback) {
        ucp_am_handler_param_t own = {};
        own.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS |
                         UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
        own.id = id;
        own.flags = UCP_AM_FLAG_WHOLE_MSG;
        own.cb = callback;
        own.arg = this;
        if (real().ucp_worker_set_am_recv_handler(worker_.handle, &own) != UCS_OK)
            around().give_up("UCX takes no handler of messages, by which memory of peers is reached");
    };
    handle(kRequests, request_came);
    handle(kAnswers, answer_came);
    ucp_address_t* address = nullptr;
    std::size_t size = 0;
    if (real().ucp_worker_get_address(worker_.handle, &address, &size) != UCS_OK)
        around().give_up("UCX does not tell the address of a worker, by which memory is reached");
    const auto* const at = reinterpret_cast<const std::uint8_t*>(address);
    own_way_.assign(at, at + size);
    real().ucp_worker_release_address(worker_.handle, address);
}

bool Remote::begin(const Wish& wish, Peer* peer, const std::shared_ptr<Request>& request) {
    std::uint64_t last = 0;
    {
        const std::lock_guard guard(lock_);
        Line& line = lines_[wish.ep];
        for (std::size_t done = 0; done < wish.size;) {
            const std::size_t size = std::min(wish.size - done, kLongestPiece);
            const std::uint64_t id = ++last_;
            pieces_.emplace(id, Piece{wish.ep, peer, wish.what, wish.key, wish.address + done, size,
                                      slice(wish.local, done, size), wish.operands, line.begun++, fence_, request});
            line.ids.insert(id);
            line.waiting.push_back(id);
            if (request) ++request->parts;
            done += size;
        }
        last = last_;
        if (line.ids.empty()) lines_.erase(wish.ep);
    }
    send_what_may_be(wish.ep);
    const std::lock_guard guard(lock_);
    const auto line = lines_.find(wish.ep);
    return line == lines_.end() || line->second.waiting.empty() || line->second.waiting.front() > last;
}

bool Remote::flush(ucp_ep_h ep, const std::shared_ptr<Request>& request) {
    const std::lock_guard guard(lock_);
    Flush flush{ep, last_, request};
    if (has_ended(flush)) return false;
    flushes_.push_back(std::move(flush));
    return true;
}

void Remote::fence() {
    const std::lock_guard guard(lock_);
    fence_ = last_;
}

bool Remote::is_under_way(ucp_ep_h ep) const {
    const std::lock_guard guard(lock_);
    return !has_ended({ep, last_, nullptr});
}

void Remote::drop(ucp_ep_h ep) {
    Over over;
    {
        const std::lock_guard guard(lock_);
        for (auto& [peer, way] : ways_) {
            if (way.ep == ep) way.ep = nullptr;
        }
        const auto line = lines_.find(ep);
        if (line == lines_.end()) return;
        line->second.waiting.clear();
        for (const std::uint64_t id : std::set(line->second.ids)) {
            const auto piece = pieces_.find(id);
            if (piece->second.is_sent) dropped_.emplace(id, piece->second.peer);
            end(piece, over);
        }
    }
    for (const auto& request : over) Requests::get().end(request, UCS_ERR_CANCELED);
    send_what_may_be(ep);
}

/// Under the lock.
bool Remote::has_ended(const Flush& flush) const {
    if (flush.ep == nullptr) return pieces_.empty() || pieces_.begin()->first > flush.up_to;
    const auto line = lines_.find(flush.ep);
    return line == lines_.end() || *line->second.ids.begin() > flush.up_to;
}

/// Under the lock. Adds to `over` what is over with it.
void Remote::end(std::map<std::uint64_t, Piece>::iterator piece, Over& over) {
    const auto line = lines_.find(piece->second.ep);
    if (piece->second.is_sent) {
        sent_bytes_ -= piece->second.size;
        line->second.sent_bytes -= piece->second.size;
    }
    line->second.ids.erase(piece->first);
    if (line->second.ids.empty()) {
        crowded_out_.erase(line->first);
        lines_.erase(line);
    }
    auto request = std::move(piece->second.request);
    pieces_.erase(piece);
    if (request && --request->parts == 0) over.push_back(std::move(request));
    std::erase_if(flushes_, [&](Flush& flush) {
        const bool ended = has_ended(flush);
        if (ended) over.push_back(std::move(flush.request));
        return ended;
    });
}

engine::Buffer Remote::seal(Peer& peer, const Envelope& envelope, std::span<const iovec> pieces) const {
    const std::size_t size = total(pieces);
    engine::Buffer wire = worker_.wires.take(size + kOverhead);
    const std::lock_guard guard(worker_.lock);
    auto sealed = worker_.party.seal(peer, envelope, pieces, size, wire.data());
    if (!sealed) around().end(sealed.error().line);
    return wire;
}

/// Under the lock.
bool Remote::has_room(Line& line, ucp_ep_h ep, std::size_t size) {
    crowded_out_.erase(ep);
    if (line.sent_bytes == 0) return true;
    if (line.sent_bytes + size > kMostBytes) return false;
    const bool fits = sent_bytes_ + size <= kMostOfAll;
    if (!fits) crowded_out_.insert(ep);
    return fits;
}

std::optional<Remote::Outgoing> Remote::next_to_send(ucp_ep_h ep) {
    const std::lock_guard guard(lock_);
    const auto found = lines_.find(ep);
    if (found == lines_.end() || found->second.waiting.empty()) return std::nullopt;
    Line& line = found->second;
    const std::uint64_t id = line.waiting.front();
    const std::uint64_t oldest = *line.ids.begin();
    Piece& piece = pieces_.at(id);
    if (oldest <= piece.fence || piece.place - pieces_.at(oldest).place > kMostAhead) return std::nullopt;
    if (!has_room(line, ep, piece.size)) return std::nullopt;
    line.waiting.pop_front();
    piece.is_sent = true;
    line.sent_bytes += piece.size;
    sent_bytes_ += piece.size;

    const auto way = answered_.contains(piece.peer) ? std::span<const std::uint8_t>{} : own_way_;
    const std::uint64_t header[] = {
        static_cast<std::uint64_t>(piece.what), id, piece.key, piece.address, piece.size, way.size()};
    static_assert(sizeof header == kRequestHeader);
    std::vector<iovec> pieces = {cryptmpi::piece(header, sizeof header)};
    if (!way.empty()) pieces.push_back(cryptmpi::piece(way.data(), way.size()));
    if (piece.what == What::put) pieces.insert(pieces.end(), piece.local.begin(), piece.local.end());
    if (is_atomic(piece.what)) pieces.push_back({piece.operands.data(), operand_count(piece.what) * kNumber});
    return Outgoing{piece.ep, seal(*piece.peer, kRequest, pieces)};
}

bool Remote::send_next(ucp_ep_h ep) {
    auto next = next_to_send(ep);
    if (next) send(next->ep, kRequests, std::move(next->wire));
    return next.has_value();
}

std::optional<ucp_ep_h> Remote::next_crowded_out() {
    const std::lock_guard guard(lock_);
    return crowded_out_.empty() ? std::nullopt : std::optional(*crowded_out_.begin());
}

void Remote::send_what_may_be(ucp_ep_h ep) {
    while (send_next(ep)) {
    }
    for (auto other = next_crowded_out(); other && send_next(*other);) other = next_crowded_out();
}

// protocol: F10
void Remote::take_request(const std::uint8_t* wire, std::size_t wire_size) {
    const Opened opened = open(worker_, kRequest, wire, wire_size, kRequestHeader, "a request for memory");
    std::uint64_t header[kRequestHeader / kNumber];
    for (std::size_t i = 0; i < std::size(header); ++i) header[i] = opened.number(i);
    const auto what = static_cast<What>(header[0]);
    const std::uint64_t size = header[4];
    const std::uint64_t way_size = header[5];
    const bool is_known = header[0] >= 1 && header[0] <= static_cast<std::uint64_t>(What::compare_and_swap);
    const bool is_number = size == sizeof(std::uint32_t) || size == sizeof(std::uint64_t);
    const std::size_t due = what == What::put ? size : operand_count(what) * kNumber;
    const std::size_t bytes = opened.plain.size() - kRequestHeader;
    if (!is_known || size > kLongestPiece || way_size > kMostAddress || bytes != way_size + due ||
        (is_atomic(what) && !is_number))
        around().end("a request for memory is none that CryptMPI makes");
    const std::uint8_t* const after = opened.plain.data() + kRequestHeader;
    ucp_ep_h const way = way_to(opened.from, {after, way_size});
    send(way, kAnswers, answer(*opened.from, header, after + way_size));
}

/// An endpoint to who has asked; `told`: its address, if it has told it again.
ucp_ep_h Remote::way_to(Peer* peer, std::span<const std::uint8_t> told) {
    std::vector<std::uint8_t> address;
    {
        const std::lock_guard guard(lock_);
        Way& way = ways_[peer];
        if (way.address.empty()) way.address.assign(told.begin(), told.end());
        if (way.address.empty()) around().end("a peer asks for memory, and has not told where the answer goes");
        if (way.ep == nullptr) way.ep = worker_.endpoint_to(peer);
        if (way.ep != nullptr) return way.ep;
        address = way.address;
    }
    ucp_ep_params_t params = {};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = reinterpret_cast<const ucp_address_t*>(address.data());
    ucp_ep_h made = nullptr;
    const Opening opening;
    const ucs_status_t status = real().ucp_ep_create(worker_.handle, &params, &made);
    if (status != UCS_OK)
        around().give_up(
            fmt::format("UCX makes no endpoint to a peer that asks for memory: status {}", static_cast<int>(status)));
    const std::lock_guard guard(lock_);
    return ways_[peer].ep = made;
}

/// Does what is asked. `bytes`: those of a put, or the operands.
engine::Buffer Remote::answer(Peer& peer, std::span<const std::uint64_t> request, const std::uint8_t* bytes) const {
    const auto what = static_cast<What>(request[0]);
    const std::size_t size = request[4];
    std::uint64_t header[] = {request[1], 1};
    static_assert(sizeof header == kAnswerHeader);
    std::vector<iovec> pieces = {{header, sizeof header}};
    std::optional<engine::Buffer> out;
    std::uint8_t few[kShort];
    const auto read = [&](std::uint8_t* at) {
        if (size <= sizeof few) at = static_cast<std::uint8_t*>(std::memcpy(few, at, size));
        pieces.push_back({at, size});
        out = seal(peer, kAnswer, pieces);
    };
    const auto write = [&](std::uint8_t* at) { std::memcpy(at, bytes, size); };
    std::uint64_t before = 0;
    const auto count = [&](std::uint8_t* at) {
        const std::uint64_t other = what == What::compare_and_swap ? load_little(bytes + kNumber) : 0;
        before = change(at, size, what, load_little(bytes), other);
        pieces.push_back({&before, size});
    };
    using Access = Regions::Access;
    bool done = false;
    if (what == What::get) {
        done = worker_.regions.use(request[2], request[3], size, Access::read, read);
    } else if (what == What::put) {
        done = worker_.regions.use(request[2], request[3], size, Access::write, write);
    } else {
        done = request[3] % size == 0 && worker_.regions.use(request[2], request[3], size, Access::write, count);
    }
    if (out) return std::move(*out);
    header[1] = done ? 1 : 0;
    return seal(peer, kAnswer, pieces);
}

// protocol: F18
void Remote::take_answer(const std::uint8_t* wire, std::size_t wire_size) {
    const Opened opened = open(worker_, kAnswer, wire, wire_size, kAnswerHeader, "an answer about memory");
    Over over;
    ucp_ep_h ep = nullptr;
    {
        const std::lock_guard guard(lock_);
        const std::uint64_t id = opened.number(0);
        if (const auto late = dropped_.find(id); late != dropped_.end() && late->second == opened.from) {
            dropped_.erase(late);
            return;
        }
        const auto found = pieces_.find(id);
        if (found == pieces_.end() || !found->second.is_sent || found->second.peer != opened.from)
            around().end("a peer answers what it was not asked for");
        const Piece& piece = found->second;
        if (opened.number(1) != 1)
            around().give_up("MPI reaches memory of a peer that the peer has not mapped for that, or no more");
        const std::size_t bytes = opened.plain.size() - kAnswerHeader;
        if (bytes != (piece.what == What::put ? 0 : piece.size))
            around().end("an answer about memory has another length than was asked for");
        const std::uint8_t* from = opened.plain.data() + kAnswerHeader;
        for (const iovec& place : piece.what == What::put ? std::span<const iovec>{} : std::span(piece.local)) {
            std::memcpy(place.iov_base, from, place.iov_len);
            from += place.iov_len;
        }
        answered_.insert(opened.from);
        ep = piece.ep;
        end(found, over);
    }
    for (const auto& request : over) Requests::get().end(request, UCS_OK);
    send_what_may_be(ep);
}

}  // namespace cryptmpi::fabric::ucx
