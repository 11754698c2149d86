#include "fabric/libfabric/objects.hpp"

#include <utility>

namespace cryptmpi::fabric::libfabric {

void AddressVector::add(fi_addr_t place, const Share& share) {
    const auto [known, is_new] = shares.try_emplace(place, share);
    // The provider has one place for a name, and a process that took another's port is another.
    if (!is_new && known->second != share) {
        remove(place);
        shares.emplace(place, share);
    }
    places.try_emplace(share, place);
}

void AddressVector::remove(fi_addr_t place) {
    const auto known = shares.find(place);
    if (known == shares.end()) return;
    const Share share = known->second;
    shares.erase(known);
    ++removals;
    if (place_of(share) != place) return;
    places.erase(share);
    for (const auto& [other, its_share] : shares) {
        if (its_share == share) places.try_emplace(share, other);
    }
}

fi_addr_t AddressVector::place_of(const Share& share) const {
    const auto known = places.find(share);
    return known == places.end() ? FI_ADDR_NOTAVAIL : known->second;
}

const Region* Domain::region_of(std::uint64_t key, std::uint64_t address, std::size_t size,
                                std::uint64_t access) const {
    const auto found = shown_regions.find(key);
    if (found == shown_regions.end()) return nullptr;
    const Region& region = *found->second;
    const bool inside = address >= region.begin && address - region.begin <= region.size &&
                        size <= region.size - (address - region.begin);
    return (region.access & access) != 0 && inside ? &region : nullptr;
}

void Domain::close_regions() {
    for (const auto& operation : orphans) {
        fid_mr* const region = std::exchange(operation->region, nullptr);
        if (region != nullptr) region->fid.ops->close(&region->fid);
    }
}

}  // namespace cryptmpi::fabric::libfabric
