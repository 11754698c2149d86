// Active messages of both forms: header and payload in one sealed message, or in several (parts.hpp), which UCX always
// sends whole (eager).
//
//   plaintext = payload | header | length of the header (4, little endian; its highest bit: the sender asks for a
//   reply)
#include <fmt/core.h>

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/endian.hpp"
#include "fabric/slice.hpp"
#include "fabric/ucx/door.hpp"

namespace cryptmpi::fabric::ucx {
namespace {

constexpr std::size_t kTrailer = 4;
constexpr std::uint32_t kAsksForReply = std::uint32_t{1} << 31;

void when_sent(void* request, ucs_status_t status, void* data) {
    const InOrder::Callback callback;
    const auto operation = completed(data, request);
    call_back_sent(*operation, request, status);
}

struct Message {
    unsigned id;
    const void* header;
    std::size_t header_size;
    const void* at;
    std::size_t count;
};

/// Seals a part of a message, or all of it, as one that the network carries: `bound` lies behind it.
engine::Buffer seal(const Endpoint& to, unsigned id, std::span<const iovec> pieces, std::size_t size,
                    std::span<const std::uint8_t> bound) {
    auto wire = Ends::get().wires().take(size + kOverhead + bound.size());
    std::uint8_t* const behind = wire.data() + size + kOverhead;
    if (!bound.empty()) std::memcpy(behind, bound.data(), bound.size());
    auto sealed = to.worker->party->seal(*to.peer, {Kind::active, id, bound}, pieces, size, wire.data());
    if (!sealed) around().end(sealed.error().line);
    return wire;
}

/// Sends all parts of a long message but the last one. In the end `place` is that one's, and `pieces` are its bytes.
ucs_status_t send_parts(ucp_ep_h ep, const Endpoint& to, unsigned id, std::vector<iovec>& pieces, std::uint32_t reply,
                        Place& place) {
    {
        const std::lock_guard guard(to.worker->lock);
        place.message = to.worker->long_active++;
    }
    for (; place.whole - place.begin > kPart; place.begin += kPart) {
        std::uint8_t header[kPlaceSize];
        place.write(header);
        const auto part = slice(pieces, place.begin, kPart);
        engine::Buffer wire;
        {
            const std::lock_guard guard(to.worker->lock);
            wire = seal(to, id, part, kPart, header);
        }
        const ucs_status_t status = send_and_forget(ep, id, std::move(wire), nullptr, kPlaceSize, reply);
        if (status != UCS_OK) return status;
    }
    pieces = slice(pieces, place.begin, place.whole - place.begin);
    return UCS_OK;
}

/// HOT PATH
/// Seals a plaintext and has UCX send it, with these parameters; a long one goes in parts.
ucs_status_ptr_t send_sealed(ucp_ep_h ep, const Endpoint& to, unsigned id, std::vector<iovec> pieces,
                             const ucp_request_param_t& own, std::unique_ptr<Operation> operation) {
    const InOrder order(*to.worker);
    Place place{0, 0, total(pieces)};
    std::uint8_t place_of_last[kPlaceSize];
    std::span<const std::uint8_t> bound;
    if (place.whole > kLongestWhole) {
        const ucs_status_t status = send_parts(ep, to, id, pieces, own.flags & UCP_AM_SEND_FLAG_REPLY, place);
        if (status != UCS_OK) return UCS_STATUS_PTR(status);
        place.write(place_of_last);
        bound = place_of_last;
    }
    {
        const std::lock_guard guard(to.worker->lock);
        operation->wire = seal(to, id, pieces, place.whole - place.begin, bound);
    }
    const std::uint8_t* const at_wire = operation->wire.data();
    const std::size_t wire_size = operation->wire.size() - bound.size();
    const std::uint8_t* const header = bound.empty() ? nullptr : at_wire + wire_size;
    return start(
        std::move(operation),
        [&] { return real().ucp_am_send_nbx(ep, id, header, bound.size(), at_wire, wire_size, &own); },
        [](ucs_status_ptr_t answer) { return answer; });
}

/// HOT PATH
ucs_status_ptr_t send(ucp_ep_h ep, const Message& message, const ucp_request_param_t& given,
                      std::unique_ptr<Operation> operation) {
    if ((given.op_attr_mask & UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL) != 0) return UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE);
    if (!is_in_host_memory(given) || message.header_size >= kAsksForReply) return UCS_STATUS_PTR(UCS_ERR_UNSUPPORTED);
    const Endpoint endpoint = endpoint_of(ep);
    const auto data = data_of(message.at, message.count, given, Data::Use::send);
    if (!data->is_known()) return UCS_STATUS_PTR(UCS_ERR_UNSUPPORTED);
    engine::Buffer room;
    auto pieces = data->pieces(Ends::get().pool(), room);
    const std::uint32_t flags = (given.op_attr_mask & UCP_OP_ATTR_FIELD_FLAGS) != 0 ? given.flags : 0;
    const std::uint32_t reply = flags & UCP_AM_SEND_FLAG_REPLY;
    const std::uint32_t trailer = static_cast<std::uint32_t>(message.header_size) | (reply != 0 ? kAsksForReply : 0);
    if (message.header_size != 0) pieces.push_back(piece(message.header, message.header_size));
    pieces.push_back(piece(&trailer, kTrailer));
    operation->worker = endpoint.worker;
    auto own = parameters_of(given, *operation);
    own.cb.send = when_sent;
    own.op_attr_mask |= UCP_OP_ATTR_FIELD_FLAGS;
    own.flags = reply | UCP_AM_SEND_FLAG_EAGER;
    return send_sealed(ep, endpoint, message.id, std::move(pieces), own, std::move(operation));
}

std::string named(const Handler& handler, std::size_t size) {
    return fmt::format("the active message for handler {} with {} bytes on the wire ", handler.id, size);
}

/// An endpoint that UCX gives for the answer. Which one it is, the network says: it must not lead to another peer than
/// the one whose message has opened.
void expect_reply_to(const Handler& handler, ucp_ep_h ep, Peer* from) {
    const Endpoint known = Ends::get().find(ep);
    if (known.peer == nullptr) {
        Ends::get().add(ep, {handler.worker, from});
    } else if (known.peer != from) {
        around().end("the endpoint for the answer to an active message leads to another peer than its sender");
    }
}

ucs_status_t hand_over(const Handler& handler, const std::uint8_t* header, std::size_t header_size, std::uint8_t* data,
                       std::size_t size, ucp_ep_h reply) {
    if (handler.callback_nb != nullptr) {
        if (header_size != 0) around().end(named(handler, size) + "has a header, and its handler takes none");
        return handler.callback_nb(handler.argument, data, size, reply, UCP_CB_PARAM_FLAG_DATA);
    }
    ucp_am_recv_param_t parameters = {};
    parameters.recv_attr = UCP_AM_RECV_ATTR_FLAG_DATA;
    if (reply != nullptr) parameters.recv_attr |= UCP_AM_RECV_ATTR_FIELD_REPLY_EP;
    parameters.reply_ep = reply;
    return handler.callback(handler.argument, header_size == 0 ? nullptr : header, header_size, data, size,
                            &parameters);
}

/// What has opened, whose it is, and which of its messages.
struct Opened {
    Peer* from;
    std::uint64_t number;
    std::optional<engine::Buffer> plain;  // nothing: others of the message's parts are still to come
};

Peer* open(const Handler& handler, std::span<const std::uint8_t> wire, std::span<const std::uint8_t> bound,
           std::uint8_t* to) {
    const iovec out{to, wire.size() - kOverhead};
    auto opened = handler.worker->party->open({Kind::active, handler.id, bound}, wire.data(), wire.size(), {&out, 1});
    if (!opened) around().end(named(handler, wire.size()) + opened.error().line);
    return *opened;
}

Opened open_whole(const Handler& handler, std::span<const std::uint8_t> wire) {
    auto plain = Ends::get().pool().take(wire.size() - kOverhead);
    const std::lock_guard guard(handler.worker->lock);
    Peer* const from = open(handler, wire, {}, plain.data());
    return {from, handler.worker->party->last_number(), std::move(plain)};
}

Opened open_part(const Handler& handler, std::span<const std::uint8_t> wire, const void* header) {
    // It is read once: the network may write there.
    std::uint8_t bound[kPlaceSize];
    std::memcpy(bound, header, kPlaceSize);
    const Place place = Place::read(bound);
    const std::size_t size = wire.size() - kOverhead;
    Share share;
    std::memcpy(share.data(), wire.data(), kShareSize);
    const std::lock_guard guard(handler.worker->lock);
    Gathering& gathering = handler.worker->gathering;
    engine::Buffer room;
    std::uint8_t* to = place.size() == size ? gathering.room_for(share, place) : nullptr;
    if (to == nullptr) {
        room = Ends::get().pool().take(size);
        to = room.data();
    }
    Peer* const from = open(handler, wire, bound, to);
    // What has opened was read anew.
    if (share_of(*from) != share) around().end(named(handler, wire.size()) + "was altered while it was opened");
    auto whole = gathering.add(share_of(*from), handler.id, place, {to, size});
    if (!whole) around().end(named(handler, wire.size()) + whole.error().line);
    return {from, handler.worker->party->last_number(), std::move(*whole)};
}

// protocol: F7
/// Gives the program a message whose turn it is.
void give(Peer* from, ActiveMessage message) {
    if (!message.plain) return;
    const Handler& handler = *message.handler;
    const engine::Buffer& plain = *message.plain;
    const std::size_t size = plain.size();
    if (size < kTrailer) around().end(named(handler, size) + "has no length of its header");
    std::uint32_t trailer = 0;
    std::memcpy(&trailer, plain.data() + size - kTrailer, kTrailer);
    const std::size_t own_header = trailer & ~kAsksForReply;
    if (own_header > size - kTrailer) around().end(named(handler, size) + "says that its header is longer than it");
    const std::size_t payload = size - kTrailer - own_header;
    ucp_ep_h reply = nullptr;
    if ((trailer & kAsksForReply) != 0) {
        reply = message.reply;
        if (reply == nullptr)
            around().end(named(handler, size) + "asks for an answer, and UCX knows no way: altered on its way");
        expect_reply_to(handler, reply, from);
    }
    // Behind the payload it may lie anywhere, and the program reads numbers from it.
    engine::Buffer header;
    if (own_header != 0) {
        header = Ends::get().pool().take(own_header);
        std::memcpy(header.data(), plain.data() + payload, own_header);
    }
    std::uint8_t* const data = plain.data();
    if (hand_over(handler, header.data(), own_header, data, payload, reply) == UCS_INPROGRESS)
        Ends::get().keep(data, std::move(*message.plain));
}

// protocol: F22
/// Gives those whose turn it is: this one, where it is, and what has overtaken it.
void take_turns(Worker& worker, Peer* from, std::uint64_t number, ActiveMessage message) {
    for (;;) {
        {
            const std::lock_guard guard(worker.lock);
            Turn& turn = worker.turns[from];
            if (number != turn.next) {
                turn.early.emplace(number, std::move(message));
                return;
            }
        }
        give(from, std::move(message));
        const std::lock_guard guard(worker.lock);
        Turn& turn = worker.turns[from];
        const auto following = turn.early.find(number = ++turn.next);
        if (following == turn.early.end()) return;
        message = std::move(following->second);
        turn.early.erase(following);
    }
}

ucs_status_t when_it_comes(void* argument, const void* place, std::size_t place_size, void* wire, std::size_t wire_size,
                           const ucp_am_recv_param_t* param) {
    const InOrder::Callback callback;
    const Handler& handler = *static_cast<const Handler*>(argument);
    if ((place_size != 0 && place_size != kPlaceSize) || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0 ||
        wire_size < kOverhead) {
        around().end(named(handler, wire_size) + "is none that CryptMPI sends: it was sent without it, or altered");
    }
    const std::span came(static_cast<const std::uint8_t*>(wire), wire_size);
    Opened opened = place_size == 0 ? open_whole(handler, came) : open_part(handler, came, place);
    const bool has_way = (param->recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0;
    take_turns(*handler.worker, opened.from, opened.number,
               {&handler, std::move(opened.plain), has_way ? param->reply_ep : nullptr});
    return UCS_OK;  // UCX's own is not needed any more
}

/// `handler` without a callback: there is to be none.
ucs_status_t set(ucp_worker_h handle, std::unique_ptr<Handler> handler, std::uint32_t flags) {
    Worker& worker = *handler->worker;
    const bool any = handler->callback != nullptr || handler->callback_nb != nullptr;
    ucp_am_handler_param_t own = {};
    own.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_FLAGS | UCP_AM_HANDLER_PARAM_FIELD_CB |
                     UCP_AM_HANDLER_PARAM_FIELD_ARG;
    own.id = handler->id;
    own.flags = flags & UCP_AM_FLAG_WHOLE_MSG;
    own.cb = any ? when_it_comes : nullptr;
    own.arg = handler.get();
    {
        const std::lock_guard guard(worker.lock);
        worker.handlers.push_back(std::move(handler));
    }
    return real().ucp_worker_set_am_recv_handler(handle, &own);
}

}  // namespace
}  // namespace cryptmpi::fabric::ucx

using namespace cryptmpi::fabric::ucx;

ENTRY ucs_status_t ucp_worker_set_am_recv_handler(ucp_worker_h worker, const ucp_am_handler_param_t* param) {
    const auto given = [&](std::uint64_t field) { return (param->field_mask & field) != 0; };
    auto handler = std::make_unique<Handler>();
    handler->worker = &worker_of(worker);
    handler->id = given(UCP_AM_HANDLER_PARAM_FIELD_ID) ? static_cast<std::uint16_t>(param->id) : std::uint16_t{0};
    handler->callback = given(UCP_AM_HANDLER_PARAM_FIELD_CB) ? param->cb : nullptr;
    handler->argument = given(UCP_AM_HANDLER_PARAM_FIELD_ARG) ? param->arg : nullptr;
    return set(worker, std::move(handler), given(UCP_AM_HANDLER_PARAM_FIELD_FLAGS) ? param->flags : 0);
}

ENTRY ucs_status_t ucp_worker_set_am_handler(ucp_worker_h worker, uint16_t id, ucp_am_callback_t callback, void* arg,
                                             uint32_t flags) {
    auto handler = std::make_unique<Handler>();
    handler->worker = &worker_of(worker);
    handler->id = id;
    handler->callback_nb = callback;
    handler->argument = arg;
    return set(worker, std::move(handler), flags);
}

ENTRY ucs_status_ptr_t ucp_am_send_nbx(ucp_ep_h ep, unsigned id, const void* header, size_t header_length,
                                       const void* buffer, size_t count, const ucp_request_param_t* param) {
    auto operation = std::make_unique<Operation>();
    if ((param->op_attr_mask & UCP_OP_ATTR_FIELD_CALLBACK) != 0) operation->callback.sent = param->cb.send;
    return send(ep, {id, header, header_length, buffer, count}, *param, std::move(operation));
}

ENTRY ucs_status_ptr_t ucp_am_send_nb(ucp_ep_h ep, uint16_t id, const void* buffer, size_t count,
                                      ucp_datatype_t datatype, ucp_send_callback_t callback, unsigned flags) {
    auto operation = std::make_unique<Operation>();
    operation->is_nb = true;
    operation->callback.sent_nb = callback;
    ucp_request_param_t given = {};
    given.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | UCP_OP_ATTR_FIELD_FLAGS;
    given.datatype = datatype;
    given.flags = flags;
    return send(ep, {id, nullptr, 0, buffer, count}, given, std::move(operation));
}

ENTRY void ucp_am_data_release(ucp_worker_h, void* data) {
    if (!Ends::get().release(data))
        around().end("data of an active message that the fabric layer did not keep was released");
}
