#include "fabric/ucx/sending.hpp"

#include <memory>
#include <utility>

#include "fabric/ucx/real.hpp"

namespace cryptmpi::fabric::ucx {
namespace {

/// What UCX has until it has sent it.
struct Forgotten {
    engine::Buffer wire;
    WhenItFails when_it_fails;
};

/// UCX's own request is of nobody's concern: it is freed when it is over, and with it what was sent.
void when_sent_and_forgotten(void* request, ucs_status_t status, void* data) {
    const std::unique_ptr<Forgotten> sent(static_cast<Forgotten*>(data));
    real().ucp_request_free(request);
    if (status != UCS_OK && sent->when_it_fails != nullptr) sent->when_it_fails(status);
}

}  // namespace

ucs_status_t send_and_forget(ucp_ep_h ep, unsigned handler, engine::Buffer wire, WhenItFails when_it_fails,
                             std::size_t header_size, std::uint32_t flags) {
    auto kept = std::make_unique<Forgotten>(Forgotten{std::move(wire), when_it_fails});
    ucp_request_param_t own = {};
    own.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS |
                       UCP_OP_ATTR_FIELD_MEMORY_TYPE;
    own.memory_type = UCS_MEMORY_TYPE_HOST;
    own.cb.send = when_sent_and_forgotten;
    own.user_data = kept.get();
    own.flags = UCP_AM_SEND_FLAG_EAGER | flags;
    const std::uint8_t* const at = kept->wire.data();
    const std::size_t size = kept->wire.size() - header_size;
    const std::uint8_t* const header = header_size == 0 ? nullptr : at + size;
    Forgotten* const lent = kept.release();
    ucs_status_ptr_t const answer = real().ucp_am_send_nbx(ep, handler, header, header_size, at, size, &own);
    if (UCS_PTR_IS_PTR(answer)) return UCS_OK;
    delete lent;
    return UCS_PTR_STATUS(answer);
}

}  // namespace cryptmpi::fabric::ucx
