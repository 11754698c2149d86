// dlsym and dlvsym, as Intel MPI asks for libfabric's functions: it gets ours where it would have got libfabric's.
#include <dlfcn.h>
#include <link.h>

#include <cstring>

#include "fabric/libfabric/entries.hpp"
#include "fabric/libfabric/lookups.hpp"
#include "loader/loaded.hpp"

namespace cryptmpi::fabric::libfabric {
namespace {

/// RTLD_DEFAULT finds us by itself, if it finds libfabric at all, and RTLD_NEXT does for who stands before us. For who
/// stands behind us it would go past us, and should where he has the function himself: we call him, and he calls on.
bool concerns_us(const void* handle, const char* name, const void* caller) {
    if (name == nullptr || std::strncmp(name, "fi_", 3) != 0 || handle == RTLD_DEFAULT) return false;
    if (handle != RTLD_NEXT) return true;
    const link_map* const object = loader::object_with(caller);
    const link_map* const own = loader::object_with(reinterpret_cast<const void*>(&libcs_dlsym));
    return object != nullptr && own != nullptr && loader::comes_behind(*object, *own) &&
           loader::function_of(*object, name) == nullptr;
}

/// What to answer where libc answers `found`; `go_on` is null when that is the answer.
void* answer(const char* name, void* found, void** go_on) {
    void* const ours = found != nullptr ? entry_for(name, found) : nullptr;
    if (ours != nullptr) *go_on = nullptr;
    return ours;
}

}  // namespace
}  // namespace cryptmpi::fabric::libfabric

using namespace cryptmpi::fabric::libfabric;

/// Called by dlsym in lookups.S: what to answer, or in `go_on` the dlsym to go on to.
extern "C" void* cryptmpi_find_fabric_symbol(void* handle, const char* name, void*, void** go_on, const void* caller) {
    *go_on = reinterpret_cast<void*>(libcs_dlsym());
    if (!concerns_us(handle, name, caller)) return nullptr;
    void* const found = handle == RTLD_NEXT ? function_without_us(name, nullptr) : real_dlsym(handle, name);
    return answer(name, found, go_on);
}

extern "C" void* cryptmpi_find_fabric_version(void* handle, const char* name, const char* version, void** go_on,
                                              const void* caller) {
    *go_on = reinterpret_cast<void*>(libcs_dlvsym());
    if (!concerns_us(handle, name, caller)) return nullptr;
    void* const found = handle == RTLD_NEXT ? function_without_us(name, version) : real_dlvsym(handle, name, version);
    return answer(name, found, go_on);
}
