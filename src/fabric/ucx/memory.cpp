// Memory that MPI maps: it is noted here and never given to UCX, so that the network can write into none of the
// program's memory. An MPI that has no other way than remote memory gets keys by which peers ask for it (remote.hpp);
// one that can send messages gets none, and does so.
#include "fabric/ucx/memory.hpp"

#include <ucp/api/ucp.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/endian.hpp"
#include "fabric/ucx/door.hpp"

using namespace cryptmpi::fabric::ucx;

namespace {

constexpr std::size_t kPage = 4096;

// A remote key as MPI passes it on: mark | the region's number (8, little endian).
constexpr char kKeyMark[8] = {'c', 'm', 'p', 'f', 'r', 'k', 'e', 'y'};
constexpr std::size_t kPackedKey = sizeof kKeyMark + sizeof(std::uint64_t);

struct Mapped {
    void* at;
    std::size_t length;
    bool own;
    std::uint64_t key = 0;
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
    const unsigned access = given(UCP_MEM_MAP_PARAM_FIELD_PROT) ? params->prot : ~0U;
    mapped.key = Ends::get().regions().add({static_cast<std::uint8_t*>(mapped.at), mapped.length,
                                            (access & UCP_MEM_MAP_PROT_REMOTE_READ) != 0,
                                            (access & UCP_MEM_MAP_PROT_REMOTE_WRITE) != 0});
    *handle = reinterpret_cast<ucp_mem_h>(new Mapped(mapped));
    return UCS_OK;
}

ENTRY ucs_status_t ucp_mem_unmap(ucp_context_h, ucp_mem_h handle) {
    auto* const mapped = reinterpret_cast<Mapped*>(handle);
    Ends::get().regions().remove(mapped->key);
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

ENTRY ucs_status_t ucp_rkey_pack(ucp_context_h, ucp_mem_h handle, void** buffer, size_t* size) {
    auto* const packed = static_cast<std::uint8_t*>(std::malloc(kPackedKey));
    if (packed == nullptr) return UCS_ERR_NO_MEMORY;
    std::memcpy(packed, kKeyMark, sizeof kKeyMark);
    cryptmpi::store_little(reinterpret_cast<const Mapped*>(handle)->key, packed + sizeof kKeyMark);
    *buffer = packed;
    *size = kPackedKey;
    return UCS_OK;
}

ENTRY void ucp_rkey_buffer_release(void* buffer) {
    std::free(buffer);
}

ENTRY ucs_status_t ucp_ep_rkey_unpack(ucp_ep_h ep, const void* buffer, ucp_rkey_h* key) {
    if (endpoint_of(ep).worker->remote == nullptr) return UCS_ERR_UNREACHABLE;
    const auto* const packed = static_cast<const std::uint8_t*>(buffer);
    if (std::memcmp(packed, kKeyMark, sizeof kKeyMark) != 0) return UCS_ERR_INVALID_PARAM;
    *key = reinterpret_cast<ucp_rkey_h>(new RemoteKey{cryptmpi::load_little(packed + sizeof kKeyMark)});
    return UCS_OK;
}

ENTRY void ucp_rkey_destroy(ucp_rkey_h key) {
    delete reinterpret_cast<RemoteKey*>(key);
}

/// Memory of a peer is nowhere in this process.
ENTRY ucs_status_t ucp_rkey_ptr(ucp_rkey_h, uint64_t, void**) {
    return UCS_ERR_UNREACHABLE;
}
