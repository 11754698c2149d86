#include "fabric/libfabric/reads.hpp"

#include <rdma/fi_rma.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/endian.hpp"
#include "fabric/libfabric/objects.hpp"

namespace cryptmpi::fabric::libfabric {
namespace {

constexpr std::size_t kNumbers = 5;
constexpr std::size_t kHeader = kNumbers * sizeof(std::uint64_t);
// What every buffer of the program's has room for, and how many messages of ours may wait in the provider.
constexpr std::size_t kLeastRoom = 512;
constexpr std::uint64_t kMostInFlight = 64;

std::size_t total(std::span<const iovec> parts) {
    std::size_t size = 0;
    for (const iovec& part : parts) size += part.iov_len;
    return size;
}

void copy_to(std::span<const iovec> into, std::size_t offset, std::span<const std::uint8_t> bytes) {
    for (const iovec& part : into) {
        if (offset >= part.iov_len) {
            offset -= part.iov_len;
            continue;
        }
        const std::size_t size = std::min(part.iov_len - offset, bytes.size());
        if (size != 0) std::memcpy(static_cast<char*>(part.iov_base) + offset, bytes.data(), size);
        bytes = bytes.subspan(size);
        offset = 0;
    }
}

}  // namespace

/// A part fits into what is left of each buffer that the peer's program has for messages: it is the same program.
std::size_t Reads::most_in_part() const {
    return std::min(std::max(endpoint_.least_room, kLeastRoom), endpoint_.message_size) - kHeader;
}

std::int64_t Reads::tell(std::uint64_t to, What what, std::uint64_t id, std::span<const std::uint64_t> numbers,
                         iovec bytes) {
    std::array<std::uint8_t, kHeader> header = {};
    store_little(static_cast<std::uint64_t>(what), header.data());
    store_little(id, header.data() + sizeof id);
    for (std::size_t i = 0; i < numbers.size(); ++i) store_little(numbers[i], header.data() + (i + 2) * sizeof id);
    const iovec parts[] = {{header.data(), header.size()}, bytes};
    const auto code = endpoint_.send({Kind::active, parts, to, 0, kOurData, FI_REMOTE_CQ_DATA, nullptr, false});
    if (code == 0) ++in_flight_;
    return code;
}

std::int64_t Reads::ask(const Wish& wish) {
    const std::size_t size = total(wish.into);
    const Peer* const of = endpoint_.peer_of(wish.from);
    if (of == nullptr) return -FI_EINVAL;
    Asked asked = {of, {wish.into.begin(), wish.into.end()}, size, 0, wish.context, wish.wanted};
    if (size == 0) {
        complete(asked);
        return 0;
    }
    const std::uint64_t numbers[] = {wish.key, wish.address, size};
    const auto code = tell(wish.from, What::ask, last_id_ + 1, numbers, {});
    if (code == 0) asked_.emplace(++last_id_, std::move(asked));
    return code;
}

void Reads::came(Peer* peer, std::span<const std::uint8_t> message) {
    if (message.size() < kHeader) endpoint_.end("a message about a read is too short");
    std::array<std::uint64_t, kNumbers> said;
    for (std::size_t i = 0; i < kNumbers; ++i) said[i] = load_little(message.data() + i * sizeof said[0]);
    switch (static_cast<What>(said[0])) {
        case What::ask: {
            const std::uint64_t to = endpoint_.address_of(peer);
            if (to == FI_ADDR_NOTAVAIL) endpoint_.end("a peer whose address is not known asks for memory");
            answers_.push_back({to, said[1], said[2], said[3], said[4], 0});
            return go_on();
        }
        case What::part:
            return take_part(peer, said[1], said[2], message.subspan(kHeader));
        case What::none:
            endpoint_.around().give_up("MPI reads memory that the peer has not registered for it");
    }
    endpoint_.end("a message about a read says what no CryptMPI says");
}

void Reads::take_part(Peer* peer, std::uint64_t id, std::uint64_t offset, std::span<const std::uint8_t> bytes) {
    const auto found = asked_.find(id);
    if (found == asked_.end() || found->second.of != peer) endpoint_.end("a peer sends what nobody asked it for");
    Asked& asked = found->second;
    if (offset > asked.size || bytes.size() > asked.size - offset || bytes.size() > asked.size - asked.got) {
        endpoint_.end("a peer sends more than it was asked for");
    }
    copy_to(asked.into, offset, bytes);
    asked.got += bytes.size();
    if (asked.got < asked.size) return;
    complete(asked);
    asked_.erase(found);
}

void Reads::complete(const Asked& asked) {
    if (asked.wanted) endpoint_.sent->ready.push_back({asked.context, FI_RMA | FI_READ, 0, nullptr, 0, 0});
}

void Reads::go_on() {
    while (!answers_.empty() && in_flight_ < kMostInFlight) {
        Answer& one = answers_.front();
        if (answer(one) != 0) return;
        if (one.done == one.size) answers_.pop_front();
    }
}

/// One message of it. The region is looked for each time: the program may have closed it.
std::int64_t Reads::answer(Answer& one) {
    const Region* const region = endpoint_.domain->readable(one.key, one.address, one.size);
    if (region == nullptr) {
        const auto code = tell(one.to, What::none, one.id, {}, {});
        if (code == 0) one.done = one.size;
        return code;
    }
    const std::size_t size = std::min(one.size - one.done, most_in_part());
    const std::uint64_t numbers[] = {one.done};
    const std::uint64_t at = one.address - region->begin + one.done;
    const auto code = tell(one.to, What::part, one.id, numbers, {region->memory + at, size});
    if (code == 0) one.done += size;
    return code;
}

}  // namespace cryptmpi::fabric::libfabric
