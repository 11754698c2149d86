// Active messages of our own.
#pragma once

#include <ucp/api/ucp.h>

#include <cstddef>
#include <cstdint>

#include "engine/buffer_pool.hpp"

namespace cryptmpi::fabric::ucx {

/// What to do where UCX takes a message, and then cannot send it.
using WhenItFails = void (*)(ucs_status_t);
/// Sends an active message of our own, whose end nobody waits for. UCX's header, if any, is in the last bytes of
/// `wire`, which lives until UCX has sent it.
ucs_status_t send_and_forget(ucp_ep_h ep, unsigned handler, engine::Buffer wire, WhenItFails when_it_fails,
                             std::size_t header_size = 0, std::uint32_t flags = 0);

}  // namespace cryptmpi::fabric::ucx
