// How endpoints are named, and found by their names.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "fabric/libfabric/table_making.hpp"

namespace cryptmpi::fabric::libfabric {
namespace {

/// A name is the provider's, then the share of the endpoint that it names.
namespace on_fi_ops_cm {

int getname(fid* shown, void* name, std::size_t* room) {
    if (shown->fclass != FI_CLASS_EP) return -FI_ENOSYS;
    auto& endpoint = mine<Endpoint>(as<fid_ep>(shown));
    std::array<std::uint8_t, 1024> own;
    std::size_t size = own.size();
    const int code = endpoint.real->cm->getname(&endpoint.real->fid, own.data(), &size);
    if (code != 0) return code;
    const std::size_t offered = std::exchange(*room, size + kShareSize);
    endpoint.domain->name_size = size;
    if (offered < *room) {
        if (offered >= size) {
            surroundings->refuse(fmt::format("fi_getname into {} bytes", offered),
                                 fmt::format("the provider's names have {}, and 32 of ours go with them", size));
        }
        return -FI_ETOOSMALL;
    }
    std::memcpy(name, own.data(), size);
    std::memcpy(static_cast<std::uint8_t*>(name) + size, endpoint.party->share().data(), kShareSize);
    return 0;
}

}  // namespace on_fi_ops_cm

namespace on_fi_ops_av {

int insert(fid_av* shown, const void* names, std::size_t count, fi_addr_t* made, std::uint64_t flags, void* context) {
    auto& addresses = mine<AddressVector>(shown);
    const std::size_t size = addresses.domain->name_size;
    if (size == 0) {
        surroundings->refuse("fi_av_insert before any fi_getname",
                             "the length of the provider's names is not known yet");
        return -FI_EOPNOTSUPP;
    }
    const auto* at = static_cast<const std::uint8_t*>(names);
    std::vector<std::uint8_t> own(size * count);
    std::vector<Share> shares(count);
    for (std::size_t i = 0; i < count; ++i, at += size + kShareSize) {
        std::memcpy(own.data() + i * size, at, size);
        std::memcpy(shares[i].data(), at + size, kShareSize);
    }
    std::vector<fi_addr_t> places(count, FI_ADDR_NOTAVAIL);
    const int code = addresses.real->ops->insert(addresses.real, own.data(), count, places.data(), flags, context);
    const std::lock_guard hold(addresses.domain->lock);
    for (std::size_t i = 0; code > 0 && i < count; ++i) {
        if (places[i] == FI_ADDR_NOTAVAIL) continue;
        addresses.add(places[i], shares[i]);
    }
    if (made != nullptr) std::copy(places.begin(), places.end(), made);
    return code;
}

int remove(fid_av* shown, fi_addr_t* places, std::size_t count, std::uint64_t flags) {
    auto& addresses = mine<AddressVector>(shown);
    const std::lock_guard hold(addresses.domain->lock);
    const int code = addresses.real->ops->remove(addresses.real, places, count, flags);
    if (code != 0) return code;
    for (std::size_t i = 0; i < count; ++i) addresses.remove(places[i]);
    return 0;
}

int lookup(fid_av* shown, fi_addr_t place, void* name, std::size_t* room) {
    auto& addresses = mine<AddressVector>(shown);
    const std::lock_guard hold(addresses.domain->lock);
    std::array<std::uint8_t, 1024> own;
    std::size_t size = own.size() - kShareSize;
    const int code = addresses.real->ops->lookup(addresses.real, place, own.data(), &size);
    const auto share = addresses.shares.find(place);
    if (code != 0 || share == addresses.shares.end()) return code != 0 ? code : -FI_EINVAL;
    std::memcpy(own.data() + size, share->second.data(), kShareSize);
    const std::size_t offered = std::exchange(*room, size + kShareSize);
    std::memcpy(name, own.data(), std::min(offered, *room));
    return 0;
}

}  // namespace on_fi_ops_av

}  // namespace

#include "fi_ops_av.inc"
#include "fi_ops_cm.inc"

}  // namespace cryptmpi::fabric::libfabric
