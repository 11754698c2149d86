// The calls of tagged and untagged messages: sending.cpp and receiving.cpp do them.
#include <algorithm>
#include <iterator>
#include <span>

#include "fabric/libfabric/table_making.hpp"

namespace cryptmpi::fabric::libfabric {
namespace {

namespace on_fi_ops_ep {

ssize_t cancel(fid* shown, void* context) {
    auto& endpoint = mine<Endpoint>(as<fid_ep>(shown));
    const std::lock_guard hold(endpoint.domain->lock);
    return endpoint.cancel(context);
}

/// Options with a size of messages, which is less by ours; those that are no business of ours; no others.
bool is_size(int option) {
    constexpr int kNewer[] = {12, 13, 16, 17};  // MAX_MSG_SIZE, MAX_TAGGED_SIZE, INJECT_MSG_SIZE, INJECT_TAGGED_SIZE
    return option == FI_OPT_MIN_MULTI_RECV || std::count(std::begin(kNewer), std::end(kNewer), option) != 0;
}
bool is_harmless(int option) {
    constexpr int kNewer[] = {10, 11};  // CUDA_API_PERMITTED, SHARED_MEMORY_PERMITTED
    return option == FI_OPT_FI_HMEM_P2P || std::count(std::begin(kNewer), std::end(kNewer), option) != 0;
}

int getopt(fid* shown, int level, int option, void* value, std::size_t* size) {
    auto& endpoint = mine<Endpoint>(as<fid_ep>(shown));
    if (level != FI_OPT_ENDPOINT || (!is_size(option) && !is_harmless(option))) return -FI_ENOPROTOOPT;
    const int code = endpoint.real->ops->getopt(&endpoint.real->fid, level, option, value, size);
    if (code != 0 || !is_size(option)) return code;
    auto& bytes = *static_cast<std::size_t*>(value);
    bytes -= std::min(bytes, kOverhead);
    return 0;
}

int setopt(fid* shown, int level, int option, const void* value, std::size_t size) {
    auto& endpoint = mine<Endpoint>(as<fid_ep>(shown));
    if (level != FI_OPT_ENDPOINT || (!is_size(option) && !is_harmless(option))) return -FI_ENOPROTOOPT;
    if (!is_size(option)) return endpoint.real->ops->setopt(&endpoint.real->fid, level, option, value, size);
    if (size != sizeof(std::size_t)) return -FI_EINVAL;
    const std::size_t bytes = *static_cast<const std::size_t*>(value) + kOverhead;
    return endpoint.real->ops->setopt(&endpoint.real->fid, level, option, &bytes, sizeof bytes);
}

}  // namespace on_fi_ops_ep

/// The calls of tagged and untagged messages differ in a few parameters only.
ssize_t send(fid_ep* shown, Kind kind, std::span<const iovec> parts, fi_addr_t to, std::uint64_t tag, void* context,
             std::uint64_t data, std::uint64_t flags, bool inject) {
    auto& endpoint = mine<Endpoint>(shown);
    const std::lock_guard hold(endpoint.domain->lock);
    return endpoint.send({kind, parts, to, tag, data, flags, context, inject});
}

ssize_t receive(fid_ep* shown, Kind kind, std::span<const iovec> parts, fi_addr_t from, std::uint64_t tag,
                std::uint64_t ignore, void* context, std::uint64_t flags) {
    auto& endpoint = mine<Endpoint>(shown);
    const std::lock_guard hold(endpoint.domain->lock);
    return endpoint.receive({kind, parts, from, tag, ignore, flags, context});
}

std::uint64_t receive_flags(fid_ep* shown) {
    return mine<Endpoint>(shown).receive_flags;
}

namespace on_fi_ops_msg {

constexpr Kind kKind = Kind::message;

ssize_t recv(fid_ep* ep, void* bytes, std::size_t size, void*, fi_addr_t from, void* context) {
    const iovec one = piece(bytes, size);
    return receive(ep, kKind, {&one, 1}, from, 0, 0, context, receive_flags(ep));
}
ssize_t recvv(fid_ep* ep, const iovec* parts, void**, std::size_t count, fi_addr_t from, void* context) {
    return receive(ep, kKind, {parts, count}, from, 0, 0, context, receive_flags(ep));
}
ssize_t recvmsg(fid_ep* ep, const fi_msg* message, std::uint64_t flags) {
    return receive(ep, kKind, {message->msg_iov, message->iov_count}, message->addr, 0, 0, message->context, flags);
}
ssize_t send(fid_ep* ep, const void* bytes, std::size_t size, void*, fi_addr_t to, void* context) {
    const iovec one = piece(bytes, size);
    return libfabric::send(ep, kKind, {&one, 1}, to, 0, context, 0, send_flags(ep), false);
}
ssize_t sendv(fid_ep* ep, const iovec* parts, void**, std::size_t count, fi_addr_t to, void* context) {
    return libfabric::send(ep, kKind, {parts, count}, to, 0, context, 0, send_flags(ep), false);
}
ssize_t sendmsg(fid_ep* ep, const fi_msg* message, std::uint64_t flags) {
    return libfabric::send(ep, kKind, {message->msg_iov, message->iov_count}, message->addr, 0, message->context,
                           message->data, flags, false);
}
ssize_t inject(fid_ep* ep, const void* bytes, std::size_t size, fi_addr_t to) {
    const iovec one = piece(bytes, size);
    return libfabric::send(ep, kKind, {&one, 1}, to, 0, nullptr, 0, 0, true);
}
ssize_t senddata(fid_ep* ep, const void* bytes, std::size_t size, void*, std::uint64_t data, fi_addr_t to,
                 void* context) {
    const iovec one = piece(bytes, size);
    return libfabric::send(ep, kKind, {&one, 1}, to, 0, context, data, send_flags(ep) | FI_REMOTE_CQ_DATA, false);
}
ssize_t injectdata(fid_ep* ep, const void* bytes, std::size_t size, std::uint64_t data, fi_addr_t to) {
    const iovec one = piece(bytes, size);
    return libfabric::send(ep, kKind, {&one, 1}, to, 0, nullptr, data, FI_REMOTE_CQ_DATA, true);
}

}  // namespace on_fi_ops_msg

namespace on_fi_ops_tagged {

constexpr Kind kKind = Kind::tagged;

ssize_t recv(fid_ep* ep, void* bytes, std::size_t size, void*, fi_addr_t from, std::uint64_t tag, std::uint64_t ignore,
             void* context) {
    const iovec one = piece(bytes, size);
    return receive(ep, kKind, {&one, 1}, from, tag, ignore, context, receive_flags(ep));
}
ssize_t recvv(fid_ep* ep, const iovec* parts, void**, std::size_t count, fi_addr_t from, std::uint64_t tag,
              std::uint64_t ignore, void* context) {
    return receive(ep, kKind, {parts, count}, from, tag, ignore, context, receive_flags(ep));
}
ssize_t recvmsg(fid_ep* ep, const fi_msg_tagged* message, std::uint64_t flags) {
    return receive(ep, kKind, {message->msg_iov, message->iov_count}, message->addr, message->tag, message->ignore,
                   message->context, flags);
}
ssize_t send(fid_ep* ep, const void* bytes, std::size_t size, void*, fi_addr_t to, std::uint64_t tag, void* context) {
    const iovec one = piece(bytes, size);
    return libfabric::send(ep, kKind, {&one, 1}, to, tag, context, 0, send_flags(ep), false);
}
ssize_t sendv(fid_ep* ep, const iovec* parts, void**, std::size_t count, fi_addr_t to, std::uint64_t tag,
              void* context) {
    return libfabric::send(ep, kKind, {parts, count}, to, tag, context, 0, send_flags(ep), false);
}
ssize_t sendmsg(fid_ep* ep, const fi_msg_tagged* message, std::uint64_t flags) {
    return libfabric::send(ep, kKind, {message->msg_iov, message->iov_count}, message->addr, message->tag,
                           message->context, message->data, flags, false);
}
ssize_t inject(fid_ep* ep, const void* bytes, std::size_t size, fi_addr_t to, std::uint64_t tag) {
    const iovec one = piece(bytes, size);
    return libfabric::send(ep, kKind, {&one, 1}, to, tag, nullptr, 0, 0, true);
}
ssize_t senddata(fid_ep* ep, const void* bytes, std::size_t size, void*, std::uint64_t data, fi_addr_t to,
                 std::uint64_t tag, void* context) {
    const iovec one = piece(bytes, size);
    return libfabric::send(ep, kKind, {&one, 1}, to, tag, context, data, send_flags(ep) | FI_REMOTE_CQ_DATA, false);
}
ssize_t injectdata(fid_ep* ep, const void* bytes, std::size_t size, std::uint64_t data, fi_addr_t to,
                   std::uint64_t tag) {
    const iovec one = piece(bytes, size);
    return libfabric::send(ep, kKind, {&one, 1}, to, tag, nullptr, data, FI_REMOTE_CQ_DATA, true);
}

}  // namespace on_fi_ops_tagged

}  // namespace

#include "fi_ops_ep.inc"
#include "fi_ops_msg.inc"
#include "fi_ops_tagged.inc"

}  // namespace cryptmpi::fabric::libfabric
