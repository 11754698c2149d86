// Messages are sealed before the provider gets them, and kept while it takes none.
#include <algorithm>
#include <array>
#include <iterator>

#include "base/endian.hpp"
#include "fabric/libfabric/codes.hpp"
#include "fabric/libfabric/objects.hpp"

namespace cryptmpi::fabric::libfabric {
namespace {

// What a call may say that is the provider's business alone.
constexpr std::uint64_t kSendFlags = FI_COMPLETION | FI_INJECT_COMPLETE | FI_TRANSMIT_COMPLETE | FI_DELIVERY_COMPLETE |
                                     FI_MATCH_COMPLETE | FI_MORE | FI_FENCE | FI_REMOTE_CQ_DATA | FI_INJECT;

}  // namespace

/// Says so where it is none that can be sealed.
bool Endpoint::may_be_sent(const Outgoing& message) const {
    if ((message.flags & ~kSendFlags) != 0) {
        around().refuse("a send with flags of libfabric's that CryptMPI does not know", "flags in question");
        return false;
    }
    // protocol: F12
    if (message.kind == Kind::tagged && message.tag >= note_tag) {
        around().refuse("a message with one of CryptMPI's own tags", "it would be taken for one of ours");
        return false;
    }
    const bool has_data = (message.flags & FI_REMOTE_CQ_DATA) != 0;
    if (domain->tells_lengths && has_data && !message.is_head && message.data >> kLengthShift != 0) {
        around().refuse("immediate data of more than 4 bytes", "the provider shows 4 to the program");
        return false;
    }
    return true;
}

// HOT PATH
ssize_t Endpoint::send(const Outgoing& message) {
    if (!may_be_sent(message)) return -FI_EOPNOTSUPP;
    const std::size_t size = total(message.parts);
    if (size > message_size || (message.inject && size > inject_size)) return -FI_EMSGSIZE;
    Peer* const peer = peer_of(message.to);
    if (peer == nullptr) return -FI_EINVAL;
    if (!owed_.empty() && !flush(*peer)) return -FI_EAGAIN;
    const bool is_ours = message.kind == Kind::active;
    const bool wanted =
        !is_ours && !message.inject && !message.is_head && (!selective_sends || (message.flags & FI_COMPLETION) != 0);
    if (goes_in_pieces(message, size, *peer)) return send_in_pieces(message, size, wanted);
    return send_whole(message, size, *peer, wanted);
}

// HOT PATH
ssize_t Endpoint::send_whole(const Outgoing& message, std::size_t size, Peer& peer, bool wanted) {
    Operation& operation = take(Operation::Work::send, message.context, wanted);
    if (const int error = make_wire(operation, size + kOverhead, FI_SEND); error != 0) {
        give_back(operation);
        return error;
    }
    operation.kind = message.kind;
    operation.is_head = message.is_head;
    operation.tag = message.tag;
    operation.to = message.to;
    operation.to_peer = &peer;
    operation.data = message.data;
    operation.flags = message.flags;
    const auto bound = bound_of(message.is_head ? Beside::length : beside(message.flags), message.data);
    const auto sealed =
        party->seal(peer, {message.kind, message.tag, bound}, message.parts, size, operation.wire.data());
    if (!sealed) end(sealed.error().line);
    // It has its number now: when the provider cannot take it yet, it is ours to hand over, before any other to this
    // peer. Those to others need not wait: nobody is promised an order among peers.
    const ssize_t code = message.inject ? inject(operation) : hand_over(operation);
    if (code == -FI_EAGAIN) {
        owed_.push_back(&operation);
        return 0;
    }
    if (code != 0) give_back(operation);
    return code;
}

/// Who fetches has to know our address. A peer that has sent us something does.
bool Endpoint::goes_in_pieces(const Outgoing& message, std::size_t size, const Peer& peer) const {
    return size > kLongestAtOnce && message.kind == Kind::tagged && domain->tells_lengths && serves_memory &&
           !message.inject && (message.flags & FI_INJECT) == 0 && size >> kLengthShift == 0 && has_spoken(peer);
}

ssize_t Endpoint::send_in_pieces(const Outgoing& message, std::size_t size, bool wanted) {
    const bool has_data = (message.flags & FI_REMOTE_CQ_DATA) != 0;
    const std::uint64_t id = remote.offer({message.to, message.parts, 0, 0, message.context, wanted});
    std::array<std::uint8_t, kHeadSize> head;
    const std::uint64_t numbers[] = {id, size, has_data ? 1U : 0U};
    for (std::size_t i = 0; i < std::size(numbers); ++i) store_little(numbers[i], head.data() + i * sizeof numbers[0]);
    const iovec part = {head.data(), head.size()};
    Outgoing own = message;
    own.parts = {&part, 1};
    own.data = (has_data ? message.data : 0) | std::uint64_t{size} << kLengthShift;
    own.flags |= FI_REMOTE_CQ_DATA;
    own.context = nullptr;
    own.is_head = true;
    const ssize_t code = send(own);
    if (code != 0) remote.withdraw(id);
    return code;
}

ssize_t Endpoint::inject(Operation& operation) {
    const bool has_data = (operation.flags & FI_REMOTE_CQ_DATA) != 0;
    const void* const wire = operation.wire.data();
    const std::size_t size = operation.wire_size;
    ssize_t code = 0;
    if (operation.kind == Kind::tagged) {
        code = has_data ? real->tagged->injectdata(real, wire, size, operation.data, operation.to, operation.tag)
                        : real->tagged->inject(real, wire, size, operation.to, operation.tag);
    } else {
        code = has_data ? real->msg->injectdata(real, wire, size, operation.data, operation.to)
                        : real->msg->inject(real, wire, size, operation.to);
    }
    if (code == 0) {
        count(FI_SEND);
        give_back(operation);
    }
    return code;
}

ssize_t Endpoint::hand_over(Operation& operation) {
    iovec part = {operation.wire.data(), operation.wire_size};
    void* descriptor = operation.region != nullptr ? operation.region->mem_desc : nullptr;
    const std::uint64_t flags = (operation.flags & ~FI_INJECT) | FI_COMPLETION;
    if (operation.kind != Kind::message) {
        const fi_msg_tagged message = {&part,         &descriptor, 1,          operation.to,
                                       operation.tag, 0,           &operation, operation.data};
        return real->tagged->sendmsg(real, &message, flags);
    }
    const fi_msg message = {&part, &descriptor, 1, operation.to, &operation, operation.data};
    return real->msg->sendmsg(real, &message, flags);
}

/// False: the provider still does not take it.
bool Endpoint::hand_over_owed(Operation& operation) {
    const ssize_t code = hand_over(operation);
    if (code == 0 || code == -FI_EAGAIN) return code == 0;
    if (!remote.is_leaving() || !operation.is_ours()) {
        give_up("a sealed message could not be sent: " + text_of(code));
    }
    remote.lose(operation.to_peer);
    give_back(operation);
    return true;
}

void Endpoint::flush() {
    std::erase_if(owed_, [this](Operation* one) { return hand_over_owed(*one); });
}

/// False: one to this peer is still owed.
bool Endpoint::flush(const Peer& peer) {
    const auto one =
        std::find_if(owed_.begin(), owed_.end(), [&](const Operation* owed) { return owed->to_peer == &peer; });
    if (one == owed_.end()) return true;
    if (!hand_over_owed(**one)) return false;
    owed_.erase(one);
    return true;
}

}  // namespace cryptmpi::fabric::libfabric
