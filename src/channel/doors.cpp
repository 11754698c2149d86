#include "channel/doors.hpp"

#include <dlfcn.h>

namespace cryptmpi::channel {

Doors::Doors(bool open) {
    if (!open) return;
    carries_ = reinterpret_cast<Carries>(dlsym(RTLD_DEFAULT, "cryptmpi_fabric_carries"));
    is_opening_ = reinterpret_cast<IsOpening>(dlsym(RTLD_DEFAULT, "cryptmpi_fabric_is_opening"));
}

void Doors::opened(const std::string& device) {
    const std::lock_guard guard(lock_);
    devices_.insert(device);
}

bool Doors::has_opened(const std::string& device) const {
    const std::lock_guard guard(lock_);
    return devices_.contains(device);
}

}  // namespace cryptmpi::channel
