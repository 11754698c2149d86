// Messages are opened from buffers of ours into the program's; those of ours, about memory, go to remote.hpp.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <new>

#include "base/endian.hpp"
#include "fabric/libfabric/objects.hpp"
#include "fabric/slice.hpp"

namespace cryptmpi::fabric::libfabric {
namespace {

// What a call may say that is the provider's business alone.
constexpr std::uint64_t kReceiveFlags =
    FI_COMPLETION | FI_MORE | FI_MULTI_RECV | FI_PEEK | FI_CLAIM | FI_DISCARD | FI_SEND | FI_RECV | FI_TAGGED | FI_MSG;
// Messages in one buffer begin where numbers of any size may.
constexpr std::size_t kAlignment = 8;
// How many notes of peers may come before we look.
constexpr std::size_t kListening = 4;
// How much longer than its receive a message may be for the provider to have room: memory that it has to know costs
// time.
constexpr std::size_t kMostBeyond = std::size_t{64} << 10;

}  // namespace

ssize_t Endpoint::receive(const Incoming& wanted) {
    if ((wanted.flags & ~kReceiveFlags) != 0) {
        around().refuse("a receive with flags of libfabric's that CryptMPI does not know", "flags in question");
        return -FI_EOPNOTSUPP;
    }
    if ((wanted.flags & FI_PEEK) != 0) return peek(wanted);
    if ((wanted.flags & FI_CLAIM) != 0) return claim(wanted);
    const bool is_wanted = !selective_receives || (wanted.flags & FI_COMPLETION) != 0;
    const bool several = wanted.kind != Kind::tagged && (wanted.flags & FI_MULTI_RECV) != 0;
    const std::size_t size = total(wanted.parts);
    const auto work = several                       ? Operation::Work::several
                      : wanted.kind == Kind::tagged ? Operation::Work::tagged
                                                    : Operation::Work::message;
    Operation& operation = take(work, wanted.context, is_wanted);
    operation.into.assign(wanted.parts.begin(), wanted.parts.end());
    if (const int error = make_room(operation, size); error != 0) {
        give_back(operation);
        return error;
    }
    return post(operation, wanted, wanted.flags);
}

/// In a buffer of several, each message is shorter when it is opened: all fit into the program's, which is as large.
/// Where the head of a long message may come, there is room for it.
std::size_t Endpoint::wire_for(Operation::Work work, std::size_t size) const {
    if (work == Operation::Work::several) return size;
    const bool may_be_head = work == Operation::Work::tagged && domain->tells_lengths;
    return (may_be_head ? std::max(size, kHeadSize) : size) + kOverhead;
}

/// A buffer for a message of the program's, which gets more of the memory that is there: one that is too long, or was
/// made longer on the way, then mostly comes, and opens or does not. A buffer for several messages is as large as the
/// program's, so that both are full together.
int Endpoint::make_room(Operation& operation, std::size_t size) {
    operation.wire = domain->wires.take(wire_for(operation.work, size));
    const std::size_t wanted = operation.wire.size();
    operation.wire_size =
        operation.work == Operation::Work::several ? wanted : std::min(operation.wire.room(), wanted + kMostBeyond);
    return register_wire(operation, FI_RECV);
}

ssize_t Endpoint::post(Operation& operation, const Incoming& wanted, std::uint64_t flags) {
    operation.to = wanted.from;
    // A claim takes the message that was looked at, whatever source and tag it names: Open MPI names none of its own.
    const bool is_claim = (flags & (FI_PEEK | FI_CLAIM)) == FI_CLAIM;
    const bool names_source = directed && !is_claim && wanted.from != FI_ADDR_UNSPEC;
    iovec part = {operation.wire.data(), operation.wire_size};
    void* descriptor = operation.region != nullptr ? operation.region->mem_desc : nullptr;
    const std::size_t parts = operation.wire_size > 0 ? 1 : 0;
    const std::uint64_t real_flags = flags | FI_COMPLETION;
    const Peer* const from = names_source ? peer_of(wanted.from) : nullptr;
    if (names_source && from == nullptr) {
        give_back(operation);
        return -FI_EINVAL;
    }
    if (!is_claim) operation.from = from;
    ssize_t code = 0;
    if (wanted.kind == Kind::tagged) {
        const bool has_place = operation.work == Operation::Work::tagged || operation.work == Operation::Work::claimed;
        if (has_place && !operation.posted.waits()) {
            party->post(operation.posted, {wanted.tag, ~wanted.ignore, from, from != nullptr && wanted.ignore == 0});
        }
        const fi_msg_tagged message = {&part,      &descriptor,   parts,      wanted.from,
                                       wanted.tag, wanted.ignore, &operation, 0};
        code = real->tagged->recvmsg(real, &message, real_flags);
    } else {
        const fi_msg message = {&part, &descriptor, parts, wanted.from, &operation, 0};
        code = real->msg->recvmsg(real, &message, real_flags);
    }
    if (code != 0) give_back(operation);
    return code;
}

/// A look at what waits. With FI_CLAIM, what is found is held for a receive with the same context: its place in the
/// order is that of the look.
ssize_t Endpoint::peek(const Incoming& wanted) {
    if (wanted.kind != Kind::tagged || (wanted.flags & FI_DISCARD) != 0) {
        around().refuse("FI_PEEK with FI_DISCARD, or of untagged messages", "what nobody opens is missed by its flow");
        return -FI_EOPNOTSUPP;
    }
    const bool claims = (wanted.flags & FI_CLAIM) != 0;
    Operation& operation = take(claims ? Operation::Work::claimed : Operation::Work::peek, wanted.context, true);
    operation.wire_size = 0;
    return post(operation, wanted, wanted.flags);
}

ssize_t Endpoint::claim(const Incoming& wanted) {
    const auto found = std::find_if(all_.begin(), all_.end(), [&](const auto& operation) {
        return operation->work == Operation::Work::claimed && operation->context == wanted.context;
    });
    if (found == all_.end()) return -FI_EINVAL;
    Operation& operation = **found;
    // What is discarded is opened all the same: its flow would miss it.
    operation.discard = (wanted.flags & FI_DISCARD) != 0;
    operation.into.assign(wanted.parts.begin(), wanted.parts.end());
    operation.wanted = !selective_receives || (wanted.flags & FI_COMPLETION) != 0;
    // Not longer than the message that was found: udp;ofi_rxd (libfabric 2.5.1) takes a longer receive for a message
    // that was cut off. Of its length nobody knows yet whether it is authentic, so that a receive gets no more memory
    // than any other. What is discarded is opened whole.
    const std::size_t most = operation.discard ? operation.filled : total(wanted.parts) + kMostBeyond;
    const std::size_t size = std::min(operation.filled, most) + kOverhead;
    try {
        if (const int error = make_wire(operation, size, FI_RECV); error != 0) return error;
    } catch (const std::bad_alloc&) {
        const std::string line = fmt::format(
            "a message of {} bytes, as the network says, is longer than there is memory for: it was altered, or is too "
            "long",
            operation.filled);
        end(line);
    }
    operation.work = Operation::Work::tagged;
    return post(operation, wanted, wanted.flags & ~FI_DISCARD);
}

ssize_t Endpoint::cancel(void* context) {
    const auto found = std::find_if(all_.begin(), all_.end(), [&](const auto& operation) {
        const auto work = operation->work;
        return operation->context == context && work != Operation::Work::unused && work != Operation::Work::send &&
               work != Operation::Work::note && work != Operation::Work::piece && work != Operation::Work::fetching;
    });
    if (found == all_.end()) return -FI_ENOENT;
    (*found)->posted.ask_to_cancel();
    return real->ops->cancel(&real->fid, found->get());
}

/// Where a message lies that came to the operation.
const std::uint8_t* Endpoint::wire_of(const Operation& operation, const fi_cq_tagged_entry& entry) const {
    const bool several = operation.work == Operation::Work::several;
    const std::uint8_t* const wire = several ? static_cast<const std::uint8_t*>(entry.buf) : operation.wire.data();
    const std::uint8_t* const begin = operation.wire.data();
    if (entry.len < kOverhead || entry.len > operation.wire_size) {
        end(fmt::format("a message of {} bytes came, shorter than any that is sealed", entry.len));
    }
    if (several && (wire < begin || wire + entry.len > begin + operation.wire_size)) {
        end("the provider names a message outside of the buffer that it got");
    }
    return wire;
}

/// Opens what came to the operation into the program's memory. What does not open ends the job.
Peer* Endpoint::open_into(Operation& operation, const fi_cq_tagged_entry& entry) {
    const bool several = operation.work == Operation::Work::several;
    const std::uint8_t* const wire = wire_of(operation, entry);
    const std::size_t size = entry.len - kOverhead;
    const auto bound = bound_of(beside(entry.flags), entry.data);
    std::vector<iovec> into;
    engine::Buffer scratch;
    if (several) {
        into = {{static_cast<char*>(operation.into[0].iov_base) + operation.filled, size}};
        operation.filled += (size + kAlignment - 1) / kAlignment * kAlignment;
    } else if (operation.discard || total(operation.into) < size) {
        scratch = domain->pool.take(size + 1);
        into = {{scratch.data(), size}};
    } else {
        into = slice(operation.into, 0, size);
    }
    const auto sender = operation.work == Operation::Work::tagged
                            ? party->open(operation.posted, entry.tag, bound, wire, entry.len, into)
                            : party->open({Kind::message, 0, bound}, wire, entry.len, into);
    if (!sender) {
        // Without its end nothing of a message can be authentic, not even that it was longer.
        const bool may_be_cut = !several && entry.len == operation.wire_size;
        end(fmt::format("a message of {} bytes {}{}", size, sender.error().line,
                        may_be_cut ? ", or longer than its receive, which some providers do not tell" : ""));
    }
    if (operation.from != nullptr && operation.from != *sender) {
        end(fmt::format("a message of {} bytes came to a receive for another sender", size));
    }
    return *sender;
}

bool Endpoint::is_head(const fi_cq_tagged_entry& entry) const {
    return domain->tells_lengths && (entry.flags & FI_REMOTE_CQ_DATA) != 0 && entry.data >> kLengthShift != 0;
}

// protocol: F20
/// A long message begins here: its pieces are fetched into the program's memory. One that does not fit is not.
void Endpoint::take_head(Operation& operation, const fi_cq_tagged_entry& entry) {
    const std::uint8_t* const wire = wire_of(operation, entry);
    std::array<std::uint8_t, kHeadSize> head;
    const iovec into = {head.data(), head.size()};
    if (entry.len != kHeadSize + kOverhead) end("the head of a message has another length than any");
    const auto sender =
        party->open(operation.posted, entry.tag, bound_of(Beside::length, entry.data), wire, entry.len, {&into, 1});
    if (!sender) end("the head of a long message " + sender.error().line);
    if (operation.from != nullptr && operation.from != *sender) {
        end("the head of a long message came to a receive for another sender");
    }
    const std::uint64_t id = load_little(head.data());
    const std::uint64_t size = load_little(head.data() + sizeof id);
    const bool has_data = load_little(head.data() + 2 * sizeof id) == 1;
    if (size != entry.data >> kLengthShift) end("a long message has another length than its head tells");
    operation.sender = address_of(*sender);
    if (operation.sender == FI_ADDR_NOTAVAIL) end("a long message comes from a peer whose address is not known");
    operation.end = entry;
    operation.end.op_context = operation.context;
    operation.end.len = operation.discard ? 0 : size;
    operation.end.buf = operation.into.empty() ? nullptr : operation.into[0].iov_base;
    operation.end.data = has_data ? entry.data & kDataBits : 0;
    if (!has_data) operation.end.flags &= ~FI_REMOTE_CQ_DATA;
    const bool fits = size <= total(operation.into);
    if (fits && !operation.discard) {
        operation.work = Operation::Work::fetching;
        operation.wire = {};
        remote.fetch(operation.sender, id, size, slice(operation.into, 0, size), operation);
        return;
    }
    remote.drop(operation.sender, id);
    if (!operation.discard) tell_cut_off(operation, operation.end, size);
    if (operation.discard && operation.wanted) received->ready.push_back({operation.end, operation.sender});
    give_back(operation);
}

void Endpoint::end_fetching(Operation& operation) {
    if (operation.wanted) received->ready.push_back({operation.end, operation.sender});
    give_back(operation);
}

void Endpoint::tell_cut_off(const Operation& operation, const fi_cq_tagged_entry& entry, std::size_t size) {
    fi_cq_err_entry error = {};
    error.op_context = operation.context;
    error.flags = entry.flags;
    error.len = total(operation.into);
    error.olen = size - error.len;
    error.buf = operation.into.empty() ? nullptr : operation.into[0].iov_base;
    error.data = entry.data;
    error.tag = entry.tag;
    error.err = FI_ETRUNC;
    received->failed.push_back(error);
}

/// What comes is kept for the receive that names it: of a long message its head.
void Endpoint::tell_peeked(Operation& operation, fi_cq_tagged_entry& entry) {
    if (entry.len < kOverhead) end("a message came that is shorter than any that is sealed");
    operation.filled = entry.len - kOverhead;
    entry.len = is_head(entry) ? entry.data >> kLengthShift : operation.filled;
    if (is_head(entry)) entry.data &= kDataBits;
    entry.buf = nullptr;
    if (operation.work == Operation::Work::peek) give_back(operation);
}

// HOT PATH
/// False: the message is longer than its receive, which the program is told by an error.
bool Endpoint::deliver(Operation& operation, fi_cq_tagged_entry& entry, fi_addr_t& from) {
    const Peer* const sender = open_into(operation, entry);
    const std::size_t size = entry.len - kOverhead;
    entry.data = (entry.flags & FI_REMOTE_CQ_DATA) != 0 ? carried(entry.data) : 0;
    const bool fits = operation.discard || size <= total(operation.into);
    if (fits) {
        entry.len = operation.discard ? 0 : size;
        entry.buf = operation.into.empty() ? nullptr : operation.into[0].iov_base;
        from = address_of(sender);
    } else {
        tell_cut_off(operation, entry, size);
    }
    give_back(operation);
    return fits;
}

/// A message into a buffer for many, or the end of that buffer, or both.
void Endpoint::deliver_one_of_several(Operation& operation, fi_cq_tagged_entry& entry, fi_addr_t& from) {
    if ((entry.flags & FI_RECV) != 0) {
        const std::size_t at = operation.filled;
        const Peer* const sender = open_into(operation, entry);
        entry.data = (entry.flags & FI_REMOTE_CQ_DATA) != 0 ? carried(entry.data) : 0;
        entry.len -= kOverhead;
        entry.buf = operation.into.empty() ? nullptr : static_cast<char*>(operation.into[0].iov_base) + at;
        from = address_of(sender);
    }
    if ((entry.flags & FI_MULTI_RECV) != 0) give_back(operation);
}

/// The flow of a message that was cut off does not miss it. Of whom it is stands at its beginning, if anything came:
/// some providers do not say how much they wrote, and of one among several nobody knows where it lies.
void Endpoint::excuse(Operation& operation, std::uint64_t tag) {
    const bool is_untagged = operation.work == Operation::Work::message || operation.work == Operation::Work::several;
    if (!is_untagged && operation.work != Operation::Work::tagged) return;
    const bool several = operation.work == Operation::Work::several;
    const std::uint8_t* const wire = operation.wire.data();
    const std::size_t size = several ? 0 : operation.wire_size;
    const auto cut = is_untagged ? party->cut_off(wire, size) : party->cut_off(operation.posted, tag, wire, size);
    if (!cut) end("a message that was cut off " + cut.error().line);
}

void Endpoint::listen() {
    while (serves_memory && listening_ < kListening) {
        Operation& operation = take(Operation::Work::note, nullptr, false);
        int error = make_wire(operation, kNoteSize + kShort + kOverhead, FI_RECV);
        if (error != 0) {
            give_back(operation);
        } else {
            operation.tag = note_tag;
            error =
                static_cast<int>(post(operation, {Kind::tagged, {}, FI_ADDR_UNSPEC, operation.tag, 0, 0, nullptr}, 0));
        }
        if (error != 0 && error != -FI_EAGAIN) serves_memory = false;
        if (error != 0) return;
        ++listening_;
    }
}

ssize_t Endpoint::expect_piece(std::uint64_t transfer, std::size_t at, std::size_t size, std::uint64_t id) {
    Operation& operation = take(Operation::Work::piece, nullptr, false);
    if (const int error = make_wire(operation, kPieceHeader + size + kOverhead, FI_RECV); error != 0) {
        give_back(operation);
        return error;
    }
    operation.tag = piece_tag(id);
    operation.transfer = transfer;
    operation.at = at;
    return post(operation, {Kind::tagged, {}, FI_ADDR_UNSPEC, operation.tag, 0, 0, nullptr}, 0);
}

// protocol: F12
Peer* Endpoint::open_ours(const Operation& operation, const fi_cq_tagged_entry& entry, std::span<const iovec> into) {
    const auto bound = bound_of(beside(entry.flags), entry.data);
    const auto sender = party->open({Kind::active, operation.tag, bound}, operation.wire.data(), entry.len, into);
    if (!sender) end(fmt::format("a message about memory, of {} bytes, {}", entry.len, sender.error().line));
    return *sender;
}

/// The receive waits on for the next one.
void Endpoint::take_note(Operation& operation, const fi_cq_tagged_entry& entry) {
    wire_of(operation, entry);
    const std::size_t size = entry.len - kOverhead;
    engine::Buffer note = domain->pool.take(size + 1);
    const iovec into = {note.data(), size};
    const Peer* const sender = open_ours(operation, entry, {&into, size == 0 ? 0U : 1U});
    --listening_;
    give_back(operation);
    listen();
    remote.take_note(sender, {note.data(), size});
}

void Endpoint::take_piece(Operation& operation, const fi_cq_tagged_entry& entry) {
    wire_of(operation, entry);
    const std::size_t size = entry.len - kOverhead;
    if (size < kPieceHeader) end("a piece of memory is shorter than any");
    std::array<std::uint8_t, kPieceHeader> header;
    engine::Buffer scratch = domain->pool.take(size);
    auto into = remote.room_for(operation.transfer, operation.at, size - kPieceHeader, scratch.data());
    into.insert(into.begin(), {header.data(), header.size()});
    const Peer* const sender = open_ours(operation, entry, into);
    if (sender != peer_of(remote.sender_of(operation.transfer))) end("a piece of memory comes from another peer");
    if (header[0] != 1) around().give_up("MPI reads memory that the peer has not registered for it");
    if (entry.len != operation.wire_size) end("a piece of memory has another length than was asked for");
    const std::uint64_t transfer = operation.transfer;
    const std::size_t at = operation.at;
    give_back(operation);
    remote.take_piece(transfer, at, {scratch.data(), size - kPieceHeader});
}

}  // namespace cryptmpi::fabric::libfabric
