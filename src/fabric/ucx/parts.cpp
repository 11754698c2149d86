#include "fabric/ucx/parts.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "base/endian.hpp"

namespace cryptmpi::fabric::ucx {

void Place::write(std::uint8_t to[kPlaceSize]) const {
    store_little(message, to);
    store_little(begin, to + 8);
    store_little(whole, to + 16);
}

Place Place::read(const std::uint8_t from[kPlaceSize]) {
    return {load_little(from), load_little(from + 8), load_little(from + 16)};
}

std::optional<std::size_t> Place::size() const {
    if (whole <= kLongestWhole || begin >= whole || begin % kPart != 0) return std::nullopt;
    return std::min<std::uint64_t>(kPart, whole - begin);
}

std::uint8_t* Gathering::room_for(const Share& from, const Place& place) {
    const auto found = all_.find({from, place.message});
    if (found == all_.end() || found->second.bytes.size() != place.whole || !place.size()) return nullptr;
    return found->second.bytes.data() + place.begin;
}

// protocol: F21
Result<std::optional<engine::Buffer>> Gathering::add(const Share& from, std::uint16_t handler, const Place& place,
                                                     std::span<const std::uint8_t> part) {
    const Name name{from, place.message};
    if (place.size() != part.size()) return fail(EBADMSG, "is no part of a long message");
    auto found = all_.find(name);
    if (found == all_.end()) {
        const std::size_t parts = (place.whole - 1) / kPart + 1;
        try {
            Message made{handler, pool_.take(place.whole), std::vector<bool>(parts), parts};
            found = all_.emplace(name, std::move(made)).first;
        } catch (const std::bad_alloc&) {
            return fail(ENOMEM, "is of one for which there is no memory");
        }
    }
    Message& message = found->second;
    const std::size_t number = place.begin / kPart;
    if (message.handler != handler || message.bytes.size() != place.whole || message.has_come[number])
        return fail(EBADMSG, "is another part of a long message than one that is missing");
    std::uint8_t* const at = message.bytes.data() + place.begin;
    if (part.data() != at) std::memcpy(at, part.data(), part.size());
    message.has_come[number] = true;
    if (--message.missing != 0) return std::optional<engine::Buffer>();
    std::optional<engine::Buffer> all(std::move(message.bytes));
    all_.erase(found);
    return all;
}

}  // namespace cryptmpi::fabric::ucx
