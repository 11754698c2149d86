// One-sided operations as the program calls them: each is a wish that remote.cpp carries.
#include <ucp/api/ucp.h>

#include <cstring>
#include <utility>

#include "base/pieces.hpp"
#include "fabric/ucx/door.hpp"
#include "fabric/ucx/memory.hpp"
#include "fabric/ucx/remote.hpp"
#include "fabric/ucx/requests.hpp"

namespace cryptmpi::fabric::ucx {
namespace {

Remote& remote_of(Worker& worker) {
    if (worker.remote == nullptr)
        around().end("MPI reaches remote memory of a context for which it was refused: it cannot be sealed");
    return *worker.remote;
}

Worker& worker_at(ucp_ep_h ep) {
    return *endpoint_of(ep).worker;
}

std::uint64_t region_of(ucp_rkey_h key) {
    return reinterpret_cast<const RemoteKey*>(key)->region;
}

std::shared_ptr<Request> request_of(const Worker& worker) {
    return std::make_shared<Request>(worker.requests);
}

/// With a callback of the older form.
std::shared_ptr<Request> request_of(const Worker& worker, ucp_send_callback_t callback) {
    auto request = request_of(worker);
    request->call_back(callback);
    return request;
}

std::shared_ptr<Request> request_of(const Worker& worker, const ucp_request_param_t& given) {
    auto request = request_of(worker);
    const auto has = [&](std::uint32_t field) { return (given.op_attr_mask & field) != 0; };
    if (has(UCP_OP_ATTR_FIELD_CALLBACK))
        request->call_back(given.cb.send, has(UCP_OP_ATTR_FIELD_USER_DATA) ? given.user_data : nullptr);
    return request;
}

template <class Condition>
void wait_while(const Worker& worker, const Condition& condition) {
    while (condition()) real().ucp_worker_progress(worker.handle);
}

/// Without a request of its own: the program flushes.
ucs_status_t begin_unasked(const Wish& wish) {
    const bool is_sent = remote_of(worker_at(wish.ep)).begin(wish, endpoint_of(wish.ep).peer, nullptr);
    return wish.what != What::get && is_sent ? UCS_OK : UCS_INPROGRESS;
}

ucs_status_ptr_t begin(const Wish& wish, const std::shared_ptr<Request>& request, bool may_end_at_once = true) {
    if (wish.size == 0 && may_end_at_once) return nullptr;
    const bool is_sent = remote_of(worker_at(wish.ep)).begin(wish, endpoint_of(wish.ep).peer, request);
    const bool waits_for_bytes = wish.what != What::put && !wish.local.empty();
    if (may_end_at_once && is_sent && !waits_for_bytes) return nullptr;
    if (wish.size == 0) Requests::get().end(request, UCS_OK);
    return may_end_at_once ? Requests::get().hand_out(request) : Requests::get().hand_out_always(request);
}

/// Blocks, with UCX's older calls.
ucs_status_t do_now(const Wish& wish) {
    Worker& worker = worker_at(wish.ep);
    Remote& remote = remote_of(worker);
    remote.begin(wish, endpoint_of(wish.ep).peer, nullptr);
    wait_while(worker, [&] { return remote.is_under_way(wish.ep); });
    return UCS_OK;
}

/// The newest calls, with all that may be asked of them. `wish` is without what is local.
ucs_status_ptr_t begin_as_asked(Wish wish, const Data& data, const ucp_request_param_t& given) {
    if ((given.op_attr_mask & UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL) != 0) return UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE);
    if (!is_in_host_memory(given) || !data.is_known()) return UCS_STATUS_PTR(UCS_ERR_UNSUPPORTED);
    wish.size = data.size();
    engine::Buffer room;
    if (wish.what == What::get && data.is_unpacked()) {
        room = Ends::get().pool().take(wish.size);
        wish.local = {{room.data(), wish.size}};
        const ucs_status_t status = do_now(wish);
        return UCS_STATUS_PTR(status == UCS_OK ? data.unpack(room.data(), wish.size) : status);
    }
    wish.local = wish.what == What::get ? data.places(wish.size) : data.pieces(Ends::get().pool(), room);
    const bool may_end_at_once = (given.op_attr_mask & UCP_OP_ATTR_FLAG_NO_IMM_CMPL) == 0;
    // A request of the program's own, or a buffer of ours, is not kept: the operation ends in this call.
    if (data.is_unpacked() || ((given.op_attr_mask & UCP_OP_ATTR_FIELD_REQUEST) != 0 && may_end_at_once))
        return UCS_STATUS_PTR(do_now(wish));
    if ((given.op_attr_mask & UCP_OP_ATTR_FIELD_REQUEST) != 0) {
        around().refuse("one-sided operations with a request of the program's own that may not end at once",
                        "no request of UCX's is completed by the fabric layer");
        return UCS_STATUS_PTR(UCS_ERR_UNSUPPORTED);
    }
    return begin(wish, request_of(worker_at(wish.ep), given), may_end_at_once);
}

Wish put(ucp_ep_h ep, const void* at, std::size_t size, std::uint64_t address, ucp_rkey_h key) {
    return {ep, What::put, region_of(key), address, size, {piece(at, size)}};
}

Wish get(ucp_ep_h ep, void* at, std::size_t size, std::uint64_t address, ucp_rkey_h key) {
    return {ep, What::get, region_of(key), address, size, {{at, size}}};
}

/// `result`: null where the program does not want what was there before.
Wish atomic(ucp_ep_h ep, What what, std::size_t size, std::uint64_t address, ucp_rkey_h key, void* result,
            std::uint64_t operand, std::uint64_t other = 0) {
    Wish wish = {ep, what, region_of(key), address, size, {}, {operand, other}};
    if (result != nullptr) wish.local = {{result, size}};
    return wish;
}

bool is_number(std::size_t size) {
    return size == sizeof(std::uint32_t) || size == sizeof(std::uint64_t);
}

std::uint64_t number_at(const void* at, std::size_t size) {
    std::uint64_t number = 0;
    std::memcpy(&number, at, size);
    return number;
}

What what_of(ucp_atomic_post_op_t operation) {
    switch (operation) {
        case UCP_ATOMIC_POST_OP_AND:
            return What::bit_and;
        case UCP_ATOMIC_POST_OP_OR:
            return What::bit_or;
        case UCP_ATOMIC_POST_OP_XOR:
            return What::bit_xor;
        default:
            return What::add;
    }
}

What what_of(ucp_atomic_fetch_op_t operation) {
    switch (operation) {
        case UCP_ATOMIC_FETCH_OP_SWAP:
            return What::swap;
        case UCP_ATOMIC_FETCH_OP_CSWAP:
            return What::compare_and_swap;
        case UCP_ATOMIC_FETCH_OP_FAND:
            return What::bit_and;
        case UCP_ATOMIC_FETCH_OP_FOR:
            return What::bit_or;
        case UCP_ATOMIC_FETCH_OP_FXOR:
            return What::bit_xor;
        default:
            return What::add;
    }
}

What what_of(ucp_atomic_op_t operation) {
    switch (operation) {
        case UCP_ATOMIC_OP_SWAP:
            return What::swap;
        case UCP_ATOMIC_OP_CSWAP:
            return What::compare_and_swap;
        case UCP_ATOMIC_OP_AND:
            return What::bit_and;
        case UCP_ATOMIC_OP_OR:
            return What::bit_or;
        case UCP_ATOMIC_OP_XOR:
            return What::bit_xor;
        default:
            return What::add;
    }
}

/// The result and its like of the older calls.
template <class Number>
ucs_status_t change_now(ucp_ep_h ep, What what, std::uint64_t address, ucp_rkey_h key, Number* result, Number operand,
                        Number other = 0) {
    return do_now(atomic(ep, what, sizeof(Number), address, key, result, operand, other));
}

/// `ep` null: of the whole worker.
template <class Plain>
ucs_status_ptr_t flush(Worker& worker, ucp_ep_h ep, const std::shared_ptr<Request>& request, bool may_end_at_once,
                       const Plain& plain) {
    if (worker.remote == nullptr) return plain();
    if (!worker.remote->flush(ep, request)) Requests::get().end(request, UCS_OK);
    return may_end_at_once ? Requests::get().hand_out(request) : Requests::get().hand_out_always(request);
}

template <class Plain>
ucs_status_ptr_t flush_as_asked(Worker& worker, ucp_ep_h ep, const ucp_request_param_t& given, const Plain& plain) {
    const bool may_end_at_once = (given.op_attr_mask & UCP_OP_ATTR_FLAG_NO_IMM_CMPL) == 0;
    return flush(worker, ep, request_of(worker, given), may_end_at_once, plain);
}

template <class Plain>
ucs_status_t flush_now(Worker& worker, ucp_ep_h ep, const Plain& plain) {
    if (worker.remote == nullptr) return plain();
    wait_while(worker, [&] { return worker.remote->is_under_way(ep); });
    return UCS_OK;
}

}  // namespace
}  // namespace cryptmpi::fabric::ucx

using namespace cryptmpi::fabric::ucx;

ENTRY ucs_status_t ucp_put(ucp_ep_h ep, const void* at, size_t size, uint64_t address, ucp_rkey_h key) {
    return do_now(put(ep, at, size, address, key));
}

ENTRY ucs_status_t ucp_put_nbi(ucp_ep_h ep, const void* at, size_t size, uint64_t address, ucp_rkey_h key) {
    return begin_unasked(put(ep, at, size, address, key));
}

ENTRY ucs_status_ptr_t ucp_put_nb(ucp_ep_h ep, const void* at, size_t size, uint64_t address, ucp_rkey_h key,
                                  ucp_send_callback_t callback) {
    return begin(put(ep, at, size, address, key), request_of(worker_at(ep), callback));
}

ENTRY ucs_status_ptr_t ucp_put_nbx(ucp_ep_h ep, const void* buffer, size_t count, uint64_t address, ucp_rkey_h key,
                                   const ucp_request_param_t* param) {
    return begin_as_asked(put(ep, nullptr, 0, address, key), *data_of(buffer, count, *param, Data::Use::send), *param);
}

ENTRY ucs_status_t ucp_get(ucp_ep_h ep, void* at, size_t size, uint64_t address, ucp_rkey_h key) {
    return do_now(get(ep, at, size, address, key));
}

ENTRY ucs_status_t ucp_get_nbi(ucp_ep_h ep, void* at, size_t size, uint64_t address, ucp_rkey_h key) {
    return begin_unasked(get(ep, at, size, address, key));
}

ENTRY ucs_status_ptr_t ucp_get_nb(ucp_ep_h ep, void* at, size_t size, uint64_t address, ucp_rkey_h key,
                                  ucp_send_callback_t callback) {
    return begin(get(ep, at, size, address, key), request_of(worker_at(ep), callback));
}

ENTRY ucs_status_ptr_t ucp_get_nbx(ucp_ep_h ep, void* buffer, size_t count, uint64_t address, ucp_rkey_h key,
                                   const ucp_request_param_t* param) {
    return begin_as_asked(get(ep, nullptr, 0, address, key), *data_of(buffer, count, *param, Data::Use::receive),
                          *param);
}

ENTRY ucs_status_t ucp_atomic_post(ucp_ep_h ep, ucp_atomic_post_op_t operation, uint64_t value, size_t size,
                                   uint64_t address, ucp_rkey_h key) {
    if (!is_number(size)) return UCS_ERR_INVALID_PARAM;
    begin_unasked(atomic(ep, what_of(operation), size, address, key, nullptr, value));
    return UCS_OK;  // the operand is not the program's any more
}

ENTRY ucs_status_ptr_t ucp_atomic_fetch_nb(ucp_ep_h ep, ucp_atomic_fetch_op_t operation, uint64_t value, void* result,
                                           size_t size, uint64_t address, ucp_rkey_h key,
                                           ucp_send_callback_t callback) {
    if (!is_number(size)) return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
    const What what = what_of(operation);
    // UCX takes the new value from where the old one goes.
    const std::uint64_t other = what == What::compare_and_swap ? number_at(result, size) : 0;
    return begin(atomic(ep, what, size, address, key, result, value, other), request_of(worker_at(ep), callback));
}

ENTRY ucs_status_ptr_t ucp_atomic_op_nbx(ucp_ep_h ep, ucp_atomic_op_t operation, const void* buffer, size_t count,
                                         uint64_t address, ucp_rkey_h key, const ucp_request_param_t* param) {
    const auto data = data_of(buffer, count, *param, Data::Use::send);
    if (!is_in_host_memory(*param)) return UCS_STATUS_PTR(UCS_ERR_UNSUPPORTED);
    const auto has = [&](std::uint32_t field) { return (param->op_attr_mask & field) != 0; };
    void* const result = has(UCP_OP_ATTR_FIELD_REPLY_BUFFER) ? param->reply_buffer : nullptr;
    const What what = what_of(operation);
    const bool needs_result = what == What::swap || what == What::compare_and_swap;
    if (count != 1 || !is_number(data->size()) || (needs_result && result == nullptr))
        return UCS_STATUS_PTR(UCS_ERR_INVALID_PARAM);
    if (has(UCP_OP_ATTR_FLAG_FORCE_IMM_CMPL)) return UCS_STATUS_PTR(UCS_ERR_NO_RESOURCE);
    const std::size_t size = data->size();
    const std::uint64_t other = what == What::compare_and_swap ? number_at(result, size) : 0;
    const Wish wish = atomic(ep, what, size, address, key, result, number_at(buffer, size), other);
    if (has(UCP_OP_ATTR_FIELD_REQUEST)) return UCS_STATUS_PTR(do_now(wish));
    return begin(wish, request_of(worker_at(ep), *param), !has(UCP_OP_ATTR_FLAG_NO_IMM_CMPL));
}

ENTRY ucs_status_t ucp_atomic_add32(ucp_ep_h ep, uint32_t value, uint64_t address, ucp_rkey_h key) {
    return change_now<std::uint32_t>(ep, What::add, address, key, nullptr, value);
}

ENTRY ucs_status_t ucp_atomic_add64(ucp_ep_h ep, uint64_t value, uint64_t address, ucp_rkey_h key) {
    return change_now<std::uint64_t>(ep, What::add, address, key, nullptr, value);
}

ENTRY ucs_status_t ucp_atomic_fadd32(ucp_ep_h ep, uint32_t value, uint64_t address, ucp_rkey_h key, uint32_t* result) {
    return change_now(ep, What::add, address, key, result, value);
}

ENTRY ucs_status_t ucp_atomic_fadd64(ucp_ep_h ep, uint64_t value, uint64_t address, ucp_rkey_h key, uint64_t* result) {
    return change_now(ep, What::add, address, key, result, value);
}

ENTRY ucs_status_t ucp_atomic_swap32(ucp_ep_h ep, uint32_t value, uint64_t address, ucp_rkey_h key, uint32_t* result) {
    return change_now(ep, What::swap, address, key, result, value);
}

ENTRY ucs_status_t ucp_atomic_swap64(ucp_ep_h ep, uint64_t value, uint64_t address, ucp_rkey_h key, uint64_t* result) {
    return change_now(ep, What::swap, address, key, result, value);
}

ENTRY ucs_status_t ucp_atomic_cswap32(ucp_ep_h ep, uint32_t compare, uint32_t value, uint64_t address, ucp_rkey_h key,
                                      uint32_t* result) {
    return change_now(ep, What::compare_and_swap, address, key, result, compare, value);
}

ENTRY ucs_status_t ucp_atomic_cswap64(ucp_ep_h ep, uint64_t compare, uint64_t value, uint64_t address, ucp_rkey_h key,
                                      uint64_t* result) {
    return change_now(ep, What::compare_and_swap, address, key, result, compare, value);
}

ENTRY ucs_status_t ucp_worker_fence(ucp_worker_h handle) {
    const Worker& worker = worker_of(handle);
    if (worker.remote == nullptr) return real().ucp_worker_fence(handle);
    worker.remote->fence();
    return UCS_OK;
}

ENTRY ucs_status_t ucp_worker_flush(ucp_worker_h handle) {
    return flush_now(worker_of(handle), nullptr, [&] { return real().ucp_worker_flush(handle); });
}

ENTRY ucs_status_ptr_t ucp_worker_flush_nb(ucp_worker_h handle, unsigned flags, ucp_send_callback_t callback) {
    Worker& worker = worker_of(handle);
    return flush(worker, nullptr, request_of(worker, callback), true,
                 [&] { return real().ucp_worker_flush_nb(handle, flags, callback); });
}

ENTRY ucs_status_ptr_t ucp_worker_flush_nbx(ucp_worker_h handle, const ucp_request_param_t* param) {
    return flush_as_asked(worker_of(handle), nullptr, *param,
                          [&] { return real().ucp_worker_flush_nbx(handle, param); });
}

ENTRY ucs_status_t ucp_ep_flush(ucp_ep_h ep) {
    return flush_now(worker_at(ep), ep, [&] { return real().ucp_ep_flush(ep); });
}

ENTRY ucs_status_ptr_t ucp_ep_flush_nb(ucp_ep_h ep, unsigned flags, ucp_send_callback_t callback) {
    Worker& worker = worker_at(ep);
    return flush(worker, ep, request_of(worker, callback), true,
                 [&] { return real().ucp_ep_flush_nb(ep, flags, callback); });
}

ENTRY ucs_status_ptr_t ucp_ep_flush_nbx(ucp_ep_h ep, const ucp_request_param_t* param) {
    return flush_as_asked(worker_at(ep), ep, *param, [&] { return real().ucp_ep_flush_nbx(ep, param); });
}
