#include "fabric/ucx/long_wire.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>

#include "base/endian.hpp"
#include "fabric/ucx/around.hpp"
#include "fabric/ucx/real.hpp"

namespace cryptmpi::fabric::ucx {
namespace {

Operation& operation_at(void* state) {
    return *static_cast<Operation*>(state);
}

void* start_pack(void*, const void* operation, std::size_t) {
    return const_cast<void*>(operation);
}

void* start_unpack(void*, void* operation, std::size_t) {
    return operation;
}

std::size_t packed_size(void* state) {
    return operation_at(state).wire.size();
}

/// HOT PATH
std::size_t pack(void* state, std::size_t offset, void* to, std::size_t most) {
    const Operation& operation = operation_at(state);
    Segments& segments = *operation.segments;
    const std::size_t size = std::min(most, operation.wire.size() - std::min(offset, operation.wire.size()));
    if (segments.send.ready() < offset + size) {
        const std::lock_guard guard(operation.worker->lock);
        auto sealed =
            operation.worker->party->seal_long(segments.send, offset + size, segments.pieces, operation.wire.data());
        if (!sealed) around().end(sealed.error().line);
    }
    std::memcpy(to, operation.wire.data() + offset, size);
    return size;
}

/// HOT PATH. UCX may have several ways at once, so that a part comes before one that is before it: it waits for the
/// end.
ucs_status_t unpack(void* state, std::size_t offset, const void* from, std::size_t size) {
    Operation& operation = operation_at(state);
    Segments& segments = *operation.segments;
    if (offset > operation.wire.size() || size > operation.wire.size() - offset) return UCS_ERR_MESSAGE_TRUNCATED;
    std::memcpy(operation.wire.data() + offset, from, size);
    if (offset != segments.come) return UCS_OK;
    segments.come += size;
    if (segments.come <= kLongestWhole + kOverhead) return UCS_OK;
    const std::lock_guard guard(operation.worker->lock);
    make_places(operation);
    auto opened =
        operation.worker->party->open_long(segments.receive, operation.wire.data(), segments.come, segments.pieces);
    if (!opened) around().end(fmt::format("a message of more than {} bytes {}", kLongestWhole, opened.error().line));
    return UCS_OK;
}

void finish(void*) {}

}  // namespace

void make_places(Operation& operation) {
    Segments& segments = *operation.segments;
    if (!segments.pieces.empty()) return;
    const Data& data = *operation.data;
    if (!data.is_unpacked()) {
        segments.pieces = data.places(data.size());
        return;
    }
    segments.room = Ends::get().pool().take(data.size());
    segments.pieces = {{segments.room.data(), data.size()}};
}

ucp_datatype_t wire_of_operation() {
    static const ucp_datatype_t type = [] {
        const ucp_generic_dt_ops_t operations = {start_pack, start_unpack, packed_size, pack, unpack, finish};
        ucp_datatype_t made = 0;
        const ucs_status_t status = real().ucp_dt_create_generic(&operations, nullptr, &made);
        if (status != UCS_OK)
            around().give_up(fmt::format("UCX makes no datatype: status {}", static_cast<int>(status)));
        return made;
    }();
    return type;
}

}  // namespace cryptmpi::fabric::ucx
