// The functions of UCX that the door calls.
#pragma once

#include <ucp/api/ucp.h>

namespace cryptmpi::fabric::ucx {

#define CRYPTMPI_UCP_CALLED(CALLED)        \
    CALLED(ucp_init_version)               \
    CALLED(ucp_worker_create)              \
    CALLED(ucp_worker_destroy)             \
    CALLED(ucp_worker_query)               \
    CALLED(ucp_worker_address_query)       \
    CALLED(ucp_worker_get_address)         \
    CALLED(ucp_worker_release_address)     \
    CALLED(ucp_worker_set_am_recv_handler) \
    CALLED(ucp_ep_create)                  \
    CALLED(ucp_ep_close_nb)                \
    CALLED(ucp_ep_close_nbx)               \
    CALLED(ucp_ep_destroy)                 \
    CALLED(ucp_disconnect_nb)              \
    CALLED(ucp_dt_create_generic)          \
    CALLED(ucp_dt_destroy)                 \
    CALLED(ucp_request_cancel)             \
    CALLED(ucp_request_check_status)       \
    CALLED(ucp_request_free)               \
    CALLED(ucp_request_release)            \
    CALLED(ucp_request_test)               \
    CALLED(ucp_tag_recv_request_test)      \
    CALLED(ucp_tag_send_nbx)               \
    CALLED(ucp_tag_send_sync_nbx)          \
    CALLED(ucp_tag_recv_nbx)               \
    CALLED(ucp_tag_msg_recv_nbx)           \
    CALLED(ucp_tag_probe_nb)               \
    CALLED(ucp_worker_progress)            \
    CALLED(ucp_worker_fence)               \
    CALLED(ucp_worker_flush)               \
    CALLED(ucp_worker_flush_nb)            \
    CALLED(ucp_worker_flush_nbx)           \
    CALLED(ucp_ep_flush)                   \
    CALLED(ucp_ep_flush_nb)                \
    CALLED(ucp_ep_flush_nbx)               \
    CALLED(ucp_request_query)              \
    CALLED(ucp_am_send_nbx)

struct Real {
#define CALLED(name) decltype(&::name) name = nullptr;
    CRYPTMPI_UCP_CALLED(CALLED)
#undef CALLED
};

/// Found at the first call. Ends the process where there is no UCX, or more than one.
const Real& real();
/// Leads what was loaded since the last time, too, to the door. Cheap enough for each new endpoint's worker.
void take_calls();

}  // namespace cryptmpi::fabric::ucx
