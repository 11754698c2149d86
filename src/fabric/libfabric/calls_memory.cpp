// The program's memory: what it registers, reads and writes. remote.hpp does it, by messages of ours.
#include <algorithm>
#include <span>

#include "fabric/libfabric/table_making.hpp"

namespace cryptmpi::fabric::libfabric {
namespace {

// No memory of the program is registered with the network: what the program gets for it is a handle of ours. Its key
// opens nothing on the wire; peers of the job read and write by messages of ours (remote.hpp).
namespace on_fi_ops_mr {

int make_region(fid* shown, std::span<const iovec> parts, std::uint64_t access, std::uint64_t key, void* context,
                fid_mr** made) {
    auto& domain = mine<Domain>(as<fid_domain>(shown));
    constexpr std::uint64_t kRemote = FI_REMOTE_READ | FI_REMOTE_WRITE;
    // All memory there is: MPICH asks for it for dynamic windows, and makes messages of them when it gets none.
    if ((access & kRemote) != 0 && parts.size() == 1 && parts[0].iov_base == nullptr && parts[0].iov_len != 0) {
        return -FI_EINVAL;
    }
    const std::lock_guard hold(domain.lock);
    if (domain.makes_keys) {
        do key = ++domain.regions;
        while (domain.shown_regions.contains(key));
    } else if (domain.shown_regions.contains(key)) {
        return -FI_ENOKEY;
    }
    auto* const region = new Region{};
    region->fid.fclass = FI_CLASS_MR;
    region->fid.context = context;
    region->fid.ops = table<fi_ops>();
    region->key = key;
    region->domain = &domain;
    if (parts.size() == 1) {
        region->memory = static_cast<std::uint8_t*>(parts[0].iov_base);
        region->size = parts[0].iov_len;
        region->begin = domain.names_by_address ? reinterpret_cast<std::uint64_t>(region->memory) : 0;
        region->access = access & kRemote;
    }
    domain.shown_regions.emplace(key, region);
    *made = region;
    return 0;
}

int reg(fid* shown, const void* memory, std::size_t size, std::uint64_t access, std::uint64_t, std::uint64_t key,
        std::uint64_t, fid_mr** made, void* context) {
    const iovec one = piece(memory, size);
    return make_region(shown, {&one, 1}, access, key, context, made);
}

int regv(fid* shown, const iovec* parts, std::size_t count, std::uint64_t access, std::uint64_t, std::uint64_t key,
         std::uint64_t, fid_mr** made, void* context) {
    return make_region(shown, {parts, count}, access, key, context, made);
}

int regattr(fid* shown, const fi_mr_attr* wanted, std::uint64_t, fid_mr** made) {
    return make_region(shown, {wanted->mr_iov, wanted->iov_count}, wanted->access, wanted->requested_key,
                       wanted->context, made);
}

}  // namespace on_fi_ops_mr

namespace on_fi_ops_rma {

using Carry = std::int64_t (Remote::*)(const Wish&);

ssize_t carry(fid_ep* ep, Carry operation, const fi_msg_rma& message, std::uint64_t flags, bool wanted) {
    constexpr std::uint64_t kCarried =
        FI_COMPLETION | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE | FI_MORE | FI_INJECT;
    auto& endpoint = mine<Endpoint>(ep);
    if (message.rma_iov_count != 1 || (flags & ~kCarried) != 0 || !endpoint.serves_memory || !endpoint.has_memory) {
        surroundings->refuse(
            "a read or write of several regions, with immediate data or a fence, or of an endpoint "
            "without FI_TAGGED or FI_RMA",
            "it is not carried");
        return -FI_EOPNOTSUPP;
    }
    const std::lock_guard hold(endpoint.domain->lock);
    const auto code = (endpoint.remote.*operation)({message.addr,
                                                    {message.msg_iov, message.iov_count},
                                                    message.rma_iov[0].key,
                                                    message.rma_iov[0].addr,
                                                    message.context,
                                                    wanted});
    if (endpoint.sent != nullptr) endpoint.sent->wake();  // one of no bytes has ended already
    return code;
}

bool wants_completion(fid_ep* ep, std::uint64_t flags) {
    return !mine<Endpoint>(ep).selective_sends || (flags & FI_COMPLETION) != 0;
}

ssize_t readmsg(fid_ep* ep, const fi_msg_rma* message, std::uint64_t flags) {
    return carry(ep, &Remote::read, *message, flags, wants_completion(ep, flags));
}
ssize_t readv(fid_ep* ep, const iovec* parts, void**, std::size_t count, fi_addr_t from, std::uint64_t address,
              std::uint64_t key, void* context) {
    const fi_rma_iov region = {address, 0, key};
    const fi_msg_rma message = {parts, nullptr, count, from, &region, 1, context, 0};
    return readmsg(ep, &message, send_flags(ep));
}
ssize_t read(fid_ep* ep, void* bytes, std::size_t size, void*, fi_addr_t from, std::uint64_t address, std::uint64_t key,
             void* context) {
    const iovec one = piece(bytes, size);
    return readv(ep, &one, nullptr, 1, from, address, key, context);
}

/// A short write is copied at once, and no longer one is injected.
bool may_be_injected(fid_ep* ep, std::size_t size) {
    return size <= std::min(mine<Endpoint>(ep).inject_size, kShort);
}

ssize_t writemsg(fid_ep* ep, const fi_msg_rma* message, std::uint64_t flags) {
    if ((flags & FI_INJECT) != 0 && !may_be_injected(ep, total({message->msg_iov, message->iov_count}))) {
        return -FI_EMSGSIZE;
    }
    return carry(ep, &Remote::write, *message, flags, wants_completion(ep, flags));
}
ssize_t writev(fid_ep* ep, const iovec* parts, void**, std::size_t count, fi_addr_t to, std::uint64_t address,
               std::uint64_t key, void* context) {
    const fi_rma_iov region = {address, 0, key};
    const fi_msg_rma message = {parts, nullptr, count, to, &region, 1, context, 0};
    return writemsg(ep, &message, send_flags(ep));
}
ssize_t write(fid_ep* ep, const void* bytes, std::size_t size, void*, fi_addr_t to, std::uint64_t address,
              std::uint64_t key, void* context) {
    const iovec one = piece(bytes, size);
    return writev(ep, &one, nullptr, 1, to, address, key, context);
}
ssize_t inject(fid_ep* ep, const void* bytes, std::size_t size, fi_addr_t to, std::uint64_t address,
               std::uint64_t key) {
    if (!may_be_injected(ep, size)) return -FI_EMSGSIZE;
    const iovec one = piece(bytes, size);
    const fi_rma_iov region = {address, 0, key};
    return carry(ep, &Remote::write, {&one, nullptr, 1, to, &region, 1, nullptr, 0}, FI_INJECT, false);
}

}  // namespace on_fi_ops_rma

}  // namespace

#include "fi_ops_atomic.inc"
#include "fi_ops_collective.inc"
#include "fi_ops_mr.inc"
#include "fi_ops_rma.inc"

}  // namespace cryptmpi::fabric::libfabric
