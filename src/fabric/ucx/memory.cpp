// Remote memory: what MPI maps is noted here and never given to UCX, so that the network can write into none of the
// program's memory. No remote key can be unpacked: an MPI that has another way sends messages.
#include <ucp/api/ucp.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "fabric/ucx/door.hpp"

using namespace cryptmpi::fabric::ucx;

namespace {

constexpr std::size_t kPage = 4096;
constexpr char kNoKey[8] = "no rkey";

struct Mapped {
    void* at;
    std::size_t length;
    bool own;
};

}  // namespace

ENTRY ucs_status_t ucp_mem_map(ucp_context_h, const ucp_mem_map_params_t* params, ucp_mem_h* handle) {
    const auto given = [&](std::uint64_t field) { return (params->field_mask & field) != 0; };
    Mapped mapped{given(UCP_MEM_MAP_PARAM_FIELD_ADDRESS) ? params->address : nullptr,
                  given(UCP_MEM_MAP_PARAM_FIELD_LENGTH) ? params->length : 0, false};
    const bool allocate = given(UCP_MEM_MAP_PARAM_FIELD_FLAGS) && (params->flags & UCP_MEM_MAP_ALLOCATE) != 0;
    const bool fixed = given(UCP_MEM_MAP_PARAM_FIELD_FLAGS) && (params->flags & UCP_MEM_MAP_FIXED) != 0;
    if (fixed) return UCS_ERR_UNSUPPORTED;
    // Nothing has no address, as in UCX: MPICH frees what it is told of an empty window.
    if (mapped.length == 0) mapped.at = nullptr;
    if (allocate && mapped.length != 0) {
        mapped.own = true;
        if (posix_memalign(&mapped.at, kPage, mapped.length) != 0) return UCS_ERR_NO_MEMORY;
        std::memset(mapped.at, 0, mapped.length);
    }
    *handle = reinterpret_cast<ucp_mem_h>(new Mapped(mapped));
    return UCS_OK;
}

ENTRY ucs_status_t ucp_mem_unmap(ucp_context_h, ucp_mem_h handle) {
    auto* const mapped = reinterpret_cast<Mapped*>(handle);
    if (mapped->own) std::free(mapped->at);
    delete mapped;
    return UCS_OK;
}

ENTRY ucs_status_t ucp_mem_query(const ucp_mem_h handle, ucp_mem_attr_t* attributes) {
    const auto* const mapped = reinterpret_cast<const Mapped*>(handle);
    if ((attributes->field_mask & UCP_MEM_ATTR_FIELD_ADDRESS) != 0) attributes->address = mapped->at;
    if ((attributes->field_mask & UCP_MEM_ATTR_FIELD_LENGTH) != 0) attributes->length = mapped->length;
    if ((attributes->field_mask & UCP_MEM_ATTR_FIELD_MEM_TYPE) != 0) attributes->mem_type = UCS_MEMORY_TYPE_HOST;
    return UCS_OK;
}

ENTRY void ucp_mem_print_info(const char*, ucp_context_h, FILE*) {}

ENTRY ucs_status_t ucp_mem_advise(ucp_context_h, ucp_mem_h, ucp_mem_advise_params_t*) {
    return UCS_OK;
}

ENTRY ucs_status_t ucp_rkey_pack(ucp_context_h, ucp_mem_h, void** buffer, size_t* size) {
    *buffer = std::malloc(sizeof kNoKey);
    if (*buffer == nullptr) return UCS_ERR_NO_MEMORY;
    std::memcpy(*buffer, kNoKey, sizeof kNoKey);
    *size = sizeof kNoKey;
    return UCS_OK;
}

ENTRY void ucp_rkey_buffer_release(void* buffer) {
    std::free(buffer);
}

ENTRY ucs_status_t ucp_ep_rkey_unpack(ucp_ep_h ep, const void*, ucp_rkey_h*) {
    if (endpoint_of(ep).worker->needs_remote_memory) {
        around().refuse("access to remote memory (ucp_ep_rkey_unpack)",
                        "it is not sealed yet, and MPI has no other way here: set OMPI_MCA_osc=^ucx for Open MPI");
    }
    return UCS_ERR_UNREACHABLE;
}
