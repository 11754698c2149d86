// The door of UCX: what MPI calls of UCP, sealed. Workers, endpoints, addresses and requests; tagged.cpp and active.cpp
// have the messages.
#include "fabric/ucx/door.hpp"

#include <cstdlib>
#include <cstring>

#include "fabric/opening.hpp"
#include "fabric/ucx/blob.hpp"

namespace cryptmpi::fabric::ucx {

Worker& worker_of(ucp_worker_h handle) {
    Worker* const worker = Ends::get().find(handle);
    if (worker == nullptr) around().end("a worker of UCX was made past the fabric layer: it cannot be sealed");
    return *worker;
}

Endpoint endpoint_of(ucp_ep_h handle) {
    const Endpoint endpoint = Ends::get().find(handle);
    if (endpoint.peer == nullptr)
        around().end("an endpoint of UCX was made past the fabric layer: it cannot be sealed");
    return endpoint;
}

bool is_in_host_memory(const ucp_request_param_t& given) {
    const bool host = (given.op_attr_mask & UCP_OP_ATTR_FIELD_MEMORY_TYPE) == 0 ||
                      given.memory_type == UCS_MEMORY_TYPE_HOST || given.memory_type == UCS_MEMORY_TYPE_UNKNOWN;
    if (!host) around().refuse("memory of a GPU", "the fabric layer seals messages in the memory of the host only");
    return host;
}

std::unique_ptr<Data> data_of(const void* at, std::size_t count, const ucp_request_param_t& given, Data::Use use) {
    const bool typed = (given.op_attr_mask & UCP_OP_ATTR_FIELD_DATATYPE) != 0;
    const ucp_datatype_t type = typed ? given.datatype : ucp_dt_make_contig(1);
    auto data = std::make_unique<Data>(Ends::get().types(), const_cast<void*>(at), count, type, use);
    if (!data->is_known()) around().refuse("a datatype", "UCX made it past the fabric layer, or it is of a newer kind");
    return data;
}

ucp_request_param_t parameters_of(const ucp_request_param_t& given, Operation& operation) {
    ucp_request_param_t own = {};
    own.op_attr_mask = given.op_attr_mask & (UCP_OP_ATTR_FIELD_REQUEST | UCP_OP_ATTR_FLAG_NO_IMM_CMPL |
                                             UCP_OP_ATTR_FLAG_FAST_CMPL | UCP_OP_ATTR_FLAG_MULTI_SEND);
    own.op_attr_mask |= UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    own.memory_type = UCS_MEMORY_TYPE_HOST;
    own.request = given.request;
    own.user_data = &operation;
    if ((given.op_attr_mask & UCP_OP_ATTR_FIELD_USER_DATA) != 0) operation.user_data = given.user_data;
    return own;
}

std::unique_ptr<Operation> completed(void* operation, const void* request) {
    std::unique_ptr<Operation> done(static_cast<Operation*>(operation));
    Ends::get().note(request, std::nullopt);  // what it was before
    if (done->worker->several_threads) {
        const bool receives = done->data != nullptr;
        if (!receives) Ends::get().end(request, *done);
        return done;
    }
    if (done->over != nullptr) *done->over = true;
    done->worker->remove(*done);
    return done;
}

namespace {

std::uint8_t* make_blob(Worker& worker, const void* address, std::size_t size) {
    auto* const blob = static_cast<std::uint8_t*>(std::malloc(kBlobPrefix + size));
    if (blob == nullptr) return nullptr;
    auto written = write_blob(*worker.party, {static_cast<const std::uint8_t*>(address), size}, blob);
    if (!written) around().end(written.error().line);
    return blob;
}

/// The program gives up a request. True: its operation is one of ours, and has not ended.
bool abandon(void* request, bool but_call_back) {
    Ends::get().note(request, std::nullopt);
    bool is_ours = Ends::get().abandon(request, but_call_back);
    if (!is_ours && real().ucp_request_check_status(request) != UCS_INPROGRESS) return false;
    Ends::get().each_worker([&](const Worker& worker) {
        Operation* const operation = worker.several_threads ? nullptr : worker.find(request);
        if (operation == nullptr) return;
        operation->abandon(but_call_back);
        is_ours = true;
    });
    return is_ours;
}

/// `forced`: nothing that is under way has to end.
template <class Close>
auto close(ucp_ep_h ep, bool forced, const Close& call) {
    const Endpoint endpoint = Ends::get().find(ep);
    Remote* const remote = endpoint.worker != nullptr ? endpoint.worker->remote.get() : nullptr;
    while (remote != nullptr && !forced && remote->is_under_way(ep))
        real().ucp_worker_progress(endpoint.worker->handle);
    Ends::get().forget(ep);  // before the next: no answer goes its way any more
    if (remote != nullptr) remote->drop(ep);
    return call();
}

}  // namespace
}  // namespace cryptmpi::fabric::ucx

using namespace cryptmpi::fabric::ucx;

ENTRY ucs_status_t ucp_init_version(unsigned major, unsigned minor, const ucp_params_t* params,
                                    const ucp_config_t* config, ucp_context_h* context) {
    const std::uint64_t features = (params->field_mask & UCP_PARAM_FIELD_FEATURES) != 0 ? params->features : 0;
    const bool remote_memory = (features & kRemoteMemory) != 0 && (features & UCP_FEATURE_AM) == 0;
    // A newer UCX has fields that we cannot copy: the program's own structure is lent. UCX that is asked for remote
    // memory reads and writes any address of this process for whoever sends it a packet, where the network cannot.
    auto* const lent = const_cast<ucp_params_t*>(params);
    if ((features & kRemoteMemory) != 0) lent->features = (features & ~kRemoteMemory) | UCP_FEATURE_AM;
    // Over TCP, UCX asks for the bytes of a long message in parts of that length. Its own 8 KB quadruple the time.
    setenv("UCX_TCP_TX_SEG_SIZE", "64k", 0);
    const cryptmpi::fabric::Opening opening;
    const ucs_status_t status = real().ucp_init_version(major, minor, lent, config, context);
    if ((features & kRemoteMemory) != 0) lent->features = features;
    if (status == UCS_OK) Ends::get().note(*context, {remote_memory, RequestKind::of(*params)});
    return status;
}

ENTRY ucs_status_t ucp_worker_create(ucp_context_h context, const ucp_worker_params_t* params, ucp_worker_h* handle) {
    take_calls();
    auto job = around().job();
    if (!job) around().end(job.error().line);
    auto party = cryptmpi::fabric::Party::make(**job);
    if (!party) around().end(party.error().line);
    const cryptmpi::fabric::Opening opening;
    const ucs_status_t status = real().ucp_worker_create(context, params, handle);
    if (status != UCS_OK) return status;
    auto worker = std::make_unique<Worker>(Ends::get().pool());
    worker->handle = *handle;
    worker->party = std::move(*party);
    worker->several_threads =
        (params->field_mask & UCP_WORKER_PARAM_FIELD_THREAD_MODE) != 0 && params->thread_mode == UCS_THREAD_MODE_MULTI;
    const Ends::Asked asked = Ends::get().asked_of(context);
    worker->requests = asked.requests;
    if (asked.remote_memory)
        worker->remote = std::make_unique<Remote>(RemoteWorker{
            *handle, *worker->party, worker->lock, Ends::get().regions(), Ends::get().pool(), Ends::get().wires(),
            [of = worker.get()](const cryptmpi::fabric::Peer* peer) { return Ends::get().find(*of, peer); }});
    around().begin(*worker->party);
    Remote* const remote = worker->remote.get();
    Ends::get().add(*handle, std::move(worker));
    if (remote != nullptr) remote->listen();
    return status;
}

ENTRY void ucp_worker_destroy(ucp_worker_h handle) {
    // Before: as soon as UCX has destroyed it, another thread may get a new one of the same address.
    const auto worker = Ends::get().take(handle);
    real().ucp_worker_destroy(handle);  // completes what is still on its way
    if (!worker) return;
    // protocol: F21
    if (!worker->gathering.is_empty())
        around().miss("a part of a long active message has not come: lost on the way, or its sender was stopped");
    around().end(*worker->party);
}

ENTRY ucs_status_t ucp_worker_query(ucp_worker_h handle, ucp_worker_attr_t* attributes) {
    const ucs_status_t status = real().ucp_worker_query(handle, attributes);
    if (status != UCS_OK || (attributes->field_mask & UCP_WORKER_ATTR_FIELD_ADDRESS) == 0) return status;
    ucp_address_t* const own = attributes->address;
    std::uint8_t* const blob = make_blob(worker_of(handle), own, attributes->address_length);
    real().ucp_worker_release_address(handle, own);
    attributes->address = reinterpret_cast<ucp_address_t*>(blob);
    attributes->address_length += kBlobPrefix;
    return blob == nullptr ? UCS_ERR_NO_MEMORY : UCS_OK;
}

ENTRY ucs_status_t ucp_worker_get_address(ucp_worker_h handle, ucp_address_t** address, size_t* size) {
    ucp_address_t* own = nullptr;
    const ucs_status_t status = real().ucp_worker_get_address(handle, &own, size);
    if (status != UCS_OK) return status;
    std::uint8_t* const blob = make_blob(worker_of(handle), own, *size);
    real().ucp_worker_release_address(handle, own);
    *address = reinterpret_cast<ucp_address_t*>(blob);
    *size += kBlobPrefix;
    return blob == nullptr ? UCS_ERR_NO_MEMORY : UCS_OK;
}

ENTRY void ucp_worker_release_address(ucp_worker_h, ucp_address_t* address) {
    std::free(address);
}

/// It may be a peer's, which UCX must not read before its proof is checked. No worker is named: any party of the job
/// can check it.
ENTRY ucs_status_t ucp_worker_address_query(ucp_address_t* address, ucp_worker_address_attr_t* attributes) {
    auto job = around().job();
    if (!job) around().end(job.error().line);
    auto party = cryptmpi::fabric::Party::make(**job);
    if (!party) around().end(party.error().line);
    auto blob = read_blob(**party, address);
    if (!blob) around().end(blob.error().line);
    auto* const own = const_cast<std::uint8_t*>(blob->address.data());
    return real().ucp_worker_address_query(reinterpret_cast<ucp_address_t*>(own), attributes);
}

ENTRY ucs_status_t ucp_ep_create(ucp_worker_h handle, const ucp_ep_params_t* params, ucp_ep_h* ep) {
    if ((params->field_mask & UCP_EP_PARAM_FIELD_REMOTE_ADDRESS) == 0) {
        around().refuse("ucp_ep_create by socket address", "connections by socket address are not sealed yet");
        return UCS_ERR_UNSUPPORTED;
    }
    Worker& worker = worker_of(handle);
    auto blob = read_blob(*worker.party, params->address);
    if (!blob) around().end(blob.error().line);
    cryptmpi::fabric::Peer* peer = nullptr;
    {
        const std::lock_guard guard(worker.lock);
        auto met = worker.party->meet(blob->share);
        if (!met) around().end(met.error().line);
        peer = *met;
    }
    // A newer UCX has fields that we cannot copy: the program's own structure is lent.
    auto* const lent = const_cast<ucp_ep_params_t*>(params);
    const ucp_address_t* const given = params->address;
    lent->address = reinterpret_cast<const ucp_address_t*>(blob->address.data());
    const cryptmpi::fabric::Opening opening;
    const ucs_status_t status = real().ucp_ep_create(handle, lent, ep);
    lent->address = given;
    if (status == UCS_OK) Ends::get().add(*ep, {&worker, peer});
    return status;
}

ENTRY ucs_status_ptr_t ucp_ep_close_nb(ucp_ep_h ep, unsigned mode) {
    return close(ep, mode == UCP_EP_CLOSE_MODE_FORCE, [&] { return real().ucp_ep_close_nb(ep, mode); });
}

ENTRY ucs_status_ptr_t ucp_ep_close_nbx(ucp_ep_h ep, const ucp_request_param_t* params) {
    const bool has_flags = (params->op_attr_mask & UCP_OP_ATTR_FIELD_FLAGS) != 0;
    const bool forced = has_flags && (params->flags & UCP_EP_CLOSE_FLAG_FORCE) != 0;
    return close(ep, forced, [&] { return real().ucp_ep_close_nbx(ep, params); });
}

ENTRY void ucp_ep_destroy(ucp_ep_h ep) {
    close(ep, false, [&] { real().ucp_ep_destroy(ep); });
}

ENTRY ucs_status_ptr_t ucp_disconnect_nb(ucp_ep_h ep) {
    return close(ep, false, [&] { return real().ucp_disconnect_nb(ep); });
}

ENTRY ucs_status_t ucp_dt_create_generic(const ucp_generic_dt_ops_t* operations, void* context, ucp_datatype_t* type) {
    const ucs_status_t status = real().ucp_dt_create_generic(operations, context, type);
    if (status == UCS_OK) Ends::get().types().add(*type, *operations, context);
    return status;
}

ENTRY void ucp_dt_destroy(ucp_datatype_t type) {
    Ends::get().types().remove(type);
    real().ucp_dt_destroy(type);
}

ENTRY void ucp_request_cancel(ucp_worker_h handle, void* request) {
    if (Requests::get().has(request)) return;  // what a peer was asked for cannot be taken back
    Worker& worker = worker_of(handle);
    if (!worker.several_threads) {
        if (Operation* const operation = worker.find(request)) operation->posted.ask_to_cancel();
    }
    real().ucp_request_cancel(handle, request);
}

/// UCX would not tell us of the end of a request that is freed before; the program is not told.
ENTRY void ucp_request_free(void* request) {
    if (Requests::get().has(request)) return Requests::get().free(request, false);
    abandon(request, false) ? real().ucp_request_release(request) : real().ucp_request_free(request);
}

ENTRY void ucp_request_release(void* request) {
    if (Requests::get().has(request)) return Requests::get().free(request, true);
    abandon(request, true);
    real().ucp_request_release(request);
}

ENTRY ucs_status_t ucp_request_query(void* request, ucp_request_attr_t* attributes) {
    const bool is_ours = Requests::get().has(request);
    if (is_ours && (attributes->field_mask & ~std::uint64_t{UCP_REQUEST_ATTR_FIELD_STATUS}) != 0)
        return UCS_ERR_UNSUPPORTED;
    const ucs_status_t status = is_ours ? UCS_OK : real().ucp_request_query(request, attributes);
    if (status == UCS_OK && (attributes->field_mask & UCP_REQUEST_ATTR_FIELD_STATUS) != 0)
        attributes->status = ucp_request_check_status(request);
    return status;
}

ENTRY ucs_status_t ucp_request_check_status(void* request) {
    if (Requests::get().has(request)) return Requests::get().status_of(request);
    if (Ends::get().is_under_way(request)) return UCS_INPROGRESS;
    return Ends::get().status_of(request, real().ucp_request_check_status(request));
}

ENTRY int ucp_request_is_completed(void* request) {
    return ucp_request_check_status(request) != UCS_INPROGRESS ? 1 : 0;
}

ENTRY ucs_status_t ucp_request_test(void* request, ucp_tag_recv_info_t* info) {
    if (Requests::get().has(request)) return Requests::get().status_of(request);
    if (Ends::get().is_under_way(request)) return UCS_INPROGRESS;
    ucp_tag_recv_info_t own = {};
    const ucs_status_t status = Ends::get().status_of(request, real().ucp_request_test(request, &own));
    const auto size = cryptmpi::fabric::size_of(own.length);  // nothing where it was cancelled
    if (status != UCS_INPROGRESS && size) *info = {own.sender_tag, *size};
    return status;
}

ENTRY ucs_status_t ucp_tag_recv_request_test(void* request, ucp_tag_recv_info_t* info) {
    if (Ends::get().is_under_way(request)) return UCS_INPROGRESS;
    ucp_tag_recv_info_t own = {};
    const ucs_status_t status = Ends::get().status_of(request, real().ucp_tag_recv_request_test(request, &own));
    if (status == UCS_INPROGRESS || info == nullptr) return status;
    *info = {own.sender_tag, cryptmpi::fabric::size_of(own.length).value_or(0)};  // nothing where it was cancelled
    return status;
}
