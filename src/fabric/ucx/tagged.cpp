// Tagged messages: one of ours for one of the program's, sent, matched, cancelled and completed by UCX.
#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

#include "base/secret.hpp"
#include "fabric/slice.hpp"
#include "fabric/ucx/door.hpp"
#include "fabric/ucx/long_wire.hpp"

namespace cryptmpi::fabric::ucx {

void call_back_sent(Operation& operation, void* request, ucs_status_t status) {
    if (operation.is_nb) {
        if (operation.callback.sent_nb != nullptr) operation.callback.sent_nb(request, status);
    } else if (operation.callback.sent != nullptr) {
        operation.callback.sent(request, status, operation.user_data);
    }
}

namespace {

using Send = decltype(Real::ucp_tag_send_nbx);

ucs_status_ptr_t failed(ucs_status_t status) {
    return UCS_STATUS_PTR(status);
}

std::string named(const ucp_tag_recv_info_t& info) {
    char text[96];
    std::snprintf(text, sizeof text, "the message with tag %016llx and %zu bytes on the wire",
                  static_cast<unsigned long long>(info.sender_tag), info.length);
    return text;
}

/// UCX gets all of the memory that a receive has here: a message that is too long, or was made longer on the way, then
/// mostly comes, and opens or does not. One in segments is never that short.
std::size_t room_of(const Operation& operation) {
    return operation.segments ? operation.wire.size() : std::min(operation.wire.room(), kLongestWhole + kOverhead);
}

/// The program's length of a message.
std::size_t size_on_wire(const ucp_tag_recv_info_t& info) {
    const auto size = size_of(info.length);
    if (!size)
        around().end(named(info) + " has a length that no sealed one has: it was sent without CryptMPI, or altered");
    return *size;
}

void when_sent(void* request, ucs_status_t status, void* data) {
    const InOrder::Callback callback;
    const auto operation = completed(data, request);
    call_back_sent(*operation, request, status);
}

/// UCX asks for the bytes as it sends them, and `pieces` have to stay until then.
ucs_status_ptr_t send_long(Send call, const Endpoint& to, ucp_ep_h ep, std::size_t size, ucp_tag_t tag,
                           const ucp_request_param_t& given, std::unique_ptr<Operation> operation) {
    Worker& worker = *to.worker;
    operation->wire = Ends::get().pool().take(wire_size_of(size));  // UCX copies from there
    auto own = parameters_of(given, *operation);
    own.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    own.datatype = wire_of_operation();
    own.cb.send = when_sent;
    const InOrder order(worker);
    {
        const std::lock_guard guard(worker.lock);
        auto begun = worker.party->begin_long(*to.peer, tag, size, operation->wire.data());
        if (!begun) around().end(begun.error().line);
        operation->segments->send = std::move(*begun);
    }
    Operation* const at = operation.get();
    return start(
        std::move(operation), [&] { return call(ep, at, 1, tag, &own); },
        [](ucs_status_ptr_t answer) { return answer; });
}

/// HOT PATH
ucs_status_ptr_t send(Send call, ucp_ep_h ep, const void* at, std::size_t count, ucp_tag_t tag,
                      const ucp_request_param_t& given, std::unique_ptr<Operation> operation) {
    if ((given.op_attr_mask & UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL) != 0) return failed(UCS_ERR_NO_RESOURCE);
    if (!is_in_host_memory(given)) return failed(UCS_ERR_UNSUPPORTED);
    const Endpoint endpoint = endpoint_of(ep);
    Worker& worker = *endpoint.worker;
    const auto data = data_of(at, count, given, Data::Use::send);
    if (!data->is_known()) return failed(UCS_ERR_UNSUPPORTED);
    operation->worker = &worker;
    engine::Buffer room;
    auto pieces = data->pieces(Ends::get().pool(), room);
    if (data->size() > kLongestWhole) {
        operation->segments = std::make_unique<Segments>();
        operation->segments->pieces = std::move(pieces);
        operation->segments->room = std::move(room);
        return send_long(call, endpoint, ep, data->size(), tag, given, std::move(operation));
    }
    operation->wire = Ends::get().wires().take(data->size() + kOverhead);
    auto own = parameters_of(given, *operation);
    own.cb.send = when_sent;
    const InOrder order(worker);
    {
        const std::lock_guard guard(worker.lock);
        auto sealed =
            worker.party->seal(*endpoint.peer, {Kind::tagged, tag}, pieces, data->size(), operation->wire.data());
        if (!sealed) around().end(sealed.error().line);
    }
    std::uint8_t* const at_wire = operation->wire.data();
    const std::size_t wire_size = operation->wire.size();
    return start(
        std::move(operation), [&] { return call(ep, at_wire, wire_size, tag, &own); },
        [](ucs_status_ptr_t answer) { return answer; });
}

std::unique_ptr<Operation> sending(const ucp_request_param_t& given) {
    auto operation = std::make_unique<Operation>();
    if ((given.op_attr_mask & UCP_OP_ATTR_FIELD_CALLBACK) != 0) operation->callback.sent = given.cb.send;
    return operation;
}

std::unique_ptr<Operation> sending_nb(ucp_send_callback_t callback) {
    auto operation = std::make_unique<Operation>();
    operation->is_nb = true;
    operation->callback.sent_nb = callback;
    return operation;
}

ucp_request_param_t typed(ucp_datatype_t type, std::uint32_t more = 0) {
    ucp_request_param_t parameters = {};
    parameters.op_attr_mask = UCP_OP_ATTR_FIELD_DATATYPE | more;
    parameters.datatype = type;
    return parameters;
}

/// Of a message that does not end, segments may have opened; that they belong here, the last one would have shown.
void take_back(const Operation& operation) {
    if (!operation.segments) return;
    for (const iovec& place : operation.segments->pieces) wipe(place.iov_base, place.iov_len);
}

/// Opens what came into the program's buffer, and makes `info` say what the program would have got. A message that is
/// not the one that is due ends the job.
ucs_status_t take_in(Operation& operation, ucs_status_t status, ucp_tag_recv_info_t& info) {
    Worker& worker = *operation.worker;
    const std::lock_guard guard(worker.lock);
    if (status != UCS_OK && status != UCS_ERR_MESSAGE_TRUNCATED) {
        operation.posted.withdraw();
        take_back(operation);
        return status;
    }
    const std::size_t size = size_on_wire(info);
    if (status == UCS_ERR_MESSAGE_TRUNCATED || info.length > room_of(operation)) {
        // UCX writes nothing of a message that is too long, but for fragments of it that came before it noticed.
        take_back(operation);
        auto done = worker.party->cut_off(operation.posted, info.sender_tag);
        if (!done) around().end(named(info) + " " + done.error().line);
        around().say_cut_off(named(info));
        info.length = size;
        return UCS_ERR_MESSAGE_TRUNCATED;
    }
    const Data& data = *operation.data;
    engine::Buffer room;
    std::vector<iovec> places;
    const bool fits = size <= data.size();
    if (is_long(info.length)) {
        make_places(operation);
        room = std::move(operation.segments->room);
        places = slice(operation.segments->pieces, 0, size);
    } else if (data.is_unpacked() || !fits) {
        room = Ends::get().pool().take(size);
        places = {{room.data(), size}};
    } else {
        places = data.places(size);
    }
    const std::uint8_t* const wire = operation.wire.data();
    auto opened = is_long(info.length)
                      ? worker.party->end_long(operation.segments->receive, operation.posted, info.sender_tag, wire,
                                               info.length, places)
                      : worker.party->open(operation.posted, info.sender_tag, {}, wire, info.length, places);
    if (!opened) around().end(named(info) + " " + opened.error().line);
    info.length = size;
    if (!fits) return UCS_ERR_MESSAGE_TRUNCATED;
    return data.is_unpacked() ? data.unpack(room.data(), size) : UCS_OK;
}

/// What UCX tells of a receive that it completes inside the call that begins it.
struct AtOnce {
    const Operation* operation;
    bool came = false;
    ucs_status_t status = UCS_OK;
    ucp_tag_recv_info_t info = {};
};
thread_local AtOnce* at_once = nullptr;

void when_received(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info, void* data) {
    if (at_once != nullptr && at_once->operation == data) {
        *at_once = {at_once->operation, true, status, *info};
        return;
    }
    const InOrder::Callback callback;
    const auto operation = completed(data, request);
    ucp_tag_recv_info_t own = *info;
    const ucs_status_t opened = take_in(*operation, status, own);
    if (opened != status && !operation->is_abandoned) Ends::get().note(request, opened);
    if (operation->worker->several_threads) Ends::get().end(request, *operation);
    if (operation->is_nb) {
        if (operation->callback.received_nb != nullptr) operation->callback.received_nb(request, opened, &own);
    } else if (operation->callback.received != nullptr) {
        operation->callback.received(request, opened, &own, operation->user_data);
    }
}

/// The program may be told at once, and is not called back.
ucs_status_ptr_t end_at_once(Operation& operation, AtOnce& told, const ucp_request_param_t& given, void* request) {
    const ucs_status_t status = take_in(operation, told.status, told.info);
    if (status == UCS_OK && (given.op_attr_mask & UCP_OP_ATTR_FIELD_RECV_INFO) != 0) {
        *given.recv_info.tag_info = told.info;
    }
    if ((given.op_attr_mask & UCP_OP_ATTR_FIELD_REQUEST) == 0) {
        real().ucp_request_free(request);
    } else {
        Ends::get().note(request, status == told.status ? std::nullopt : std::optional(status));
    }
    return UCS_STATUS_PTR(status);
}

/// Where the message comes: as long as it may be.
void take_wire(Operation& operation, ucp_request_param_t& own) {
    const std::size_t most = operation.data->size();
    if (most <= kLongestWhole) {
        operation.wire = Ends::get().wires().take(most + kOverhead);
        return;
    }
    // UCX copies there by functions of ours, and gets no memory: nobody changes a segment while it is opened.
    operation.wire = Ends::get().pool().take(wire_size_of(most));
    operation.segments = std::make_unique<Segments>();
    own.op_attr_mask |= UCP_OP_ATTR_FIELD_DATATYPE;
    own.datatype = wire_of_operation();
}

/// `post` calls UCX with the buffer of our own.
template <class Post>
ucs_status_ptr_t receive(Worker& worker, void* at, std::size_t count, const Wanted* wanted,
                         const ucp_request_param_t& given, std::unique_ptr<Operation> operation, const Post& post) {
    if ((given.op_attr_mask & UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL) != 0) return failed(UCS_ERR_NO_RESOURCE);
    if (!is_in_host_memory(given)) return failed(UCS_ERR_UNSUPPORTED);
    operation->data = data_of(at, count, given, Data::Use::receive);
    if (!operation->data->is_known()) return failed(UCS_ERR_UNSUPPORTED);
    operation->worker = &worker;
    auto own = parameters_of(given, *operation);
    take_wire(*operation, own);
    // UCX 1.13 says nothing of a message that it gives at once, but to a callback.
    own.op_attr_mask |= UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
    own.cb.recv = when_received;
    const InOrder order(worker);
    if (wanted != nullptr) {
        const std::lock_guard guard(worker.lock);
        worker.party->post(operation->posted, *wanted);
    }
    Operation& same = *operation;
    AtOnce told{&same};
    const bool may_be_told_at_once = (given.op_attr_mask & UCP_OP_ATTR_FLAG_NO_IMM_CMPL) == 0;
    return start(
        std::move(operation),
        [&] {
            at_once = may_be_told_at_once ? &told : nullptr;
            ucs_status_ptr_t const answer =
                same.segments != nullptr ? post(&same, 1, &own) : post(same.wire.data(), room_of(same), &own);
            at_once = nullptr;
            return told.came ? end_at_once(same, told, given, answer) : answer;
        },
        [&](ucs_status_ptr_t answer) {
            const std::lock_guard guard(worker.lock);
            same.posted.withdraw();
            return answer;
        });
}

std::unique_ptr<Operation> with_callback(std::unique_ptr<Operation> operation, const ucp_request_param_t& given) {
    if ((given.op_attr_mask & UCP_OP_ATTR_FIELD_CALLBACK) != 0) operation->callback.received = given.cb.recv;
    return operation;
}

std::unique_ptr<Operation> with_callback(std::unique_ptr<Operation> operation, ucp_tag_recv_callback_t callback) {
    operation->is_nb = true;
    operation->callback.received_nb = callback;
    return operation;
}

/// A full mask names MPI's context, tag and source, and so one sender.
Wanted wanted(const Worker& worker, ucp_tag_t tag, ucp_tag_t mask) {
    // With several threads it is not known which receive is asked to be cancelled.
    return {tag, mask, nullptr, mask == ~ucp_tag_t{0} && !worker.several_threads};
}

ucs_status_ptr_t receive_tagged(ucp_worker_h handle, void* at, std::size_t count, ucp_tag_t tag, ucp_tag_t mask,
                                const ucp_request_param_t& given, std::unique_ptr<Operation> operation) {
    Worker& worker = worker_of(handle);
    const Wanted which = wanted(worker, tag, mask);
    return receive(worker, at, count, &which, given, std::move(operation),
                   [&](void* wire, std::size_t size, const ucp_request_param_t* own) {
                       return real().ucp_tag_recv_nbx(handle, wire, size, tag, mask, own);
                   });
}

/// The message has had its place in the order since it was probed.
std::unique_ptr<Operation> probed(ucp_tag_message_h message) {
    auto operation = Ends::get().take(message);
    if (!operation) around().end("a message of UCX was probed past the fabric layer: it cannot be opened");
    return operation;
}

ucs_status_ptr_t receive_probed(ucp_worker_h handle, void* at, std::size_t count, ucp_tag_message_h message,
                                const ucp_request_param_t& given, std::unique_ptr<Operation> operation) {
    return receive(worker_of(handle), at, count, nullptr, given, std::move(operation),
                   [&](void* wire, std::size_t size, const ucp_request_param_t* own) {
                       return real().ucp_tag_msg_recv_nbx(handle, wire, size, message, own);
                   });
}

}  // namespace
}  // namespace cryptmpi::fabric::ucx

using namespace cryptmpi::fabric::ucx;

ENTRY ucs_status_ptr_t ucp_tag_send_nbx(ucp_ep_h ep, const void* buffer, size_t count, ucp_tag_t tag,
                                        const ucp_request_param_t* param) {
    return send(real().ucp_tag_send_nbx, ep, buffer, count, tag, *param, sending(*param));
}

ENTRY ucs_status_ptr_t ucp_tag_send_sync_nbx(ucp_ep_h ep, const void* buffer, size_t count, ucp_tag_t tag,
                                             const ucp_request_param_t* param) {
    return send(real().ucp_tag_send_sync_nbx, ep, buffer, count, tag, *param, sending(*param));
}

ENTRY ucs_status_ptr_t ucp_tag_send_nb(ucp_ep_h ep, const void* buffer, size_t count, ucp_datatype_t datatype,
                                       ucp_tag_t tag, ucp_send_callback_t callback) {
    return send(real().ucp_tag_send_nbx, ep, buffer, count, tag, typed(datatype), sending_nb(callback));
}

ENTRY ucs_status_ptr_t ucp_tag_send_sync_nb(ucp_ep_h ep, const void* buffer, size_t count, ucp_datatype_t datatype,
                                            ucp_tag_t tag, ucp_send_callback_t callback) {
    return send(real().ucp_tag_send_sync_nbx, ep, buffer, count, tag, typed(datatype), sending_nb(callback));
}

ENTRY ucs_status_t ucp_tag_send_nbr(ucp_ep_h ep, const void* buffer, size_t count, ucp_datatype_t datatype,
                                    ucp_tag_t tag, void* request) {
    auto given = typed(datatype, UCP_OP_ATTR_FIELD_REQUEST);
    given.request = request;
    return UCS_PTR_STATUS(send(real().ucp_tag_send_nbx, ep, buffer, count, tag, given, sending_nb(nullptr)));
}

ENTRY ucs_status_ptr_t ucp_tag_recv_nbx(ucp_worker_h worker, void* buffer, size_t count, ucp_tag_t tag, ucp_tag_t mask,
                                        const ucp_request_param_t* param) {
    return receive_tagged(worker, buffer, count, tag, mask, *param,
                          with_callback(std::make_unique<Operation>(), *param));
}

ENTRY ucs_status_ptr_t ucp_tag_recv_nb(ucp_worker_h worker, void* buffer, size_t count, ucp_datatype_t datatype,
                                       ucp_tag_t tag, ucp_tag_t mask, ucp_tag_recv_callback_t callback) {
    return receive_tagged(worker, buffer, count, tag, mask, typed(datatype, UCP_OP_ATTR_FLAG_NO_IMM_CMPL),
                          with_callback(std::make_unique<Operation>(), callback));
}

ENTRY ucs_status_t ucp_tag_recv_nbr(ucp_worker_h worker, void* buffer, size_t count, ucp_datatype_t datatype,
                                    ucp_tag_t tag, ucp_tag_t mask, void* request) {
    auto given = typed(datatype, UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FLAG_NO_IMM_CMPL);
    given.request = request;
    ucs_status_ptr_t const answer =
        receive_tagged(worker, buffer, count, tag, mask, given,
                       with_callback(std::make_unique<Operation>(), ucp_tag_recv_callback_t{nullptr}));
    return UCS_PTR_IS_ERR(answer) ? UCS_PTR_STATUS(answer) : UCS_OK;
}

ENTRY ucp_tag_message_h ucp_tag_probe_nb(ucp_worker_h handle, ucp_tag_t tag, ucp_tag_t mask, int remove,
                                         ucp_tag_recv_info_t* info) {
    Worker& worker = worker_of(handle);
    const InOrder order(worker);
    ucp_tag_message_h const message = real().ucp_tag_probe_nb(handle, tag, mask, remove, info);
    if (message == nullptr) return message;
    info->length = size_on_wire(*info);
    auto operation = std::make_unique<Operation>();
    if (remove == 0) return message;
    operation->worker = &worker;
    {
        const std::lock_guard guard(worker.lock);
        // It has its message, so that it holds nothing else.
        worker.party->post(operation->posted, {info->sender_tag, ~ucp_tag_t{0}, nullptr, true});
    }
    Ends::get().hold(message, std::move(operation));
    return message;
}

ENTRY ucs_status_ptr_t ucp_tag_msg_recv_nbx(ucp_worker_h worker, void* buffer, size_t count, ucp_tag_message_h message,
                                            const ucp_request_param_t* param) {
    return receive_probed(worker, buffer, count, message, *param, with_callback(probed(message), *param));
}

ENTRY ucs_status_ptr_t ucp_tag_msg_recv_nb(ucp_worker_h worker, void* buffer, size_t count, ucp_datatype_t datatype,
                                           ucp_tag_message_h message, ucp_tag_recv_callback_t callback) {
    return receive_probed(worker, buffer, count, message, typed(datatype, UCP_OP_ATTR_FLAG_NO_IMM_CMPL),
                          with_callback(probed(message), callback));
}
